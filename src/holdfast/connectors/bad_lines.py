"""Lines of JSON and CSV files that do not read or do not fit: which line is the first, and what is wrong with each.

Spark's lenient mode gives the text of such a line (``_bad``), with NULL in the columns that it could not parse. So a
source with ``on_bad_rows="quarantine"`` yields all lines, and the plan splits them into two collections: good lines are
rows of the declared collection; bad lines, with file and reason, are the quarantine.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.connectors.file_access import LOCAL
from holdfast.plan import nodes
from holdfast.plan.expression import is_known, is_null, quoted
from holdfast.plan.nodes import Field, Node

OnBadRows = Literal["fail", "quarantine"]

BAD = Field("_bad", "string")
FILE = Field("_file", "string")
REASON = Field("_reason", "string")
HIDDEN = (BAD, FILE, REASON)
_SHOWN = 80
_LINES = 5_000_000


@dataclass(frozen=True)
class Quarantined:
    """The columns of a collection whose source also yields bad lines."""

    fields: tuple[Field, ...]

    def rows(self, source: nodes.Source) -> Node:
        """The plan node of the good lines: the rows of the collection."""
        return nodes.projection(source, [field.name for field in self.fields], is_null(source.column(BAD.name)))

    def quarantine(self, source: nodes.Source) -> Node:
        """The plan node of the bad lines: ``reason``, ``record``, ``file``."""
        outputs = tuple(
            nodes.Named(name, source.column(field.name))
            for name, field in (("reason", REASON), ("record", BAD), ("file", FILE))
        )
        return nodes.Linear(source, is_known(source.column(BAD.name)), outputs)

    def said(self) -> dict[str, Any] | None:
        return None


def reason_column(format: str, fields: Sequence[Field]) -> str:
    """A Spark expression that says what is wrong with a line: which columns do not fit, or that it does not read at
    all."""
    if format == "json":
        here = [
            f"IF({quoted(field.name)} IS NULL AND get_json_object(_bad, '$.{_escaped(field.name)}') IS NOT NULL, "
            f"concat('{_escaped(field.name)}: expected {_escaped(field.type)}, found ', "
            f"get_json_object(_bad, '$.{_escaped(field.name)}')), NULL)"
            for field in fields
        ]
        none = "it does not read as JSON"
    else:
        here = [
            f"IF({quoted(field.name)} IS NULL, '{_escaped(field.name)}: expected {_escaped(field.type)}', NULL)"
            for field in fields
        ]
        none = f"it has not {len(fields)} values"
    listed = f"concat_ws('; ', {', '.join(here)})"
    return f"IF(_bad IS NULL, NULL, coalesce(nullif({listed}, ''), '{none}')) AS {REASON.name}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def find_line(path: str, record: str) -> int | None:
    """The number, from 1 on, of the first line with this text; None if none of the lines that are read has it."""
    wanted = record.strip().encode()
    with LOCAL.unpacked(path) as stream:
        for number, line in enumerate(itertools.islice(_lines(stream), _LINES), 1):
            if line.strip() == wanted:
                return number
    return None


def _lines(stream: Any) -> Any:
    left = b""
    while block := stream.read(1 << 20):
        *whole, left = (left + block).split(b"\n")
        yield from whole
    if left:
        yield left


def shown(record: str) -> str:
    """The beginning of a line, for messages."""
    return record if len(record) <= _SHOWN else record[: _SHOWN - 1] + "…"
