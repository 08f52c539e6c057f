"""Flows with recursive views on a cluster whose hosts share the flow's directory: rounds run as Spark jobs, copies of
slow tasks beside them, and executors are killed in the middle."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import holdfast as hf
from cluster.scenes import session
from flow.test_loops import BOTH, LABELS, REACH, Rows, components, reachable
from holdfast.errors import TasksLost
from holdfast.testing.cluster import Handle


def killed_in_rounds(handle: Handle, executors: int, kills: int) -> dict[str, Any]:
    """Run epochs over a graph that changes; in each an executor is killed while a job of rounds runs. Says how often
    the views were right, and on which paths the epochs ran."""
    spark = session(
        handle,
        executors,
        spark__executorEnv__HOLDFAST_LOCAL="",  # executors have no directory of their own
        spark__speculation="true",
        spark__speculation__interval="20ms",
        spark__speculation__quantile=0.5,
        spark__speculation__multiplier=1.05,
        spark__speculation__minTaskRuntime="20ms",
    )
    root, dice = handle.directory / "loops", random.Random(kills)
    edges, starts = Counter[Any](), Counter({(0,): 1})
    seen: dict[str, Any] = {"right": 0, "killed": 0, "paths": Counter(), "again": 0}
    flow = hf.Flow("loops", root / "log", spark, partitions=2)
    given, begun = flow.input("edges", "a long, b long"), flow.input("starts", "node long")
    flow.view("both", BOTH).view("reached", REACH).view("labels", LABELS)
    begun.insert([(0,)])
    while seen["killed"] < kills:
        come = Counter((dice.randrange(40), dice.randrange(40)) for _ in range(30))
        gone = Counter(edge for edge in edges.elements() if dice.random() < 0.4)
        given.insert(list(come.elements()))
        given.delete(list(gone.elements()))
        edges = edges + come - gone
        killer = _Killer(handle, root / "log" / "rounds", dice.random())
        while True:
            try:
                seen["paths"][flow.step().path] += 1
                break
            except TasksLost:  # Spark gave the epoch up; nothing of it counts
                seen["again"] += 1
        seen["killed"] += killer.end()
        _await(handle, executors)
        seen["right"] += _rows(flow, "reached") == reachable(edges, starts)
        seen["right"] += _rows(flow, "labels") == components(edges)
    seen["epochs"] = seen["paths"].total()
    seen["left"] = [str(path) for path in (root / "log").rglob("rounds*") if "traces" not in path.parts]
    flow.close()
    spark.stop()
    return seen


def _rows(flow: hf.Flow, view: str) -> Rows:
    return Counter(tuple(row) for row in flow.read(view).collect())


def _await(handle: Handle, executors: int) -> None:
    deadline = time.monotonic() + 60.0
    while len(handle.members()) < executors and time.monotonic() < deadline:
        time.sleep(0.1)


class _Killer:
    """Kills an executor soon after rounds of an epoch have begun to run as jobs."""

    def __init__(self, handle: Handle, rounds: Path, later: float) -> None:
        self._handle, self._rounds, self._later = handle, rounds, later
        self._over, self._killed = threading.Event(), False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.005):
            if any(self._rounds.glob("*/*/*")):
                self._over.wait(self._later)
                if not self._over.is_set():
                    self._killed = bool(self._handle.kill_executor(0).id)
                return

    def end(self) -> bool:
        """Whether it has killed."""
        self._over.set()
        self._thread.join()
        return self._killed
