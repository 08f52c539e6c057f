"""Look-ups in a simulated flow: every row of a view is found by its key, after any merge, loss and reopening."""

from __future__ import annotations

from contextlib import suppress

from holdfast.errors import EpochUnavailable, LogDamaged, LogUnreadable
from holdfast.runtime.engine import Engine
from holdfast.task.key_lookup import question
from holdfast.task.view_log import ViewLog
from holdfast.testing.simulator.world import Broken, bag_of
from holdfast.trace.name import ALL


def check_beside(engine: Engine) -> None:
    """Look rows up as another thread does, in layers that stay open from one look-up to the next; in one view per
    epoch, in turn. Damage that no one has found yet is ignored here."""
    if not engine.live.reads_layers or engine.live.last < 0:
        return
    views = list(engine.declared.views)
    view = views[engine.live.last % len(views)]
    with suppress(LogDamaged, LogUnreadable, EpochUnavailable):
        kept, at = engine.live.kept(view, None)
        _check(view, kept, at, engine, beside=True)


def check_in_turn(engine: Engine) -> None:
    """Look rows up as the flow's own calls do, on whichever members keep them."""
    for view in engine.declared.views:
        kept, at = engine.views.readable(view, None)
        _check(view, kept, at, engine, beside=False)


def _check(view: str, kept: ViewLog, at: int, engine: Engine, *, beside: bool) -> None:
    rows = kept.rows(0, ALL, at)
    asked = question(view, kept.fields, kept.spec.key, rows, {}, scan=not kept.spec.key)
    found = engine.live.lookup(view, asked, at) if beside else engine.views.lookup(view, asked, at)
    if bag_of(found.table) != bag_of(rows):
        raise Broken(f"view {view} as of epoch {at}: {len(found)} rows are found by their keys, of {rows.num_rows}")
