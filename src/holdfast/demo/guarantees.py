"""The demonstration of guarantees: what a crash does to output, one row per type of recovery, as it was observed.

Six batches of two records go through a small flow, one batch per epoch: its output is t1 … t6. In each version the
driver dies around t3, and a second one goes on. Where a strategy goes back, input is taken again, and cut otherwise: a
record per epoch. So an aggregate gives values on the way that a run without a crash does not (t′), and ends with the
same. A function outside answers otherwise when it is asked again, and then nothing is as it was.

What is printed is what a receiver got, classified beside a run without a crash; and whether that was predicted.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.guarantees.operator_classes import classes_of
from holdfast.guarantees.prediction import Prediction, RecoveryType, SinkKind, predict
from holdfast.guarantees.strategies import aligned_snapshot, gap, nosync
from holdfast.guarantees.strategy import Strategy
from holdfast.plan.nodes import Field
from holdfast.spark.session import start_session
from holdfast.testing.classifier import ObservedRecovery, classify
from holdfast.testing.crashes import Crash, abandon, crash_at

_BATCHES = 6

_VIEWS = {
    "row by row": "SELECT batch FROM records WHERE half = 1",
    "aggregate": "SELECT sum(amount) AS total, max(batch) AS batch FROM records",
    "asks outside": "SELECT sum(amount) AS total, max(batch) AS batch FROM asked",
}


@dataclass(frozen=True)
class Version:
    """A flow that is killed once, and the type of recovery that it shows."""

    view: str
    strategy: Strategy
    sink: SinkKind
    mark: str


VERSIONS = (
    Version("row by row", nosync(), SinkKind.TRANSACTIONAL, "sink.after_commit"),
    Version("row by row", gap(), SinkKind.APPEND, "epoch.ran"),
    Version("row by row", nosync(), SinkKind.APPEND, "sink.after_commit"),
    Version("aggregate", aligned_snapshot(4, "early"), SinkKind.APPEND, "sink.after_commit"),
    Version("asks outside", aligned_snapshot(4, "early"), SinkKind.APPEND, "sink.after_commit"),
)


@dataclass
class Shown:
    """What came of a version."""

    version: Version
    before: str
    after: str
    observed: ObservedRecovery
    predicted: Prediction

    @property
    def right(self) -> bool:
        return self.observed.recovery is self.predicted.recovery


class Records(hf.Source):
    """The batches: whole ones, or record by record where something of a batch has left."""

    fields = (Field("batch", "bigint"), Field("half", "bigint"), Field("amount", "bigint"))

    def __init__(self, received: Received) -> None:
        self._received = received
        self._next = 0

    def poll(self) -> hf.Offer | None:
        if self._next >= 2 * _BATCHES:
            return None
        again = self._next // 2 + 1 <= self._received.left
        return {"first": self._next, "after": self._next + (1 if again or self._next % 2 else 2)}

    def advance(self, offer: hf.Offer) -> None:
        self._next = offer["after"]

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        return [Records.Some(offer["first"], offer["after"])]

    @dataclass(frozen=True)
    class Some:
        """Records ``first`` … ``after`` - 1."""

        first: int
        after: int

        def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
            places = range(self.first, self.after)
            columns = [[1 + each // 2 for each in places], [each % 2 for each in places], [1 + each for each in places]]
            ones = [1] * len(places)
            yield pa.table([pa.array(each, pa.int64()) for each in (*columns, ones)], names=[*schema.names, "_diff"])


class Received:
    """What a receiver got, in order; the last batch of which something has left is in a file, for functions in tasks to
    see."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "left"
        self.file.write_text("0")
        self.rows: list[tuple[int, ...]] = []
        self._epoch, self._lineage = -1, b""

    @property
    def left(self) -> int:
        return int(self.file.read_text())

    def take(self, epoch: int, change: pa.Table) -> None:
        columns = [column.to_pylist() for column in change.columns]
        self.rows += [row[:-1] for row in sorted(zip(*columns, strict=True)) if row[-1] > 0]
        self.file.write_text(str(max((row[-1] for row in self.rows), default=0)))
        self._epoch, self._lineage = epoch, (change.schema.metadata or {}).get(b"holdfast.lineage", b"")

    def sink(self, kind: SinkKind) -> hf.Sink:
        if kind is SinkKind.TRANSACTIONAL:
            return hf.foreach(self.take, seen=lambda: self._epoch, lineage=lambda: self._lineage)
        return hf.foreach(self.take)


