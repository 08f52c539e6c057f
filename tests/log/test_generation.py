"""A working directory taken from a driver that still has it: nothing which that one does gets among the layers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import Fenced, LogBusy
from holdfast.log import generation
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


@pytest.mark.parametrize("step", ["rename", "_point", "_rename"])
@pytest.mark.parametrize("again", ["plain", "lease"])
def test_a_driver_that_dies_while_it_takes_the_layers_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, again: str
) -> None:
    if step != "rename":
        open_log(tmp_path).close()
    log = open_log(tmp_path, None)
    layer(log.traces, "old")
    log.close()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os if step == "rename" else generation, step, die)
        with pytest.raises(KeyboardInterrupt):
            open_log(tmp_path)
    log = open_log(tmp_path, LEASE if again == "lease" else None)
    assert [path.name for path in log.traces.glob("*/*")] == ["old"]
    log.close()


def test_a_driver_that_sleeps_while_it_takes_the_layers_finds_itself_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(tmp_path).close()
    taken: list[LogDirectory] = []
    point = generation._point

    def sleep(link: Path, name: str) -> None:
        point(link, name)
        if not taken:
            taken.append(None)  # type: ignore[arg-type]
            taken[0] = open_log(tmp_path)

    monkeypatch.setattr(generation, "_point", sleep)
    with pytest.raises(Fenced):
        open_log(tmp_path)
    taken[0].check()
    layer(taken[0].traces, "new")
    assert layers(tmp_path) == ["new"]
    taken[0].close()
