"""Numbers for nondeterministic calls, by which the values that are drawn for one are told from those of another."""

from __future__ import annotations

import itertools
from typing import Literal


class Draws:
    """Numbers for the nondeterministic calls of a declaration: calls in other places are other draws."""

    def __init__(self, known_by: Literal["", "seed", "place"] = "") -> None:
        """``known_by``: what tells that a call in several pieces is the same. DataFrames are analysed once, wherever
        they are used: Spark has given the call a ``seed``. The pieces of a text are analysed each by itself: there it
        is the ``place`` of the call in the text."""
        self._known_by = known_by
        self._numbers = itertools.count()
        self._seeds: dict[int, str] = {}
        self._known: dict[str, str] = {}

    def of_text(self) -> Draws:
        """The same numbers, for a text in several pieces."""
        found = Draws("place")
        found._numbers, found._seeds = self._numbers, self._seeds
        return found

    def number(self, *, seed: str, place: str) -> str:
        """A number for a call; empty: it has none."""
        call = {"": "", "seed": seed, "place": place}[self._known_by]
        if not call:
            return str(next(self._numbers))
        if call not in self._known:
            self._known[call] = str(next(self._numbers))
        return self._known[call]

    def seeded(self, seed: int) -> str:
        """What tells draws with this seed from others. PySpark's ``rand()`` has a seed that is drawn when the DataFrame
        is made: such a one, which nobody writes, stands for its number among them, so that the same code means the same
        in the next process."""
        if abs(seed) < 2**31:
            return f"seed {seed}"
        return self._seeds.setdefault(seed, f"drawn seed {len(self._seeds)}")
