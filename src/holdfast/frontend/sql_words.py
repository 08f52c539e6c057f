"""The words of a SQL text, for what is shown to people and for tests. What a text means is Spark's to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = re.compile(
    r"""(?:\s+|--[^\n]*|/\*.*?\*/)
    | (?P<text>r?'(?:[^'\\]|\\.|'')*'|r?"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<name>[^\W\d]\w*)
    | (?P<other>\d[\w.]*|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Word:
    """A word of a text: a ``text`` in quotes, a ``quoted`` name, a ``name``, or any ``other``."""

    kind: str
    written: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The name that it is; empty if it is none."""
        if self.kind == "quoted":
            return self.written[1:-1].replace("``", "`")
        return self.written if self.kind == "name" else ""

    def says(self, *words: str) -> bool:
        """Is it one of these words, or marks?"""
        return self.kind in ("name", "other") and self.written.upper() in words


def words(sql: str) -> Iterator[Word]:
    """The words of a text, without comments."""
    for found in _WORD.finditer(sql):
        if found.lastgroup is not None:
            yield Word(found.lastgroup, found[0], found.start(), found.end())
