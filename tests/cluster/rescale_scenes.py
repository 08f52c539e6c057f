"""What the tests of rescaling run, in a driver of its own: a flow under load whose partitions change in number."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from cluster.scenes import session
from holdfast.runtime.merging import Merging
from holdfast.task.program import partition_range
from holdfast.testing import total_of_changes
from holdfast.testing.cluster import Handle
from holdfast.trace.name import LayerName

VIEWS = {
    "spend": "SELECT user, sum(amount) AS total, count(*) AS orders FROM orders GROUP BY user",
    "top": "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 5",
}
KEYS = 20_000

Ranges = list[tuple[int, int]]


class Feed:
    """Pushes rows, and takes some back, in a thread of its own, until it is stopped."""

    def __init__(self, orders: Any, pause: float) -> None:
        self._orders, self._pause = orders, pause
        self._chance = np.random.default_rng(16)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self.there: list[pa.Table] = []
        self._number = 0

    def push(self, users: np.ndarray[Any, Any]) -> None:
        ids = np.arange(self._number, self._number + len(users))
        self._number += len(users)
        table = pa.table({"id": ids, "user": users, "amount": self._chance.integers(0, 1000, len(users))})
        self._orders.insert(table)
        self.there.append(table)

    def _feed(self) -> None:
        while not self._stopping.wait(self._pause):
            self.push(self._chance.integers(0, KEYS, 100))
            if len(self.there) > 10:  # the first, which has every key, stays
                self._orders.delete(self.there.pop(1))

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


@dataclass(frozen=True)
class Move:
    """What a change of the number of partitions did."""

    partitions: int
    seconds: float
    """That `Flow.rescale` took, most of it beside epochs."""

    recovery: hf.Recovery
    kept: dict[int, Ranges]
    """Worker → the ranges of key hashes that it kept before."""

    gained: dict[int, Ranges]
    """Worker → those that it keeps now, and did not before."""

    files: dict[int, list[LayerName]]
    """Worker → the layers of epochs before that it has now, and did not have."""

    changed: list[str]
    """Layers of ranges that a worker kept, and keeps, and that are not the same file any more."""


def rescaled(handle: Handle, workers: int, steps: list[int]) -> dict[str, Any]:
    """A flow under load is given other numbers of partitions from another thread than the one that runs it."""
    Merging.tolerated = 10**9  # no layer is merged: what is new on a worker was written by an epoch, or moved there
    spark = session(handle, workers)
    root = handle.directory / "rescaled"
    root.mkdir()
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions=steps[0], local=root / "local")
    orders = flow.input("orders", "id long, user long, amount long")
    for view, text in VIEWS.items():
        flow.view(view, text).sink(view, hf.changelog(root / "out" / view))
    feed = Feed(orders, 0.05)
    feed.push(np.arange(KEYS))
    flow.step()
    commits: list[float] = []
    flow.start(interval=0.0, on_epoch=lambda epoch: commits.append(time.monotonic()))
    moves = []
    with feed:
        time.sleep(6.0)
        for partitions in steps[1:]:
            moves.append(_rescale(handle, flow, partitions))
            time.sleep(4.0)
    assert flow.await_idle(120.0)
    flow.stop()
    flow.await_termination(60.0)
    flow.close()
    found = {
        "gaps": [after - before for before, after in pairwise(commits)],
        "moves": moves,
        "right": {view: _total(root, view) == rows for view, rows in _batch(spark, feed).items()},
    }
    spark.stop()
    return found


def _rescale(handle: Handle, flow: hf.Flow, partitions: int) -> Move:
    kept, files = _kept(handle, flow), {one.worker: _files(handle.local(one.worker)) for one in handle.members()}
    started = time.monotonic()
    flow.rescale(partitions)
    seconds, recovery = time.monotonic() - started, flow.last_recovery
    assert recovery is not None
    keeps = _kept(handle, flow)
    gained = {worker: without(keeps[worker], kept[worker]) for worker in keeps}
    fresh, changed = {}, []
    for worker, before in files.items():
        after = _files(handle.local(worker))
        fresh[worker] = [name for (_, name) in after.keys() - before.keys() if name.last <= recovery.epoch]
        stays = without(kept[worker], without(kept[worker], keeps[worker]))
        changed += [
            name.text()
            for (trace, name), inode in before.items()
            if without([(name.low, name.high)], stays) != [(name.low, name.high)] and after.get((trace, name)) != inode
        ]
    return Move(partitions, seconds, recovery, kept, gained, fresh, changed)


def _kept(handle: Handle, flow: hf.Flow) -> dict[int, Ranges]:
    """Worker → the ranges of key hashes that it keeps."""
    status = flow.status()
    workers = {(handle.local(one.worker) / "member").read_text(): one.worker for one in handle.members()}
    return {
        workers[member]: [partition_range(each, status.partitions) for each in sorted(some)]
        for member, some in status.placement.members.items()
    }


def _files(local: Path) -> dict[tuple[str, LayerName], int]:
    """(trace, layer) → inode, of the layers that a worker has. (Their directory's own name changes.)"""
    found = {}
    for path in local.glob("*/traces-*/*/*.arrow"):
        name = LayerName.parse(path.name)
        with suppress(FileNotFoundError):
            if name is not None:
                found[path.parent.name, name] = path.stat().st_ino
    return found


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """What is left of some ranges; neighbours are one."""
    bounds = sorted({bound for some in (*ranges, *taken) for bound in some})
    left: Ranges = []
    for low, high in pairwise(bounds):
        if _within(low, high, ranges) and not _within(low, high, taken):
            left[-1:] = [(left[-1][0], high)] if left and left[-1][1] == low else [*left[-1:], (low, high)]
    return left


def _within(low: int, high: int, ranges: Ranges) -> bool:
    return any(left <= low and high <= right for left, right in ranges)


def _total(root: Path, view: str) -> Counter[tuple[Any, ...]]:
    """What a sink was given, added up."""
    paths = sorted((root / "out" / view).glob("*.parquet"))
    total = total_of_changes(pa.concat_tables([pq.read_table(path) for path in paths]))
    return Counter(zip(*total.to_pydict().values(), strict=True))


def _batch(spark: Any, feed: Feed) -> dict[str, Counter[tuple[Any, ...]]]:
    """What the views must hold, by Spark itself."""
    spark.createDataFrame(pa.concat_tables(feed.there)).createOrReplaceTempView("orders")
    found = {}
    for view, text in VIEWS.items():
        frame = spark.sql(text)
        frame.createOrReplaceTempView(view)
        found[view] = Counter(tuple(row) for row in frame.collect())
    return found
