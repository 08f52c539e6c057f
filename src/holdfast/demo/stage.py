"""What the demonstration of crashes is played on: the input in two copies, and queries with a middle to be hit in.

The data are little, and would be read before anybody could be killed. So each file takes a moment longer to read, and
in a run that is to be hit only the first few are read before the gate is opened, by whoever hits. Each read leaves a
note of who read what.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.connectors.source import Offer, Part, Source
from holdfast.demo.amplab import RANKINGS, USERVISITS, Generator, Sizes
from holdfast.foundation.retries import wait_until
from holdfast.testing.cluster import Handle
from holdfast.testing.gate import Gate

Answer = list[tuple[Any, ...]]

_SCHEMAS = {"rankings": RANKINGS, "uservisits": USERVISITS}


@dataclass(frozen=True)
class DemoPlan:
    """How large it is."""

    scale: float = 0.1
    executors: int = 6
    files: int = 12
    """Of visits; pages are in two more."""

    pace: float = 0.3
    """Each file takes so many seconds longer to read."""


def generate(home: Path, plan: DemoPlan) -> None:
    """The two tables, twice: below ``a`` and below ``b``."""
    generator = Generator(Sizes.of(plan.scale, plan.files))
    rankings, visits = home / "a" / "rankings", home / "a" / "uservisits"
    for directory in (rankings, visits):
        directory.mkdir(parents=True)
    pages = generator.rankings()
    half = pages.num_rows // 2
    pq.write_table(pages.slice(0, half), rankings / "0.parquet")
    pq.write_table(pages.slice(half), rankings / "1.parquet")
    for number in range(plan.files):
        pq.write_table(generator.visits(), visits / f"{number:02}.parquet")
    shutil.copytree(home / "a", home / "b")


def rows_of(table: pa.Table) -> Answer:
    return [tuple(row.values()) for row in table.to_pylist()]


def plain_answer(home: Path, without: Collection[str] = ()) -> Answer:
    """The answer from all files but these, without Spark."""
    pages, visits = (_read(home / "a" / name, without) for name in ("rankings", "uservisits"))
    day = pc.field("visitDate")
    wanted = visits.filter((day >= pc.scalar(date(1980, 1, 1))) & (day <= pc.scalar(date(1981, 1, 1))))
    joined = wanted.join(pages, "destURL", "pageURL", "inner")
    wide = joined.append_column("revenue", joined.column("adRevenue").cast(pa.float64()))
    total = wide.group_by("sourceIP").aggregate([("revenue", "sum"), ("pageRank", "mean")])
    best = total.sort_by([("revenue_sum", "descending"), ("sourceIP", "ascending")]).slice(0, 1)
    return rows_of(best.select(["sourceIP", "revenue_sum", "pageRank_mean"]))


def _read(directory: Path, without: Collection[str]) -> pa.Table:
    files = sorted(directory.iterdir())
    kept = [pq.read_table(path) for path in files if str(path) not in without]
    return pa.concat_tables(kept or [pq.read_table(files[0]).slice(0, 0)])


class Run:
    """One run of the query that is hit: when half of the executors have read a file, and the last of them is in the
    middle of another, ``hit`` is called."""

    def __init__(self, handle: Handle, spark: Any, home: Path, plan: DemoPlan, hit: Callable[[Run], None]) -> None:
        number = sum(path.name.startswith("run-") for path in home.iterdir())
        self._notes = home / f"run-{number}"
        self._home = home
        self.gate = Gate(self._notes / "gate", plan.executors)
        self.tables = _tables(home, plan, self.gate, self._notes)
        self.executor = ""
        """The one to hit."""

        self._handle, self._spark, self._after, self._hit = handle, spark, max(1, plan.executors // 2), hit

    @staticmethod
    def undisturbed(home: Path, plan: DemoPlan) -> dict[str, Source]:
        """The tables, for a run that nobody hits."""
        return _tables(home, plan, None, None)

    def __enter__(self) -> Self:
        from holdfast.testing.trigger import AfterTasks

        def hit(executor: str) -> None:
            self.executor = executor
            pid = next(one.pid for one in self._handle.members() if one.id == executor)
            wait_until(lambda: self.gate.has_waited(str(pid)), 60.0, 0.01)
            self._hit(self)

        self._trigger = AfterTasks(self._spark, self._after, hit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trigger.close()
        self.gate.open()

    def read_by(self, pid: int) -> tuple[str, ...]:
        """The files that an executor process had read, or was reading."""
        return tuple(sorted(note.read_text() for note in self._notes.glob(f"{pid}-*")))

    def rows_without(self, paths: tuple[str, ...]) -> int:
        """The rows of all files but these."""
        files = [path for name in _SCHEMAS for path in (self._home / "a" / name).iterdir()]
        return sum(pq.read_metadata(path).num_rows for path in files if str(path) not in paths)


def _tables(home: Path, plan: DemoPlan, gate: Gate | None, notes: Path | None) -> dict[str, Source]:
    return {
        name: Paced(
            hf.files([home / "a" / name, home / "b" / name], schema=schema, replicas=True), plan.pace, gate, notes
        )
        for name, schema in _SCHEMAS.items()
    }


class Paced(Source):
    """A source whose parts take a while longer to read, wait at a gate, and leave a note of who read them."""

    def __init__(self, source: Source, pace: float, gate: Gate | None, notes: Path | None) -> None:
        self._source = source
        self._how = (pace, gate, notes)
        self.fields = source.fields

    def poll(self) -> Offer | None:
        return self._source.poll()

    def advance(self, offer: Offer) -> None:
        self._source.advance(offer)

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return self._source.fold(offers)

    def parts(self, offer: Offer) -> list[Part]:
        return [PacedPart(part, part.file, part.size, *self._how) for part in self._source.parts(offer)]  # type: ignore[attr-defined]  # of Parquet files


@dataclass(frozen=True)
class PacedPart:
    """See `Paced`."""

    part: Part
    file: Any
    size: tuple[int, int]
    pace: float
    gate: Gate | None
    notes: Path | None

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        time.sleep(self.pace)
        if self.notes is not None and self.gate is not None:
            path, executor = Path(self.file.path), _executor_pid()
            (self.notes / f"{executor}-{path.parent.name}-{path.name}").write_text(str(path))
            self.gate.enter(str(executor))
        yield from self.part.read(schema)


def _executor_pid() -> int:
    """In a task: the executor's process, which started the daemon that started this one."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
