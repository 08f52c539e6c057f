"""A user's script that touches most of the public surface. It is checked by pyright in strict mode, and never run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf


class Lines:
    """A part: some lines of a file, from an offset on."""

    def __init__(self, path: str, first: int, count: int) -> None:
        self._path, self._first, self._count = path, first, count

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        lines = Path(self._path).read_text().splitlines()[self._first : self._first + self._count]
        yield pa.table([lines], schema=schema)


class Tail(hf.Source):
    """A source: the lines of a file, as it grows."""

    fields = (hf.Field("line", "string"),)
    patience = 1.0

    def __init__(self, path: str) -> None:
        self._path = path
        self._taken = 0

    def poll(self) -> hf.Offer | None:
        count = len(Path(self._path).read_text().splitlines()) - self._taken
        return {"first": self._taken, "count": count} if count > 0 else None

    def upcoming(self) -> hf.Offer | None:
        return self.poll()

    def advance(self, offer: hf.Offer) -> None:
        self._taken = int(offer["first"]) + int(offer["count"])

    def parts(self, offer: hf.Offer) -> list[hf.Part]:
        return [Lines(self._path, int(offer["first"]), int(offer["count"]))]

    def waiting(self) -> int | None:
        return None


class Directory(hf.Sink):
    """A sink: a JSON file per epoch."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, view: str, fields: tuple[hf.Field, ...]) -> int | None:
        if not fields:
            raise hf.SinkError(f"view '{view}' has no columns")
        return self.taken()

    def taken(self) -> int | None:
        return max((int(file.stem) for file in self._path.glob("*.json")), default=-1)

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        (self._path / f"{epoch}.json").write_text(json.dumps({"rows": change.num_rows, "lineage": lineage.decode()}))


