"""What the tests of flows run, in drivers of their own: a process that has a Spark session already cannot have another.

Scenes kill at moments that Spark's own progress decides, and return plain values for the tests to judge.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.foundation import failpoints
from holdfast.foundation.retries import wait_until
from holdfast.testing import total_of_changes
from holdfast.testing.cluster import Handle
from holdfast.testing.trigger import AfterTasks


def session(handle: Handle, executors: int, **settings: object) -> Any:
    """A session with all its executors."""
    from holdfast.spark.membership import Watch

    spark = handle.session(**settings)
    watch = Watch(spark, begin=False)
    watch.wait(executors, 120.0)
    watch.close()
    return spark


def shop_flow(
    handle: Handle, name: str, epochs: int, executors: int, pause: float, meanwhile: bool = False
) -> dict[str, Any]:
    """Run the shop's flow to epoch ``epochs`` and say whether what was put out is right. Its progress is a file.
    ``meanwhile``: an executor is killed in the middle of the first recovery."""
    from durability.shop import Shop

    root = handle.directory / name
    root.mkdir(exist_ok=True)
    spark = session(handle, 1)
    heard: list[hf.Change] = []
    shop = Shop(spark, root)
    for _ in range(epochs):
        shop.feed()
    log = [root / "log-0", root / "log-1", root / "log-2"]
    flow = hf.Flow("shop", log=log, spark=spark, partitions=4, local=root / "local", min_replicas=3)
    _declare(flow, shop, draws=True)
    flow.on_membership(heard.append)
    killed: list[str] = []

    def kill_meanwhile(mark: str) -> None:
        if mark in ("recovery.before_fetch", "recovery.before_replay") and not killed:
            killed.append(handle.kill_executor(0).id)

    def noted(epoch: hf.Epoch) -> None:
        failpoints.hook = kill_meanwhile if meanwhile else None
        (root / "progress").write_text(str(epoch.epoch))
        time.sleep(pause)

    flow.run(until="idle", min_members=executors, timeout=60.0, on_epoch=noted)
    flow.wait_safe(timeout=60.0)
    found = {"epoch": flow.status().epoch, "right": _right(root, shop), "heard": heard, "meanwhile": killed}
    flow.close()
    spark.stop()
    return found


def led(handle: Handle, name: str, epochs: int, executors: int, pause: float) -> dict[str, Any]:
    """One of two drivers of a flow, each with executors of its own on the same workers. The progress of each is a
    file."""
    from durability.shop import Shop

    root, mine = handle.directory / "led", handle.directory / "led" / name
    mine.mkdir(parents=True)
    spark = session(handle, executors, spark__cores__max=executors)
    shop = Shop(spark, root)
    for _ in range(epochs):
        shop.feed()
    flow = hf.Flow("shop", log=[root / "a", root / "b"], spark=spark, partitions=4, local=mine / "local")
    _declare(flow, shop)

    def noted(epoch: hf.Epoch) -> None:
        if epoch.epoch == 2:
            _until(lambda: (root / "second" / "standby").exists(), "another stands by")
        (mine / "progress").write_text(str(epoch.epoch))
        time.sleep(pause)

    def told(event: hf.LeaseEvent) -> None:
        (mine / event.event).touch()

    done = flow.run(until="idle", lease=f"file://{root / 'lease'}", lease_timeout="3s", on_lease=told, on_epoch=noted)
    found = {"done": done, "recovery": flow.last_recovery, "right": _right(root, shop)}
    spark.stop()
    return found


DRAWN = (
    "SELECT id, user, amount, rand() AS chance, uuid() AS ticket, current_timestamp() AS at, ask(id) AS answer "
    "FROM orders"
)


def _declare(flow: hf.Flow, shop: Any, draws: bool = False) -> None:
    """``draws``: a view more, whose rows are drawn and asked of a function that counts its calls."""
    from durability.shop import VIEWS, Batches

    asked = str(shop.root / "asked")

    def ask(number: int) -> int:
        with open(asked, "ab") as file:
            file.write(b".")
            file.flush()
            return file.tell()

    flow.source("orders", Batches("id user amount", shop.orders)).source("users", Batches("user city", shop.users))
    for view, text in VIEWS.items():
        flow.view(view, text)
        flow.sink(view, hf.changelog(shop.root / "out" / view))
    if draws:
        flow.udf("ask", hf.nondeterministic(ask), "bigint")
        flow.view("drawn", DRAWN).sink("drawn", hf.changelog(shop.root / "out" / "drawn"))


class Counting:
    """A flow over the shop, and over rows that code pushes: these are nowhere but in the flow."""

    def __init__(self, flow: hf.Flow, shop: Any) -> None:
        _declare(flow, shop)
        self._flow, self._shop, self._given = flow, shop, 0
        self._pushed = flow.input("pushed", "n bigint")
        flow.view("counts", "SELECT n % 10 AS k, count(*) AS c FROM pushed GROUP BY n % 10")
        self.heard: list[hf.Change] = []
        flow.on_membership(self.heard.append)

    def run(self, epochs: int) -> list[hf.Epoch]:
        done = []
        for _ in range(epochs):
            self._shop.feed()
            self._pushed.insert([(number,) for number in range(self._given, self._given + 50)])
            self._given += 50
            done.append(self._flow.step())
        return done

    def counts(self) -> Counter[tuple[int, ...]]:
        found = Counter(tuple(row) for row in self._flow.read("counts").collect())
        looked_up = self._flow.lookup("counts", list(range(10)))
        assert Counter(tuple(row.values()) for row in looked_up) == found, "members are asked for their keys"
        return found

    def expected(self) -> Counter[tuple[int, ...]]:
        return Counter({(k, self._given // 10): 1 for k in range(10)})


def _right(root: Path, shop: Any) -> dict[str, bool]:
    """Whether what the sinks were given adds up to what the views must hold."""
    from durability.shop import VIEWS

    found = {}
    for view in VIEWS:
        total = total_of_changes(_changes(root, view)).to_pydict().values()
        found[view] = Counter(zip(*total, strict=True)) == shop.expected(view)
    if (root / "out" / "drawn").exists():
        changes = _changes(root, "drawn")
        total = total_of_changes(changes).to_pydict().values()
        came = changes.filter(pc.greater(changes["_diff"], 0))
        once = [came.num_rows == pc.count_distinct(came[column]).as_py() for column in ("id", "ticket", "answer")]
        found["drawn"] = Counter(row[:3] for row in zip(*total, strict=True)) == shop.there() and all(once)
    return found


def _changes(root: Path, view: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted((root / "out" / view).glob("*.parquet"))])


def random_kills(handle: Handle, workers: int, seeds: list[int]) -> list[tuple[int, bool, int]]:
    """One flow, and for each seed some more epochs of it, during which executors and whole workers are killed, at
    moments that Spark's progress decides; (seed, right, kills). Whoever reads ``wanted`` makes up for workers."""
    from durability.shop import Shop

    spark = session(handle, workers)
    root = handle.directory / "random"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow("shop", log=[root / "a", root / "b"], spark=spark, partitions=3, local=root / "local")
    _declare(flow, shop, draws=True)
    shop.run(flow, 1)
    found, gone = [], []
    for seed in seeds:
        chance, killed, started = random.Random(seed), [], time.monotonic()

        def kill(executor: str, chance: random.Random = chance, killed: list[str] = killed) -> None:
            members = handle.members()
            if len({member.worker for member in members}) < 2:
                return
            one = chance.choice(members)
            if chance.random() < 0.5:
                killed.append(f"executor {handle.kill_executor(one.id).id}")
            else:
                handle.kill_worker(one.worker)
                killed.append(f"worker {one.worker}")
                gone.append(one.worker)
                (handle.directory / "wanted").write_text(str(len(gone)))

        kills = [AfterTasks(spark, chance.randrange(1, 20), kill) for _ in range(chance.choice((1, 1, 1, 2)))]
        shop.run(flow, 2)
        for each in kills:
            each.close()
        found.append((seed, all(_right(root, shop).values()), len(killed)))
        print(seed, killed, flow.last_recovery, round(time.monotonic() - started, 1), "s", flush=True)
    flow.close()
    spark.stop()
    return found


