"""A loop's rounds in one task, or the large ones as Spark jobs: the first fill of a flow, both ways in one run.

Components by the least label, and reachability from ten nodes, over one random graph. A flow is filled with all rounds
in one task (``HOLDFAST_ROUNDS=task``), another one as Holdfast chooses, a third with all rounds as jobs; they take
turns. The views of all must agree. The table has the seconds of the epoch, least of several, and what of it was
processor time of all processes, which says the same on a busy machine as on a quiet one.

From the same runs come the constants of the choice (`holdfast/spark/round_jobs.py`), in processor time: what a row
costs that is handed to an operator in one task, what it costs more where rounds are jobs, and what a job costs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import parse, session
from loops import BOTH, COMPONENTS, REACHED
from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.spark import round_jobs
from holdfast.task import round_tasks

VIEWS = {"components": (COMPONENTS, "sum(label)"), "reached": (REACHED, "count(*)")}
WAYS = {"task": "task", "chosen": None, "jobs": "jobs"}
CORES = os.cpu_count() or 1


class Noted:
    """What the driver sees of rounds that are jobs: their number, and rows handed to operators in each."""

    def __init__(self) -> None:
        self.jobs = 0
        self.handed: list[int] = []
        progress = round_tasks._progress

        def noted(job: Any, *rest: Any) -> Any:
            found = progress(job, *rest)
            self.jobs += 1
            self.handed.append(sum(report.handed for report in rest[-1]))
            return found

        round_tasks._progress = noted


@dataclass
class Fill:
    """One fill of a view."""

    seconds: float
    processor: float
    jobs: int
    rounds: int
    handed: list[int]
    total: int


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


def write_graph(home: Path, edges: int, nodes: int) -> None:
    dice = np.random.default_rng(7)
    tables = {
        "edges": {"a": dice.integers(0, nodes, edges), "b": dice.integers(0, nodes, edges)},
        "nodes": {"node": np.arange(nodes)},
        "starts": {"node": dice.choice(nodes, 10, replace=False)},
    }
    for name, columns in tables.items():
        (home / name).mkdir()
        pq.write_table(pa.table(columns), home / name / "all.parquet")


def fill(spark: Any, graph: Path, kind: str, way: str, noted: Noted) -> Fill:
    """Fill the view of a new flow."""
    os.environ.pop(round_jobs._ONLY, None)
    if (only := WAYS[way]) is not None:
        os.environ[round_jobs._ONLY] = only
    noted.jobs, noted.handed = 0, []
    text, total = VIEWS[kind]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as log, hf.Flow(kind, log=log, spark=spark) as flow:
        flow.source("edges", hf.files(graph / "edges", format="parquet", schema="a long, b long"))
        flow.source("nodes", hf.files(graph / "nodes", format="parquet", schema="node long"))
        flow.source("starts", hf.files(graph / "starts", format="parquet", schema="node long"))
        flow.view("both", BOTH)
        flow.view(kind, text, max_rounds=10_000)
        flow.open()
        began, used = time.perf_counter(), processor_time()
        epoch = flow.step()
        seconds, processor = time.perf_counter() - began, processor_time() - used
        found = int(flow.read(kind).selectExpr(total).first()[0])
    return Fill(seconds, processor, noted.jobs, epoch.rounds[kind], noted.handed, found)


def measure(spark: Any, home: Path, arguments: argparse.Namespace, noted: Noted) -> dict[str, Any]:
    graph, small = home / "graph", home / "small"
    for place, edges, nodes in ((graph, arguments.edges, arguments.nodes), (small, 1_000, 2_000)):
        place.mkdir()
        write_graph(place, edges, nodes)
    for way in WAYS:
        fill(spark, small, "components", way, noted)  # what is loaded once
    results: dict[str, Any] = {}
    # A job: forty small rounds and more, as jobs and not.
    apart = [fill(spark, small, "components", way, noted) for way in ("jobs", "task") for _ in range(arguments.repeats)]
    jobs, task = (min(each.processor for each in apart if bool(each.jobs) == has) for has in (True, False))
    results["job"] = (jobs - task) / max(each.jobs for each in apart)
    for kind in VIEWS:
        fills: dict[str, list[Fill]] = {way: [] for way in WAYS}
        for _ in range(arguments.repeats):
            for way, done in fills.items():
                done.append(fill(spark, graph, kind, way, noted))
                print(kind, way, done[-1], file=sys.stderr, flush=True)
        assert len({each.total for done in fills.values() for each in done}) == 1, "the views differ"
        best = {way: min(done, key=lambda each: each.processor) for way, done in fills.items()}
        handed = sum(best["jobs"].handed)
        results[kind] = {
            "rounds": best["task"].rounds,
            "largest": max(best["jobs"].handed),
            "handed": handed,
            "jobs": best["chosen"].jobs,
            "seconds": {way: min(each.seconds for each in done) for way, done in fills.items()},
            "processor": {way: each.processor for way, each in best.items()},
            "ratio": min(each.seconds for each in fills["task"]) / min(each.seconds for each in fills["chosen"]),
            "row": best["task"].processor / handed,
            "more": (best["jobs"].processor - best["task"].processor - best["jobs"].jobs * results["job"]) / handed,
        }
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parse(parser, edges=20_000, nodes=20_000, repeats=1)
    noted = Noted()
    spark = session()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        results = measure(spark, Path(home), arguments, noted)
    spark.stop()
    os.environ.pop(round_jobs._ONLY, None)
    if arguments.json:
        print(json.dumps(results))
        return 0
    table = Table(
        "first fill", "rounds", "largest", *(f"{way}: wall, processor" for way in WAYS), "jobs", "task / chosen"
    )
    for kind in VIEWS:
        each = results[kind]
        took = [f"{each['seconds'][way]:.1f} s, {each['processor'][way]:.1f} s" for way in WAYS]
        table.add_row(
            kind, str(each["rounds"]), f"{each['largest']:,} rows", *took, str(each["jobs"]), f"{each['ratio']:.2f}"
        )
    console = Console(width=150)
    console.print(f"{arguments.edges:,} edges, {arguments.nodes:,} nodes, {CORES} cores")
    console.print(table)
    for kind in VIEWS:
        row, more = (1e6 * results[kind][what] for what in ("row", "more"))
        console.print(f"{kind}: a row in one task {row:.2f} µs, more where rounds are jobs {more:.2f} µs")
    console.print(
        f"a job {1000 * results['job']:.0f} ms; jobs from {round_jobs.large_round(CORES) or 0:,} rows in a round on"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
