"""The log directory: who may open it, what the refusals say, and that a crash leaves nothing in the way."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import LogBusy, LogDamaged, LogError, LogForeign, LogFormat
from holdfast.log import working_directory
from holdfast.log.working_directory import LogDirectory, write_whole


def open_exclusive(path: Path, flow: str = "revenue") -> LogDirectory:
    return LogDirectory.open(path, flow, create=True, exclusive=True)


def test_a_new_log_is_made_with_its_parents_and_says_whose_it_is(tmp_path: Path) -> None:
    log = open_exclusive(tmp_path / "deep" / "er")
    assert json.loads((log.path / "holdfast.json").read_text()) == {"format": 3, "flow": "revenue"}
    assert log.traces.is_dir() and log.lineage.is_dir()
    assert log.trace_path("abc", "acc") == log.path / "traces" / "abc.acc"
    log.close()


def test_a_log_opens_again_after_it_was_closed(tmp_path: Path) -> None:
    open_exclusive(tmp_path / "log").close()
    log = open_exclusive(tmp_path / "log")
    assert log.flow == "revenue"
    log.close()


def test_two_flows_of_one_process_cannot_have_one_log(tmp_path: Path) -> None:
    log = open_exclusive(tmp_path / "log")
    with pytest.raises(LogBusy, match=r"this very process has it; close\(\)"):
        open_exclusive(tmp_path / "log")
    log.close()


def hold(path: Path, held: multiprocessing.synchronize.Event) -> None:
    open_exclusive(path)
    held.set()
    signal.pause()


def test_the_lock_names_its_holder_and_goes_when_the_holder_is_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold, args=(tmp_path / "log", held), daemon=True)
    process.start()
    assert held.wait(10)
    with pytest.raises(LogBusy, match=f"process {process.pid} on {socket.gethostname()}") as caught:
        open_exclusive(tmp_path / "log")
    assert caught.value.fields["pid"] == process.pid
    reader = LogDirectory.open(tmp_path / "log")
    holder = reader.holder()
    assert holder is not None and holder["pid"] == process.pid
    process.kill()
    process.join()
    assert reader.holder() is None
    open_exclusive(tmp_path / "log").close()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    log = open_exclusive(tmp_path / "log")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    log.close()
    open_exclusive(tmp_path / "log").close()
    child.communicate(b"\n")


def test_another_flows_log_is_refused_with_both_names(tmp_path: Path) -> None:
    open_exclusive(tmp_path / "log").close()
    with pytest.raises(LogForeign, match="belongs to flow 'revenue', not to 'costs'"):
        open_exclusive(tmp_path / "log", "costs")
    open_exclusive(tmp_path / "log").close()


def test_a_log_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    open_exclusive(tmp_path / "log").close()
    text = '{"format": 7, "flow": "revenue"}'
    (tmp_path / "log" / "holdfast.json").write_text(text)
    with pytest.raises(LogFormat, match="format 7, and this Holdfast reads format 3"):
        open_exclusive(tmp_path / "log")
    assert (tmp_path / "log" / "holdfast.json").read_text() == text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"flow": "revenue"}', '{"format": 2}'])
def test_a_damaged_header_is_reported_by_name(tmp_path: Path, text: str) -> None:
    open_exclusive(tmp_path / "log").close()
    (tmp_path / "log" / "holdfast.json").write_text(text)
    with pytest.raises(LogDamaged, match=r"holdfast\.json"):
        open_exclusive(tmp_path / "log")


def test_a_refused_open_does_not_keep_the_lock(tmp_path: Path) -> None:
    open_exclusive(tmp_path / "log").close()
    with pytest.raises(LogForeign):
        open_exclusive(tmp_path / "log", "costs")
    assert LogDirectory.open(tmp_path / "log").holder() is None


def test_a_file_in_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("hello")
    with pytest.raises(LogError, match="it is a file"):
        open_exclusive(tmp_path / "log")
    with pytest.raises(LogError, match="a part of the path is a file"):
        open_exclusive(tmp_path / "log" / "below")


def test_a_directory_of_other_things_is_never_taken_for_a_log(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(LogError, match=r"holds other things \(thesis\.tex\)"):
        open_exclusive(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_what_a_log_keeps_beside_its_header_is_not_foreign_when_the_header_is_lost(tmp_path: Path) -> None:
    log = open_exclusive(tmp_path / "log")
    log.write_collections({})
    log.write_rates({"epoch": 0.1})
    log.write_clock("2026-01-01", 7)
    log.write_members(["a"])
    log.close()
    (tmp_path / "log" / "holdfast.json").unlink()
    open_exclusive(tmp_path / "log").close()


def test_a_log_that_is_only_read_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        LogDirectory.open(tmp_path / "log")
    (tmp_path / "log").mkdir()
    with pytest.raises(LogError, match="not a Holdfast log"):
        LogDirectory.open(tmp_path / "log")
    assert os.listdir(tmp_path / "log") == []


def test_a_crash_while_the_log_is_made_does_not_block_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    (path / "traces").mkdir(parents=True)
    (path / "lock").touch()
    (path / ".holdfast.json.1.ab.tmp").write_text("{")
    log = open_exclusive(path)
    assert not list(path.glob(".*.tmp"))
    log.close()


def test_collections_are_replaced_whole(tmp_path: Path) -> None:
    log = open_exclusive(tmp_path / "log")
    assert log.read_collections() == {}
    log.write_collections({"top": {"kind": "view"}})
    log.write_collections({"top": {"kind": "view", "sql": "SELECT …"}})
    assert LogDirectory.open(log.path).read_collections() == {"top": {"kind": "view", "sql": "SELECT …"}}
    assert not list(log.path.glob(".*.tmp"))
    log.close()


@pytest.mark.parametrize(
    ("number", "fix"),
    [(errno.EACCES, "permission denied"), (errno.EROFS, "read-only"), (errno.ENOSPC, "the disk is full")],
)
def test_a_disk_that_refuses_is_an_error_that_names_the_path_and_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    log = open_exclusive(tmp_path / "log")
    log.write_collections({"before": {}})
    monkeypatch.setattr(working_directory.os, "replace", refuse)
    with pytest.raises(LogError, match=fix) as caught:
        write_whole(log.path / "collections.json", "{}")
    assert str(log.path) in str(caught.value)
    assert log.read_collections() == {"before": {}}
    monkeypatch.setattr(working_directory.os, "open", refuse)
    with pytest.raises(LogError, match=fix):
        open_exclusive(tmp_path / "other")
    log.close()


def test_what_a_crash_left_while_the_lineage_was_written_is_removed(tmp_path: Path) -> None:
    with closing(LogDirectory.open(tmp_path / "log", "flow", create=True, exclusive=True)) as log:
        (log.lineage / ".0123456789abcdef.tmp").write_bytes(b"half a li")
    with closing(LogDirectory.open(tmp_path / "log", "flow", exclusive=True)) as log:
        assert list(log.lineage.iterdir()) == []
