"""What makes a file the same file, and what becomes of one that moves. No Spark here."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connectors import Files, files
from holdfast.connectors.file_access import File
from holdfast.connectors.file_listing import FileTree
from holdfast.connectors.file_offer import Offered, files_of, offer_of
from holdfast.connectors.source import Offer
from holdfast.errors import BadFile, FileMoved
from holdfast.plan.types import arrow_type
from logged import heard, logged

SCHEMA = "id long"


def put(path: Path, ids: list[int], at: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids}), path)
    os.utime(path, (at, at))
    return path


def ids(source: Files, offer: Offer) -> list[int]:
    schema = pa.schema([("c0", arrow_type("bigint"))])
    return [row["c0"] for part in source.parts(offer) for table in part.read(schema) for row in table.to_pylist()]


def taken(source: Files) -> list[int]:
    offer = source.poll()
    if offer is None:
        return []
    read = ids(source, offer)
    source.advance(offer)
    return read


def reopened(directory: Path, offers: list[Offer], **arguments: object) -> Files:
    source = files(directory, schema=SCHEMA, **arguments)  # type: ignore[arg-type]
    assert isinstance(source, Files)
    for offer in offers:
        source.advance(json.loads(json.dumps(offer)))
    return source


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("move", ["file", "directory"])
def test_a_moved_file_is_refused_by_path_and_not_counted_twice(tmp_path: Path, restarted: bool, move: str) -> None:
    for number in range(12):  # enough that the offer is packed
        put(tmp_path / "in" / "day" / f"{number}.parquet", [number], at=number)
    source = reopened(tmp_path / "in", [])
    offer = source.poll()
    assert offer is not None
    source.advance(offer)
    if move == "file":
        (tmp_path / "in" / "done").mkdir()
        (tmp_path / "in" / "day" / "3.parquet").rename(tmp_path / "in" / "done" / "3.parquet")
    else:
        (tmp_path / "in" / "day").rename(tmp_path / "in" / "done")
    put(tmp_path / "in" / "new.parquet", [99], at=99)
    if restarted:
        source = reopened(tmp_path / "in", [offer])
    with pytest.raises(FileMoved, match=r"taken already, as .*day/\d+\.parquet', and has been moved") as caught:
        source.poll()
    assert "/done/" in str(caught.value.fields["path"])
    skipping = reopened(tmp_path / "in", [offer], on_bad_file="skip")
    assert taken(skipping) == [99]
    assert skipping.poll() is None
    by_content = reopened(tmp_path / "in", [offer], identity="content")
    assert taken(by_content) == [99], "the identity can be changed on a log that has offers"


def test_a_file_that_an_old_offer_names_without_a_mark_is_found_moved(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", [1], at=1)
    offer = {"under": str(tmp_path), "files": [["a.parquet", path.stat().st_size, path.stat().st_mtime_ns]]}
    assert ids(reopened(tmp_path, []), offer) == [1]
    path.rename(tmp_path / "b.parquet")
    with pytest.raises(FileMoved):
        reopened(tmp_path, [offer]).poll()


def test_a_file_of_the_same_size_and_time_but_other_content_is_new(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [1], at=1)
    source = reopened(tmp_path, [])
    assert taken(source) == [1]
    (tmp_path / "a.parquet").unlink()
    put(tmp_path / "b.parquet", [2], at=1)
    assert taken(source) == [2]


def test_a_copy_of_a_file_that_is_there_counts_with_a_warning(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", [1], at=1)
    source = reopened(tmp_path, [])
    taken(source)
    shutil.copy2(path, tmp_path / "b.parquet")
    with logged(r"is a copy of or link to .*a\.parquet"):
        assert taken(source) == [1]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_file_that_was_copied_and_removed_is_refused_as_one_that_moved(
    tmp_path: Path, restarted: bool, size: int
) -> None:
    path = put(tmp_path / "in" / "a.parquet", list(range(size)), at=1)
    source = reopened(tmp_path / "in", [])
    offer = source.poll()
    assert offer is not None
    source.advance(offer)
    copy = tmp_path / "in" / "done" / "b.parquet"
    copy.parent.mkdir()
    shutil.copyfile(path, copy)
    os.utime(copy, (7, 7))
    path.unlink()
    if restarted:
        source = reopened(tmp_path / "in", [offer])
    with pytest.raises(FileMoved, match=r"taken already, as .*in/a\.parquet', and has been moved") as caught:
        source.poll()
    assert caught.value.fields["path"] == str(copy) and caught.value.fields["before"] == str(path)
    assert taken(reopened(tmp_path / "in", [offer], on_bad_file="skip")) == []
    assert taken(reopened(tmp_path / "in", [offer], identity="content")) == [], "as the error advises"
    shutil.copyfile(copy, path)
    assert taken(source) == list(range(size)), "with the other one in its place they are two files"


def test_a_file_taken_by_content_that_was_copied_and_removed_is_refused_by_path(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", [1], at=1)
    source = reopened(tmp_path, [], identity="content")
    offer = source.poll()
    assert offer is not None
    source.advance(offer)
    put(tmp_path / "b.parquet", [1], at=7)
    path.unlink()
    with pytest.raises(FileMoved):
        reopened(tmp_path, [offer]).poll()
    put(tmp_path / "b.parquet", [2], at=7)
    assert taken(reopened(tmp_path, [offer])) == [2]


def test_equal_files_that_a_feed_writes_again_and_again_count_with_a_warning(tmp_path: Path) -> None:
    source = reopened(tmp_path, [])
    for number in range(2):
        put(tmp_path / f"{number}.parquet", [1], at=number)
        assert taken(source) == [1]
    for number in range(2):
        (tmp_path / f"{number}.parquet").unlink()
    put(tmp_path / "2.parquet", [1], at=7)
    with logged(r"looks like .*0\.parquet', which is gone"):
        assert taken(source) == [1]


@pytest.mark.parametrize(
    ("content", "options", "counts"),
    [
        (b"id\n", {"header": "true"}, True),
        (b"\xef\xbb\xbfid\r\n\r\n", {"header": True}, True),
        (b"\n", {}, True),
        (b"1\n", {}, False),
        (b"id\n1\n", {"header": "true"}, False),
    ],
)
def test_files_without_rows_may_be_equal_and_come_and_go(
    tmp_path: Path, content: bytes, options: dict[str, str], counts: bool
) -> None:
    source = files(tmp_path, "csv", SCHEMA, options=options)
    for number in range(2):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(content)
        os.utime(path, (number, number))
        if number and not counts:
            with pytest.raises(FileMoved):
                source.poll()
        else:
            offer = source.poll()
            assert offer is not None
            source.advance(offer)
        path.unlink()


def test_by_content_a_file_is_taken_once_wherever_it_goes(tmp_path: Path) -> None:
    first = put(tmp_path / "log.1", [1], at=1)
    source = reopened(tmp_path, [], identity="content")
    assert taken(source) == [1]
    with heard() as said:
        first.rename(tmp_path / "log.2")  # as logs are rotated: every name gets another content
        put(tmp_path / "log.1", [2], at=2)
        shutil.copy(tmp_path / "log.2", tmp_path / "copy")
        assert taken(source) == [2]
        put(tmp_path / "x", [3], at=3)
        put(tmp_path / "y", [3], at=4)
        assert taken(source) == [3], "two files of equal content count once"
        assert source.poll() is None
    assert not said


def test_by_content_an_offer_of_the_past_is_read_from_where_its_file_is_now(tmp_path: Path) -> None:
    path = put(tmp_path / "in" / "a.parquet", [1], at=1)
    source = reopened(tmp_path / "in", [], identity="content")
    offer = source.poll()
    assert offer is not None
    source.advance(offer)
    (tmp_path / "in" / "deep").mkdir()
    path.rename(tmp_path / "in" / "deep" / "b.parquet")
    put(path, [7], at=1)
    again = reopened(tmp_path / "in", [offer], identity="content")
    assert ids(again, offer) == [1]
    (tmp_path / "in" / "deep" / "b.parquet").unlink()
    with pytest.raises(BadFile, match=r"a\.parquet"):
        ids(again, offer)


@pytest.mark.parametrize("width", [4, 16])
def test_many_files_are_offered_in_few_bytes(width: int) -> None:
    offered = [
        Offered(
            File(f"/data/in/day={n % 7}/part-{n:05d}.json", 900 + n % 50, 1_700_000_000_000_000_000 + n * 1_234_567),
            n.to_bytes(4, "big") * (width // 4),
        )
        for n in range(20_000)
    ]
    offer = offer_of(offered)
    assert files_of(json.loads(json.dumps(offer))) == offered
    before = [[each.file.path, each.file.size, each.file.changed] for each in offered]
    size = len(json.dumps(offer))
    assert size < (20 if width == 4 else 35) * len(offered)
    if width == 4:
        assert size * 3 < len(json.dumps(before))


@pytest.mark.parametrize("name", ["new\nline", "a,b", "ü€", "\udcff", '"', "a b"])
def test_names_of_every_kind_survive_an_offer(name: str) -> None:
    for count in (1, 20):
        offered = [Offered(File(f"/x/{name}{n}", 1, n), b"abcd") for n in range(count)]
        assert files_of(json.loads(json.dumps(offer_of(offered)))) == offered


def test_a_file_that_is_removed_before_its_epoch_wedges_nothing(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", [1], at=1)
    put(tmp_path / "b.parquet", [2], at=2)
    for policy in ("fail", "skip"):
        whole = path.read_bytes()
        source = reopened(tmp_path, [], on_bad_file=policy)
        offer = source.poll()
        assert offer is not None
        path.unlink()
        with pytest.raises(BadFile, match="removed") as caught:
            ids(reopened(tmp_path, []), offer)  # as a task finds it
        if policy == "fail":
            with pytest.raises(BadFile, match=r"a\.parquet': it was removed before an epoch took it.*put it back"):
                source.reject(offer, caught.value)
        else:
            assert source.reject(offer, caught.value)
        assert taken(source) == [2]
        path.write_bytes(whole)
        assert taken(source) == [1], "it is back"


def test_a_file_that_changes_before_its_epoch_is_taken_as_it_is_at_the_next_step(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", [1], at=1)
    source = reopened(tmp_path, [])
    offer = source.poll()
    assert offer is not None
    put(path, [1, 2, 3], at=5)
    with pytest.raises(BadFile, match="changed") as caught:
        ids(reopened(tmp_path, []), offer)
    assert not source.reject(offer, caught.value)
    assert taken(source) == [1, 2, 3]


class Moment:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_directory_that_did_not_change_is_not_listed_again(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path / f"d{number}" / "a", [1])
        os.utime(tmp_path / f"d{number}", (10, 10))
    os.utime(tmp_path, (10, 10))
    moment = Moment()
    tree = FileTree(str(tmp_path), moment)
    known: set[str] = set()

    def look() -> list[str]:
        found = [file.path for file in tree.unknown(lambda path, _: path in known)]
        known.update(found)
        return found

    assert len(look()) == 5 and tree.listings == 6
    assert look() == [] and tree.listings == 6
    put(tmp_path / "d3" / "b", [2])
    assert look() == [str(tmp_path / "d3" / "b")] and tree.listings == 7
    (tmp_path / "d5").mkdir()
    put(tmp_path / "d5" / "c", [2])
    assert look() == [str(tmp_path / "d5" / "c")]
    shutil.rmtree(tmp_path / "d5")
    assert look() == []


def test_a_change_within_the_tick_of_a_listing_is_seen_and_times_that_lie_are_found_out(tmp_path: Path) -> None:
    moment = Moment()
    tree = FileTree(str(tmp_path), moment)
    known: set[str] = set()

    def look() -> list[str]:
        found = [Path(file.path).name for file in tree.unknown(lambda path, _: path in known)]
        known.update(str(tmp_path / name) for name in found)
        return found

    def put_unseen(name: str, at: float) -> None:
        put(tmp_path / name, [1])
        os.utime(tmp_path, (at, at))

    put_unseen("a", at=999)
    assert look() == ["a"]
    put_unseen("b", at=999)  # in the very tick in which it was listed
    assert look() == ["b"]
    moment.now = 1010
    assert look() == []
    put_unseen("c", at=999)  # a file system that does not say when directories change
    assert look() == []
    moment.now = 1050
    assert look() == ["c"], "looked at all the same after a while"
    put_unseen("d", at=999)
    assert look() == ["d"], "and at once from then on"
