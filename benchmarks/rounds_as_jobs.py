"""Rounds of a loop in one task, or as Spark jobs: from how many rows in a round on jobs would be cheaper.

Nothing runs rounds as jobs; this measures what they would cost. In one process: the first fill of reachability and of
least labels over a random graph, round by round, with the rows that are handed to operators. In Spark: jobs that
exchange as many rows between two partitions, once and three times, as the Arrow messages that epochs exchange. The
least of several runs counts, in seconds of processor time of all processes, so that a busy machine says the same as a
quiet one. With *n* rows in a round and *c* cores, jobs need (task + exchange) n / c + job / c, and one task needs
task · n; what jobs would have to carry from round to round is left out, in their favour.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from data import parse, session
from rich.console import Console
from rich.table import Table

from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.join import Join
from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.body import LoopLeaf
from holdfast.operators.loops.building import Recursion, loop_of
from holdfast.operators.loops.differences import DifferencesInRounds
from holdfast.operators.loops.epoch import LoopEpoch
from holdfast.operators.loops.pairs import PairsInRounds
from holdfast.operators.step import Context
from holdfast.plan.dataflow import build
from holdfast.plan.nodes import Field, Linear, Named, Node, Source, Union
from holdfast.spark.epoch_tasks import own_partition
from holdfast.task.messages import Message
from holdfast.task.stage import decode, encode, split
from holdfast.trace.cover import Chain
from holdfast.trace.trace import Trace

Ints = npt.NDArray[np.int64]
CORES = 2
LARGE = 20_000
"""Rounds with so many rows show what a row costs."""

PAIR = (Field("node", "bigint"), Field("label", "bigint"))
EDGES = Source("edges", (Field("a", "bigint"), Field("b", "bigint")))


def renamed(node: Node, /, **columns: str) -> Linear:
    return Linear(node, None, tuple(Named(name, node.column(old)) for name, old in columns.items()))


def labels() -> tuple[LoopSpec, list[str]]:
    """The least label that reaches each node."""
    known, first = LoopLeaf("labels", PAIR), Source("nodes", PAIR)
    told = renamed(Join(known, EDGES, ("node",), ("a",)), node="b", label="label")
    least = Aggregate(Union((first, told)), ("node",), (Call("least", "min", ("label",), "bigint"),))
    return compiled(Recursion(known, renamed(least, node="node", label="least")))


def reached() -> tuple[LoopSpec, list[str]]:
    """The nodes that are reached from some."""
    known, first = LoopLeaf("reached", PAIR[:1]), Source("starts", PAIR[:1])
    told = renamed(Join(known, EDGES, ("node",), ("a",)), node="b")
    return compiled(Recursion(known, Aggregate(Union((first, told)), ("node",), ())))


def compiled(variable: Recursion) -> tuple[LoopSpec, list[str]]:
    """A loop as tasks run it, and the names of its inputs."""
    loop = loop_of([variable], 0, max_rounds=10_000)
    operators = build({"v": loop}, {}, lambda _: True).operators.values()
    (operator,) = (each for each in operators if each.node is loop and each.kind == "loop")
    return loop.compiled(operator), [each.name for each in loop.inputs if isinstance(each, Source)]


def change(*columns: Ints) -> pa.Table:
    names = [*(f"c{place}" for place in range(len(columns))), "_diff"]
    return pa.table([*map(pa.array, columns), pa.array(np.ones(len(columns[0]), np.int64))], names=names)


# -- in one task -------------------------------------------------------------------------------------------------------


class TimedRounds:
    """Seconds of each round, and rows handed to operators in it."""

    def __init__(self) -> None:
        self.rounds: list[tuple[float, int]] = []
        self._rows = 0

    def __enter__(self) -> TimedRounds:
        self._whole = LoopEpoch._round
        self._prepared = [(kind, kind.prepare) for kind in (PairsInRounds, DifferencesInRounds)]

        def timed(epoch: LoopEpoch, *arguments: Any) -> None:
            self._rows, began = 0, time.process_time()
            self._whole(epoch, *arguments)
            self.rounds.append((time.process_time() - began, self._rows))

        def counting(prepare: Any) -> Any:
            def counted(operator: Any, port: int, table: pa.Table, round: int) -> pa.Table:
                self._rows += table.num_rows
                return prepare(operator, port, table, round)

            return counted

        LoopEpoch._round = timed  # type: ignore[method-assign]  # measured from outside
        for kind, prepare in self._prepared:
            kind.prepare = counting(prepare)  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        LoopEpoch._round = self._whole  # type: ignore[method-assign]
        for kind, prepare in self._prepared:
            kind.prepare = prepare  # type: ignore[method-assign]


def fill(spec: LoopSpec, inputs: list[pa.Table]) -> list[tuple[float, int]]:
    """The rounds of the first epoch."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home, TimedRounds() as timed:
        nothing = Chain(-1, ())
        traces = {
            suffix: Trace.open(Path(home) / suffix, layout, 0, 2**64, -1, nothing)
            for suffix, layout in spec.layouts().items()
        }
        arrived = [spec.prepare(port, table) for port, table in enumerate(inputs)]
        spec.step(arrived, traces, Context(0, 0, 2**64, initial=True))
    return timed.rounds


