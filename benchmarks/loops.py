"""Recursive views over a large graph: what one edge costs, beside computing everything anew.

For connected components, reachability from a set and shortest paths, over one random graph: a flow takes one edge per
epoch, inserted or deleted at random. In between, in the same run, the same is computed from scratch: by Spark with a
join and an aggregate per round (as GraphFrames does), by DuckDB with a recursive query, and by Spark's own WITH
RECURSIVE. That one takes no aggregate over what is defined, and its UNION ALL visits a node once per way that leads
there; the table has what it says instead of a result, and after how many seconds.
The ratio is the median epoch by the fastest way of Spark's; the goal is 1/50. All ways must agree on how many rows
there are, and on the sum of their labels or distances.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from data import parse, session
from rich.console import Console
from rich.table import Table

import holdfast as hf

Ints = npt.NDArray[np.int64]

BOTH = "SELECT a, b FROM edges UNION ALL SELECT b, a FROM edges"
COMPONENTS = """
WITH RECURSIVE labels(node, label) AS (
  SELECT node, node FROM nodes
  UNION
  SELECT e.b, min(l.label) FROM labels l JOIN both e ON e.a = l.node GROUP BY e.b
) SELECT node, min(label) AS label FROM labels GROUP BY node
"""
REACHED = """
WITH RECURSIVE reached(node) AS (
  SELECT node FROM starts UNION SELECT e.b FROM reached r JOIN edges e ON e.a = r.node
) SELECT node FROM reached
"""
PATHS = """
WITH RECURSIVE ways(node, far) AS (
  SELECT node, 0L FROM starts
  UNION
  SELECT e.b, min(w.far + e.w) FROM ways w JOIN edges e ON e.a = w.node GROUP BY e.b
) SELECT node, min(far) AS far FROM ways GROUP BY node
"""
VIEWS = {"components": COMPONENTS, "reached": REACHED, "paths": PATHS}
VALUES = {"components": "label", "reached": "0", "paths": "far"}
GOAL = 1 / 50

Found = tuple[int, int]
"""How many rows there are, and the sum of their labels or distances."""


class Graph:
    """Random edges with weights, and which of them are there."""

    def __init__(self, edges: int, nodes: int, seed: int) -> None:
        self.dice = np.random.default_rng(seed)
        self.nodes = nodes
        self.a, self.b = self.dice.integers(0, nodes, edges), self.dice.integers(0, nodes, edges)
        self.w = self.dice.integers(1, 100, edges)
        self.gone: list[int] = []
        self.starts = self.dice.choice(nodes, 10, replace=False)

    def table(self, rows: Any = slice(None)) -> pa.Table:
        return pa.table({"a": self.a[rows], "b": self.b[rows], "w": self.w[rows]})

    def now(self) -> pa.Table:
        there = np.ones(len(self.a), np.bool_)
        there[self.gone] = False
        return self.table(there)

    def change(self) -> tuple[pa.Table, bool]:
        """An edge that goes, or one that comes back."""
        if self.gone and self.dice.random() < 0.5:
            return self.table([self.gone.pop(int(self.dice.integers(len(self.gone))))]), True
        index = int(self.dice.integers(len(self.a)))
        while index in self.gone:
            index = int(self.dice.integers(len(self.a)))
        self.gone.append(index)
        return self.table([index]), False


# -- everything anew ---------------------------------------------------------------------------------------------------


def rounds_of_spark(spark: Any, graph: Graph, kind: str) -> Callable[[], Found]:
    """The same in Spark, a join and an aggregate per round, until nothing changes."""
    from pyspark.sql import functions as F

    edges = spark.createDataFrame(graph.now())
    if kind == "components":
        edges = edges.select("a", "b").union(edges.select("b", "a")).toDF("a", "b")
        start = spark.range(graph.nodes).select(F.col("id").alias("node"), F.col("id").alias("value"))
        step = F.col("value")
    else:
        start = spark.createDataFrame([(int(each), 0) for each in graph.starts], "node long, value long")
        step = F.col("value") + F.col("w") if kind == "paths" else F.lit(0).cast("long")
    edges = edges.cache()
    edges.count()

    def run() -> Found:
        now = start.cache()
        total, count = now.agg(F.sum("value"), F.count("*")).first()
        while True:
            told = now.join(edges, now.node == edges.a).select(F.col("b").alias("node"), step.alias("value"))
            new = now.union(told).groupBy("node").agg(F.min("value").alias("value")).localCheckpoint()
            found = new.agg(F.sum("value"), F.count("*")).first()
            if (found[0], found[1]) == (total, count):
                return int(count), int(total)
            now, (total, count) = new, found

    return run


def recursion_of_spark(spark: Any, graph: Graph, kind: str) -> Callable[[], str]:
    """Spark's own recursive query, within its limits: how many rows it gives, or the error that it ends with."""
    spark.createDataFrame(graph.now()).createOrReplaceTempView("edges")
    spark.createDataFrame([(int(each),) for each in graph.starts], "node long").createOrReplaceTempView("starts")
    spark.range(graph.nodes).toDF("node").createOrReplaceTempView("nodes")
    spark.sql(BOTH).createOrReplaceTempView("both")
    text = VIEWS[kind].replace("UNION", "UNION ALL")
    if kind == "reached":
        text += " GROUP BY node"

    def run() -> str:
        try:
            return f"{spark.sql(text).count():,} rows"
        except Exception as error:  # what it refuses, and its limits on levels and rows
            named = re.search(r"\[([A-Z_.]+)\]", str(error))
            return named[1] if named else type(error).__name__

    return run


