"""The result of a one-off query: its rows, and a report of what was lost meanwhile and what was done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast.coordinator.membership import Member
from holdfast.foundation.choices import OnLoss


@dataclass(frozen=True)
class QueryInput:
    """A piece of the input that one task reads."""

    table: str
    partition: int
    files: tuple[tuple[str, int, int], ...] = ()
    """(path, first byte, number of bytes) of each file; empty if the input is not files."""

    rows: int | None = None
    """The number of rows; None if the source does not know it."""

    bytes: int | None = None
    """The number of bytes; None if the source does not know it."""


@dataclass(frozen=True)
class Coverage:
    """How much of the input the answer is made of, and how much input there is."""

    partitions: int
    partitions_total: int
    rows: int | None = None
    rows_total: int | None = None
    bytes: int | None = None
    bytes_total: int | None = None

    @property
    def complete(self) -> bool:
        return self.partitions == self.partitions_total

    @property
    def share(self) -> float:
        """The covered share, from 0 to 1: of the rows if they are known, otherwise of the partitions."""
        part, whole = self.partitions, self.partitions_total
        if self.rows is not None and self.rows_total is not None:
            part, whole = self.rows, self.rows_total
        return part / whole if whole else 1.0

    def __str__(self) -> str:
        text = f"{self.partitions} of {self.partitions_total} partitions"
        return text if self.rows_total is None else f"{text}, {self.rows:,} of {self.rows_total:,} rows"


@dataclass(frozen=True)
class Recomputed:
    """A task whose work was lost, and was done again."""

    stage: int
    partition: int
    lost_on: str
    """The lost member that had done the task, or was doing it."""

    done_on: str
    why: str


@dataclass(frozen=True)
class Report:
    """What happened to a query."""

    on_loss: OnLoss
    lost: tuple[Member, ...] = ()
    """The members that were lost while it ran."""

    coverage: Coverage | None = None
    """How much of the input the answer has; only with ``on_loss="continue"``, since other answers have all of it."""

    missing: tuple[QueryInput, ...] = ()
    recomputed: tuple[Recomputed, ...] = ()
    runs: int = 1
    """How often the query was begun. With ``on_loss="continue"`` it begins again without the lost input if its answer
    would otherwise contain one part of an input piece and not another."""

    seconds: float = 0.0
    seconds_after_loss: float | None = None
    """The seconds from the first loss to the answer."""

    @property
    def exact(self) -> bool:
        return not self.missing

    @property
    def survivors(self) -> tuple[str, ...]:
        """The members that did lost work again."""
        return tuple(sorted({one.done_on for one in self.recomputed}))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "exact": self.exact, "survivors": self.survivors}


class Answer(NamedTuple):
    """The rows of a query, and the report of what happened to it."""

    rows: pa.Table
    report: Report


@dataclass
class QueryInputs:
    """All pieces of one table's input, in the order of its partitions."""

    table: str
    pieces: list[QueryInput] = field(default_factory=list)


def coverage_of(inputs: Sequence[QueryInputs], missing: Sequence[QueryInput]) -> Coverage:
    """Return the coverage if these pieces are missing. It has rows and bytes only if every piece knows them."""
    pieces = [piece for one in inputs for piece in one.pieces]
    gone = set(missing)

    def known(values: list[int | None], kept: list[bool]) -> tuple[int | None, int | None]:
        if any(value is None for value in values):
            return None, None
        numbers = [value or 0 for value in values]
        return sum(number for number, keep in zip(numbers, kept, strict=True) if keep), sum(numbers)

    kept = [piece not in gone for piece in pieces]
    rows = known([piece.rows for piece in pieces], kept)
    size = known([piece.bytes for piece in pieces], kept)
    return Coverage(sum(kept), len(pieces), *rows, *size)
