"""A look ahead at files: it says what the next poll offers, and changes nothing of it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import holdfast as hf
from holdfast.connectors import parquet_files, upcoming_files
from holdfast.connectors.keyed_source import KeyedSource

SCHEMA = "a long"


def write(place: Path, name: str, *values: int, time: int | None = None) -> Path:
    path = place / f"{name}.parquet"
    pq.write_table(pa.table({"a": list(values)}), path)
    if time is not None:
        os.utime(path, ns=(time, time))
    return path


def packed(source: hf.Source, offer: hf.Offer) -> list[bytes]:
    return [cloudpickle.dumps(part) for part in source.parts(offer)]


def test_the_next_poll_offers_what_a_look_ahead_said_and_its_parts_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        write(tmp_path, str(number), number)
    read: list[str] = []
    footer = parquet_files.read_footer
    monkeypatch.setattr(parquet_files, "read_footer", lambda path, access: (read.append(path), footer(path, access))[1])
    source = hf.files(tmp_path, schema=SCHEMA, max_files_per_epoch=2)
    other = hf.files(tmp_path, schema=SCHEMA, max_files_per_epoch=2)
    for _ in range(2):
        looked = source.upcoming()
        assert looked is not None
        ahead = packed(source, looked)
        offer = source.poll()
        assert offer == looked == other.poll()
        assert packed(source, offer) == ahead
        source.advance(offer)
        other.advance(offer)
    assert source.upcoming() is None and source.poll() is None
    assert len(read) == 8, "each file once for each of the two sources"


def test_a_file_that_comes_after_the_look_is_offered_as_if_nobody_had_looked(tmp_path: Path) -> None:
    source = hf.files(tmp_path, schema=SCHEMA)
    write(tmp_path, "1", 1)
    looked = source.upcoming()
    write(tmp_path, "2", 2)
    offer = source.poll()
    assert looked is not None and offer is not None
    assert packed(source, offer)[0] == packed(source, looked)[0], "what was read of the first file can be used"
    assert len(source.names(offer)) == 2


def test_a_file_that_was_replaced_after_the_look_is_another_part(tmp_path: Path) -> None:
    source = hf.files(tmp_path, schema=SCHEMA)
    file = write(tmp_path, "1", 1, time=10**18)
    looked = source.upcoming()
    assert looked is not None
    ahead = packed(source, looked)
    size = file.stat().st_size
    write(tmp_path, "1", 2, time=10**18)
    assert file.stat().st_size == size
    offer = source.poll()
    assert offer is not None and packed(source, offer) != ahead, "only its content differs"
    schema = pa.schema([("c0", pa.int64())])
    assert [row for part in source.parts(offer) for table in part.read(schema) for row in table["c0"].to_pylist()] == [
        2
    ]


def test_a_file_that_was_removed_after_the_look_is_not_offered(tmp_path: Path) -> None:
    source = hf.files(tmp_path, schema=SCHEMA, max_files_per_epoch=1)
    files = [write(tmp_path, str(number), number, time=10**18 + number) for number in range(3)]
    assert source.upcoming() is not None
    files[0].unlink()
    offer = source.poll()
    assert offer is not None and source.names(offer) == [str(files[1])]


def test_a_long_backlog_is_listed_once_per_epoch_and_not_much_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = hf.files(tmp_path, schema=SCHEMA, max_files_per_epoch=1)
    for number in range(1, 4):
        write(tmp_path, str(number), number, time=10**18 + number)
    assert source.upcoming() is not None
    monkeypatch.setattr(upcoming_files, "_YOUNG", 0.0)
    early = write(tmp_path, "0", 0, time=10**18)
    offer = source.poll()
    assert offer is not None and source.names(offer) == [str(early)]


def test_what_is_wrong_with_a_file_is_said_by_the_poll(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = hf.files(tmp_path, schema=SCHEMA)
    (tmp_path / "1.parquet").write_bytes(b"PAR1 and no more")
    assert source.upcoming() is None
    with pytest.raises(hf.BadFile, match=r"1\.parquet"):
        source.poll()
    (tmp_path / "1.parquet").unlink()
    file = write(tmp_path, "2", 2)
    offer = source.poll()
    assert offer is not None
    source.advance(offer)
    file.rename(tmp_path / "3.parquet")
    with caplog.at_level(logging.WARNING):
        assert source.upcoming() is None
    assert not caplog.records
    with pytest.raises(hf.FileMoved):
        source.poll()


def test_files_that_take_long_to_look_at_or_that_spark_reads_are_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path, "1", 1)
    (tmp_path / "1.json").write_text('{"a": 1}\n')
    assert hf.files(tmp_path / "*.json", format="json", schema=SCHEMA).upcoming() is None
    assert hf.files(tmp_path / "*.parquet", schema=SCHEMA, identity="content").upcoming() is None
    for number in range(2, 20):
        write(tmp_path, str(number), number)
    assert hf.files(tmp_path / "*.parquet", schema=SCHEMA).upcoming() is None, "many files take long, too"
    assert hf.files(tmp_path / "*.parquet", schema=SCHEMA, max_files_per_epoch=8).upcoming() is not None


def test_a_keyed_source_and_a_rate_look_ahead(tmp_path: Path) -> None:
    write(tmp_path, "1", 1)
    keyed = KeyedSource("source 's'", hf.files(tmp_path, schema=SCHEMA), "a", None, None)
    for source in (keyed, hf.rate(10)):
        looked = source.upcoming()
        assert looked is not None
        ahead = packed(source, looked)
        offer = source.poll()
        assert offer == looked and packed(source, offer) == ahead
