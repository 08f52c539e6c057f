"""Files that appear whole, or not at all, and leave nothing behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from holdfast.foundation.atomic_files import (
    create_file,
    is_temporary,
    remove_temporary,
    replace_file,
    temporary_name,
    temporary_path,
)


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def write(out: BinaryIO) -> None:
        out.write(b"half of the n")
        raise ValueError("no more")

    for sync in (False, True):
        with pytest.raises(ValueError, match="no more"):
            replace_file(path, write, sync=sync)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]
    replace_file(path, lambda out: out.writelines([b"n", b"ew"]), sync=True)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"new")]


def test_of_many_that_create_a_file_one_is_told_that_it_did(tmp_path: Path) -> None:
    path, told = tmp_path / "file", []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        told.append((create_file(path, str(number).encode()), number))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [number for created, number in told if created]
    assert len(told) == 8 and path.read_bytes() == str(winner).encode()
    assert os.listdir(tmp_path) == ["file"]


def test_the_first_error_is_raised_when_removing_the_temporary_file_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(1, "not allowed")

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(ValueError, match="first"), temporary_path(tmp_path) as path:
        path.touch()
        raise ValueError("first")


def test_leftovers_of_crashes_are_known_by_their_names(tmp_path: Path) -> None:
    names = [temporary_name(), temporary_name("term-7")]
    assert names[1].startswith(".term-7.") and all(map(is_temporary, names))
    assert not any(map(is_temporary, (".asked-1.json", "x.tmp", ".member")))
    for name in (*names, "kept", ".kept"):
        (tmp_path / name).touch()
    remove_temporary(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".kept", "kept"]
