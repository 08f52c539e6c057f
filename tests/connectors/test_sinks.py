"""Sinks: one atomic commit per epoch, found again after a restart; functions whose errors name view and epoch."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connectors import changelog, foreach
from holdfast.connectors.changelog import committed, lineage_of
from holdfast.errors import DeclarationError, SinkError
from holdfast.plan.nodes import Field
from holdfast.plan.schema import parse_schema

FIELDS = (Field("user", "string"), Field("total", "double"))
LINEAGE = b'{"epoch": 0}\xff\x00'


def change(*rows: tuple[str, float, int]) -> pa.Table:
    kinds = {"user": pa.string(), "total": pa.float64(), "_diff": pa.int64()}
    return pa.Table.from_pylist([dict(zip(kinds, row, strict=True)) for row in rows], schema=pa.schema(kinds))


def visible(path: Path) -> list[str]:
    """The files that a consumer sees: readers pass over names that begin with a dot or an underscore."""
    return sorted(name for name in os.listdir(path) if name[0] not in "._")


def test_each_epoch_is_one_file_with_its_rows_and_lineage(tmp_path: Path) -> None:
    sink = changelog(tmp_path / "out" / "top")
    assert sink.open("top", FIELDS) == -1
    sink.commit(0, change(("ada", 1.0, 1)), LINEAGE)
    sink.commit(1, change(("ada", 1.0, -1), ("ada", 3.0, 1)), b"next")
    sink.close()
    assert visible(sink.path) == ["epoch-000000000000.parquet", "epoch-000000000001.parquet"]
    rows = pq.read_table(sink.path).to_pylist()
    assert rows == [
        {"user": "ada", "total": 1.0, "_epoch": 0, "_diff": 1},
        {"user": "ada", "total": 1.0, "_epoch": 1, "_diff": -1},
        {"user": "ada", "total": 3.0, "_epoch": 1, "_diff": 1},
    ]
    assert [lineage_of(sink.path, epoch) for epoch in committed(sink.path)] == [LINEAGE, b"next"]


def test_a_changelog_opened_again_says_which_epoch_it_has(tmp_path: Path) -> None:
    sink = changelog(tmp_path)
    sink.open("top", FIELDS)
    sink.commit(4, change(("ada", 1.0, 1)), b"")
    assert changelog(tmp_path).open("top", FIELDS) == 4


def test_an_epoch_without_rows_leaves_no_file_and_is_remembered_with_its_lineage(tmp_path: Path) -> None:
    sink = changelog(tmp_path)
    sink.open("top", FIELDS)
    sink.commit(0, change(), b"")
    sink.commit(1, change(), LINEAGE)
    assert visible(tmp_path) == []
    assert lineage_of(tmp_path, 1) == LINEAGE
    again = changelog(tmp_path)
    assert again.open("top", FIELDS) == 1
    assert again.lineage() == LINEAGE + b"\n"


def test_a_commit_made_again_replaces_itself(tmp_path: Path) -> None:
    sink = changelog(tmp_path)
    sink.open("top", FIELDS)
    for _ in range(2):
        sink.commit(0, change(("ada", 1.0, 1)), LINEAGE)
    assert pq.read_table(tmp_path).num_rows == 1


def test_a_commit_that_died_is_invisible_and_removed(tmp_path: Path) -> None:
    sink = changelog(tmp_path)
    sink.open("top", FIELDS)
    sink.commit(0, change(("ada", 1.0, 1)), LINEAGE)
    (tmp_path / ".epoch-000000000001.parquet.77.tmp").write_bytes(b"PAR1")
    assert pq.read_table(tmp_path).num_rows == 1
    assert changelog(tmp_path).open("top", FIELDS) == 0
    assert visible(tmp_path) == ["epoch-000000000000.parquet"]
    assert not list(tmp_path.glob(".*"))


def test_files_torn_by_a_power_cut_count_as_not_committed(tmp_path: Path) -> None:
    sink = changelog(tmp_path)
    sink.open("top", FIELDS)
    sink.commit(0, change(("ada", 1.0, 1)), LINEAGE)
    (tmp_path / "epoch-000000000001.parquet").write_bytes(b"")
    (tmp_path / "epoch-000000000002.parquet").write_bytes(b"PAR1garbage")
    assert changelog(tmp_path).open("top", FIELDS) == 0
    assert committed(tmp_path) == [0]
    assert len(os.listdir(tmp_path / "_damaged")) == 2, "they are set aside, not deleted"


def test_a_write_that_fails_is_refused_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = changelog(tmp_path)
    sink.open("top", FIELDS)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(SinkError, match=r"view 'top': epoch 3: cannot write .*: the disk is full; make room") as caught:
        sink.commit(3, change(("ada", 1.0, 1)), LINEAGE)
    assert caught.value.fields["epoch"] == 3
    assert sorted(os.listdir(tmp_path)) == ["_parts", "_progress"]
    assert os.listdir(tmp_path / "_progress") == []
    monkeypatch.undo()
    sink.commit(3, change(("ada", 1.0, 1)), LINEAGE)
    assert committed(tmp_path) == [3]


def test_a_directory_of_another_view_or_of_another_form_is_refused(tmp_path: Path) -> None:
    sink = changelog(tmp_path)
    sink.open("top", FIELDS)
    sink.commit(0, change(("ada", 1.0, 1)), LINEAGE)
    with pytest.raises(SinkError, match="holds the changelog of view 'top'"):
        changelog(tmp_path).open("bottom", FIELDS)
    with pytest.raises(SinkError, match=r"there \(user string, total double\), now \(user string\)"):
        changelog(tmp_path).open("top", FIELDS[:1])
    pq.write_table(change(), tmp_path / "epoch-000000000009.parquet")
    with pytest.raises(SinkError, match="was not written by Holdfast"):
        changelog(tmp_path).open("top", FIELDS)


def test_a_path_that_cannot_hold_a_changelog_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SinkError, match=r"view 'top': .*/file is a file, and a changelog is a directory"):
        changelog(tmp_path / "file").open("top", FIELDS)
    with pytest.raises(SinkError, match="view 'top': cannot use the directory: a part of the path is a file"):
        changelog(tmp_path / "file" / "deeper").open("top", FIELDS)
    with pytest.raises(SinkError, match="a column '_epoch' of its own"):
        changelog(tmp_path / "new").open("top", (Field("_epoch", "bigint"),))


def test_every_type_goes_through_a_changelog(tmp_path: Path) -> None:
    fields = parse_schema(
        "a boolean, b tinyint, c decimal(10,2), d date, e timestamp, f timestamp_ntz, g binary, h array<int>, "
        "i struct<x:int,y:string>, j map<string,int>, k interval day to second, l void",
        subject="x",
    )
    moment = dt.datetime(1960, 1, 1, 0, 0, 0, 1)
    row = {
        "a": True, "b": 1, "c": Decimal("1.50"), "d": dt.date(1, 1, 1), "e": moment.replace(tzinfo=dt.UTC), "f": moment,
        "g": b"\xff", "h": [1, None], "i": {"x": 1, "y": None}, "j": [("k", 1)], "k": dt.timedelta(1), "l": None,
    }  # fmt: skip
    sink = changelog(tmp_path)
    sink.open("all", fields)
    from holdfast.plan.types import arrow_type

    schema = pa.schema(
        [*(pa.field(field.name, arrow_type(field.type)) for field in fields), pa.field("_diff", pa.int64())]
    )
    sink.commit(0, pa.Table.from_pylist([{**row, "_diff": 1}], schema=schema), b"")
    assert pq.read_table(tmp_path / "epoch-000000000000.parquet").to_pylist() == [{**row, "_epoch": 0, "_diff": 1}]


def test_a_function_is_called_for_epochs_that_changed_the_view() -> None:
    seen: list[tuple[int, int]] = []
    sink = foreach(lambda epoch, rows: seen.append((epoch, rows.num_rows)))
    assert sink.open("top", FIELDS) is None
    sink.commit(0, change(("ada", 1.0, 1)), LINEAGE)
    sink.commit(1, change(), LINEAGE)
    sink.commit(2, change(("ada", 1.0, -1), ("bob", 1.0, 1)), LINEAGE)
    assert seen == [(0, 1), (2, 2)]


def test_an_error_in_a_function_names_view_epoch_and_cause() -> None:
    def notify(epoch: int, rows: pa.Table) -> None:
        raise ValueError("no route to host")

    sink = foreach(notify)
    sink.open("top", FIELDS)
    with pytest.raises(
        SinkError, match="view 'top': epoch 5: the sink function notify raised ValueError: no route"
    ) as caught:
        sink.commit(5, change(("ada", 1.0, 1)), LINEAGE)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(DeclarationError, match="must be a function of two arguments"):
        foreach("print")  # type: ignore[arg-type]  # that is the test
