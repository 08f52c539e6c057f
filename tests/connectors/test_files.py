"""Files as a source: which are offered, that offers hold, and what happens to files that are wrong. No Spark here."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connectors import Files, files, parquet_files
from holdfast.connectors.source import Offer, Source
from holdfast.errors import BadFile, DeclarationError, SchemaError
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

SCHEMA = "id long, name string"


def put(path: Path, ids: list[int], at: int = 0, **options: Any) -> Path:
    """Write a small Parquet file, whose time of change is ``at`` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "name": [f"n{one}" for one in ids]}), path, **options)
    os.utime(path, (at, at))
    return path


def rows(source: Source, offer: Offer) -> list[dict[str, Any]]:
    """What a task reads of an offer; parts are pickled on their way."""
    schema = pa.schema([pa.field(f"c{place}", arrow_type(field.type)) for place, field in enumerate(source.fields)])
    found: list[dict[str, Any]] = []
    for part in source.parts(offer):
        for table in pickle.loads(pickle.dumps(part)).read(schema):
            assert table.schema == schema
            found += table.to_pylist()
    return found


def ids(source: Source, offer: Offer | None) -> list[int]:
    assert offer is not None
    return [row["c0"] for row in rows(source, offer)]


def taken(source: Files) -> list[int]:
    """Poll and advance, and say what was read."""
    offer = source.poll()
    read = ids(source, offer)
    assert offer is not None
    source.advance(offer)
    return read


def test_files_come_by_time_then_name_and_only_once(tmp_path: Path) -> None:
    put(tmp_path / "b.parquet", [2], at=5)
    put(tmp_path / "z.parquet", [1], at=1)
    put(tmp_path / "a.parquet", [3, 4], at=5)
    source = files(tmp_path, schema=SCHEMA)
    assert taken(source) == [1, 3, 4, 2]
    assert source.poll() is None
    put(tmp_path / "later.parquet", [9], at=0)
    assert taken(source) == [9]


def test_an_offer_is_small_json_and_stays_the_same_until_it_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [1])
    source = files(tmp_path, schema=SCHEMA)
    offer = source.poll()
    put(tmp_path / "b.parquet", [2])
    assert source.poll() == offer
    assert json.loads(json.dumps(offer)) == offer
    assert ids(source, offer) == [1]


def test_a_source_declared_again_goes_on_after_the_offers_of_the_past(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [1])
    first = files(tmp_path, schema=SCHEMA)
    offer = first.poll()
    assert offer is not None
    put(tmp_path / "b.parquet", [2])
    again = files(tmp_path, schema=SCHEMA)
    again.advance(json.loads(json.dumps(offer)))
    assert taken(again) == [2]
    assert ids(again, offer) == [1], "an offer of the past can still be read"


def test_an_epoch_takes_at_most_so_many_files_and_the_rest_waits(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path / f"{number}.parquet", [number], at=number)
    source = files(tmp_path, schema=SCHEMA, max_files_per_epoch=2)
    assert [taken(source), source.waiting()] == [[0, 1], 3]
    assert [taken(source), taken(source)] == [[2, 3], [4]]
    assert source.poll() is None


def test_subdirectories_are_searched_and_unfinished_files_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "day=1" / "a.parquet", [1], at=1)
    put(tmp_path / "day=2" / "a.parquet", [2], at=2)
    for hidden in ("_SUCCESS", ".a.parquet.crc", "b.parquet.tmp", "_temporary/c.parquet", ".staging/d.parquet"):
        path = tmp_path / hidden
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"not parquet")
    assert taken(files(tmp_path, schema=SCHEMA)) == [1, 2]


def test_every_file_name_is_read_as_it_is(tmp_path: Path) -> None:
    odd = ["a[12]", "a1", "a2", "x{1,2}", "c:d", "s3:", "back\\slash", "p%20q", "ü€", "st*r", "new\nline", "file:x"]
    odd += ["q?", "d[1]:x/f"]
    for number, name in enumerate(odd):
        put(tmp_path / name, [number], at=number)
    assert taken(files(tmp_path, schema=SCHEMA)) == list(range(len(odd)))


def test_several_paths_are_one_source_and_a_file_in_two_of_them_is_read_once(tmp_path: Path) -> None:
    put(tmp_path / "x" / "a.parquet", [1], at=1)
    one = put(tmp_path / "y" / "b.parquet", [2], at=2)
    source = files([tmp_path / "x", one, tmp_path], schema=SCHEMA)
    assert taken(source) == [1, 2]


