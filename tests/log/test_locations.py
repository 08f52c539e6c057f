"""One suite for all locations: what a flow relies on, wherever its copies are; then what each refuses, and how."""

from __future__ import annotations

import os
import pickle
import secrets
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from holdfast.errors import LogError, StoreError
from holdfast.log import filesystem_location
from holdfast.log.filesystem_location import FilesystemLocation
from holdfast.log.location import Entry, LocalLocation, Location, open_location
from holdfast.testing.memory import MemoryLocation
from holdfast.testing.unreliable import Unreliable
from s3_server import s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The query part of URIs on an S3-compatible server, which has the bucket ``copies``."""
    with s3_server("copies") as query:
        yield query


@pytest.fixture(params=["local", "memory", "fsspec", "renaming", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    unique = secrets.token_hex(4)
    match request.param:
        case "local":
            return open_location(tmp_path / "copies")
        case "memory":
            return MemoryLocation()
        case "fsspec":
            return open_location(f"memory://{unique}/copies")
        case "renaming":  # fsspec's own view of a disk: the way of SFTP, SMB and HDFS
            return open_location(f"local://{tmp_path}/copies")
        case _:
            return open_location(f"s3://copies/{unique}/log?{request.getfixturevalue('s3')}")


def test_what_is_written_is_read(location: Location) -> None:
    location.check()
    for path, data in {
        "holdfast.json": b"{}",
        "layers/a.rows/one": b"\0\xff" * 1000,
        "layers/a.rows/none": b"",
    }.items():
        location.write(path, data)
        assert location.read(path) == data


def test_a_blob_that_is_not_there_is_a_file_not_found(location: Location) -> None:
    location.write("layers/one", b"1")
    for path in ("two", "layers/two", "nowhere/at/all"):
        with pytest.raises(FileNotFoundError):
            location.read(path)


def test_writing_again_replaces_the_blob(location: Location) -> None:
    for data in (b"first", b"first", b"the second", b"3"):
        location.write("claims/one.json", data)
        assert location.read("claims/one.json") == data
        assert location.list("claims") == [Entry("one.json", len(data))]


def test_a_listing_has_the_blobs_of_one_directory_by_name_with_their_sizes(location: Location) -> None:
    for path in ("layers/t/b", "layers/t/a", "layers/t/deep/c", "layers/tt/d", "top"):
        location.write(path, path.encode())
    assert location.list("layers/t") == [Entry("a", 10), Entry("b", 10)]
    assert location.list("layers") == []
    assert location.list("") == [Entry("top", 3)]


def test_directories_are_listed_by_name(location: Location) -> None:
    for path in ("layers/t.rows/a", "layers/s.acc/a", "layers/s.acc/b", "layers/file", "lineage/x"):
        location.write(path, b"x")
    assert location.directories("layers") == ["s.acc", "t.rows"]
    assert location.directories("") == ["layers", "lineage"]
    assert location.directories("layers/t.rows") == []


def test_a_directory_that_is_not_there_is_empty(location: Location) -> None:
    for directory in ("", "layers", "no/such"):
        assert location.list(directory) == []
        assert location.directories(directory) == []


def test_what_is_being_written_is_not_listed(location: Location) -> None:
    location.write("layers/.0123.tmp", b"left by a crash")
    location.write("layers/one", b"1")
    assert location.list("layers") == [Entry("one", 1)]


def test_writing_leaves_nothing_but_the_blob(location: Location) -> None:
    location.check()
    for _ in range(2):
        location.write("layers/t/one", b"1")
    local = location.local()
    if local is not None:
        assert sorted(path.name for path in local.rglob("*") if path.is_file()) == ["one"]
    assert location.list("") == [] and location.list("layers/t") == [Entry("one", 1)]


def test_removing_is_done_once_and_may_be_done_twice(location: Location) -> None:
    location.write("layers/one", b"1")
    location.write("layers/two", b"2")
    location.remove("layers/one")
    location.remove("layers/one")
    location.remove("no/such")
    assert location.list("layers") == [Entry("two", 1)]


def test_a_blob_is_set_aside(location: Location) -> None:
    location.write("layers/t/one", b"damaged")
    location.move("layers/t/one", "damaged/t/one")
    assert location.list("layers/t") == []
    assert location.read("damaged/t/one") == b"damaged"
    with pytest.raises(FileNotFoundError):
        location.move("layers/t/one", "damaged/t/one")
    assert location.read("damaged/t/one") == b"damaged"


def test_setting_aside_replaces_what_was_set_aside_before(location: Location) -> None:
    for data in (b"one", b"another"):
        location.write("layers/one", data)
        location.move("layers/one", "damaged/one")
        assert location.read("damaged/one") == data


def test_names_may_be_long_and_odd(location: Location) -> None:
    name = "000000000012-000000000015-" + "0" * 16 + "-" + "0" * 17 + "-none-" + "a" * 16 + "-" + "b" * 16 + ".parquet"
    for path in (f"layers/f00.order.1/{name}", "layers/a b/c+d=e%20.json", "layers/ä/ö"):
        location.write(path, b"x")
        directory, _, last = path.rpartition("/")
        assert location.list(directory) == [Entry(last, 1)]
        assert location.read(path) == b"x"
    assert location.directories("layers") == ["a b", "f00.order.1", "ä"]


def test_a_path_cannot_lead_out_of_the_location(location: Location) -> None:
    for path in ("../other", "layers/../../other", "/etc/other"):
        for operation in (location.read, location.list, location.remove, lambda p: location.write(p, b"")):
            with pytest.raises(StoreError, match="leads out of the location"):
                operation(path)


def test_many_threads_may_use_it_at_once(location: Location) -> None:
    def write(number: int) -> None:
        for i in range(5):
            location.write(f"layers/{number}-{i}", b"x" * number)
            location.write("layers/shared", b"the same")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(location.list("layers")) == 21
    assert location.read("layers/shared") == b"the same"


def test_a_location_travels_to_a_task(location: Location) -> None:
    location.write("one", b"1")
    if isinstance(location, MemoryLocation):
        with pytest.raises(TypeError, match="memory of one process"):
            pickle.dumps(location)
        return
    copy = pickle.loads(pickle.dumps(location))
    assert copy.uri == location.uri and copy == location
    assert copy.read("one") == b"1"


def test_only_a_local_location_says_where_it_is(tmp_path: Path) -> None:
    assert open_location(tmp_path).local() == tmp_path
    assert open_location(f"file://{tmp_path}/a%20b").local() == tmp_path / "a b"
    assert open_location("memory://x").local() is None
    assert Unreliable(open_location(tmp_path)).local() is None


def test_a_relative_path_means_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_location("copies").uri == str(tmp_path / "copies")
    assert open_location(place := LocalLocation(tmp_path)) is place


def test_a_crash_while_writing_leaves_the_old_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = LocalLocation(tmp_path)
    location.write("one", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="cannot write one: the disk is full; make room"):
        location.write("one", b"new")
    monkeypatch.undo()
    assert location.read("one") == b"old"
    assert os.listdir(tmp_path) == ["one"]


def test_a_filesystem_that_cannot_rename_onto_a_file_is_written_nevertheless(tmp_path: Path) -> None:
    location = FilesystemLocation(f"local://{tmp_path}/copies")
    location.write("one", b"old")
    opened = location._opened
    assert opened is not None and opened.rename is not None
    rename = opened.rename

    def careful(source: str, target: str) -> None:
        if os.path.exists(target):
            raise OSError("destination exists")
        rename(source, target)

    location._opened = filesystem_location._Opened(**{**opened.__dict__, "rename": careful})
    for data in (b"old", b"new"):
        location.write("one", data)
        assert location.read("one") == data
    assert os.listdir(tmp_path / "copies") == ["one"]


# -- bad input --------------------------------------------------------------------------------------------------------


def refused(location: Location) -> StoreError:
    with pytest.raises(StoreError) as caught:
        location.check()
    assert location.uri in str(caught.value) and caught.value.fields["location"] == location.uri
    assert isinstance(caught.value, LogError)
    return caught.value


def test_a_file_is_not_a_location(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "copies"):
        assert f"{tmp_path / 'file'} is a file, and must be a directory; remove it" in str(
            refused(open_location(place))
        )


def test_errors_say_what_was_done_to_what(tmp_path: Path) -> None:
    location = open_location(tmp_path)
    location.write("layers", b"a blob where a directory should be")
    with pytest.raises(StoreError, match=r"cannot write layers/one: .* is a file") as caught:
        location.write("layers/one", b"1")
    fields = caught.value.fields
    assert (fields["operation"], fields["path"]) == ("write", "layers/one")
    with pytest.raises(StoreError, match="cannot read layers/one: a part of the path is a file"):
        location.read("layers/one")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    error = refused(open_location(tmp_path / "closed"))
    assert "permission denied; give this user the right to read and write there" in str(error)


def test_a_file_system_that_denies_or_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, fix in ((13, "permission denied; give this user"), (30, "the file system is read-only; choose")):

        def replace(*_: object, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "replace", replace)
        error = refused(open_location(tmp_path))
        assert fix in str(error) and error.fields["errno"] == code
    assert os.listdir(tmp_path) == []


def test_a_bucket_that_is_not_there_is_refused_and_never_taken_for_an_empty_one(s3: str) -> None:
    location = open_location(f"s3://nosuchbucket/log?{s3}")
    assert "there is no such bucket; create it, or correct the name" in str(refused(location))
    for operation in (location.read, location.list, location.directories, lambda p: location.write(p, b"")):
        with pytest.raises(StoreError, match="no such bucket"):
            operation("layers")


def test_an_unknown_scheme_is_refused_when_it_is_named() -> None:
    with pytest.raises(StoreError, match="s4://bucket/log: no such kind of place is known; check the part before ://"):
        open_location("s4://bucket/log")


def test_a_scheme_whose_package_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ImportError('SFTPFileSystem requires "paramiko" to be installed')

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    assert 'install the package that this kind of place needs (SFTPFileSystem requires "paramiko"' in str(
        refused(open_location("sftp://host/log"))
    )


def test_a_place_that_is_no_place_is_refused() -> None:
    for place, fix in (
        ("", "it is empty"),
        ("s3:/bucket/log", "did you mean s3://bucket/log"),
        ("file://tmp/copies", "did you mean file:///tmp/copies"),
        (3, "expected a path, a URI or a Location, found int"),
    ):
        with pytest.raises(StoreError, match=fix):
            open_location(place)  # type: ignore[arg-type]  # what users do


def test_no_credentials_are_shown(s3: str) -> None:
    query = f"{s3}&session_token=hush%2Fhush"
    location = open_location(f"s3://AKIA:wJalr%2Fsecret@nosuchbucket/log?{query}")
    assert location.uri == f"s3://nosuchbucket/log?{s3}"
    error = refused(location)
    for text in (str(error), repr(location), repr(error.fields), "".join(traceback.format_exception(error))):
        assert not any(secret in text for secret in ("AKIA", "wJalr", "hush"))
    with pytest.raises(StoreError, match="odd://host/log") as caught:
        open_location("odd://user:p4ssw0rd@host/log?sig=hush&region=x")
    assert "p4ssw0rd" not in str(caught.value) and "hush" not in str(caught.value)
    assert open_location("abfs://container@account.dfs.core.windows.net/log").uri.startswith("abfs://container@account")