def in_one_task(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    dice = np.random.default_rng(7)
    a, b = (dice.integers(0, arguments.nodes, arguments.edges) for _ in range(2))
    nodes = np.arange(arguments.nodes)
    starts = dice.choice(arguments.nodes, 10, replace=False)
    both = change(np.concatenate([a, b]), np.concatenate([b, a]))
    runs = {
        "reached": (reached(), {"starts": change(starts), "edges": change(a, b)}),
        "labels": (labels(), {"nodes": change(nodes, nodes), "edges": both}),
    }
    found = {}
    for name, ((spec, names), tables) in runs.items():
        inputs = [tables[each] for each in names]
        best = min((fill(spec, inputs) for _ in range(arguments.repeats)), key=lambda run: sum(s for s, _ in run))
        large = [(seconds, rows) for seconds, rows in best[1:] if rows >= LARGE] or best
        found[name] = {
            "rounds": len(best),
            "seconds": sum(seconds for seconds, _ in best),
            "largest": max(rows for _, rows in best[1:]),
            "per_row": sum(seconds for seconds, _ in large) / sum(rows for _, rows in large),
            "least_round": min(seconds for seconds, _ in best),
        }
    return found


# -- exchanges of Spark ------------------------------------------------------------------------------------------------


def processor_time() -> float:
    """Seconds that this process and those below it have used, also those that have ended."""
    used: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it has ended
                continue
            used[int(place.name)] = sum(map(int, fields[11:15]))
            below.setdefault(int(fields[1]), []).append(int(place.name))
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        one = waiting.pop()
        ticks += used.get(one, 0)
        waiting += below.get(one, [])
    return ticks / os.sysconf("SC_CLK_TCK")


def exchanging(rows: int, exchanges: int, context: Any) -> int:
    """Have two tasks hand rows to each other, so many times; how many there are at the end."""

    def first(_: int, __: Iterable[int]) -> Iterator[Message]:
        hashes = np.arange(rows // CORES, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        table = change(hashes.view(np.int64), hashes.view(np.int64)).add_column(0, "_hash", pa.array(hashes))
        return ((owner, (0, encode(part))) for owner, part in split(table, CORES))

    def between(_: int, messages: Iterable[Message]) -> Iterator[Message]:
        for table in [decode(buffer) for _, (_, buffer) in messages]:
            hashes = table.column("_hash").to_numpy() * np.uint64(0xC2B2AE3D27D4EB4F)
            for owner, part in split(table.set_column(0, "_hash", pa.array(hashes)), CORES):
                yield owner, (0, encode(part))

    def last(_: int, messages: Iterable[Message]) -> Iterator[int]:
        yield sum(decode(buffer).num_rows for _, (_, buffer) in messages)

    rdd = context.parallelize(range(CORES), CORES).mapPartitionsWithIndex(first)
    for _ in range(exchanges - 1):
        rdd = rdd.partitionBy(CORES, own_partition).mapPartitionsWithIndex(between)
    return int(sum(rdd.partitionBy(CORES, own_partition).mapPartitionsWithIndex(last).collect()))


def in_jobs(arguments: argparse.Namespace) -> dict[str, float]:
    spark = session()
    context = spark.sparkContext

    def best(rows: int, exchanges: int) -> float:
        taken = []
        for _ in range(arguments.jobs):
            began = processor_time()
            assert exchanging(rows, exchanges, context) == rows
            taken.append(processor_time() - began)
        return min(taken)

    best(1_000, 3)  # what is loaded once
    small = {exchanges: best(100, exchanges) for exchanges in (1, 3)}
    large = {exchanges: best(arguments.rows, exchanges) for exchanges in (1, 3)}
    spark.stop()
    more = (large[3] - large[1]) - (small[3] - small[1])
    return {"per_row": more / 2 / arguments.rows, "one_exchange": small[1], "three_exchanges": small[3]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--rows", type=int, default=3_000_000, help="exchanged by a large job")
    parser.add_argument("--jobs", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parse(parser, edges=30_000, nodes=20_000, rows=100_000, jobs=1, repeats=1)
    tasks, jobs = in_one_task(arguments), in_jobs(arguments)
    results = {"tasks": tasks, "jobs": jobs}
    for each in tasks.values():
        saved = each["per_row"] - (each["per_row"] + jobs["per_row"]) / CORES
        each["factor"] = each["per_row"] * CORES / (each["per_row"] + jobs["per_row"])
        each["even"] = jobs["three_exchanges"] / CORES / saved if saved > 0 else float("inf")
    if arguments.json:
        print(json.dumps(results))
        return 0
    table = Table("first fill", "rounds", "in one task", "largest round", "a row", "jobs win from", "and at most by")
    for name, each in tasks.items():
        table.add_row(
            name,
            f"{each['rounds']:.0f}",
            f"{each['seconds']:.1f} s",
            f"{each['largest']:,.0f} rows",
            f"{1e6 * each['per_row']:.2f} µs",
            f"{each['even']:,.0f} rows",
            f"a factor of {each['factor']:.2f}",
        )
    console = Console(width=130)
    console.print(f"{arguments.edges:,} edges, {arguments.nodes:,} nodes; seconds of processor time")
    console.print(table)
    one, three = (f"{1000 * jobs[what]:.0f} ms" for what in ("one_exchange", "three_exchanges"))
    console.print(
        f"a job: {one} with one exchange, {three} with three; a row: {1e6 * jobs['per_row']:.2f} µs per exchange"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
