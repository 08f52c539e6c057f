"""Rows that are versions of a key: how a source declares that, and which plan nodes make a collection of them.

A source whose ``versions`` is set yields arrivals (`operators.latest.arrival_fields`): the columns of its collection,
then whether the row deletes its key, then the place at which the row came. The operator `Latest` makes the collection
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast.errors import DeclarationError
from holdfast.foundation import arguments
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.operators.latest import DELETED, PLACE, STRICT, Latest, arrival_fields
from holdfast.operators.ordering import is_ordered
from holdfast.operators.replaced import HIDDEN, Replaced
from holdfast.plan import nodes
from holdfast.plan.expression import negated
from holdfast.plan.nodes import Field, Node
from holdfast.plan.types import arrow_type
from holdfast.trace.physical import Bools, Ints

OnMissing = Literal["error", "ignore"]


@dataclass(frozen=True)
class Versions:
    """The columns of a collection, the columns of its key, and the column that orders its versions (None: their places
    do)."""

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    order: str | None = None

    @property
    def arrivals(self) -> tuple[Field, ...]:
        """The columns that a source of such rows yields."""
        return arrival_fields(self.fields, self.order is not None)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The columns that a deletion needs: the key, and the order column."""
        named = {field.name: field for field in self.fields}
        return tuple(named[name] for name in (*self.key, *(() if self.order in (None, *self.key) else (self.order,))))

    def rows(self, source: nodes.Source) -> Node:
        """The plan node of the collection that the arrivals of ``source`` make."""
        latest = Latest(source, self.key, self.order, len(self.fields))
        if self.order is None:
            return latest
        return nodes.projection(latest, [field.name for field in self.fields], negated(latest.column(DELETED.name)))

    def said(self) -> dict[str, Any]:
        """How rows replace each other, for the flow's description."""
        return {"key": list(self.key), "order_by": self.order}


@dataclass(frozen=True)
class Snapshots:
    """The columns of a collection that is replaced as a whole, and the columns by which its rows are unique, if any."""

    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()

    def rows(self, source: nodes.Source) -> Node:
        """The plan node of the collection that the arrivals of ``source`` make."""
        return Replaced(source, self.key)

    def said(self) -> dict[str, Any]:
        """How versions replace each other, for the flow's description."""
        return {"key": list(self.key), "order_by": None, "whole": True}


def versions(subject: str, fields: Sequence[Field], key: Any, order_by: Any) -> Versions:
    """Check a declaration; ``key`` is the name of a column, or a list of names."""
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not names:
        arguments.refuse(subject, "key", "the name of a column, or a list of names", key)
    known = [field.name for field in fields]
    found = []
    for what, name in (
        *(("key", each) for each in names),
        *((("order_by", order_by),) if order_by is not None else ()),
    ):
        arguments.text(subject, what, name, "the name of a column")
        same = [each for each in known if each == name] or [each for each in known if each.lower() == name.lower()]
        if not same:
            raise DeclarationError(
                f"{subject}: {what} {name!r} is not a column of ({', '.join(known)}){did_you_mean(name, known)}",
                column=name,
            )
        found.append(same[0])
    if len(set(found[: len(names)])) < len(names):
        raise DeclarationError(f"{subject}: key names a column twice: {', '.join(found[: len(names)])}")
    for name in found:
        kind = next(field.type for field in fields if field.name == name)
        if not is_ordered(arrow_type(kind)):
            raise DeclarationError(f"{subject}: column {name!r} is of type {kind}, which has no order", column=name)
    for field in (DELETED, STRICT, *PLACE):
        if field.name in known:
            raise DeclarationError(f"{subject}: column {field.name!r}: with a key that name is taken; rename it")
    return Versions(tuple(fields), tuple(found[: len(names)]), None if order_by is None else found[-1])


def missing(subject: str, on_missing: Any, order: str | None, *, default: OnMissing) -> OnMissing:
    """What to do about the deletion of a key that is not there. With an order column it is always ignored, since the
    deletion may come before its row; raises `DeclarationError` if "error" was asked for then."""
    if on_missing is None:
        return "ignore" if order is not None else default
    arguments.one_of(subject, "on_missing", on_missing, ("error", "ignore"))
    if order is not None and on_missing == "error":
        raise DeclarationError(
            f"{subject}: with order_by a deletion may come before the row that it deletes, so on_missing cannot be "
            "'error'; leave it out"
        )
    result: OnMissing = on_missing
    return result


def arrivals(
    rows: pa.Table, shown: Versions, deleted: Bools, strict: bool, offer: Ints | int, block: int, first: int
) -> pa.Table:
    """``rows``, which have the collection's columns, as arrivals; their place is ``offer``, ``block``, and row numbers
    from ``first`` on."""
    count = rows.num_rows
    columns = [*rows.columns, pa.array(deleted), pa.array(deleted & strict)]
    if shown.order is None:
        offers = np.full(count, offer, np.int64) if isinstance(offer, int) else offer
        place = (offers, np.full(count, block, np.int64), np.arange(first, first + count, dtype=np.int64))
        columns += [pa.array(each, pa.int64()) for each in place]
    return pa.table(columns, names=[field.name for field in shown.arrivals])


def logged_arrivals(change: pa.Table, hidden_columns: int) -> pa.Table:
    """Arrivals that make the same change as ``change``, which was read from a source's log; ``hidden_columns`` is how
    many columns arrivals have beyond the collection's. With an order column the log also holds deleted keys, so it has
    each key's new version. Without one, the new version of a key gets a later place than the version that it replaced.
    The log of a collection that is replaced as a whole (`Snapshots`) holds changes, which stay as they are."""
    diff = change.column("_diff").to_numpy()
    rows = change.drop_columns(["_diff"])
    if hidden_columns == len(HIDDEN):
        more = [pa.array(np.zeros(len(diff), np.int64)), pa.array(np.zeros(len(diff), np.bool_))]
        arrays = [*rows.columns, *more, pa.array(diff)]
        return pa.table(arrays, names=[f"c{index}" for index in range(len(arrays) - 1)] + ["_diff"])
    if hidden_columns == 1:
        come = pa.array(diff > 0)
        columns = [column.filter(come) for column in rows.columns]
        count = int(np.count_nonzero(diff > 0))
        hidden: list[Bools | Ints] = [np.zeros(count, np.bool_)]
    else:
        columns, count = rows.columns, len(diff)
        nothing = np.zeros(count, np.int64)
        hidden = [diff < 0, np.zeros(count, np.bool_), (diff > 0).astype(np.int64), nothing, nothing]
    arrays = [*columns, *map(pa.array, hidden), pa.array(np.ones(count, np.int64))]
    return pa.table(arrays, names=[f"c{index}" for index in range(len(arrays) - 1)] + ["_diff"])
