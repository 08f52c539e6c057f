"""The layer of faults: whatever a process does with files below its directories can fail, and nothing else does."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from holdfast.testing import Fault, Plan, faults
from holdfast.testing.faulty.plan import FOREVER, KINDS, SHORT

TABLE = pa.table({"n": list(range(1000))})


def always(kind: str, error: str = "EIO", after: bool = False) -> Plan:
    return Plan((Fault(kind, 1, error, FOREVER, after),))


def _fsync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _flock(path: Path) -> None:
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def _truncate(path: Path) -> None:
    with open(path, "r+b") as file:
        os.ftruncate(file.fileno(), 1)


CALLS: dict[str, list[Callable[[Path], object]]] = {
    "open": [
        Path.read_bytes,
        Path.read_text,
        lambda file: open(file),  # noqa: SIM115 (it fails)
        lambda file: os.open(file, os.O_RDONLY),
        lambda file: pa.memory_map(str(file)),
        lambda file: pa.OSFile(str(file)),
        lambda file: pq.read_schema(file.parent / "table.parquet"),
        lambda file: pq.ParquetFile(file.parent / "table.parquet"),
        lambda file: pyarrow.csv.read_csv(file.parent / "table.csv"),
        lambda file: pyarrow.fs.LocalFileSystem().open_input_file(str(file)).read(),
        lambda file: pyarrow.fs.FileSystem.from_uri(f"file://{file}")[0].open_input_file(str(file)).read(),
        lambda file: fsspec.filesystem("file").open(str(file)).read(),
        lambda file: shutil.copyfile(file, "/dev/null"),
    ],
    "create": [
        lambda file: file.write_bytes(b"x"),
        lambda file: (file.parent / "new").touch(),
        lambda file: pq.write_table(TABLE, file.parent / "new.parquet"),
        lambda file: tempfile.mkstemp(dir=file.parent),
        lambda file: fsspec.filesystem("file").open(str(file), "wb"),
    ],
    "read": [Path.read_bytes, Path.read_text, lambda file: pq.read_schema(file.parent / "table.parquet")],
    "write": [
        lambda file: file.write_text("x"),
        lambda file: pq.write_table(TABLE, file.parent / "new.parquet"),
        lambda file: os.write(os.open(file, os.O_WRONLY), b"x"),
        lambda file: shutil.copyfile(file, file.parent / "copy"),
    ],
    "sync": [_fsync],
    "truncate": [_truncate, lambda file: os.truncate(file, 1)],
    "map": [lambda file: pa.memory_map(str(file))],
    "stat": [Path.stat, Path.lstat, os.path.getsize, lambda file: next(os.scandir(file.parent)).stat()],
    "list": [
        lambda file: os.listdir(file.parent),
        lambda file: list(os.scandir(file.parent)),
        lambda file: list(file.parent.iterdir()),
        lambda file: fsspec.filesystem("file").ls(str(file.parent)),
    ],
    "mkdir": [lambda file: (file.parent / "d").mkdir(), lambda file: os.makedirs(file.parent / "d" / "e")],
    "remove": [
        Path.unlink,
        lambda file: os.remove(file),
        lambda file: (file.parent / "empty").rmdir(),
        lambda file: shutil.rmtree(file.parent / "full"),
    ],
    "rename": [lambda file: file.rename(file.parent / "x"), lambda file: os.replace(file, file.parent / "x")],
    "link": [lambda file: os.link(file, file.parent / "x"), lambda file: (file.parent / "y").symlink_to(file)],
    "lock": [_flock],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "failing"
    for name in ("empty", "full/deeper"):
        (place / name).mkdir(parents=True)
    (place / "full" / "deeper" / "one").write_text("1")
    (place / "file").write_text("hello, and more of it")
    (place / "table.csv").write_text("n\n1\n")
    pq.write_table(TABLE, place / "table.parquet")
    return place / "file"


@pytest.mark.parametrize(("kind", "number"), [(kind, number) for kind in KINDS for number in range(len(CALLS[kind]))])
def test_every_way_to_touch_a_file_fails(kind: str, number: int, file: Path) -> None:
    with faults(always(kind), under=[file.parent]) as layer, pytest.raises(OSError) as raised:
        CALLS[kind][number](file)
    assert raised.value.errno in (errno.EIO, None)  # pyarrow says it in words
    assert layer.injected and {call.kind for call in layer.injected} == {kind}
    assert str(layer.injected[0].path).startswith(str(file.parent))


def test_files_elsewhere_do_not_fail(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with faults(Plan(tuple(Fault(kind, 1, "EIO", FOREVER) for kind in KINDS)), under=[file.parent]) as layer:
        other.mkdir()
        (other / "file").write_text("x")
        pq.write_table(TABLE, other / "table.parquet")
        assert pq.read_table(other / "table.parquet") == TABLE
        shutil.rmtree(other)
    assert not layer.calls


def test_nothing_fails_after_the_block_or_in_a_pause(file: Path) -> None:
    before = (os.open, os.scandir, open, pa.memory_map)
    with faults(always("open"), under=[file.parent]) as layer:
        with layer.paused():
            assert file.read_text()
        with pytest.raises(OSError):
            file.read_text()
    assert file.read_text()
    assert before == (os.open, os.scandir, open, pa.memory_map)


def test_a_fault_is_met_by_the_calls_that_it_says(file: Path) -> None:
    with faults(Plan((Fault("open", 3, "EMFILE", 2),)), under=[file.parent]) as layer:
        said = []
        for _ in range(6):
            try:
                file.read_bytes()
                said.append("read")
            except OSError as error:
                said.append(errno.errorcode[error.errno])
    assert said == ["read", "read", "EMFILE", "EMFILE", "read", "read"]
    assert layer.counts["open"] == 6 and len(layer.injected) == 2


def test_short_reads_and_writes_lose_nothing_of_a_file(file: Path) -> None:
    plan = Plan((Fault("read", 1, SHORT, FOREVER), Fault("write", 1, SHORT, FOREVER)))
    with faults(plan, under=[file.parent]):
        file.write_bytes(bytes(range(256)) * 1000)
        assert file.read_bytes() == bytes(range(256)) * 1000
        pq.write_table(TABLE, file.parent / "new.parquet")
        assert pq.ParquetFile(file.parent / "new.parquet").read() == TABLE
        number = os.open(file, os.O_RDWR)
        assert os.write(number, b"abcd") == 2  # and one who writes at once must look
        assert os.pread(number, 4, 0) == b"ab"
        os.close(number)


def test_a_call_may_happen_and_be_said_to_have_failed(file: Path) -> None:
    target = file.parent / "target"
    with faults(always("rename", after=True), under=[file.parent]), pytest.raises(OSError):
        file.rename(target)
    assert target.exists() and not file.exists()


def test_the_plan_of_a_seed_is_always_the_same() -> None:
    assert Plan.draw(7) == Plan.draw(7) != Plan.draw(8)
    drawn = [fault for seed in range(500) for fault in Plan.draw(seed).faults]
    assert {fault.kind for fault in drawn} == set(KINDS)
    assert {"EACCES", "EIO", "EMFILE", "ENOSPC", "ESTALE", "EINVAL", SHORT} <= {fault.error for fault in drawn}


def test_a_fault_that_cannot_be_is_refused() -> None:
    for wrong in ({"kind": "cast"}, {"error": "ENOTHING"}, {"number": 0}, {"error": SHORT}):
        with pytest.raises(ValueError, match="fault"):
            Fault(**{"kind": "open", "number": 1, "error": "EIO", **wrong})  # type: ignore[arg-type]
