"""Recursive views and iterations as flows on Spark, compared after every epoch.

Where Spark takes the query itself, its batch result is the oracle; for what it refuses (UNION, recursion that is not
linear or mutual, aggregates), a plain fixpoint in Python.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.testing import Crash, crash_at

Edge = tuple[int, int]
Rows = Counter[tuple[Any, ...]]

REACH = """
WITH RECURSIVE reached(node) AS (
  SELECT node FROM starts
  UNION
  SELECT e.b FROM reached JOIN edges e ON e.a = reached.node
) SELECT node FROM reached
"""
LABELS = """
WITH RECURSIVE labels(node, label) AS (
  SELECT DISTINCT a, a FROM both
  UNION
  SELECT e.b, min(l.label) FROM labels l JOIN both e ON e.a = l.node GROUP BY e.b
) SELECT node, min(label) AS label FROM labels GROUP BY node
"""
BOTH = "SELECT a, b FROM edges UNION ALL SELECT b, a FROM edges"
WALKS = """
WITH RECURSIVE walks(node, steps) AS (
  SELECT node, 0 FROM starts
  UNION ALL
  SELECT e.b, w.steps + 1 FROM walks w JOIN edges e ON e.a = w.node WHERE w.steps < 4
) SELECT node, steps, count(*) AS walks FROM walks GROUP BY node, steps
"""


def reachable(edges: Rows, starts: Rows) -> Rows:
    found = {node for (node,) in starts}
    while more := {b for a, b in edges if a in found} - found:
        found |= more
    return Counter({(node,): 1 for node in found})


def components(edges: Rows) -> Rows:
    label = {node: node for edge in edges for node in edge}
    while True:
        before = dict(label)
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
        if label == before:
            return Counter({pair: 1 for pair in label.items()})


class Graph:
    """A flow over edges and starts that change at random."""

    def __init__(self, spark: SparkSession, root: Path, declare: Callable[[hf.Flow], object], **options: Any) -> None:
        self.spark, self.root, self.declare, self.options = spark, root, declare, options
        self.dice = random.Random(7)
        self.edges: Rows = Counter()
        self.starts: Rows = Counter()
        self.open()

    def open(self, **options: Any) -> None:
        options = {"partitions": 2, **self.options, **options}
        self.flow = hf.Flow("graph", self.root / "log", self.spark, **options)
        self.edge_input = self.flow.input("edges", "a long, b long")
        self.start_input = self.flow.input("starts", "node long")
        self.declare(self.flow)

    def step(self, nodes: int = 8) -> hf.Epoch | None:
        """Some edges come, some go, so do starts."""
        come = [(self.dice.randrange(nodes), self.dice.randrange(nodes)) for _ in range(self.dice.randrange(1, 5))]
        gone = [edge for edge in self.edges.elements() if self.dice.random() < 0.25]
        self.edge_input.insert(come)
        self.edge_input.delete(gone)
        self.edges += Counter(come)
        self.edges -= Counter(gone)
        start = (self.dice.randrange(nodes),)
        if self.starts and self.dice.random() < 0.4:
            start = self.dice.choice(list(self.starts.elements()))
            self.start_input.delete([start])
            self.starts -= Counter([start])
        else:
            self.start_input.insert([start])
            self.starts += Counter([start])
        return self.flow.step()

    def rows(self, view: str, **at: Any) -> Rows:
        return Counter(tuple(row) for row in self.flow.read(view, **at).collect())

    def in_spark(self, query: str) -> Rows:
        self.spark.createDataFrame(list(self.edges.elements()), "a long, b long").createOrReplaceTempView("edges")
        self.spark.createDataFrame(list(self.starts.elements()), "node long").createOrReplaceTempView("starts")
        try:
            return Counter(tuple(row) for row in self.spark.sql(query).collect())
        finally:
            for name in ("edges", "starts"):
                self.spark.catalog.dropTempView(name)


def declared(flow: hf.Flow) -> None:
    flow.view("both", BOTH)
    flow.view("reached", REACH)
    flow.view("labels", LABELS)
    flow.view("walks", WALKS)

    def nearer(distances: DataFrame) -> DataFrame:
        edges = flow.table("edges")
        told = distances.join(edges, distances.node == edges.a).select(F.col("b").alias("node"), F.col("far") + 1)
        return distances.union(told).groupBy("node").agg(F.min("far").alias("far"))

    flow.iterate("distances", "SELECT DISTINCT node, 0L AS far FROM starts", nearer)


def distances(edges: Rows, starts: Rows) -> Rows:
    far = {node: 0 for (node,) in starts}
    frontier = set(far)
    while frontier:
        frontier = {b for a, b in edges if a in frontier} - far.keys()
        far |= dict.fromkeys(frontier, max(far.values()) + 1)
    return Counter({pair: 1 for pair in far.items()})


def check(graph: Graph) -> None:
    assert graph.rows("reached") == reachable(graph.edges, graph.starts)
    assert graph.rows("labels") == components(graph.edges)
    assert graph.rows("distances") == distances(graph.edges, graph.starts)


def test_recursive_views_follow_insertions_and_deletions_in_small_epochs_and_in_stages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(spark, tmp_path, declared)
    for epoch in range(6):
        if epoch == 4:
            monkeypatch.setattr("holdfast.spark.epoch_job.SMALL", -1)
        graph.step()
        check(graph)
    assert graph.rows("walks") == graph.in_spark(WALKS)
    graph.flow.close()


def test_a_recursive_view_is_read_as_of_an_epoch_recovered_and_run_with_other_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = Graph(spark, tmp_path, declared)
    seen: list[tuple[Rows, Rows]] = []
    for _ in range(3):
        graph.step()
        seen.append((graph.rows("reached"), graph.rows("labels")))
    with pytest.raises(Crash), crash_at("epoch.ran"):
        graph.step()
    graph.flow.close()
    graph.open(partitions=3)
    graph.step()
    check(graph)
    for epoch, (reached, labels) in enumerate(seen):
        assert graph.rows("reached", at=epoch) == reached
        assert graph.rows("labels", at=epoch) == labels
    total: Rows = Counter()
    for row in graph.flow.changes("reached", since=-1).collect():
        total[(row["node"],)] += row["_diff"]
    assert +total == graph.rows("reached")
    graph.flow.close()