def come_and_go(handle: Handle, workers: int) -> dict[str, Any]:
    """A flow of eight partitions. A worker dies with its layers, the last of which no copy has yet (rows that code
    pushed are among them); then one joins, which whoever reads ``join`` starts. After that, a flow that a loss ends."""
    from durability.shop import Shop, one_round, stop_rounds

    # On a busy machine, a task would rather run elsewhere than wait for its member; then partitions move.
    spark = session(handle, workers, spark__locality__wait="60s")
    root = handle.directory / "lost"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow("shop", log=[root / "a", root / "b"], spark=spark, partitions=8, local=root / "local")
    counting = Counting(flow, shop)
    heard, run = counting.heard, counting.run
    run(2)
    flow.wait_safe(timeout=60.0)
    stop_rounds(flow)
    found: dict[str, Any] = {"before": flow.status()}
    run(2)
    found["member"] = (handle.local(1) / "member").read_text()
    handle.kill_worker(1)
    _until(lambda: any(change.lost for change in heard), "the loss is heard of")
    run(1)
    found |= {"recovery": flow.last_recovery, "after": flow.status(), "right": _right(root, shop)}
    one_round(flow)
    (handle.directory / "join").touch()
    changes = len(heard)
    _until(lambda: any(change.joined for change in heard[changes:]), "another joins", 120.0)
    run(1)
    found |= {"joined": flow.status(), "joining": flow.last_recovery, "right again": _right(root, shop)}
    found["counts"] = counting.counts() == counting.expected()
    flow.close()
    found["terminated"] = _terminated(handle, spark)
    spark.stop()
    return found