class Memory(hf.Location):
    """A log location."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    @property
    def uri(self) -> str:
        return "memory:"

    def write(self, path: str, data: bytes) -> None:
        self._blobs[path] = data

    def read(self, path: str) -> bytes:
        if path not in self._blobs:
            raise FileNotFoundError(path)
        return self._blobs[path]

    def list(self, directory: str) -> list[hf.Entry]:
        return [hf.Entry(path, len(data)) for path, data in self._blobs.items() if path.startswith(directory)]

    def directories(self, directory: str) -> list[str]:
        return sorted({path.rpartition("/")[0] for path in self._blobs if path.startswith(directory)})

    def remove(self, path: str) -> None:
        self._blobs.pop(path, None)

    def move(self, path: str, to: str) -> None:
        self._blobs[to] = self._blobs.pop(path)

    def check(self) -> None:
        pass


def declare(spark: SparkSession) -> tuple[hf.Flow, hf.Input]:
    strategy: hf.StrategyName = "nosync"
    on_loss: hf.OnLoss = "continue"
    flow = hf.Flow(
        "shop",
        log=["state/shop", hf.location("s3://bucket/shop", credentials=lambda: {"access_key": "k"}), Memory()],
        spark=spark,
        min_replicas=2,
        max_unsafe="512MB",
        retain="24h",
        strategy=strategy,
        on_loss=on_loss,
    )
    orders = flow.input("orders", schema="id long, user string, amount double", expires=None)
    flow.source("visits", hf.files("visits/", format="json", schema="url string", identity="content"))
    flow.source("ticks", hf.rate(1000)).source("words", Tail("words.txt")).source("known", hf.table(spark.range(3)))

    @flow.udf("shout", returns="string")
    def shout(text: str) -> str:
        return text.upper()

    def look_up(city: str) -> str:
        return city

    flow.udf("geocode", hf.nondeterministic(look_up), "string")
    assert shout("a") == "A"
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    flow.view("big", flow.table("spend").where(F.col("total") > 10))
    flow.view("same", flow.sql("SELECT * FROM big"))
    flow.sink("spend", hf.changelog("out/spend", compact=64))

    def take(epoch: int, change: pa.Table) -> None:
        print(epoch, change.num_rows)

    flow.sink("big", hf.foreach(take, seen=lambda: -1)).sink("same", Directory(Path("out/same")))
    flow.drop("same")

    @flow.on_membership
    def changed(change: hf.Change) -> None:
        lost: tuple[hf.Member, ...] = change.lost
        print(change.number, change.initial, [member.host for member in lost], change.reason)

    print(changed)
    return flow, orders


def run(flow: hf.Flow, orders: hf.Input) -> None:
    orders.insert([(1, "ada", 20.0), {"id": 2, "user": "bob", "amount": 5.0}])
    orders.update([(1, "ada", 20.0)], [(1, "ada", 21.0)])
    orders.delete([(2, "bob", 5.0)])
    pending: hf.Pending = orders.pending
    print(pending.changes, orders.discard().inserted)

    epoch: hf.Epoch = flow.step()
    print(epoch.epoch, epoch.idle, epoch.changed.get("spend", 0), epoch.rows_in, epoch.seconds, epoch.timings)
    if epoch.approximate is not None:
        print(epoch.approximate.since, epoch.approximate.coverage.share, epoch.approximate.lost)

    def on_epoch(epoch: hf.Epoch) -> None:
        print(epoch.to_dict())

    def on_lease(event: hf.LeaseEvent) -> None:
        print(event.event, event.lease, event.holder.host if event.holder else None, event.seconds)

    lease: hf.Lease = hf.zookeeper("zk:2281", "/shop", tls=True)
    done: int = flow.run(until="idle", epochs=10, on_epoch=on_epoch, lease=lease, lease_timeout="2s", on_lease=on_lease)
    rows: DataFrame = flow.read("spend", at=done)
    print(rows.count(), flow.changes("spend", since=0).count(), flow.explain("spend"), flow.drawing().views)
    plan: hf.FlowPlan = flow.plan()
    print(plan.adds, plan.rebuilds, plan.drops, plan.keeps, plan.empty, [change.action for change in plan.changes])
    if plan.running is not None:
        print(plan.running.pid, plan.running.host)
    print(flow.wait_safe(timeout=5.0), flow.accept_clock().prepare().open().name)


def look(flow: hf.Flow) -> None:
    status: hf.Status = flow.status()
    print(status.epoch, status.views["spend"].sql, status.sources["orders"].waiting, status.sinks[0].epoch)
    print(status.latency.median, status.maintenance.merges, [trace.layers for trace in status.traces])
    durability: hf.DurabilityStatus = status.durability
    print(durability.safe, durability.unsafe.bytes, [place.failure for place in durability.locations])
    if status.placement is not None:
        print(status.placement.members)
    if status.clock is not None:
        print(status.clock.ahead)
    recovery: hf.Recovery | None = flow.last_recovery or flow.repair()
    if recovery is not None:
        print(recovery.epochs, recovery.partitions, recovery.damaged, recovery.seconds, recovery.lost)


def ask(spark: SparkSession) -> pa.Table:
    watch: hf.Watch = hf.on_membership(spark)
    print(watch.members, hf.detection(10.0))
    answer: hf.Answer = hf.query(spark, "SELECT 1", on_loss="continue", tables={"t": hf.files("t/")}, timeout=10.0)
    report: hf.Report = answer.report
    print(report.exact, report.coverage, [piece.table for piece in report.missing], report.survivors)
    watch.close()
    return answer.rows


def main() -> None:
    spark = SparkSession.Builder().getOrCreate()
    flow, orders = declare(spark)
    try:
        with flow:
            run(flow, orders)
            look(flow)
    except hf.StoreError as error:
        print(error.fields.get("location"))
    except (hf.Fenced, hf.MemberLost, hf.EvaluationError, hf.NegativeMultiplicity) as error:
        print(error, error.fields)
    except hf.HoldfastError:
        flow.stop()
        raise
    print(ask(spark).num_rows, hf.__version__)


if __name__ == "__main__":
    main()
