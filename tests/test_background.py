"""Work beside epochs: passes that are asked for, at most so often, and when they begin."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.runtime import background
from holdfast.runtime.background import Background
from holdfast.runtime.merging import MergeRequest, Merging
from holdfast.runtime.runner import Beside
from holdfast.trace.cover import Chain, cover
from holdfast.trace.layer import list_layers, write_layer
from holdfast.trace.name import ALL
from holdfast.trace.pins import Pin
from holdfast.trace.rows import Block, Layout
from logged import heard

_PAUSE = 0.3


class _Runner:
    """What passes need of a runner: threads."""

    threads = True

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread


class _Passes:
    def __init__(self) -> None:
        self.at: list[float] = []
        runner: Any = _Runner()
        self.background = Background(runner, "passes", lambda: self.at.append(time.monotonic()), _PAUSE)

    def wait(self, count: int) -> None:
        deadline = time.monotonic() + 30.0
        while len(self.at) < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def passes() -> Iterator[_Passes]:
    some = _Passes()
    yield some
    some.background.close()


def test_after_a_pause_a_pass_begins_when_it_is_asked_for_again(
    passes: _Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_NEXT", 60.0)
    passes.background.request()
    passes.wait(1)
    passes.background.request()
    time.sleep(4 * _PAUSE)
    assert len(passes.at) == 1, "an epoch that ended long ago: another may be in the middle"
    asked = time.monotonic()
    passes.background.request()
    passes.wait(2)
    assert passes.at[1] >= asked


def test_what_was_asked_for_last_is_done_without_another_request(passes: _Passes) -> None:
    passes.background.request()
    passes.wait(1)
    passes.background.request()
    passes.wait(2)
    assert passes.at[1] - passes.at[0] >= _PAUSE


def test_somebody_who_waits_waits_for_nothing_else(passes: _Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_NEXT", 60.0)
    passes.background.request()
    passes.wait(1)
    passes.background.hurry()
    passes.wait(2)
    passes.background.request()
    time.sleep(2 * _PAUSE)  # it waits for the next request now
    passes.background.hurry()
    passes.wait(3)


def test_closing_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_NEXT", 60.0)
    passes = _Passes()
    passes.background.request()
    passes.wait(1)
    time.sleep(2 * _PAUSE)
    started = time.monotonic()
    passes.background.close()
    assert time.monotonic() - started < 30.0


def test_merging_that_goes_on_failing_is_logged_once_until_it_succeeds() -> None:
    class Tasks:
        """What merging needs of a runner: tasks, which fail as they are told to."""

        threads = False
        partitions = 1
        results: Any = OSError("no space left")

        def tasks(self, *_: object) -> list[int]:
            if isinstance(self.results, Exception):
                raise self.results
            return list(self.results)

    runner: Any = Tasks()
    merging = Merging(runner, lambda: (Chain(-1, ()), -1))

    def said(results: object) -> list[str]:
        runner.results = results
        with heard() as records:
            merging.request([])
            merging.upkeep()
        return [record.getMessage() for record in records]

    expected = ["maintenance failed, and will be tried again: OSError: no space left"]
    assert said(OSError("no space left")) == expected
    assert said(OSError("no space left")) == [], "it goes on failing"
    assert said([]) == [] and merging.failure is None
    assert said(OSError("no space left")) == expected, "it fails again"


def test_merging_keeps_the_layers_that_a_round_of_copying_reads(tmp_path: Path) -> None:
    """A round that was begun at epoch 8 knows no epoch after it, and would take what it cannot read for lost."""
    chain = Chain(-1, tuple(f"{epoch:016x}" for epoch in range(11)))
    layout = Layout(1, 1)
    for epoch in range(11):
        row = Block(
            np.array([epoch], np.uint64), None, (pa.array([epoch]),), np.array([epoch]), {"+diff": np.ones(1, int)}
        )
        write_layer(tmp_path, row, layout, low=0, high=ALL, first=epoch, last=epoch, digest=chain.digests[epoch])

    class Here:
        threads = False
        partitions = 1

        def tasks(self, _: str, function: Callable[..., list[Any]], items: list[Any], *__: object) -> list[Any]:
            return function(items)

    runner: Any = Here()
    rounds = [Pin(5, 8)]
    merging = Merging(runner, lambda: (chain, 5), lambda: rounds)
    merging.request([MergeRequest(tmp_path, layout, 5)])
    merging.upkeep()
    assert merging.merges == 1
    assert cover(list_layers(tmp_path), 0, ALL, 8, Chain(-1, chain.digests[:9]), after=5)
    rounds.clear()
    merging.request([MergeRequest(tmp_path, layout, 5)])
    merging.upkeep()
    assert len(list_layers(tmp_path)) == 1


def test_the_merge_of_a_log_does_not_keep_the_state_that_epochs_read_waiting() -> None:
    let_go, merged = threading.Event(), threading.Event()

    class Tasks(_Runner):
        partitions = 1

        def tasks(self, what: str, function: object, items: Any, slots: Beside, low: object) -> list[int]:
            if slots is Beside.MERGING_LOGS:
                assert let_go.wait(30.0)
            elif items:
                merged.set()
            return [1] * len(items)

    runner: Any = Tasks()
    merging = Merging(runner, lambda: (Chain(-1, ()), -1))
    log, state = (MergeRequest(Path(name), Layout(1, 1), -1, log=name == "log") for name in ("log", "state"))
    try:
        merging.request([log])
        merging.request([log, state])
        assert merged.wait(30.0)
        assert merging.busy, "the log is still being merged"
    finally:
        let_go.set()
        merging.close()
    assert merging.merges >= 2
