"""One-off queries and membership in a local session: what is refused, and what needs no cluster to be seen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import DeclarationError, EvaluationError, MembershipError, SqlError, TooFewMembers
from logged import logged


@pytest.mark.parametrize("policy", ["replay", "terminate", "continue"])
def test_without_a_loss_every_policy_gives_sparks_answer(spark: Any, policy: Any) -> None:
    rows, report = hf.query(spark, "SELECT id % 2 AS g, count(*) AS n FROM range(10) GROUP BY 1", on_loss=policy)
    assert sorted(map(tuple, (row.values() for row in rows.to_pylist()))) == [(0, 5), (1, 5)]
    assert report.exact and not report.lost and not report.recomputed and report.runs == 1
    if policy == "continue":
        assert report.coverage is not None and report.coverage.rows == report.coverage.rows_total == 10


def test_sources_and_frames_are_tables_of_the_query(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"k": [number, number]}), tmp_path / f"{number}.parquet")
    tables = {"files": hf.files(tmp_path), "frame": spark.range(2).toDF("k")}
    text = "SELECT sum(files.k) AS s, count(*) AS n FROM files JOIN frame USING (k)"
    rows, report = hf.query(spark, text, on_loss="continue", tables=tables)
    assert rows.to_pylist() == [{"s": 2, "n": 4}]
    assert report.coverage is not None and report.coverage.complete and report.coverage.rows_total == 8


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("SELECT nope FROM range(3)", {}, SqlError, "query: .*nope"),
        ("SELEC 1", {}, SqlError, "query: .*SELEC"),
        ("SELECT 1", {"on_loss": "retry"}, DeclarationError, "on_loss must be one of 'replay'.*not 'retry'"),
        ("SELECT 1", {"timeout": 0}, DeclarationError, "timeout must be more than 0"),
        ("SELECT 1 / (id - 1) FROM range(3)", {}, EvaluationError, "query: .*DIVIDE_BY_ZERO"),
    ],
)
def test_a_mistake_is_named(spark: Any, text: str, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        hf.query(spark, text, **options)


def test_tables_are_for_sql(spark: Any) -> None:
    with pytest.raises(DeclarationError, match="tables are for SQL"):
        hf.query(spark, spark.range(3), tables={"t": spark.range(3)})


def test_a_query_that_takes_too_long_is_cancelled_and_says_how_far_it_came(spark: Any) -> None:
    def slowly(key: int) -> int:
        time.sleep(60)
        return key

    spark.udf.register("slowly", slowly, "long")
    with pytest.raises(TimeoutError, match=r"done: nothing; not done: stage \d+"):
        hf.query(spark, "SELECT slowly(id) FROM range(1)", timeout=2.0)


def test_a_handler_is_told_the_initial_set_also_if_it_comes_later(spark: Any) -> None:
    watch = hf.on_membership(spark)
    heard: list[hf.Change] = []
    watch(heard.append)
    assert watch.settle()
    watch.close()
    assert [change.number for change in heard] == [0] and heard[0].initial and heard[0].members == watch.members


def test_an_error_in_a_handler_ends_the_watch_with_its_text(spark: Any) -> None:
    watch = hf.on_membership(spark)

    def fails(change: hf.Change) -> None:
        raise ValueError("no more")

    with logged("no more"):
        watch(fails)
        deadline = time.monotonic() + 30.0
        while watch.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
    watch.close()
    with pytest.raises(MembershipError, match="handler 'fails': ValueError: no more"):
        watch.check()


def test_a_run_waits_for_its_members_and_says_who_is_there(spark: Any, tmp_path: Path) -> None:
    flow = hf.Flow("f", log=tmp_path / "log", spark=spark)
    flow.input("t", schema="k long")
    flow.view("v", "SELECT k FROM t")
    with pytest.raises(TooFewMembers, match=r"1 of 2 members are there after 0\.2 s: executor driver"):
        flow.run(until="idle", min_members=2, timeout=0.2)
    flow.close()
