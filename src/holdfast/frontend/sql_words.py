"""The words of a SQL text, for display and for tests. Only Spark decides what a text means."""

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
        """The name without its quotes; empty if the word is not a name."""
        if self.kind == "quoted":
            return self.written[1:-1].replace("``", "`")
        return self.written if self.kind == "name" else ""

    def says(self, *words: str) -> bool:
        """Whether it is one of these words or marks."""
        return self.kind in ("name", "other") and self.written.upper() in words


def words(sql: str) -> Iterator[Word]:
    """Yield the words of a text, without comments."""
    for found in _WORD.finditer(sql):
        if found.lastgroup is not None:
            yield Word(found.lastgroup, found[0], found.start(), found.end())
