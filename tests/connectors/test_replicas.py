"""The same files in several places: any copy will do, and what cannot be read from one is read from another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.connectors import parquet_files
from holdfast.errors import BadFile, DeclarationError, FileMoved

SCHEMA = pa.schema([("k", pa.int64())])


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    first = tmp_path / "a"
    first.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"k": range(number * 10, number * 10 + 10)}), first / f"{number}.parquet")
    shutil.copytree(first, tmp_path / "b")
    return [first, tmp_path / "b"]


def keys(source: hf.Source) -> list[int]:
    offer = source.poll()
    assert offer is not None
    return sorted(
        key for part in source.parts(offer) for table in part.read(SCHEMA) for key in table.column("k").to_pylist()
    )


def test_copies_are_read_once(places: list[Path]) -> None:
    assert keys(hf.files(places, replicas=True)) == list(range(30))


def test_a_file_that_one_place_lacks_comes_from_the_other(places: list[Path]) -> None:
    (places[0] / "1.parquet").unlink()
    (places[1] / "2.parquet").unlink()
    assert keys(hf.files(places, replicas=True)) == list(range(30))


def test_a_place_that_is_lost_after_the_offer_costs_nothing(places: list[Path]) -> None:
    source = hf.files(places, replicas=True)
    offer = source.poll()
    assert offer is not None
    parts = source.parts(offer)
    shutil.rmtree(places[0])
    assert sum(table.num_rows for part in parts for table in part.read(SCHEMA)) == 30
    assert sum(part.size[0] for part in parts) == 30  # type: ignore[attr-defined]  # a part of Parquet files has it


def test_a_damaged_copy_is_passed_over(places: list[Path]) -> None:
    path = places[0] / "0.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 4 : len(data) // 4 + 40] = bytes(40)
    path.write_bytes(data)
    (places[0] / "1.parquet").write_bytes(b"short")
    assert keys(hf.files(places, replicas=True)) == list(range(30))


def test_a_copy_that_fails_in_the_middle_is_left_where_it_failed(
    places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 10)
    for place in places:
        pq.write_table(pa.table({"k": range(100, 140)}), place / "1.parquet", row_group_size=10, compression="snappy")
    # The third of four row groups of one copy.
    path = places[0] / "1.parquet"
    group = pq.read_metadata(path).row_group(2).column(0)
    start = group.dictionary_page_offset or group.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    path.write_bytes(data)
    source = hf.files(places, replicas=True)
    parts = source.parts(source.poll() or {})
    found = [key for part in parts for table in part.read(SCHEMA) for key in table.column("k").to_pylist()]
    assert sorted(found) == [*range(10), *range(20, 30), *range(100, 140)]
    assert [key for key in found if key >= 100] == list(range(100, 140))


def test_a_copy_that_goes_away_while_it_is_read_is_made_up_for(
    places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 4)
    source = hf.files(places, replicas=True)
    found = []
    for part in source.parts(source.poll() or {}):
        for place, table in enumerate(part.read(SCHEMA)):
            found += table.column("k").to_pylist()
            if place == 0 and places[0].exists():
                shutil.rmtree(places[0])
    assert found == list(range(30))


def test_when_no_copy_is_left_the_error_names_the_file_and_every_reason(places: list[Path]) -> None:
    source = hf.files(places, replicas=True)
    parts = source.parts(source.poll() or {})
    for place in places:
        (place / "1.parquet").unlink()
    with pytest.raises(BadFile, match=r"'1\.parquet': none of its copies can be read: .*a/1.*b/1"):
        for part in parts:
            list(part.read(SCHEMA))


def test_files_that_were_taken_are_not_offered_again(places: list[Path]) -> None:
    source = hf.files(places, replicas=True, max_files_per_epoch=2)
    taken = []
    while (offer := source.poll()) is not None:
        taken.append(len(offer["replicated"]))
        source.advance(offer)
    assert taken == [2, 1]


def test_one_place_is_no_list_of_replicas(places: list[Path]) -> None:
    with pytest.raises(DeclarationError, match="list of directories"):
        hf.files(places[0], replicas=True)
    with pytest.raises(DeclarationError, match="none of these directories exists"):
        hf.files([places[0] / "no", places[0] / "neither"], replicas=True)


def test_a_file_that_was_moved_in_all_places_is_refused(places: list[Path]) -> None:
    source = hf.files(places, schema="k long", replicas=True)
    offer = source.poll()
    assert offer is not None
    source.advance(json.loads(json.dumps(offer)))
    assert source.poll() is None
    names = sorted(path.name for path in places[0].iterdir())
    for place in places:
        (place / names[0]).rename(place / "moved.parquet")
    with pytest.raises(FileMoved, match=rf"'moved\.parquet': it was taken already, as '{names[0]}'"):
        source.poll()
