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
from holdfast.errors import ArgumentError, DeclarationError, LoopDiverged, TypeMismatch
from holdfast.operators.loop import loop_bounds
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


# -- what is said in SQL and in code -----------------------------------------------------------------------------------

MUTUAL = """
WITH RECURSIVE
  even(node) AS (SELECT node FROM starts UNION SELECT e.b FROM odd JOIN edges e ON e.a = odd.node),
  odd(node) AS (SELECT e.b FROM even JOIN edges e ON e.a = even.node)
SELECT 'even' AS parity, node FROM even UNION ALL SELECT DISTINCT 'odd', node FROM odd
"""
PAIRS = """
WITH RECURSIVE pairs AS (
  SELECT a, b FROM edges
  UNION
  SELECT one.a, two.b FROM pairs one JOIN pairs two ON one.b = two.a
), cycles AS (SELECT a FROM pairs WHERE a = b)
SELECT a, count(*) AS reached, max(a IN (SELECT a FROM cycles)) AS cyclic FROM pairs GROUP BY a
"""
OVER = """
WITH RECURSIVE far(node, steps) AS (
  SELECT node, 0L FROM reached WHERE node < 3
  UNION
  SELECT e.b, min(f.steps) + 1 FROM far f JOIN edges e ON e.a = f.node WHERE f.steps < 6 GROUP BY e.b
) SELECT node, min(steps) AS steps FROM far GROUP BY node
"""


def closure(edges: Rows) -> set[Edge]:
    pairs = set(edges)
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


def parities(edges: Rows, starts: Rows) -> Rows:
    even, odd = {node for (node,) in starts}, set()
    while True:
        more = even | {b for a, b in edges if a in odd}, {b for a, b in edges if a in even}
        if more == (even, odd):
            return Counter([("even", node) for node in even] + [("odd", node) for node in odd])
        even, odd = more


def test_mutual_and_not_linear_recursion_and_a_loop_over_a_loop(spark: SparkSession, tmp_path: Path) -> None:
    def declare(flow: hf.Flow) -> None:
        flow.view("mutual", MUTUAL)
        flow.view("pairs", PAIRS)
        flow.view("reached", REACH)
        flow.view("over", OVER)
        flow.iterate("raised", "SELECT a, b FROM edges", lambda rows: rows.select((rows.a + 1).alias("a"), "b"), 3)

        def lowered(rows: DataFrame) -> DataFrame:
            return rows.select("node", (rows.left - 1).alias("left"))

        flow.iterate(
            "countdown",
            "SELECT node, node AS left FROM starts",
            lowered,
            until=lambda before, now: now.where("left > -3"),
        )

    graph = Graph(spark, tmp_path, declare)
    for _ in range(3):
        graph.step(nodes=6)
        pairs = closure(graph.edges)
        assert graph.rows("mutual") == parities(graph.edges, graph.starts)
        assert graph.rows("pairs") == Counter(
            (a, sum(1 for c, _ in pairs if c == a), (a, a) in pairs) for a in {a for a, _ in pairs}
        )
        near = Counter({row: 1 for row in reachable(graph.edges, graph.starts) if row[0] < 3})
        assert graph.rows("over") == Counter({row: 1 for row in distances(graph.edges, near) if row[1] <= 6})
        assert graph.rows("raised") == Counter({(a + 3, b): copies for (a, b), copies in graph.edges.items()})
        most = max((node for (node,) in graph.starts), default=-9)
        assert graph.rows("countdown") == Counter(
            {(node, node - max(0, most + 2)): copies for (node,), copies in graph.starts.items()}
        )
    drawn = graph.flow.explain("reached")
    assert "loop until nothing changes, of join on" in drawn
    assert "│  variable 0, next round\n" in drawn and "├─ variable 0(node)" in drawn
    graph.flow.close()


def test_a_loop_that_does_not_end_is_an_error_and_the_flow_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("ends", tmp_path / "log", spark, partitions=2) as flow:
        numbers = flow.input("numbers", "n long")
        text = "WITH RECURSIVE t(n) AS (SELECT n FROM numbers UNION SELECT n + 1 FROM t WHERE n <> {}) SELECT n FROM t"
        flow.view("counted", text.format(20), max_rounds=30)
        numbers.insert([(5,)])
        assert flow.step().rounds == {"counted": 17}
        numbers.insert([(21,)])
        with pytest.raises(LoopDiverged, match=r"view 'counted', epoch 1: .* 1 row after its bound of 30") as raised:
            flow.step()
        assert raised.value.fields["rows"] == [(51,)]
        assert flow.read("counted").count() == 16
        flow.view("counted", text.format(20), max_rounds=40)
        with pytest.raises(LoopDiverged, match="bound of 40"):
            flow.step()
        flow.view("counted", text.format(30), max_rounds=40)
        flow.step()
        assert flow.read("counted").count() == 26


