"""What the tests of network partitions run, in drivers of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import holdfast as hf
from cluster.scenes import _declare, _right, _until, session
from holdfast.testing.cluster import Handle

DETECTION = 8.0
"""Seconds of silence after which an executor is lost."""

SETTINGS = {key.replace(".", "__"): value for key, value in hf.detection(DETECTION).items()}


@dataclass
class Seen:
    """What happened while links were cut."""

    cut: str
    seconds: list[float] = field(default_factory=list)
    """Of each step, until it returned or raised."""

    errors: list[str] = field(default_factory=list)
    lost: int = 0
    right: dict[str, bool] = field(default_factory=dict)


Cut = tuple[str, str, bool]


def partitioned(handle: Handle, workers: int, cuts: list[list[Cut]], epochs: int = 2) -> list[Seen]:
    """One flow; for each list of cuts an epoch before, some while the links are cut, and one after they are healed.
    A step that raises is made again: it says that it has not happened, or the next one goes on after it."""
    from durability.shop import Shop

    spark = session(handle, workers, **SETTINGS)
    root = handle.directory / "partitioned"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow("shop", log=[root / "a", root / "b"], spark=spark, partitions=workers, local=root / "local")
    _declare(flow, shop)
    heard: list[hf.Change] = []
    flow.on_membership(heard.append)
    shop.run(flow, 2)
    found = []
    for links in cuts:
        seen = Seen(" + ".join(f"{one} {'-x-' if both else '-x>'} {other}" for one, other, both in links))
        changes = len(heard)
        shop.run(flow, 1)
        for one, other, both in links:
            handle.cut(one, other, both=both)
        for _ in range(epochs):
            shop.feed()
            _stepped(flow, seen)
        handle.heal()
        shop.feed()
        while _stepped(flow, seen):
            pass
        seen.lost = sum(len(change.lost) for change in heard[changes:])
        seen.right = _right(root, shop)
        found.append(seen)
        print(seen, flow.last_recovery, flow.status().placement, flush=True)
    shop.check(flow)
    flow.wait_safe(timeout=60.0)
    flow.close()
    spark.stop()
    return found


def _stepped(flow: hf.Flow, seen: Seen) -> bool:
    """Make a step; whether there may be more to do."""
    started = time.monotonic()
    try:
        return not flow.step().idle
    except Exception as error:
        seen.errors.append(f"{type(error).__name__}: {error}"[:600])
        return True
    finally:
        seen.seconds.append(round(time.monotonic() - started, 1))


def led(handle: Handle, name: str, epochs: int, lease: str, pause: float) -> dict[str, Any]:
    """One of two drivers of a flow under a lease in ZooKeeper. The progress of each is a file."""
    from durability.shop import Shop

    root, mine = handle.directory / "led", handle.directory / "led" / name
    mine.mkdir(parents=True)
    spark = session(handle, 1, spark__cores__max=1, **SETTINGS)
    shop = Shop(spark, root)
    for _ in range(epochs):
        shop.feed()
    flow = hf.Flow("shop", log=[root / "a", root / "b"], spark=spark, partitions=2, local=mine / "local")
    _declare(flow, shop)
    times: dict[str, float] = {}

    def noted(epoch: hf.Epoch) -> None:
        (mine / "progress").write_text(str(epoch.epoch))
        if epoch.epoch == 2:
            _until(lambda: (root / "second" / "standby").exists(), "another stands by", 120.0)
        times["last epoch"] = time.time()
        time.sleep(pause)

    def told(event: hf.LeaseEvent) -> None:
        times.setdefault(event.event, time.time())
        (mine / event.event).touch()

    try:
        done = flow.run(until="idle", lease=lease, lease_timeout="3s", on_lease=told, on_epoch=noted)
        return {"done": done, "times": times, "right": _right(root, shop), "error": None}
    except hf.Fenced as error:
        times["stopped"] = time.time()
        return {"error": str(error), "times": times, "right": {}}