def _until(true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def _terminated(handle: Handle, spark: Any) -> dict[str, Any]:
    """A flow that stops when an executor is lost: the error, how long after that was heard of, and what is left."""
    from durability.shop import Shop

    root = handle.directory / "terminated"
    root.mkdir()
    shop = Shop(spark, root)
    for _ in range(200):
        shop.feed()
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions=2, local=root / "local", on_loss="terminate")
    _declare(flow, shop)
    heard: list[float] = []
    hf.on_membership(spark)(lambda change: heard.append(time.monotonic()) if change.lost else None)
    with AfterTasks(spark, 40, handle.kill_executor):
        try:
            flow.run(until="idle")
            return {"text": "no error"}
        except hf.MemberLost as error:
            ended = time.monotonic()
            found = {"text": str(error), "fields": dict(error.fields)}
    _until(lambda: bool(heard), "the loss is heard of")
    found["seconds"] = ended - heard[0]
    # Whoever opens the log again goes on after what was done.
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions=2, local=root / "local-again")
    del shop.orders[int(found["fields"]["epoch"]) + 2 :]
    _declare(flow, shop)
    flow.run(until="idle")
    found["went_on"] = flow.status().epoch
    flow.close()
    return found


def straggling(handle: Handle, workers: int) -> dict[str, Any]:
    """A flow with speculation, one of whose executors stands still: copies of its tasks win elsewhere."""
    from durability.shop import Shop

    spark = session(
        handle,
        workers,
        spark__speculation="true",
        spark__speculation__interval="100ms",
        spark__speculation__quantile="0.3",
        spark__speculation__multiplier="3",
        spark__speculation__minTaskRuntime="2s",
        spark__speculation__task__duration__threshold="3s",
    )
    root = handle.directory / "straggling"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions=4, local=root / "local")
    _declare(flow, shop)
    flow.prepare()  # the first tasks of an executor are slow, too
    shop.run(flow, 2)
    flow.wait_safe(timeout=60.0)
    before = flow.status().placement
    names = {one: (handle.local(one.worker) / "member").read_text() for one in handle.members()}
    slow, member = next((one, name) for one, name in names.items() if name in before.members)
    handle.pause(slow.id)
    try:
        started = time.monotonic()
        shop.run(flow, 1)
        seconds = time.monotonic() - started
        while_slow = flow.status().placement
    finally:
        handle.resume(slow)
    shop.run(flow, 1)
    flow.wait_safe(timeout=60.0)
    found = {"before": before, "while": while_slow, "slow": member, "seconds": seconds, "right": _right(root, shop)}
    flow.close()
    spark.stop()
    return found


