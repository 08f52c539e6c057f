"""What the test of the crash matrix runs on a cluster: flows whose executors are killed while the driver lives."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import holdfast as hf
from cluster.scenes import session
from guarantees.matrix_apps import SparkApp, output
from holdfast.foundation import failpoints
from holdfast.guarantees.strategy import Strategy
from holdfast.log.host_paths import scattered
from holdfast.testing import classify
from holdfast.testing.cluster import Handle

Pair = tuple[str, str]
"""A class of operators, and a kind of sink."""


def killed_executors(handle: Handle, pairs: list[Pair], strategies: list[Strategy], points: list[str]) -> list[Any]:
    """Run each flow under each strategy, and lose the executor that keeps its state once at each of these points: a
    mark that the driver comes to, or ``"random"``. What was seen: pair, strategy, point, who was killed, and what came
    of it."""
    spark = session(handle, 1)
    found = []
    for kind, sink in pairs:
        app = SparkApp(kind, sink)
        reference, an_epoch = _undisturbed(app, handle.directory / f"{kind}-{sink}")
        for strategy in strategies:
            for point in points:
                root = handle.directory / f"{kind}-{sink}-{len(found)}"
                executioner = _Executioner(handle, root, point, an_epoch)
                after = executioner.watch(lambda: _run(app, root, strategy))  # noqa: B023  # called at once
                before = executioner.before
                observed = classify(before, after[len(before) :], reference)
                found.append(((kind, sink), strategy, point, executioner.killed, observed.recovery))
    spark.stop()
    return found


def _undisturbed(app: SparkApp, root: Path) -> tuple[list[Any], float]:
    """What a run without a crash puts out, and the seconds that its shortest epoch took."""
    ran: list[float] = []
    failpoints.hook = lambda mark: ran.append(time.monotonic()) if mark == "epoch.ran" else None
    try:
        found = _run(app, root, hf.nosync())
    finally:
        failpoints.hook = None
    return found, min(after - before for before, after in pairwise(ran))


def _run(app: SparkApp, root: Path, strategy: Strategy) -> list[Any]:
    root.mkdir()
    flow = app(root, strategy)
    flow.run(until="idle")
    flow.close()
    return output(root)


class _Executioner:
    """Kills the executor that keeps the flow's state, once, deletes what it kept, and notes what had left by then.

    So that it is certain what a strategy that copies nothing does, there is state by then, and input that is still to
    come: a random moment is one of an epoch's length after the first, second or third has run."""

    def __init__(self, handle: Handle, root: Path, point: str, an_epoch: float) -> None:
        self._handle, self._root = handle, root
        at_random = point == "random"
        self._mark = "epoch.ran" if at_random else point
        self._times = random.randint(1, 3) if at_random else 3
        self._delay = random.uniform(0, an_epoch) if at_random else None
        self._reached = 0
        self._timer: threading.Timer | None = None
        self.killed = ""
        self.before: list[Any] = []

    def watch(self, work: Callable[[], list[Any]]) -> list[Any]:
        failpoints.hook = self._pass
        try:
            return work()
        finally:
            failpoints.hook = None
            if self._timer is not None:
                self._timer.join()

    def _pass(self, mark: str) -> None:
        if mark == self._mark:
            self._reached += 1
            if self._reached == self._times:
                if self._delay is None:
                    self._kill()
                else:
                    self._timer = threading.Timer(self._delay, self._kill)
                    self._timer.start()

    def _kill(self) -> None:
        keeper = next(one.id for one in self._handle.members() if self._keeps_state(one.worker))
        self.before = output(self._root)
        self.killed = self._handle.kill_executor(keeper, with_directory=True).id

    def _keeps_state(self, worker: int) -> bool:
        own = self._handle.local(worker) / scattered(self._root / "local").name
        return any(file.is_file() for file in own.rglob("*"))
