"""Small epochs run in one task, others as usual, and the views are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors.source import Offer, Part
from holdfast.errors import NegativeMultiplicity
from holdfast.plan.nodes import Field
from holdfast.spark.epoch_job import EpochJob
from holdfast.task.single_task import SMALL
from holdfast.testing import assert_same_rows

VIEW = "SELECT u.g, count(*) AS n, sum(t.v) AS s FROM t JOIN u ON t.k = u.k GROUP BY u.g"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The jobs with exchanges that were planned."""
    jobs: list[int] = []
    plan = EpochJob.plan

    def counted(self: EpochJob, *arguments: Any, **options: Any) -> Any:
        jobs.append(1)
        return plan(self, *arguments, **options)

    monkeypatch.setattr(EpochJob, "plan", counted)
    yield jobs


def test_an_epoch_like_a_small_one_before_it_is_one_task(
    spark: SparkSession, tmp_path: Path, planned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PATH", "task")
    with hf.Flow("small", log=tmp_path / "log", spark=spark) as flow:
        t, u = flow.input("t", "k long, v long"), flow.input("u", "k long, g string")
        flow.view("v", VIEW)
        t.insert([(each % 5, each) for each in range(100)])
        u.insert([(each, "ab"[each % 2]) for each in range(5)])
        flow.step()
        assert len(planned) == 1  # nothing was known of how large epochs are
        t.delete([(3, 3), (4, 4)])
        u.update([(1, "b")], [(1, "c")])
        epoch = flow.step()
        assert len(planned) == 1 and epoch.rows_in == 4 and epoch.changed == {"v": 5}
        expected = pa.table({"g": ["a", "b", "c"], "n": [59, 19, 20], "s": [2966, 1007, 970]})
        assert_same_rows(flow.read("v"), expected)
        t.delete([(3, 3)])
        with pytest.raises(NegativeMultiplicity):
            flow.step()
        t.discard()
        t.insert([(each % 5, each) for each in range(2 * SMALL + 1)])  # more than one task takes
        flow.step()
        assert len(planned) == 2
        t.insert([(0, 0)])
        flow.step()
        assert len(planned) == 3  # the one before was not small
        rows = [(each % 5, each) for each in [*range(100), *range(2 * SMALL + 1)] if each not in (3, 4)]
        rows += [(3, 3), (4, 4), (0, 0)]
        groups = {0: "a", 1: "c", 2: "a", 3: "b", 4: "a"}
        found = {row["g"]: (row["n"], row["s"]) for row in flow.read("v").collect()}
        for name in "abc":
            mine = [value for key, value in rows if groups[key] == name]
            assert found[name] == (len(mine), sum(mine))


class Trusted(hf.Source):
    """A source that deletes what it gave."""

    fields = (Field("k", "bigint"),)
    retracts = True
    trusted = True

    def __init__(self) -> None:
        self.waiting_for: list[list[int]] = [[1, 1], [1, -1]]

    def poll(self) -> Offer | None:
        return {"rows": [self.waiting_for[0]]} if self.waiting_for else None

    def advance(self, offer: Offer) -> None:
        self.waiting_for = self.waiting_for[1:]

    def parts(self, offer: Offer) -> list[Part]:
        return [_Rows(offer["rows"])]


class _Rows:
    def __init__(self, rows: list[list[int]]) -> None:
        self._rows = rows

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        yield pa.table([pa.array(column, pa.int64()) for column in zip(*self._rows, strict=True)], ["k", "_diff"])


def test_rows_of_a_source_that_is_trusted_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("trusting", log=tmp_path / "log", spark=spark) as flow:
        flow.source("t", Trusted())
        flow.view("v", "SELECT count(*) AS n FROM t")
        flow.step()
        assert flow.read("v").collect()[0]["n"] == 1
        flow.step()
        assert flow.read("v").collect()[0]["n"] == 0
        kinds = [trace.kind for trace in flow.status().traces]
        assert sorted(kinds) == ["aggregate", "log"]  # the view's own log, and none of the source
