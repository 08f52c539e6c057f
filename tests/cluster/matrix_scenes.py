"""What the test of the crash matrix runs on a cluster: flows whose executors are killed while the driver lives."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import holdfast as hf
from cluster.scenes import session
from guarantees.matrix_apps import SparkApp, output
from holdfast.foundation import failpoints
from holdfast.guarantees.strategy import Strategy
from holdfast.testing import classify
from holdfast.testing.cluster import Handle

Pair = tuple[str, str]
"""A class of operators, and a kind of sink."""


def killed_executors(handle: Handle, pairs: list[Pair], strategies: list[Strategy], points: list[str]) -> list[Any]:
    """Run each flow under each strategy, and kill an executor once at each of these points: a mark that the driver
    comes to, or ``"random"``. What was seen: pair, strategy, point, whether one was killed, and what came of it."""
    spark = session(handle, 1)
    found = []
    for kind, sink in pairs:
        app, began = SparkApp(kind, sink), time.monotonic()
        reference = _run(app, handle.directory / f"{kind}-{sink}", hf.nosync())
        length = time.monotonic() - began
        for strategy in strategies:
            for point in points:
                root = handle.directory / f"{kind}-{sink}-{len(found)}"
                executioner = _Executioner(handle, root, point, random.uniform(0, length))
                after = executioner.watch(lambda: _run(app, root, strategy))  # noqa: B023  # called at once
                before = executioner.before
                observed = classify(before, after[len(before) :], reference)
                found.append(((kind, sink), strategy, point, executioner.killed, observed.recovery))
    spark.stop()
    return found


def _run(app: SparkApp, root: Path, strategy: Strategy) -> list[Any]:
    root.mkdir()
    flow = app(root, strategy)
    flow.run(until="idle")
    flow.close()
    return output(root)


class _Executioner:
    """Kills an executor once, and notes what had left by then."""

    def __init__(self, handle: Handle, root: Path, point: str, delay: float) -> None:
        self._handle, self._root, self._point, self._delay = handle, root, point, delay
        self._reached = 0
        self.killed = ""
        self.before: list[Any] = []

    def watch(self, work: Any) -> list[Any]:
        timer = threading.Timer(self._delay, self._kill)
        if self._point == "random":
            timer.start()
        else:
            failpoints.hook = self._mark
        try:
            done: list[Any] = work()
        finally:
            failpoints.hook = None
            timer.cancel()
            if timer.is_alive():
                timer.join()
        return done

    def _mark(self, mark: str) -> None:
        if mark == self._point:
            self._reached += 1
            if self._reached == 3:
                self._kill()

    def _kill(self) -> None:
        self.before = output(self._root)
        self.killed = self._handle.kill_executor(0).id