@pytest.mark.parametrize("union", ["UNION", "UNION ALL"])
def test_a_recursion_has_the_bound_of_the_session_unless_it_says_another(
    union: str, spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.cteRecursionLevelLimit", "7")
    flow = hf.Flow("bounds", tmp_path / "log", session)
    flow.input("numbers", "n long")
    counted = f"(SELECT n FROM numbers {union} SELECT n + 1 FROM t WHERE n < 9) SELECT n FROM t"
    flow.view("session", f"WITH RECURSIVE t(n) AS {counted}")
    flow.view("text", f"WITH RECURSIVE t(n) MAX RECURSION LEVEL 5 AS {counted}")
    flow.view("given", f"WITH RECURSIVE t(n) AS {counted}", max_rounds=3)
    assert [loop_bounds(flow._catalog.views[view]) for view in ("session", "text", "given")] == [
        ((7, None),),
        ((5, None),),
        ((3, None),),
    ]


RECURSIVE = "WITH RECURSIVE t(a) AS (SELECT a FROM edges {}) SELECT a FROM t"
REFUSED = {
    "UNION SELECT cast(rand() * 5 AS long) FROM t": "rand",
    "UNION ALL SELECT DISTINCT a FROM t": "not linear",
    "UNION SELECT levenshtein(cast(a AS string), 'x') FROM t": r"column \d+: levenshtein\(`a`\).*inside a loop",
    "UNION SELECT length(upper('b' || a)) + 1 FROM t": r"upper in add\(`a`\), which Holdfast leaves to Spark",
    "UNION SELECT cast(cast(a AS string) AS long) FROM t": r"CAST\(CAST\(`a` AS string\) AS bigint\).*inside a loop",
    "UNION SELECT size(transform(array(a), x -> x + 1)) FROM t": r"transform in size\(`a`\)",
}


@pytest.mark.parametrize("term", REFUSED)
def test_what_cannot_run_in_rounds_is_refused(term: str, spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", tmp_path / "log", spark)
    flow.input("edges", "a long, b long")
    with pytest.raises(DeclarationError, match=f"(?s)view 'v'.*{REFUSED[term]}") as raised:
        flow.view("v", RECURSIVE.format(term))
    assert raised.value.fields["line"] == 1


def test_the_clock_is_looked_at_before_a_loop_and_not_inside(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", tmp_path / "log", spark)
    flow.input("edges", "a long, b long, at timestamp")
    old = "WITH RECURSIVE t(a) AS (SELECT a FROM edges UNION SELECT b FROM t JOIN edges USING (a) WHERE at < now())"
    flow.view("old", f"{old} SELECT a FROM t")
    with pytest.raises(DeclarationError, match=r"view 'v'.*looks at the clock.*inside a loop"):
        flow.view("v", "WITH RECURSIVE t(n) AS (SELECT at FROM edges UNION SELECT n FROM t WHERE n < now()) TABLE t")


REFUSED_INSIDE = {
    "WITH x AS (\n  WITH RECURSIVE t(n) AS (SELECT n FROM t UNION SELECT n + 1 FROM t) SELECT * FROM t) TABLE x": (
        "t refers to nothing but itself"
    ),
    "SELECT a FROM edges e WHERE EXISTS (\nWITH RECURSIVE t(n) AS (SELECT b FROM edges WHERE b = e.b UNION SELECT n + 1"
    " FROM t WHERE n < 5) SELECT 1 FROM t)": ("column 'e.b' not found.*cannot refer to columns of the query around it"),
    "SELECT n FROM (\n WITH RECURSIVE t(n) AS (SELECT a FROM edges UNION ALL SELECT x.n FROM t x JOIN t y ON x.n = y.n"
    " UNION ALL SELECT b FROM edges) SELECT n FROM t)": "not linear.*write UNION",
    "SELECT n FROM (\nWITH RECURSIVE t(n) AS (SELECT a FROM edges UNION SELECT cast(rand() * 5 AS long) FROM t) "
    "TABLE t)": "rand",
}


@pytest.mark.parametrize("text", REFUSED_INSIDE)
def test_a_recursion_inside_a_query_is_refused_with_its_place(text: str, spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", tmp_path / "log", spark)
    flow.input("edges", "a long, b long")
    with pytest.raises(DeclarationError, match=f"(?s)view 'v', line 2, column .*{REFUSED_INSIDE[text]}") as raised:
        flow.view("v", text)
    assert raised.value.fields["line"] == 2


def test_union_in_a_recursion_of_a_data_frame_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", tmp_path / "log", spark)
    flow.input("edges", "a long, b long")
    with pytest.raises(DeclarationError, match=r"line 1, column .*give the text to flow\.view"):
        flow.sql(RECURSIVE.format("UNION SELECT b FROM t JOIN edges USING (a)"))


def test_a_recursion_without_a_beginning_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", tmp_path / "log", spark)
    with pytest.raises(DeclarationError, match="t refers to nothing but itself") as raised:
        flow.view("v", "WITH RECURSIVE t(n) AS (SELECT n FROM t UNION SELECT n + 1 FROM t) SELECT * FROM t")
    assert raised.value.fields["line"] == 1 and raised.value.fields["column"] == 25


def test_a_body_with_other_columns_than_its_start_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", tmp_path / "log", spark)
    flow.input("edges", "a long, b long")
    with pytest.raises(TypeMismatch, match="expected \\(a bigint\\), found \\(a int\\)"):
        flow.iterate("v", "SELECT a FROM edges", lambda rows: rows.select(rows.a.cast("int").alias("a")))
    with pytest.raises(DeclarationError, match="what the body returns is a PySpark DataFrame, found int"):
        flow.iterate("v", "SELECT a FROM edges", lambda rows: 5)  # type: ignore[arg-type,return-value]
    with pytest.raises(ArgumentError, match=r"view 'v': until must be a function of two arguments.*not <lambda>"):
        flow.iterate("v", "SELECT a FROM edges", lambda rows: rows, until=lambda rows: rows)  # type: ignore[arg-type,misc]
