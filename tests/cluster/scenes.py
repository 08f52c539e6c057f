"""What the cluster tests run, in drivers of their own: a process that has a Spark session already cannot have another.

Scenes kill at moments that Spark's own progress decides, and return plain values for the tests to judge.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.testing import total_of_changes
from holdfast.testing.cluster import Handle
from holdfast.testing.trigger import AfterTasks

FILES, ROWS = 8, 1000
SLOW = "SELECT g, count(*) AS n, sum(k) AS s FROM p WHERE slowly(k) >= 0 GROUP BY g"
SLOW_LATER = f"SELECT g, n, s FROM ({SLOW.replace(' WHERE slowly(k) >= 0', '')}) WHERE slowly(n * 0) >= 0"


def write_table(directory: Path) -> None:
    """Eight files; in file f the keys f * 1000 …, in seven groups."""
    directory.mkdir(parents=True)
    for number in range(FILES):
        keys = list(range(number * ROWS, (number + 1) * ROWS))
        pq.write_table(pa.table({"k": keys, "g": [key % 7 for key in keys]}), directory / f"{number}.parquet")


def session(handle: Handle, executors: int, **settings: object) -> Any:
    """A session with all its executors. One file is one partition."""
    spark = handle.session(
        **{"spark__sql__shuffle__partitions": 3, "spark__sql__files__openCostInBytes": 200_000_000, **settings}
    )
    wait_for(spark, executors)

    def slowly(key: int) -> int:
        if key % ROWS == 0:
            time.sleep(0.4)
        return key

    spark.udf.register("slowly", slowly, "long")
    return spark


def wait_for(spark: Any, executors: int) -> None:
    from holdfast.spark.membership import Watch

    watch = Watch(spark, begin=False)
    watch.wait(executors, 60)
    watch.close()


# -- flows ----------------------------------------------------------------------------------------------------------


def shop_flow(handle: Handle, name: str, epochs: int, executors: int, pause: float, **settings: Any) -> dict[str, Any]:
    """Run the shop's flow to epoch ``epochs`` and say whether what was put out is right. Its progress is a file."""
    from durability.shop import VIEWS, Shop

    root = handle.directory / name
    root.mkdir(exist_ok=True)
    spark = session(handle, 1)
    heard: list[hf.Change] = []
    shop = Shop(spark, root)
    for _ in range(epochs):
        shop.feed()
    log = [root / "log-0", root / "log-1", root / "log-2"]
    flow = hf.Flow("shop", log=log, spark=spark, partitions=4, local=root / "local", min_replicas=2, **settings)
    _declare(flow, shop)
    flow.on_membership(heard.append)

    def noted(epoch: hf.Epoch) -> None:
        (root / "progress").write_text(str(epoch.epoch))
        time.sleep(pause)

    flow.run(until="idle", min_members=executors, timeout=60.0, on_epoch=noted)
    flow.wait_safe(timeout=60.0)
    status = flow.status()
    flow.close()
    spark.stop()
    return {
        "epoch": status.epoch,
        "right": {view: total_of_changes(root / "out" / view) == shop.expected(view) for view in VIEWS},
        "heard": heard,
    }


def _declare(flow: hf.Flow, shop: Any) -> None:
    from durability.shop import VIEWS, Batches

    flow.source("orders", Batches("id user amount", shop.orders)).source("users", Batches("user city", shop.users))
    for view, text in VIEWS.items():
        flow.view(view, text)
        flow.sink(view, hf.changelog(shop.root / "out" / view))


def random_kills(handle: Handle, executors: int, seeds: list[int]) -> list[tuple[int, bool, int]]:
    """For each seed: a flow of some epochs, during which executors are killed; (seed, right, kills)."""
    from durability.shop import VIEWS, Shop

    spark = session(handle, executors)
    found = []
    for seed in seeds:
        chance = random.Random(seed)
        root = handle.directory / f"random-{seed}"
        root.mkdir()
        shop = Shop(spark, root)
        for _ in range(4):
            shop.feed()
        flow = hf.Flow("shop", log=[root / "a", root / "b"], spark=spark, partitions=3, local=root / "local")
        _declare(flow, shop)
        kills = [AfterTasks(spark, chance.randrange(1, 25), _kill(handle, chance)) for _ in range(2)]
        flow.run(until="idle")
        for kill in kills:
            kill.close()
        flow.close()
        right = all(total_of_changes(root / "out" / view) == shop.expected(view) for view in VIEWS)
        found.append((seed, right, sum(kill.fired.is_set() for kill in kills)))
    spark.stop()
    return found


def _kill(handle: Handle, chance: random.Random) -> Callable[[str], None]:
    def kill(executor: str) -> None:
        members = handle.members()
        if len(members) > 1:
            handle.kill_executor(chance.choice(members).id)

    return kill


def terminated(handle: Handle, executors: int) -> tuple[str, float, Any]:
    """A flow that stops when an executor is lost: the error, how long after, and what its output holds."""
    from durability.shop import Shop

    spark = session(handle, executors)
    root = handle.directory / "terminated"
    root.mkdir()
    shop = Shop(spark, root)
    for _ in range(50):
        shop.feed()
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions=2, local=root / "local", on_loss="terminate")
    _declare(flow, shop)
    with AfterTasks(spark, 20, handle.kill_executor) as kill:
        try:
            flow.run(until="idle")
            return "no error", 0.0, None
        except hf.MemberLost as error:
            after = time.monotonic() - kill.at
            flow.close()
            return str(error), after, Counter(error.fields)
        finally:
            spark.stop()


def lost_worker(handle: Handle, executors: int) -> dict[str, Any]:
    """A flow of eight partitions; a worker dies with its layers, some of which no copy has yet."""
    from durability.shop import VIEWS, Shop
    from holdfast.spark.listener import TaskEnded, listener_of
    from holdfast.spark.placement import MISPLACED

    spark = session(handle, executors)
    root = handle.directory / "lost"
    root.mkdir()
    shop = Shop(spark, root)
    for _ in range(5):
        shop.feed()
    flow = hf.Flow("shop", log=[root / "a", root / "b"], spark=spark, partitions=8, local=root / "local")
    _declare(flow, shop)
    flow.run(until="idle")
    flow.wait_safe(timeout=60.0)
    ended: list[TaskEnded] = []

    def hear(event: Any) -> None:
        if isinstance(event, TaskEnded):
            ended.append(event)

    listener_of(spark.sparkContext).add(hear, tasks=True)
    for _ in range(3):
        shop.feed()
    flow.run(until="idle")
    listener_of(spark.sparkContext).remove(hear)
    engine = flow._started()
    owners = engine._runner.owners()
    member = (handle.local(1) / "member").read_text()
    safe = engine.safe
    handle.kill_worker(1)
    shop.feed()
    flow.run(until="idle")
    recovery = flow.last_recovery
    assert recovery is not None
    shop.feed()
    flow.run(until="idle")
    rows = sorted(tuple(row) for row in flow.read("cities").collect())
    flow.close()
    spark.stop()
    return {
        "owners": owners,
        "lost": [partition for partition, owner in enumerate(owners) if owner == member],
        "safe": safe,
        "recovery": recovery,
        "right": {view: total_of_changes(root / "out" / view) == shop.expected(view) for view in VIEWS},
        "read": rows == sorted(shop.expected("cities").elements()),
        "tasks": len(ended),
        "misplaced": sum(MISPLACED in task.text for task in ended),
    }
