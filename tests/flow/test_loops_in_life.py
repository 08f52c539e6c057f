"""Recursive views through a life: edited (also in the body), read as of an epoch, run with other partitions, crashed.

After every step all views are what plain Python says; what they held at earlier epochs can still be read, their changes
add up to what they hold, and so does what a sink was given.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.testing import Crash, crash_at

from .test_loops import REACH, Graph, Rows, distances, reachable

BACK = REACH.replace("SELECT e.b FROM reached JOIN edges e ON e.a", "SELECT e.a FROM reached JOIN edges e ON e.b")
SQUARED = """
WITH RECURSIVE pairs(a, b) AS (
  SELECT a, b FROM edges UNION SELECT x.a, y.b FROM pairs x JOIN pairs y ON x.b = y.a
) SELECT node FROM starts UNION SELECT b FROM pairs JOIN starts ON node = a
"""
TEXTS = (REACH, BACK, SQUARED)
HOPS = """
WITH RECURSIVE hops(node) AS (
  SELECT node FROM starts
  UNION
  SELECT n FROM (
    WITH RECURSIVE near(n, steps) AS (
      SELECT node, 0 FROM hops UNION ALL SELECT e.b, steps + 1 FROM near JOIN edges e ON e.a = n WHERE steps < 2
    ) SELECT n FROM near)
) SELECT node FROM hops
"""
"""A loop in the body of a loop: two steps at a time, until no more is reached."""


def turned(edges: Rows) -> Rows:
    return Counter({(b, a): copies for (a, b), copies in edges.items()})


class Life:
    """A flow whose views are edited while its graph changes."""

    def __init__(self, spark: SparkSession, root: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.edition, self.far = 0, 1
        self.edited = {"reached": -1, "hops": -1, "distances": -1}
        """View → the last epoch of its query before the one that it has."""

        self.seen: dict[int, dict[str, Rows]] = {}
        self.root = root
        self.graph = Graph(spark, root, self.declare, retain="all")
        self.graph.dice = random.Random(f"graph {seed}")

    def declare(self, flow: hf.Flow) -> None:
        self.queries(flow)
        flow.view("hops", HOPS)
        for view in ("reached", "distances"):
            flow.sink(view, hf.changelog(self.root / view))

    def edit(self, **chosen: int) -> None:
        """Other queries: another recursion, another body of the iteration."""
        for view, name in (("reached", "edition"), ("distances", "far")):
            if chosen.get(name, getattr(self, name)) != getattr(self, name):
                setattr(self, name, chosen[name])
                self.edited[view] = max(self.seen)
        self.queries(self.graph.flow)

    def queries(self, flow: hf.Flow) -> None:
        flow.view("reached", TEXTS[self.edition])
        flow.iterate("distances", f"SELECT DISTINCT node, {self.far - 1}L AS far FROM starts", self.body(flow))

    def body(self, flow: hf.Flow) -> Callable[[DataFrame], DataFrame]:
        step = self.far

        def nearer(now: DataFrame) -> DataFrame:
            edges = flow.table("edges")
            told = now.join(edges, now.node == edges.a).select(F.col("b").alias("node"), F.col("far") + step)
            return now.union(told).groupBy("node").agg(F.min("far").alias("far"))

        return nearer

    def meant(self) -> dict[str, Rows]:
        edges, starts = self.graph.edges, self.graph.starts
        near = distances(edges, starts)
        return {
            "reached": reachable(turned(edges) if self.edition == 1 else edges, starts),
            "hops": reachable(edges, starts),
            "distances": Counter({(node, self.far - 1 + self.far * far): 1 for node, far in near}),
        }

    def step(self) -> None:
        epoch = self.graph.step()
        assert epoch is not None
        self.check(epoch.epoch)

    def check(self, epoch: int) -> None:
        now = {view: self.graph.rows(view) for view in ("reached", "hops", "distances")}
        assert now == self.meant()
        self.seen[epoch] = now

    def reopen(self, **options: int) -> None:
        self.graph.flow.close()
        self.graph.open(**options)

    def look_back(self) -> None:
        """Every epoch is as it was, and changes and sinks add up to what the views hold."""
        last = max(self.seen)
        for view in self.seen[last]:
            changes = [tuple(row) for row in self.graph.flow.changes(view, since=-1).collect()]
            for epoch, views in self.seen.items():
                if epoch <= self.edited[view]:
                    continue  # the query was another one
                assert self.graph.rows(view, at=epoch) == views[view], f"{view} as of epoch {epoch}"
            total: Rows = Counter()
            for *row, _, diff in changes:
                total[tuple(row)] += diff
            assert +total == self.seen[last][view], f"changes of {view}"
        self.graph.flow.wait_safe()
        for view in ("reached", "distances"):
            rows: Rows = Counter()
            for path in sorted((self.root / view).glob("*.parquet")):
                table = pq.read_table(path).drop_columns(["_epoch"]).to_pydict()
                for *row, diff in zip(*table.values(), strict=True):
                    rows[tuple(row)] += diff
            assert +rows == self.seen[last][view] and -rows == Counter(), f"the sink of {view}"


def test_a_recursive_view_is_edited_in_its_body_rescaled_and_read_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(spark, tmp_path, 1)
    life.step()
    life.step()
    life.edit(edition=1, far=2)
    life.step()
    life.graph.flow.rescale(3)
    life.step()
    life.reopen(partitions=2)
    life.edit(edition=2)
    life.step()
    life.look_back()
    life.graph.flow.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_recursive_views_are_right_through_many_edits_restarts_and_crashes(
    seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setenv("HOLDFAST_ROUNDS", "jobs")
    life = Life(spark, tmp_path, seed)
    life.step()
    for _ in range(15):
        match life.dice.choice(["step", "step", "edit", "edit", "reopen", "rescale", "crash"]):
            case "rescale":
                life.graph.flow.rescale(life.dice.randrange(1, 6))
            case "edit":
                life.edit(edition=life.dice.randrange(3), far=life.dice.randrange(1, 4))
            case "reopen":
                life.reopen(partitions=life.dice.randrange(1, 6))
            case "crash":
                with pytest.raises(Crash), crash_at(life.dice.choice(["epoch.ran", "epoch.complete"])):
                    life.graph.step()
                life.reopen()
                life.graph.flow.run(until="idle")
        life.step()
    life.look_back()
    life.graph.flow.close()
