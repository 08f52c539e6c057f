"""Files and queries that are replaced as a whole: the difference to the version before is the change."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors import Files
from holdfast.errors import DeclarationError, InputError, SchemaChanged


def _rows(flow: hf.Flow, view: str = "v") -> list[tuple[Any, ...]]:
    return sorted(map(tuple, flow.read(view).collect()))


def _write(path: Path, rows: list[tuple[int, str]]) -> None:
    beside = path.with_name(f".{path.name}")
    if path.suffix == ".csv":
        beside.write_text("".join(f"{key},{text}\n" for key, text in rows))
    else:
        pq.write_table(
            pa.table({"id": pa.array([row[0] for row in rows], pa.int64()), "v": [r[1] for r in rows]}), beside
        )
    os.replace(beside, path)


@pytest.mark.parametrize("suffix", ["parquet", pytest.param("csv", marks=pytest.mark.slow)])
def test_a_file_that_is_replaced_changes_the_rows_that_differ(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rates.{suffix}"
    _write(path, [(1, "a"), (2, "b"), (2, "b")])

    def declared() -> hf.Flow:
        flow = hf.Flow("rates", log=tmp_path / "log", spark=spark, partitions=2)
        source = hf.replaced(path, format=suffix, schema="id long, v string", every=0)  # type: ignore[arg-type]
        return flow.source("t", source).view("v", "SELECT id, v FROM t")

    with declared() as flow:
        flow.step()
        assert _rows(flow) == [(1, "a"), (2, "b"), (2, "b")]
        assert flow.step().idle
        _write(path, [(1, "a"), (2, "b"), (2, "b")])  # another file, the same content
        assert flow.step().idle
        _write(path, [(2, "b"), (3, "c")])
        assert flow.step().changed == {"v": 3}
        assert _rows(flow) == [(2, "b"), (3, "c")]
    with declared().view("n", "SELECT count(*) AS n FROM t") as flow:
        assert flow.step().changed.get("v", 0) == 0  # the version is known
        assert _rows(flow, "n") == [(2,)]
        _write(path, [])
        flow.step()
        assert _rows(flow) == [] and _rows(flow, "n") == [(0,)]
        assert flow.table("t").collect() == []


def test_a_version_whose_key_is_not_unique_is_refused_and_the_next_one_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "rates.parquet"
    _write(path, [(1, "a")])
    with hf.Flow("rates", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        flow.source("t", hf.replaced(path, every=0, key="id")).view("v", "SELECT id, v FROM t")
        flow.step()
        _write(path, [(1, "a"), (1, "b"), (2, "c")])
        with pytest.raises(InputError, match="'t', epoch 1: the new version has 2 rows of the key id=1"):
            flow.step()
        assert _rows(flow) == [(1, "a")]
        _write(path, [(1, "b"), (2, "c")])
        flow.step()
        assert _rows(flow) == [(1, "b"), (2, "c")]
    with hf.Flow("rates", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        flow.source("t", hf.replaced(path, every=0)).view("v", "SELECT id, v FROM t")
        with pytest.raises(
            SchemaChanged, match="whole versions, key=None, and its rows were taken with whole versions"
        ):
            flow.step()


def test_a_query_is_run_again_and_its_difference_is_the_change(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string")
    frame.write.parquet(str(table))
    query = f"SELECT id, upper(v) AS v FROM parquet.`{table}` WHERE id > 0"
    with hf.Flow("query", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        flow.source("t", hf.replaced(query, schema="id long, v string", every=0))
        flow.source("u", hf.replaced(spark.read.schema("id long, v string").parquet(str(table)), every="1h"))
        flow.view("v", "SELECT id, v FROM t").view("u_rows", "SELECT id, v FROM u")
        flow.step()
        assert _rows(flow) == [(1, "A"), (2, "B")] and _rows(flow, "u_rows") == [(1, "a"), (2, "b")]
        spark.createDataFrame([(2, "b"), (3, "c")], "id long, v string").write.mode("overwrite").parquet(str(table))
        assert flow.step().changed == {"v": 2, "u_rows": 0}
        assert _rows(flow) == [(2, "B"), (3, "C")]


def test_a_query_is_run_once_for_a_version_however_often_its_epoch_reads_it(spark: SparkSession) -> None:
    """An epoch that runs twice, after damage was repaired, must read the same rows under the same digest."""
    source = hf.replaced("SELECT rand() AS x", schema="x double", every=0)
    seen = []
    for _ in range(2):
        offer = source.poll()
        assert offer is not None
        read = [sorted(map(repr, source.frame(spark, offer).collect())) for _ in range(2)]
        assert read[0] == read[1]
        seen.append(read[0])
        source.advance(offer)
    assert seen[0] != seen[1], "the next version is another run"
    offer = source.poll()
    assert offer is not None
    before = source.frame(spark, offer).collect()
    source.reject(offer, ValueError("the epoch failed"))
    assert source.frame(spark, source.poll() or {}).collect() != before, "after a failure it is run again"


def test_what_cannot_be_replaced_is_refused_at_the_call(tmp_path: Path) -> None:
    _write(tmp_path / "t.parquet", [(1, "a")])
    for given, message in (
        (("SELECT 1",), "give the columns of a query as schema"),
        ((5,), "of must be"),
        ((tmp_path / "t.parquet", "parquet", None, "soon"), "every must be seconds, or a time such as '10s'"),
        ((tmp_path / "t.parquet", "parquet", None, 1, "nokey"), "key 'nokey' is not a column"),
    ):
        with pytest.raises(DeclarationError, match=message):
            hf.replaced(*given)  # type: ignore[arg-type]
    flow = hf.Flow("refused", log=tmp_path / "log")
    with pytest.raises(DeclarationError, match=r"hf.replaced\(…\) has its own key: give it there"):
        flow.source("t", hf.replaced(tmp_path / "t.parquet"), key="id")


def test_equal_files_of_a_version_are_all_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """As a directory that Spark overwrites may have parts that are alike."""
    place = tmp_path / "rates"
    place.mkdir()
    for name in ("a", "b"):
        _write(place / f"{name}.parquet", [(1, "tea")])
    with hf.Flow("rates", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        flow.source("t", hf.replaced(place, schema="id long, v string", every=0)).view("v", "SELECT id, v FROM t")
        flow.step()
        assert _rows(flow) == [(1, "tea"), (1, "tea")]
        (place / "b.parquet").unlink()
        flow.step()
        assert _rows(flow) == [(1, "tea")]


def test_a_file_that_is_replaced_within_a_tick_of_its_clock_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    _write(path, [(1, "tea")])
    about = path.stat()
    source = hf.replaced(path, format="csv", schema="id long, v string", every=0)
    first = source.poll()
    assert first is not None
    source.advance(first)
    _write(path, [(1, "pie")])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    again = source.poll()
    assert again is not None and again != first


def test_a_file_that_was_replaced_within_a_tick_is_seen_when_the_tick_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rates.csv"
    _write(path, [(1, "tea")])
    about = path.stat()
    source = hf.replaced(path, format="csv", schema="id long, v string", every=0)
    first = source.poll()
    assert first is not None
    source.advance(first)
    _write(path, [(1, "pie")])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    later = time.time() + 10
    monkeypatch.setattr(time, "time", lambda: later)
    again = source.poll()
    assert again is not None and again["content"] != first["content"]
    source.advance(again)
    assert source.poll() is None
    read: list[Path] = []
    monkeypatch.setattr(Files, "poll", lambda self: read.append(path))
    assert source.poll() is None and not read, "nothing is read again once its time has settled"
