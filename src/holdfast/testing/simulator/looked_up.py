"""Look-ups in a simulated flow: every row of a view is found by its key, whatever was merged, lost and opened again."""

from __future__ import annotations

from contextlib import suppress

from holdfast.errors import EpochUnavailable, LogDamaged, LogUnreadable
from holdfast.runtime.engine import Engine
from holdfast.task.key_lookup import question
from holdfast.task.view_log import ViewLog
from holdfast.testing.simulator.world import Broken, bag_of
from holdfast.trace.name import ALL


def check_beside(engine: Engine) -> None:
    """As another thread looks rows up, in layers that stay open from one look-up to the next: in one view, another one
    after each epoch. Damage that is not found yet is no matter of this."""
    if not engine.live.reads_layers or engine.live.last < 0:
        return
    views = list(engine.declared.views)
    view = views[engine.live.last % len(views)]
    with suppress(LogDamaged, LogUnreadable, EpochUnavailable):
        kept, at = engine.live.kept(view, None)
        _check(view, kept, at, engine, beside=True)


def check_in_turn(engine: Engine) -> None:
    """As a flow looks rows up in its turn, wherever members keep them."""
    for view in engine.declared.views:
        kept, at = engine.views.readable(view, None)
        _check(view, kept, at, engine, beside=False)


def _check(view: str, kept: ViewLog, at: int, engine: Engine, *, beside: bool) -> None:
    rows = kept.rows(0, ALL, at)
    asked = question(view, kept.fields, kept.spec.key, rows, {}, scan=not kept.spec.key)
    found = engine.live.lookup(view, asked, at) if beside else engine.views.lookup(view, asked, at)
    if bag_of(found.table) != bag_of(rows):
        raise Broken(f"view {view} as of epoch {at}: {len(found)} rows are found by their keys, of {rows.num_rows}")