DUCK = {
    "components": """
        WITH RECURSIVE labels(node, label) USING KEY (node) AS (
          SELECT node, node FROM nodes
          UNION
          SELECT e.b, min(l.label) FROM labels l JOIN both_ways e ON e.a = l.node
          JOIN recurring.labels r ON r.node = e.b WHERE l.label < r.label GROUP BY e.b
        ) SELECT count(*), sum(label) FROM labels""",
    "reached": f"SELECT count(*), 0 FROM ({REACHED})",
    "paths": """
        WITH RECURSIVE ways(node, far) USING KEY (node) AS (
          SELECT node, 0 FROM starts
          UNION
          SELECT e.b, min(w.far + e.w) AS far FROM ways w JOIN edges e ON e.a = w.node
          LEFT JOIN recurring.ways r ON r.node = e.b WHERE r.far IS NULL OR w.far + e.w < r.far GROUP BY e.b
        ) SELECT count(*), sum(far) FROM ways""",
}


def query_of_duckdb(graph: Graph, kind: str) -> Callable[[], Found]:
    database = duckdb.connect()
    edges, nodes = graph.now(), pa.table({"node": np.arange(graph.nodes)})
    starts = pa.table({"node": graph.starts})
    for name, table in {"edges": edges, "nodes": nodes, "starts": starts}.items():
        database.register(f"{name}_given", table)
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_given")
    database.execute("CREATE TABLE both_ways AS SELECT a, b FROM edges UNION ALL SELECT b, a FROM edges")

    def run() -> Found:
        ((count, total),) = database.execute(DUCK[kind]).fetchall()
        return int(count), int(total)

    return run


# -- the benchmark -----------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """What was measured so far, for those who wait."""
    print(text, file=sys.stderr, flush=True)


def timed(run: Callable[[], object]) -> tuple[float, object]:
    began = time.perf_counter()
    found = run()
    return time.perf_counter() - began, found