def run_guarantees_demo(console: Console, *, as_json: bool) -> bool:
    """Run it, print the table; whether all that was observed had been predicted, and each type was there."""
    started = time.perf_counter()

    def say(text: str) -> None:
        if not as_json:
            console.print(f"{time.perf_counter() - started:5.0f} s  {text}", style="dim", highlight=False, markup=False)

    shown = guarantee_versions(say)
    right = all(each.right for each in shown) and {each.observed.recovery for each in shown} == set(RecoveryType)
    if as_json:
        rows = [_plain(each) for each in shown]
        print(json.dumps({"versions": rows, "right": right, "seconds": round(time.perf_counter() - started, 1)}))
        return right
    table = Table("recovery", "before", "after", "view, strategy, sink")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for each in shown:
        version = each.version
        how = f"{version.view}, {version.strategy.name}, {version.sink.value}"
        table.add_row(each.observed.recovery.value, each.before, each.after, how)
    console.print(table)
    for each in shown:
        if not each.right:
            said = f"predicted was {each.predicted}, and observed {each.observed}"
            console.print(f"{each.version.strategy}: {said}", style="red", markup=False, highlight=False)
    if right:
        console.print("Each of them as predicted.", highlight=False)
    return right


def guarantee_versions(say: Callable[[str], None] = lambda text: None) -> list[Shown]:
    """All versions, in one session."""
    say("starting Spark")
    spark = start_session()
    found: list[Shown] = []
    references: dict[str, list[tuple[int, ...]]] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True) as temporary:
        root = Path(temporary)
        for number, version in enumerate(VERSIONS):
            if version.view not in references:
                references[version.view] = _reference(spark, root / f"reference-{number}", version)
            shown = _version(spark, root / f"version-{number}", version, references[version.view])
            found.append(shown)
            say(f"{version.strategy}, {version.view}: {shown.before} | {shown.after}")
    return found


def _declared(spark: Any, directory: Path, version: Version, strategy: Strategy, received: Received) -> hf.Flow:
    flow = hf.Flow("demo", directory / "log", spark, 1, local=directory / "local", strategy=strategy)
    flow.source("records", Records(received))
    if version.view == "asks outside":
        left = str(received.file)

        @hf.nondeterministic
        def ask(batch: int) -> int:
            with open(left) as file:
                return 1 if batch > int(file.read()) else 1000

        flow.udf("ask", ask, "bigint")
        flow.view("asked", "SELECT ask(batch) AS amount, batch FROM records")
    flow.view("out", _VIEWS[version.view])
    return flow.sink("out", received.sink(version.sink))


def _reference(spark: Any, directory: Path, version: Version) -> list[tuple[int, ...]]:
    directory.mkdir()
    received = Received(directory)
    with _declared(spark, directory, version, nosync(), received) as flow:
        flow.run(until="idle")
    return received.rows


def _version(spark: Any, directory: Path, version: Version, reference: list[tuple[int, ...]]) -> Shown:
    directory.mkdir()
    received = Received(directory)
    flow = _declared(spark, directory, version, version.strategy, received)
    classes = classes_of(flow.drawing(), "out")
    times = 4 if version.mark == "epoch.ran" else 3
    try:
        with crash_at(version.mark, times):
            flow.run(until="idle")
    except Crash:
        abandon(flow)
    before = list(received.rows)
    with _declared(spark, directory, version, version.strategy, received) as flow:
        flow.run(until="idle")
    after = received.rows[len(before) :]
    observed = classify(before, after, reference)
    predicted = predict(classes, version.strategy, version.sink)
    names = [_named(row, reference) for row in received.rows]
    return Shown(version, " ".join(names[: len(before)]), " ".join(names[len(before) :]), observed, predicted)


def _named(row: tuple[int, ...], reference: list[tuple[int, ...]]) -> str:
    """A row as the lecture writes it: t3 if the run without a crash has it as its third, t′3 if it is another form of
    that one."""
    if row in reference:
        return f"t{reference.index(row) + 1}"
    return f"t′{row[-1]}"


def _plain(shown: Shown) -> dict[str, object]:
    return {
        "recovery": shown.observed.recovery.value,
        "predicted": shown.predicted.recovery.value,
        "strategy": str(shown.version.strategy),
        "view": shown.version.view,
        "sink": shown.version.sink.value,
        "before": shown.before,
        "after": shown.after,
    }
