"""What the tests of membership run, in a driver of its own."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.testing.cluster import Handle

DETECTION = 8.0
"""Seconds of silence. A busy machine keeps executors silent for a while as well."""

PATIENCE = 90.0


class Handler:
    """Notes the changes, and whether it was ever called while it was being called."""

    def __init__(self, pause: float = 0.0) -> None:
        self._pause = pause
        self._busy = threading.Lock()
        self._changed = threading.Condition()
        self.heard: list[tuple[hf.Change, float]] = []
        self.overlapped = False

    def __call__(self, change: hf.Change) -> None:
        if not self._busy.acquire(blocking=False):
            self.overlapped = True
            return
        with self._changed:
            self.heard.append((change, time.monotonic()))
            self._changed.notify_all()
        time.sleep(self._pause)
        self._busy.release()

    def wait(self, what: str, wanted: Any) -> float:
        """Wait for a change; when it was heard of."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                for change, at in self.heard:
                    if wanted(change):
                        return at
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{what} was not heard of; heard: {[change for change, _ in self.heard]}")

    @property
    def changes(self) -> list[hf.Change]:
        return [change for change, _ in self.heard]


def membership(handle: Handle, executors: int, more: Path) -> dict[str, Any]:
    """Executors are killed, paused and added under a flow and beside it. ``more`` asks the test for a worker."""
    settings = {key.replace(".", "__"): value for key, value in hf.detection(DETECTION).items()}
    spark = handle.session(**settings)
    seen: dict[str, Any] = {}
    flow = hf.Flow("clicks", log=handle.directory / "log", spark=spark, partitions=2)
    clicks = flow.input("clicks", schema="user string")
    flow.view("counts", "SELECT user, count(*) AS n FROM clicks GROUP BY user")
    first, second = flow.on_membership(Handler(0.3)), flow.on_membership(Handler())
    clicks.insert([("ada",), ("bob",)])
    try:
        flow.run(min_members=executors + 1, timeout=1.0)
    except HoldfastError as error:
        seen["too few"] = (type(error).__name__, str(error))
    seen["told too early"] = first.changes
    flow.run(until="idle", min_members=executors, timeout=PATIENCE)
    alone = Handler()
    watch = hf.on_membership(spark)
    watch(alone)

    killed_at = time.monotonic()
    killed = handle.kill_executor(0)
    seen["killed"] = second.wait("a kill", lambda change: any(one.id == killed.id for one in change.lost)) - killed_at
    second.wait("another in its place", lambda change: change.joined and not change.initial)

    paused_at = time.monotonic()
    paused = handle.pause(0)
    seen["paused"] = second.wait("silence", lambda change: any(one.id == paused.id for one in change.lost)) - paused_at
    handle.resume(paused)

    more.touch()
    second.wait("a new worker", lambda change: any(one.host == "127.0.0.13" for one in change.joined))
    clicks.insert([("ada",)])
    flow.run(until="idle")
    seen["rows"] = sorted(map(tuple, flow.read("counts").collect()))
    watch.settle()
    watch.close()
    seen["ids"] = (killed.id, paused.id)

    @flow.on_membership
    def stops(change: hf.Change) -> None:
        if change.lost:
            raise ValueError("that is enough")

    try:
        flow.run()
    except HoldfastError as error:
        seen["stopped"] = (type(error).__name__, str(error))
    seen["heard"] = [first.changes, second.changes]
    seen["alone"] = alone.changes
    seen["overlapped"] = first.overlapped or second.overlapped or alone.overlapped
    flow.close()
    spark.stop()
    return seen