def measure(spark: Any, home: Path, kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One algorithm: epochs of one edge, with everything anew in between."""
    graph = Graph(arguments.edges, arguments.nodes, seed=7)
    with hf.Flow(kind, log=home / kind, spark=spark) as flow:
        edges = flow.input("edges", "a long, b long, w long")
        flow.input("starts", "node long").insert([(int(each),) for each in graph.starts])
        flow.input("nodes", "node long").insert(pa.table({"node": np.arange(graph.nodes)}))
        if kind == "components":
            flow.view("both", BOTH)
        flow.view(kind, VIEWS[kind], max_rounds=10_000)
        edges.insert(graph.table())
        fill, _ = timed(flow.step)
        say(f"{kind}: filled in {fill:.1f} s")
        times: list[float] = []
        came: list[bool] = []
        paths: set[str] = set()
        for number in range(-arguments.warm_up, arguments.changes):
            row, comes = graph.change()
            (edges.insert if comes else edges.delete)(row)
            began = time.perf_counter()
            epoch = flow.step()
            if number >= 0:
                times.append(time.perf_counter() - began)
                came.append(comes)
                paths.add(epoch.path)
        say(f"{kind}: {len(times)} changes, median {1000 * statistics.median(times):.0f} ms")
        ((count, total),) = flow.read(kind).selectExpr("count(*)", f"sum({VALUES[kind]})").collect()
        held = (int(count), int(total))
        anew = {"Spark, joins in rounds": rounds_of_spark(spark, graph, kind), "DuckDB": query_of_duckdb(graph, kind)}
        seconds: dict[str, float] = {}
        for name, run in anew.items():
            each = [timed(run) for _ in range(arguments.repeats)]
            assert all(found == held for _, found in each), f"{name}: {each[0][1]}, the view has {held}"
            seconds[name] = min(taken for taken, _ in each)
            say(f"{kind}: {name}, anew in {seconds[name]:.1f} s")
        result = {
            "fill_s": fill,
            "epochs_ms": [1000 * each for each in times],
            "rows": held[0],
            "sum": held[1],
            "anew_s": seconds,
        }
        taken, said = timed(recursion_of_spark(spark, graph, kind))
        result["recursion_of_spark"] = {"seconds": taken, "said": said}
        say(f"{kind}: Spark's WITH RECURSIVE, {said} after {taken:.1f} s")
    result |= {"paths": sorted(paths), "median_ms": 1000 * statistics.median(times), "worst_ms": 1000 * max(times)}
    for what, wanted in (("inserted_ms", True), ("deleted_ms", False)):
        some = [1000 * each for each, comes in zip(times, came, strict=True) if comes == wanted]
        result[what] = statistics.median(some) if some else None
    result["ratio"] = statistics.median(times) / seconds["Spark, joins in rounds"]
    return result


SHARES = {"least": 0.0, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "worst": 1.0}


def distribution(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """How long epochs of one edge took."""
    table = Table("one edge, ms", *SHARES, "first fill")
    for kind, each in results.items():
        order = sorted(each["epochs_ms"])
        shares = [f"{order[min(len(order) - 1, int(share * len(order)))]:.0f}" for share in SHARES.values()]
        table.add_row(kind, *shares, f"{each['fill_s']:.1f} s")
    return table


def anew(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """How long it takes to compute everything anew, and epochs as a part of it: the median and the worst by the fastest
    way of Spark's, the median by DuckDB."""
    ways = ("Spark, joins in rounds", "Spark's WITH RECURSIVE", "DuckDB")
    table = Table("everything anew", *ways, "one edge by Spark", "the worst", "by DuckDB")
    for kind, each in results.items():
        seconds, own = each["anew_s"], each["recursion_of_spark"]
        joins, duck = f"{seconds['Spark, joins in rounds']:.1f} s", f"{seconds['DuckDB']:.1f} s"
        worst = 1000 * seconds["Spark, joins in rounds"] / each["worst_ms"]
        by_duck = each["median_ms"] / 1000 / seconds["DuckDB"]
        shares = (f"1/{1 / each['ratio']:.0f}", f"1/{worst:.0f}", f"{by_duck:.2f}")
        table.add_row(kind, joins, f"{own['said']}, {own['seconds']:.1f} s", duck, *shares)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", choices=list(VIEWS), default=None)
    arguments = parse(parser, edges=3_000, nodes=2_000, changes=6, warm_up=2, repeats=1)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        spark = session()
        spark.conf.set(
            "spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism)
        )  # as its users do
        kinds = [arguments.only] if arguments.only else list(VIEWS)
        results = {kind: measure(spark, home, kind, arguments) for kind in kinds}
        spark.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if arguments.json:
        print(json.dumps(results))
        return int(any(each["ratio"] > GOAL for each in results.values()))
    console = Console(width=150)
    console.print(f"{arguments.edges:,} edges, {arguments.nodes:,} nodes, {arguments.changes} changes of one edge each")
    console.print(distribution(results))
    console.print(anew(results))
    for kind, each in results.items():
        medians = [f"{each[what]:.0f} ms" if each[what] else "none" for what in ("inserted_ms", "deleted_ms")]
        met = "met" if each["ratio"] <= GOAL else "missed"
        console.print(f"{kind}: inserted p50 {medians[0]}, deleted p50 {medians[1]}; goal of 1/{1 / GOAL:.0f} {met}")
    return int(any(each["ratio"] > GOAL for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
