"""The changes of an input's schema to which its rows can be converted, and how.

Rows that code pushed are in the log and nowhere else. An input may be declared again with an additional column, with
wider types, or without a column that no view uses any more. A new log is then made from the rows of the former one,
with NULL in new columns, and views are filled from it, as new views are. The new log is used once all of it is safe. If
one column goes while another one comes, the column may have been renamed: that is refused, since its values would be
NULL from then on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.coordinator.view_versions import ViewVersion
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class FormerLog:
    """The log of an input under its former schema."""

    version: ViewVersion
    fields: tuple[Field, ...]
    upto: int
    """The last epoch in this log."""


def why_not(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> str | None:
    """Return why rows of the columns ``before`` cannot be converted to the columns ``now``; None if they can."""
    old, new = dict(before), dict(now)
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    if gone and come:
        return (
            f"column {gone[0]!r} is gone and {come[0]!r} is new: if it was renamed, its values would be NULL from now "
            "on; rename it in a view instead, or drop the one and add the other in two runs"
        )
    for name, kind in new.items():
        if name in old and not is_wider(old[name], kind):
            return f"column {name!r} was {old[name]}, and {kind} does not hold all its values"
    return None


def is_wider(old: str, new: str) -> bool:
    """Whether the type ``new`` has every value of the type ``old``."""
    if old == new or new in _WIDER.get(old, ()):
        return True
    target, source = _DECIMAL.fullmatch(new), _DECIMAL.fullmatch(old)
    if target is None or (source is None and old not in _DIGITS):
        return False
    precision, scale = map(int, target.groups())
    digits, fraction = map(int, source.groups()) if source is not None else (_DIGITS[old], 0)
    return precision - scale >= digits - fraction and scale >= fraction


def converted(rows: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Return ``rows`` with the columns ``fields``: matched by name, NULL in new columns, other columns dropped."""
    columns = []
    for field in fields:
        kind = arrow_type(field.type)
        known = field.name in rows.column_names
        columns.append(rows.column(field.name).cast(kind) if known else pa.nulls(rows.num_rows, kind))
    return pa.table(columns, names=[field.name for field in fields])