def test_a_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [1])
    (tmp_path / "loop").symlink_to(tmp_path)
    assert taken(files(tmp_path, schema=SCHEMA)) == [1]


def test_a_taken_file_is_not_read_again_when_it_changes(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", [1])
    source = files(tmp_path, schema=SCHEMA)
    taken(source)
    put(path, [1, 2, 3], at=99)
    assert source.poll() is None


def test_a_file_that_changes_between_offer_and_reading_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", [1])
    source = files(tmp_path, schema=SCHEMA)
    offer = source.poll()
    put(path, [1, 2, 3], at=99)
    with pytest.raises(BadFile, match=r"a\.parquet': it changed after it was offered"):
        ids(source, offer)
    path.unlink()
    with pytest.raises(BadFile, match="removed after it was offered"):
        ids(source, offer)


@pytest.mark.parametrize("damage", ["text", "truncated"])
def test_a_malformed_file_fails_the_poll_by_name_until_it_is_repaired(tmp_path: Path, damage: str) -> None:
    put(tmp_path / "good.parquet", [1], at=1)
    bad = put(tmp_path / "bad.parquet", [2], at=2)
    whole = bad.read_bytes()
    bad.write_bytes({"text": b"id,name\n1,a\n", "truncated": whole[: len(whole) // 2]}[damage])
    source = files(tmp_path, schema=SCHEMA)
    for _ in range(2):
        with pytest.raises(BadFile, match=r"bad\.parquet': it does not read as Parquet") as caught:
            source.poll()
        assert caught.value.fields["path"] == str(bad)
    put(bad, [2], at=2)
    assert taken(source) == [1, 2]


def test_a_malformed_file_is_skipped_and_recorded_and_read_once_it_is_repaired(tmp_path: Path) -> None:
    put(tmp_path / "good.parquet", [1])
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 no")
    source = files(tmp_path, schema=SCHEMA, on_bad_file="skip")
    offer = source.poll()
    assert offer is not None
    [[path, reason, *_]] = offer["skipped"]
    assert path == str(bad) and "does not read as Parquet" in reason
    assert ids(source, offer) == [1]
    source.advance(offer)
    assert source.poll() is None, "a skip is recorded once"

    again = files(tmp_path, schema=SCHEMA, on_bad_file="skip")
    again.advance(offer)
    assert again.poll() is None
    put(bad, [2])
    assert taken(again) == [2]


def test_a_skip_is_recorded_even_if_no_sound_file_waits(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"no")
    source = files(tmp_path, schema=SCHEMA, on_bad_file="skip")
    offer = source.poll()
    assert offer is not None and offer["files"] == [] and len(offer["skipped"]) == 1
    assert source.parts(offer) == []
    source.advance(offer)
    assert source.poll() is None


def test_bad_files_do_not_use_up_the_files_of_an_epoch(tmp_path: Path) -> None:
    (tmp_path / "0.parquet").write_bytes(b"no")
    os.utime(tmp_path / "0.parquet", (0, 0))
    put(tmp_path / "1.parquet", [1], at=1)
    put(tmp_path / "2.parquet", [2], at=2)
    source = files(tmp_path, schema=SCHEMA, on_bad_file="skip", max_files_per_epoch=2)
    assert taken(source) == [1, 2]


def test_damage_inside_a_page_is_rejected_and_skipped_when_it_is_read(tmp_path: Path) -> None:
    put(tmp_path / "good.parquet", [1], at=1)
    bad = put(tmp_path / "bad.parquet", list(range(1000)), at=2, compression="zstd", use_dictionary=False)
    whole = bytearray(bad.read_bytes())
    whole[60:400] = bytes(340)
    bad.write_bytes(whole)
    source = files(tmp_path, schema=SCHEMA, on_bad_file="skip")
    offer = source.poll()
    assert offer is not None and len(offer["files"]) == 2
    with pytest.raises(BadFile, match=r"bad\.parquet") as caught:
        rows(source, offer)
    assert source.reject(offer, caught.value)
    offer = source.poll()
    assert offer is not None and ids(source, offer) == [1]
    assert offer["skipped"][0][0] == str(bad)

    strict = files(tmp_path, schema=SCHEMA)
    offer = strict.poll()
    assert offer is not None
    assert not strict.reject(offer, caught.value)
    assert strict.poll() == offer


def test_an_error_about_something_else_is_not_taken_for_a_bad_file(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [1])
    source = files(tmp_path, schema=SCHEMA, on_bad_file="skip")
    offer = source.poll()
    assert offer is not None
    assert not source.reject(offer, RuntimeError("the executor was lost"))
    assert not source.reject(offer, BadFile("elsewhere", path="/elsewhere"))
    assert source.poll() == offer


def test_a_missing_column_is_named_with_the_nearest_that_is_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "nmae": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"a\.parquet': column 'name' \(string\) is missing.*did you mean 'nmae'"):
        files(tmp_path, schema=SCHEMA).poll()


def test_a_wrong_type_is_named_with_what_was_expected_and_found(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["one"], "name": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="column 'id': expected bigint, found string") as caught:
        files(tmp_path, schema=SCHEMA).poll()
    assert caught.value.fields["found"] == "string"


def test_a_value_too_large_for_its_column_is_named_when_it_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [1, 3_000_000_000])
    source = files(tmp_path, schema="id int, name string")
    offer = source.poll()
    assert offer is not None
    with pytest.raises(
        SchemaError, match="column 'id': expected int, found int64, and integer value 3000000000"
    ) as caught:
        rows(source, offer)
    assert pickle.loads(pickle.dumps(caught.value)).fields == caught.value.fields


def test_columns_that_were_not_declared_are_not_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1]], "name": ["a"], "id": [1]}), tmp_path / "a.parquet")
    source = files(tmp_path, schema=SCHEMA)
    offer = source.poll()
    assert offer is not None
    assert rows(source, offer) == [{"c0": 1, "c1": "a"}]


