"""Numbers for nondeterministic calls, which keep the drawn values of different calls apart."""

from __future__ import annotations

import itertools
from typing import Literal


class Draws:
    """Numbers the nondeterministic calls of a declaration: calls at different places are different draws."""

    def __init__(self, known_by: Literal["", "seed", "place"] = "") -> None:
        """``known_by``: how a call that occurs in several pieces of a declaration is recognised as the same. A
        DataFrame is analysed once, wherever it is used, so the ``seed`` that Spark gave the call identifies it. The
        pieces of a text are analysed separately, so the ``place`` of the call in the text identifies it."""
        self._known_by = known_by
        self._numbers = itertools.count()
        self._seeds: dict[int, str] = {}
        self._known: dict[str, str] = {}

    def of_text(self) -> Draws:
        """Return the same numbers, for a text in several pieces."""
        found = Draws("place")
        found._numbers, found._seeds = self._numbers, self._seeds
        return found

    def number(self, *, seed: str, place: str) -> str:
        """Return the number of a call. ``seed`` and ``place`` are empty if the call has none."""
        call = {"": "", "seed": seed, "place": place}[self._known_by]
        if not call:
            return str(next(self._numbers))
        if call not in self._known:
            self._known[call] = str(next(self._numbers))
        return self._known[call]

    def seeded(self, seed: int) -> str:
        """Return the salt of draws with this seed. PySpark's ``rand()`` draws a large seed when the DataFrame is made.
        Nobody writes such a seed, so its number among them stands for it, and the same code means the same in the next
        process."""
        if abs(seed) < 2**31:
            return f"seed {seed}"
        return self._seeds.setdefault(seed, f"drawn seed {len(self._seeds)}")