def drained(handle: Handle, workers: int) -> dict[str, Any]:
    """A flow that was rescaled: a member hands over what it keeps, and its worker is killed then."""
    from durability.shop import Shop

    spark = session(handle, workers)
    watch, cancelled = hf.on_membership(spark), list[str]()
    spark.sparkContext.cancelJobGroup = lambda group, reason=None: cancelled.append(group)
    root = handle.directory / "drained"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions=5, local=root / "local")
    _declare(flow, shop)
    shop.run(flow, 2)
    flow.rescale(partitions=8)
    shop.run(flow, 2)
    kept = flow.status().placement.members
    names = {one.worker: (handle.local(one.worker) / "member").read_text() for one in handle.members()}
    worker, member = next((worker, name) for worker, name in names.items() if name in kept)
    done = flow.drain(member)
    after = flow.status().placement.members
    shop.run(flow, 1)
    handle.kill_worker(worker)
    assert wait_until(lambda: len(watch.members) < workers, 60.0, 0.1), "Spark did not notice"
    shop.run(flow, 3)
    recovery = flow.last_recovery
    found = {
        "member": member,
        "kept": kept,
        "done": done,
        "after": after,
        "recovery": recovery,
        "cancelled": cancelled,
        "right": _right(root, shop),
    }
    flow.close()
    spark.stop()
    return found


def decommissioned(handle: Handle, workers: int) -> dict[str, Any]:
    """Spark decommissions a worker under a flow that runs; its directory is gone when its executor is."""
    from durability.shop import Shop

    spark = session(handle, workers, spark__decommission__enabled="true")
    root = handle.directory / "decommissioned"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions=8, local=root / "local")
    counting = Counting(flow, shop)
    recomputed: set[int] = set()
    seconds: list[float] = []

    def run(epochs: int) -> None:
        for _ in range(epochs):
            started = time.monotonic()
            counting.run(1)
            seconds.append(time.monotonic() - started)
            recomputed.update(flow.last_recovery.epochs)

    run(4)
    kept = flow.status().placement.members
    names = {one.worker: (handle.local(one.worker) / "member").read_text() for one in handle.members()}
    worker, member = next((worker, name) for worker, name in names.items() if name in kept)
    began, handed = time.monotonic(), 0.0
    handle.decommission_worker(worker)
    while any(one.worker == worker for one in handle.members()):
        run(1)
        if not handed and member not in flow.status().placement.members:
            handed = time.monotonic() - began
        assert time.monotonic() - began < 120.0, "the executor does not end"
    gone = time.monotonic() - began
    shutil.rmtree(handle.local(worker))
    run(3)
    flow.wait_safe(timeout=60.0)
    found = {
        "member": member,
        "kept": kept,
        "handed": handed,
        "gone": gone,
        "seconds": seconds,
        "after": flow.status().placement.members,
        "recomputed": sorted(recomputed),
        "filled": flow.last_recovery.filled,
        "right": _right(root, shop),
        "counts": counting.counts() == counting.expected(),
    }
    flow.close()
    spark.stop()
    return found


def following(handle: Handle, workers: int, more: str) -> dict[str, Any]:
    """A flow whose partitions follow the cores: a worker comes when ``more`` is there, and goes again."""
    from durability.shop import Shop

    spark = session(handle, workers)
    root = handle.directory / "following"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow("shop", log=root / "log", spark=spark, partitions="auto", local=root / "local")
    _declare(flow, shop)
    shop.run(flow, 2)
    seen = [flow.status().partitions]
    recomputed: set[int] = set()

    def run_until(partitions: int) -> None:
        deadline = time.monotonic() + 120.0
        while flow.status().partitions != partitions and time.monotonic() < deadline:
            shop.run(flow, 1)
            recomputed.update(flow.last_recovery.epochs)
            time.sleep(0.5)
        seen.append(flow.status().partitions)

    Path(more).touch()
    run_until(workers + 1)
    shop.run(flow, 1)
    flow.wait_safe(timeout=60.0)
    found = {"partitions": seen, "recomputed": sorted(recomputed), "right": _right(root, shop)}
    flow.close()
    spark.stop()
    return found


