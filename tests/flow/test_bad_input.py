"""A user's mistake gets a clear error at the earliest moment, loses nothing, and leaves the flow usable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import (
    AmbiguousName,
    BadFile,
    EpochUnavailable,
    EvaluationError,
    LogBusy,
    LogForeign,
    LogFormat,
    MultiplicityOverflow,
    NegativeMultiplicity,
    SchemaError,
    SinkError,
    SqlError,
    TypeMismatch,
    UnknownName,
    Unsupported,
)

SUM = "SELECT k, sum(x) AS s FROM t GROUP BY k"


def _flow(spark: SparkSession, tmp_path: Path) -> tuple[hf.Flow, hf.Source]:
    flow = hf.Flow("bad", log=tmp_path / "log", spark=spark)
    return flow, flow.input("t", "k long, x long")


def test_an_unknown_column_is_named_with_the_nearest_one(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = _flow(spark, tmp_path)
    flow.view("v", "SELECT k, sum(x) AS total FROM t GROUP BY k")
    with pytest.raises(UnknownName, match=r"line 1, column 8: column 'totl' not found.*did you mean 'total'\?"):
        flow.view("w", "SELECT totl FROM v")
    with pytest.raises(UnknownName, match=r"'tt'.*did you mean 't'"):
        flow.view("w", "SELECT * FROM tt")
    flow.view("w", "SELECT total FROM v")
    flow.close()


def test_an_ambiguous_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = _flow(spark, tmp_path)
    with pytest.raises(AmbiguousName, match="k"):
        flow.view("w", "SELECT k FROM t a JOIN t b ON a.k = b.k")
    flow.close()


def test_a_type_error_is_refused_when_the_view_is_declared(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    with pytest.raises(TypeMismatch, match="view 'v'") as caught:
        flow.view("v", "SELECT x,\n k + array(1) AS y FROM t")
    assert (caught.value.fields["line"], caught.value.fields["column"]) == (2, 2)
    with pytest.raises(TypeMismatch, match="line 1, column 11: column 'i': type 'interval year to month'"):
        flow.view("v", "SELECT k, make_ym_interval(1) AS i FROM t")
    with pytest.raises(SqlError, match=r"line 1, column 11: .*no_such_function"):
        flow.view("v", "SELECT x, no_such_function(k) AS y FROM t")
    flow.view("v", SUM)
    t.insert([(1, 2)])  # type: ignore[attr-defined]
    flow.step()
    assert flow.read("v").collect() == [(1, 2)]
    flow.close()


def test_what_is_not_supported_is_refused_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = _flow(spark, tmp_path)
    with pytest.raises(Unsupported) as caught:
        flow.view("v", "SELECT k,\n  monotonically_increasing_id() AS n FROM t")
    assert caught.value.fields["line"] == 2
    flow.close()


def test_a_struct_with_two_fields_of_one_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = _flow(spark, tmp_path)
    with pytest.raises(Unsupported, match="view 'v': a struct with two fields called 'k' is not supported"):
        flow.view("v", "SELECT max_by(x, struct(k, k)) AS m FROM t")
    flow.close()


def test_deleting_a_row_that_is_not_there_is_refused_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    flow.view("v", SUM)
    t.insert([(1, 10)])  # type: ignore[attr-defined]
    flow.step()
    t.insert([(2, 20)])  # type: ignore[attr-defined]
    t.delete([(1, 11)])  # type: ignore[attr-defined]
    with pytest.raises(NegativeMultiplicity, match=r"\(1, 11\)"):
        flow.step()
    assert flow.read("v").collect() == [(1, 10)]
    t.insert([(1, 11)])  # type: ignore[attr-defined]  # put right: what was pending is still there
    assert flow.step().epoch == 1
    assert sorted(flow.read("v").collect()) == [(1, 10), (2, 20)]
    flow.close()


def test_more_copies_of_a_row_than_can_be_counted_are_an_error_of_the_view(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    flow.view("w", "SELECT DISTINCT a.k FROM t a CROSS JOIN t b CROSS JOIN t c CROSS JOIN t d")
    t.insert(pa.table({"k": [1] * 1000, "x": [1] * 1000}))  # type: ignore[attr-defined]
    flow.step()
    assert flow.read("w").collect() == [(1,)]
    t.insert(pa.table({"k": [1] * 64536, "x": [1] * 64536}))  # type: ignore[attr-defined]
    with pytest.raises(MultiplicityOverflow, match=r"view 'w', epoch 1: .* more than 2\^63 - 1 times") as raised:
        flow.step()  # 65,536 rows four times over are 2^64, and 2^64 is 0 in 64 bits
    assert (raised.value.fields["view"], raised.value.fields["epoch"]) == ("w", 1)
    assert flow.read("w").collect() == [(1,)]
    t.delete(pa.table({"k": [1] * 64536, "x": [1] * 64536}))  # type: ignore[attr-defined]  # put right
    assert flow.step().epoch == 1
    assert flow.read("w").collect() == [(1,)]
    flow.close()


def test_rows_that_do_not_fit_are_refused_at_the_call(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    flow.view("v", SUM)
    with pytest.raises(SchemaError, match=r"'t'.*'x'"):
        t.insert([(1, 2), (1, "three")])  # type: ignore[attr-defined]
    with pytest.raises(SchemaError, match="'t'"):
        t.insert([(1, 2, 3)])  # type: ignore[attr-defined]
    t.insert([(1, 2)])  # type: ignore[attr-defined]
    flow.step()
    assert flow.read("v").collect() == [(1, 2)]
    flow.close()


def test_an_expression_that_fails_on_a_row_abandons_the_epoch(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    flow.view("v", "SELECT k, CAST(100 AS double) / CAST(x AS double) AS q, sqrt(x) AS r FROM t")
    t.insert([(1, 4)])  # type: ignore[attr-defined]
    flow.step()
    t.insert([(2, 0)])  # type: ignore[attr-defined]
    with pytest.raises(EvaluationError, match=r"[Dd]ivision by zero"):
        flow.step()
    t.discard()  # type: ignore[attr-defined]
    t.insert([(3, 25)])  # type: ignore[attr-defined]
    flow.step()
    assert sorted(flow.read("v").collect()) == [(1, 25.0, 2.0), (3, 4.0, 5.0)]
    flow.close()


def _files_flow(spark: SparkSession, tmp_path: Path, on_bad_file: str) -> hf.Flow:
    (tmp_path / "in").mkdir(exist_ok=True)
    flow = hf.Flow("files", log=tmp_path / "log", spark=spark)
    flow.source("t", hf.files(str(tmp_path / "in"), format="parquet", schema="k long, x long", on_bad_file=on_bad_file))
    return flow.view("v", SUM)


def _write(path: Path, rows: list[tuple[int, int]]) -> None:
    pq.write_table(pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]}), path)


def test_a_truncated_file_is_named_and_taken_once_it_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    flow = _files_flow(spark, tmp_path, "fail")
    _write(tmp_path / "in" / "a.parquet", [(1, 1)])
    flow.step()
    whole = (tmp_path / "in" / "a.parquet").read_bytes()
    (tmp_path / "in" / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFile, match=r"b\.parquet"):
        flow.step()
    assert flow.read("v").collect() == [(1, 1)]
    _write(tmp_path / "in" / "b.parquet", [(1, 2)])
    flow.step()
    assert flow.read("v").collect() == [(1, 3)]
    flow.close()


def test_a_bad_file_can_be_skipped_and_the_skip_is_recorded(spark: SparkSession, tmp_path: Path) -> None:
    flow = _files_flow(spark, tmp_path, "skip")
    _write(tmp_path / "in" / "a.parquet", [(1, 1)])
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 this is not Parquet")
    flow.run(until="idle")
    assert flow.read("v").collect() == [(1, 1)]
    flow.close()
    recorded = [json.loads(line) for line in (tmp_path / "log" / "lineage" / "log.jsonl").read_text().splitlines()]
    assert "b.parquet" in json.dumps([record["offers"] for record in recorded])


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_malformed_text_file_is_named_and_can_be_skipped(spark: SparkSession, tmp_path: Path, form: str) -> None:
    (tmp_path / "in").mkdir()
    good = {"csv": "1,2\n", "json": '{"k": 1, "x": 2}\n'}[form]
    (tmp_path / "in" / f"good.{form}").write_text(good)
    (tmp_path / "in" / f"worse.{form}").write_text("no,number\n" if form == "csv" else '{"k": "no')

    def build(on_bad_file: str, log: str) -> hf.Flow:
        flow = hf.Flow("text", log=tmp_path / log, spark=spark)
        source = hf.files(str(tmp_path / "in"), format=form, schema="k long, x long", on_bad_file=on_bad_file)
        return flow.source("t", source).view("v", SUM)

    with build("fail", "one") as flow, pytest.raises(BadFile, match=f"worse.{form}"):
        flow.step()
    with build("skip", "two") as flow:
        flow.run(until="idle")
        assert flow.read("v").collect() == [(1, 2)]


def test_a_log_of_another_flow_or_a_newer_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    flow.view("v", SUM)
    t.insert([(1, 2)])  # type: ignore[attr-defined]
    flow.step()
    flow.close()
    other = hf.Flow("other", log=tmp_path / "log", spark=spark)
    other.input("t", "k long, x long")
    other.view("v", SUM)
    with pytest.raises(LogForeign, match="'bad'"):
        other.step()
    header = tmp_path / "log" / "holdfast.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "format": 99}))
    flow, _ = _flow(spark, tmp_path)
    flow.view("v", SUM)
    with pytest.raises(LogFormat, match="99"):
        flow.step()


def test_two_processes_cannot_have_one_log(spark: SparkSession, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from holdfast.log.working_directory import LogDirectory\n"
            f"log = LogDirectory.open({str(tmp_path / 'log')!r}, 'bad', create=True, exclusive=True)\n"
            "print('held', flush=True)\ninput()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        flow, t = _flow(spark, tmp_path)
        flow.view("v", SUM)
        t.insert([(1, 2)])  # type: ignore[attr-defined]
        with pytest.raises(LogBusy, match=str(holder.pid)):
            flow.step()
    finally:
        holder.kill()
        holder.communicate()
    flow.step()  # what was pushed is still there
    assert flow.read("v").collect() == [(1, 2)]
    flow.close()


def test_reading_an_epoch_that_is_not_there_says_which_are(spark: SparkSession, tmp_path: Path) -> None:
    flow, t = _flow(spark, tmp_path)
    flow.view("v", SUM)
    t.insert([(1, 2)])  # type: ignore[attr-defined]
    flow.step()
    with pytest.raises(EpochUnavailable, match="the last is 0"):
        flow.read("v", at=1)
    with pytest.raises(UnknownName, match="did you mean 'v'"):
        flow.read("vv")
    flow.close()


def test_a_sink_that_refuses_gets_the_same_commit_again(spark: SparkSession, tmp_path: Path) -> None:
    refuse = [True]
    got: list[tuple[int, int]] = []

    def take(epoch: int, change: pa.Table) -> None:
        if refuse[0]:
            raise OSError("the outside is away")
        got.append((epoch, change.num_rows))

    flow, t = _flow(spark, tmp_path)
    flow.view("v", SUM)
    flow.sink("v", hf.foreach(take))
    t.insert([(1, 2)])  # type: ignore[attr-defined]
    with pytest.raises(SinkError, match="the outside is away"):
        flow.step()
    refuse[0] = False
    t.insert([(2, 2)])  # type: ignore[attr-defined]
    flow.step()
    assert got == [(0, 1), (1, 1)]
    flow.close()