def test_times_of_any_unit_are_read_as_microseconds(tmp_path: Path) -> None:
    moment = dt.datetime(2020, 1, 2, 3, 4, 5)
    table = pa.table({"ns": pa.array([moment], pa.timestamp("ns")), "ms": pa.array([moment], pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    source = files(tmp_path, schema="ns timestamp, ms timestamp_ntz")
    offer = source.poll()
    assert offer is not None
    assert rows(source, offer) == [{"c0": moment.replace(tzinfo=dt.UTC), "c1": moment}] * 2


def test_a_large_file_is_cut_at_its_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "PART_BYTES", 5000)
    put(tmp_path / "a.parquet", list(range(10_000)), row_group_size=100, compression="none")
    put(tmp_path / "empty.parquet", [])
    source = files(tmp_path, schema=SCHEMA)
    offer = source.poll()
    assert offer is not None
    parts = source.parts(offer)
    assert 10 < len(parts) < 100
    assert sorted(ids(source, offer)) == list(range(10_000))


def test_parquet_brings_its_own_schema(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [1])
    assert files(tmp_path).fields == (Field("id", "bigint"), Field("name", "string"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no file yet to take the schema from"),
        ({"format": "json"}, "a schema is needed for json"),
        ({"format": "orc", "schema": SCHEMA}, "format must be one of 'parquet', 'json', 'csv', 'avro', not 'orc'"),
        ({"format": "avro"}, "a schema is needed for avro"),
        ({"format": "avro", "schema": SCHEMA, "options": {"avroSchema": "{}"}}, "the schema is declared"),
        ({"format": "avro", "schema": SCHEMA, "on_bad_rows": "quarantine"}, "use on_bad_file"),
        ({"schema": SCHEMA, "on_bad_file": "ignore"}, "on_bad_file must be one of 'fail', 'skip'"),
        ({"schema": SCHEMA, "max_files_per_epoch": 0}, "max_files_per_epoch must be at least 1"),
        ({"schema": SCHEMA, "options": {"header": "true"}}, "options are for json, csv and avro; parquet has none"),
        ({"schema": SCHEMA, "format": "csv", "options": {"mode": "PERMISSIVE"}}, "use on_bad_file"),
        ({"schema": "id lnog"}, "id"),
        ({"path": "gone", "schema": SCHEMA}, "does not exist"),
        ({"path": "s4://bucket/x", "schema": SCHEMA}, "no such kind of place is known"),
        ({"path": [], "schema": SCHEMA}, "the list of paths is empty"),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        files(**{"path": tmp_path, **arguments})


def test_a_directory_that_disappears_is_an_error_not_an_empty_source(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = files(tmp_path / "in", schema=SCHEMA)
    (tmp_path / "in").rmdir()
    with pytest.raises(BadFile, match="is gone"):
        source.poll()
