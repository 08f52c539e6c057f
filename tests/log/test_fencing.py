"""A working directory taken from a driver that still has it: nothing which that one does gets among the layers."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Fenced, LogBusy
from holdfast.log import fencing
from holdfast.log.host_paths import LOCAL, host_path, take, traces_of
from holdfast.log.working_directory import LogDirectory

LEASE = "file:///lease"


def open_log(path: Path, lease: str | None = LEASE) -> LogDirectory:
    return LogDirectory.open(path, "flow", create=True, exclusive=True, lease=lease)


def layer(directory: Path, name: str) -> Path:
    """A layer, as a task writes it: by the path that its driver told it."""
    (directory / "trace").mkdir(parents=True, exist_ok=True)
    (directory / "trace" / name).write_text(name)
    return directory / "trace" / name


def layers(log: Path) -> list[str]:
    """What readers see."""
    return sorted(path.name for path in (log / "traces").glob("*/*"))


def test_a_driver_of_the_same_lease_takes_the_log_with_its_layers_from_one_that_has_it(tmp_path: Path) -> None:
    first = open_log(tmp_path)
    first.check()
    layer(first.traces, "old")
    second = open_log(tmp_path)
    second.check()
    assert layers(tmp_path) == ["old"] and (second.traces / "trace" / "old").exists()
    with pytest.raises(Fenced, match=f"another driver has taken over \\(process {os.getpid()} on"):
        first.check()
    layer(first.traces, "late")
    layer(second.traces, "new")
    assert layers(tmp_path) == ["new", "old"]
    first.close()
    assert LogDirectory.open(tmp_path).holder() is not None
    second.close()
    assert LogDirectory.open(tmp_path).holder() is None


def test_a_log_that_is_held_without_the_lease_is_busy(tmp_path: Path) -> None:
    for held in (None, "file:///another"):
        first = open_log(tmp_path, held)
        with pytest.raises(LogBusy):
            open_log(tmp_path)
        first.check()
        first.close()
    first = open_log(tmp_path)
    with pytest.raises(LogBusy):
        open_log(tmp_path, None)
    first.close()


def test_a_log_goes_on_with_a_lease_and_without(tmp_path: Path) -> None:
    for number, lease in enumerate((None, LEASE, LEASE, None, LEASE)):
        log = open_log(tmp_path, lease)
        layer(log.traces, f"layer{number}")
        log.close()
        assert layers(tmp_path) == [f"layer{each}" for each in range(number + 1)]
    assert sorted(path.name for path in tmp_path.glob("traces*")) == ["traces", "traces-000003"]


@pytest.mark.parametrize("step", ["rename", "rename_of_the_first", "link", "remove"])
@pytest.mark.parametrize("again", ["plain", "lease"])
def test_a_driver_that_dies_while_it_takes_the_layers_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, again: str
) -> None:
    if step != "rename_of_the_first":
        open_log(tmp_path).close()
    log = open_log(tmp_path, None)
    layer(log.traces, "old")
    log.close()
    if step == "remove":
        layer(tmp_path / "traces-000000", "late")  # of a task that was told an old name

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    owner, name = {"link": (fencing, "_point"), "remove": (shutil, "rmtree")}.get(step, (os, "rename"))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(KeyboardInterrupt):
            open_log(tmp_path)
    log = open_log(tmp_path, LEASE if again == "lease" else None)
    assert [path.name for path in log.traces.glob("*/*")] == ["old"]
    log.close()


@pytest.mark.parametrize("before", ["rename", "link"])
def test_a_driver_that_sleeps_while_it_takes_the_layers_finds_itself_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    first = open_log(tmp_path)
    layer(first.traces, "old")
    first.close()
    taken: list[LogDirectory] = []
    owner, name = (os, "rename") if before == "rename" else (fencing, "_point")
    real = getattr(owner, name)

    def sleep(*arguments: Any) -> None:
        if not taken:
            taken.append(None)  # type: ignore[arg-type]
            taken[0] = open_log(tmp_path)
        real(*arguments)

    monkeypatch.setattr(owner, name, sleep)
    with pytest.raises(Fenced):
        open_log(tmp_path)
    taken[0].check()
    layer(taken[0].traces, "new")
    assert layers(tmp_path) == ["new", "old"], "neither the layers nor the link to them are lost"
    taken[0].close()
    with closing(open_log(tmp_path)) as log:
        assert sorted(path.name for path in log.traces.glob("*/*")) == ["new", "old"]


def test_tasks_that_were_told_the_plain_name_do_not_hide_the_layers(tmp_path: Path) -> None:
    """They make it anew, between the rename and the link, or after somebody has removed the link."""
    log = open_log(tmp_path)
    layer(log.traces, "old")
    log.close()
    (tmp_path / "traces").unlink()
    layer(tmp_path / "traces", "late")
    for lease in (None, LEASE):
        with closing(open_log(tmp_path, lease)) as log:
            assert [path.name for path in log.traces.glob("*/*")] == ["old"]
    assert layers(tmp_path) == ["old"]


def test_a_log_whose_driver_of_an_old_version_died_between_link_and_rename_keeps_its_layers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    layer(log.traces, "old")
    log.close()
    (tmp_path / "traces").unlink()
    (tmp_path / "traces").symlink_to("traces-000002")
    for lease in (None, LEASE):
        with closing(open_log(tmp_path, lease)) as log:
            assert [path.name for path in log.traces.glob("*/*")] == ["old"]
    assert layers(tmp_path) == ["old"]


def test_attempts_of_one_task_may_take_a_host_directory_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCAL, str(tmp_path))
    old, new = traces_of(Path("/flows/shop"), 2), traces_of(Path("/flows/shop"), 5)
    take(old)
    (host_path(old) / "layer").touch()
    rename, other = os.rename, []

    def sleep(*arguments: Any) -> None:
        if not other:
            other.append(1)
            take(new)
        rename(*arguments)

    monkeypatch.setattr(os, "rename", sleep)
    take(new)
    assert [path.name for path in host_path(new).iterdir()] == ["layer"]


@pytest.mark.parametrize("lease", [None, LEASE])
def test_a_log_whose_layers_were_removed_by_hand_is_opened_without_them(tmp_path: Path, lease: str | None) -> None:
    with closing(open_log(tmp_path)) as log:
        shutil.rmtree(log.traces)
    with closing(open_log(tmp_path, lease)) as log:
        layer(log.traces, "new")
    assert layers(tmp_path) == ["new"]
