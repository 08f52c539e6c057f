"""The changes of a view since an epoch, even if the view was edited in between.

The content of a view as of an epoch is the rows of the log of its version at that epoch
(`coordinator/view_versions.py`). Its changes since then are the changes of these logs and, for each edit, the
difference between two logs at the epoch that recorded the edit. Adding them to the rows as of ``since`` gives the
present rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.coordinator.view_versions import Span, ViewVersion
from holdfast.errors import EpochUnavailable, LogDamaged, MemberUnreachable
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.task.log_difference import difference
from holdfast.task.view_log import ViewLog
from holdfast.trace.name import ALL


@dataclass(frozen=True)
class LoggedSpan:
    """The changes of a log with after < epoch ≤ upto."""

    kept: ViewLog
    after: int
    upto: int


@dataclass(frozen=True)
class EditedChange:
    """The change of an edit, at its epoch: columns by position, and ``_diff``."""

    epoch: int
    change: pa.Table


def as_it_was(view: str, epoch: int, former: tuple[Span, int], now: ViewVersion) -> tuple[ViewVersion, int]:
    """Return the version that a view had as of an epoch before an edit, and the epoch as of which to read its log. A
    view that was dropped at that epoch has its last content before the drop. Raise `EpochUnavailable` if its columns
    had other types then, or their names belonged to other columns."""
    span, edited = former
    if not span.version.fits(now):
        raise EpochUnavailable(
            f"view '{view}': it was edited at epoch {edited}, and as of epoch {epoch} it had other columns "
            f"({span.version.columns}, and now {now.columns}): it cannot be read as of then under its present "
            "definition",
            view=view,
            epoch=epoch,
            earliest=edited,
        )
    return span.version, epoch if span.last is None else min(epoch, span.last)


def not_kept(view: str, epoch: int, edited: int) -> EpochUnavailable:
    """Return the error that a view's rows from before an edit are not kept any more."""
    return EpochUnavailable(
        f"view '{view}': it was edited at epoch {edited}, and its rows as of epoch {epoch}, before that, are not kept "
        f"any more (retain=): it can be read as of epoch {edited} and later",
        view=view,
        epoch=epoch,
        earliest=edited,
    )


def changes_since(
    view: str,
    since: int,
    last: int,
    past: Sequence[Span],
    index: int,
    kept: Callable[[ViewVersion], ViewLog],
    now: ViewVersion,
) -> list[LoggedSpan | EditedChange]:
    """Return the changes that turn the content as of ``since`` into that as of ``last``. ``past``: the versions of the
    view; ``index``: the index of its version as of ``since``; ``now``: its declared version. Raise `EpochUnavailable`
    if the columns changed in between, or earlier rows are not kept any more."""
    found: list[LoggedSpan | EditedChange] = []
    has = since
    for span, following in zip(past[index:-1], past[index + 1 :], strict=True):
        assert span.last is not None  # another version follows this one
        if not following.version.fits(now) or not span.version.fits(now):
            raise EpochUnavailable(
                f"view '{view}': it was edited at epoch {following.first}, and has other columns since "
                f"({span.version.columns}, and now {now.columns}): changes cannot be told across that; read it anew, "
                f"and ask for the changes since epoch {following.first}",
                view=view,
                epoch=since,
                earliest=following.first,
            )
        old, new = kept(span.version), kept(following.version)
        try:
            if has < span.last:
                old.check(view, has)
                found.append(LoggedSpan(old, has, span.last))
            found.append(EditedChange(following.first, difference(new, following.first, old, span.last)))
        except (EpochUnavailable, LogDamaged, MemberUnreachable) as error:
            raise EpochUnavailable(
                f"view '{view}': it was edited at epoch {following.first}, and its rows before that are not kept any "
                f"more: read it anew, and ask for the changes since epoch {following.first}",
                view=view,
                epoch=since,
                earliest=following.first,
            ) from error
        has = following.first
    if not past[-1].version.fits(now):
        raise EpochUnavailable(
            f"view '{view}': it was edited, and has other columns since: run an epoch, read it anew, and ask for the "
            f"changes since epoch {last + 1}",
            view=view,
            epoch=since,
            earliest=last + 1,
        )
    if has < last:
        found.append(LoggedSpan(kept(past[-1].version), has, last))
    return found


def as_table(changes: Sequence[LoggedSpan | EditedChange], fields: Sequence[Field]) -> pa.Table:
    """Return changes of logs and of edits as one table with ``_epoch`` and ``_diff``. For a `LoggedSpan` with a
    negative ``after``, that is the whole readable history of the log."""
    names = [*(field.name for field in fields), "_epoch", "_diff"]
    tables = []
    for one in changes:
        if isinstance(one, LoggedSpan):
            kept = one.kept
            tables.append(
                kept.history(0, ALL, one.upto) if one.after < 0 else kept.changes(0, ALL, one.after, one.upto)
            )
        else:
            epochs = pa.array(np.full(one.change.num_rows, one.epoch, dtype=np.int64))
            table = one.change.add_column(one.change.num_columns - 1, "_epoch", epochs)
            tables.append(table.rename_columns(names))
    if not tables:
        kinds = [*(arrow_type(field.type) for field in fields), pa.int64(), pa.int64()]
        return pa.schema(zip(names, kinds, strict=True)).empty_table()
    return pa.concat_tables(tables)
