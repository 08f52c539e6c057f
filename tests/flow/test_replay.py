"""An epoch computed again gives the same change, bit for bit: with any number of partitions, after any merges.

This family catches what is hidden in order: floating-point sums that depend on it, ties, partition boundaries, merges
that lose or reorder something.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.trace.equality import equal_rows
from holdfast.trace.hashing import hash_columns

VIEWS = {
    "sums": "SELECT k, sum(x) AS s, avg(x) AS a, count(*) AS n, stddev(x) AS d FROM t GROUP BY k",
    "ends": "SELECT k, min(x) AS lo, max(y) AS hi, count(DISTINCT y) AS c FROM t GROUP BY k",
    "pairs": "SELECT t.k, t.x, u.z FROM t JOIN u ON t.k = u.k",
    "by_z": "SELECT u.z, sum(t.x) AS s FROM t JOIN u ON t.k = u.k GROUP BY u.z",
    "top": "SELECT k, s FROM sums ORDER BY s DESC LIMIT 3",
    "all": "SELECT sum(x) AS s, count(*) AS n FROM t",
    "texts": "SELECT upper(y) AS y, sum(x) AS s FROM t GROUP BY upper(y)",
}


def _canonical(change: pa.Table) -> tuple[list[pa.Array], np.ndarray]:
    columns = [column.combine_chunks() for column in change.columns]
    order = pa.array(np.argsort(hash_columns(columns, normalise=False), kind="stable"))
    return [column.take(order) for column in columns], np.asarray(order)


def _assert_same_bits(left: pa.Table, right: pa.Table, subject: str) -> None:
    assert left.num_rows == right.num_rows, subject
    one, _ = _canonical(left)
    other, _ = _canonical(right)
    assert bool(equal_rows(one, other).all()), subject


def test_any_epoch_gives_the_same_bits_again_with_any_number_of_partitions_after_any_merges(
    spark: SparkSession, tmp_path: Path
) -> None:
    random = Random(7)
    first: list[dict[str, pa.Table]] = []
    floats = [0.1, 0.2, 0.3, 1e16, -1e16, 1.0, math.nan, -0.0, 0.0, 1e-300]
    rows: list[tuple[object, ...]] = []
    with hf.Flow("replay", log=tmp_path / "log", spark=spark, partitions=2, retain="all") as flow:
        t = flow.input("t", "k long, x double, y string")
        u = flow.input("u", "k long, z int")
        for name, sql in VIEWS.items():
            flow.view(name, sql)
        u.insert([(k, k % 3) for k in range(8)])
        for epoch in range(9):
            new = [(random.randrange(8), random.choice(floats), random.choice("abc")) for _ in range(30)]
            gone = random.sample(rows, min(len(rows), 12))
            t.insert(new)
            t.delete(gone)
            for row in gone:
                rows.remove(row)
            rows += new
            assert flow.step().epoch == epoch
            engine = flow._started()
            # Replayed at once, while the layers are still as the epoch left them.
            first.append(engine.replay(epoch, 2))
        engine._maintenance.upkeep()
        assert engine._maintenance.merges > 0, "the test is about merges: there must have been some"
        for epoch in (0, 1, 4, 8):
            for partitions in (1, 3):
                again = engine.replay(epoch, partitions)
                for view in VIEWS:
                    _assert_same_bits(
                        first[epoch][view], again[view], f"{view}, epoch {epoch}, {partitions} partitions"
                    )
        for view in VIEWS:
            for epoch in (0, 8):
                logged = engine._flow.log_of(view).change_at(epoch)
                _assert_same_bits(first[epoch][view], logged, f"the log of {view}, epoch {epoch}")


def test_a_sum_of_doubles_returns_to_what_it_was_when_a_large_row_comes_and_goes(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hf.Flow("sums", log=tmp_path / "log", spark=spark) as flow:
        t = flow.input("t", "k int, x double")
        flow.view("s", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        t.insert([(1, 0.1), (1, 0.2)])
        flow.step()
        before = flow.read("s").toArrow()
        t.insert([(1, 1e300)])
        flow.step()
        t.delete([(1, 1e300)])
        flow.step()
        assert flow.read("s").toArrow().equals(before)


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_the_number_of_partitions_may_change_between_runs(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    def build(count: int) -> tuple[hf.Flow, object]:
        flow = hf.Flow("repartition", log=tmp_path / "log", spark=spark, partitions=count)
        t = flow.input("t", "k long, x long")
        flow.view("v", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        flow.view("top", "SELECT * FROM v ORDER BY s DESC LIMIT 5")
        return flow, t

    flow, t = build(3)
    with flow:
        t.insert([(k % 50, k) for k in range(500)])  # type: ignore[attr-defined]
        flow.step()
    flow, t = build(partitions)
    with flow:
        t.insert([(k % 50, 1) for k in range(50)])  # type: ignore[attr-defined]
        flow.step()
        found = {row.k: row.s for row in flow.read("v").collect()}
        assert found == {k: sum(range(k, 500, 50)) + 1 for k in range(50)}
        assert sorted(row.s for row in flow.read("top").collect()) == sorted(found.values())[-5:]
