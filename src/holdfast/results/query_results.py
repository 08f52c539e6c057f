"""What a one-off query gives: its rows, and a report of what was lost on the way and what was done about it."""

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
    """Path, first byte, number of bytes; empty where the input is not files."""

    rows: int | None = None
    bytes: int | None = None
    """None where the source does not know its counts."""


@dataclass(frozen=True)
class Coverage:
    """How much of the input the answer is made of, and of how much."""

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
        """From 0 to 1: of the rows where they are known, else of the partitions."""
        part, whole = self.partitions, self.partitions_total
        if self.rows is not None and self.rows_total is not None:
            part, whole = self.rows, self.rows_total
        return part / whole if whole else 1.0

    def __str__(self) -> str:
        text = f"{self.partitions} of {self.partitions_total} partitions"
        return text if self.rows_total is None else f"{text}, {self.rows:,} of {self.rows_total:,} rows"


@dataclass(frozen=True)
class Recomputed:
    """A task whose work was lost and done again."""

    stage: int
    partition: int
    lost_on: str
    """The member that had done it, or was about to."""

    done_on: str
    why: str


@dataclass(frozen=True)
class Report:
    """What happened to a query."""

    on_loss: OnLoss
    lost: tuple[Member, ...] = ()
    """The members that were lost while it ran."""

    coverage: Coverage | None = None
    """With ``on_loss="continue"``; otherwise an answer has all of its input, or there is none."""

    missing: tuple[QueryInput, ...] = ()
    recomputed: tuple[Recomputed, ...] = ()
    runs: int = 1
    """How often the query was begun: a continued one begins again, without what is lost, when its answer would
    otherwise have had one part of a piece and not another."""

    seconds: float = 0.0
    seconds_after_loss: float | None = None
    """From the first loss to the answer."""

    @property
    def exact(self) -> bool:
        return not self.missing

    @property
    def survivors(self) -> tuple[str, ...]:
        """The members that did again what was lost."""
        return tuple(sorted({one.done_on for one in self.recomputed}))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "exact": self.exact, "survivors": self.survivors}


class Answer(NamedTuple):
    """The rows of a query, and what happened to it."""

    rows: pa.Table
    report: Report


@dataclass
class QueryInputs:
    """All pieces of one table's input, in the order of its partitions."""

    table: str
    pieces: list[QueryInput] = field(default_factory=list)


def coverage_of(inputs: Sequence[QueryInputs], missing: Sequence[QueryInput]) -> Coverage:
    """What is covered when these pieces are missing. Rows and bytes only if they are known of every piece."""
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