def continued(handle: Handle, workers: int) -> dict[str, Any]:
    """A flow that goes on when a worker dies with its layers, and is repaired."""
    from durability.shop import VIEWS, Shop, engine
    from holdfast.connectors.changelog import delivered
    from holdfast.testing.simulator.approximate import in_partitions

    spark = session(handle, workers, spark__locality__wait="60s")
    root = handle.directory / "continued"
    root.mkdir()
    shop = Shop(spark, root)
    flow = hf.Flow(
        "shop", log=root / "log", spark=spark, partitions=8, local=root / "local", on_loss="continue", max_unsafe=4
    )
    counting = Counting(flow, shop)
    run, counts = counting.run, counting.counts

    def lose() -> tuple[str, list[int]]:
        """Kill a worker that keeps partitions; its member, and the partitions."""
        kept = flow.status().placement.members
        names = {one.worker: (handle.local(one.worker) / "member").read_text() for one in handle.members()}
        worker, member = next((worker, name) for worker, name in names.items() if name in kept)
        handle.kill_worker(worker)
        _until(lambda: any(change.lost for change in counting.heard), "the loss is heard of")
        return member, kept[member]

    def sinks() -> dict[str, int]:
        return {view: delivered(root / "out" / view) for view in VIEWS}

    found: dict[str, Any] = {"exact": run(3), "repair of nothing": flow.repair()}
    found["lost"] = lose()
    found["epochs"] = run(2)
    found |= {"status": flow.status(), "said": flow.approximate, "history": len(engine(flow).history)}
    found["branches"] = flow.branches()
    exact, kept = counting.expected(), engine(flow).views.readable("counts", None)[0]
    left = set(range(8)) - set(found["lost"][1])
    found["counts"] = (counts(), in_partitions(exact, kept, 8, left), exact)
    found["changes"] = flow.changes("counts", since=flow.approximate.since - 1).count()
    found["sinks"] = sinks()
    found |= {"repair": flow.repair(), "after": flow.approximate, "no branches": flow.branches()}
    found["left over"] = [
        str(path) for one in handle.members() for path in handle.local(one.worker).glob("*/branches/*")
    ]
    found |= {"right": _right(root, shop), "all counts": (counts(), exact), "all sinks": sinks()}
    found["went on"] = run(1)
    shop.check(flow)
    flow.close()
    spark.stop()
    return found


def fetched_files(handle: Handle) -> dict[str, Any]:
    """Read files of another filesystem, which Spark must be given on a disk that all executors see."""
    import fsspec

    memory, root = fsspec.filesystem("memory"), handle.directory / "fetched"
    memory.pipe("memory://far/in/1.json", b'{"id": 1}\n{"id": 2}\n')
    root.mkdir()
    spark, refused = session(handle, 1), ""
    with hf.Flow("fetched", log=root / "log", spark=spark, partitions=2) as flow:
        flow.source("t", hf.files("memory://far/in", format="json", schema="id long"))
        flow.view("v", "SELECT id FROM t")
        try:
            flow.step()
        except hf.InputError as error:
            refused = str(error)
    with hf.Flow("shared", log=root / "other", spark=spark, partitions=2) as flow:
        flow.source("t", hf.files("memory://far/in", format="json", schema="id long", fetch_to=root / "copies"))
        flow.view("v", "SELECT id FROM t").step()
        rows = sorted(row.id for row in flow.read("v").collect())
    return {"refused": refused, "rows": rows, "left": [str(path) for path in root.glob("copies/**/*.json")]}
