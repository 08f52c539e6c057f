"""A real flow whose files fail: run as ``python real.py <directory> <control directory> <first seed> <seeds>``.

The process is started with the library of faults (`holdfast.testing.faulty.shim`) loaded, which its JVM and its Python
workers have, too. For each seed it makes a flow over files of its own, arms the plan, takes steps of which some raise,
disarms it, and compares what the flow then holds with what it must. One Spark session serves all seeds. For each it
prints a line: ``seed <n> <calls that failed> <what is wrong, or exact>``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.testing import Plan
from holdfast.testing.faulty.shim import Shim

VIEWS = {
    "placed": "SELECT o.id, o.amount, u.city FROM orders o JOIN users u ON o.user = u.user",
    "cities": "SELECT city, sum(amount) AS total, count(*) AS orders, max(amount) AS most FROM placed GROUP BY city",
    "drawn": "SELECT id, rand() AS chance, look_up(user) AS answer FROM orders",
}
SINKS = ("cities", "drawn")
STEPS = 9


def declare(root: Path, spark: Any) -> hf.Flow:
    flow = hf.Flow("failing", log=[root / "a", root / "b"], local=root / "local", partitions=2, spark=spark)

    @hf.nondeterministic
    def look_up(user: int) -> str:
        return f"{user} at {time.time_ns()}"

    flow.udf("look_up", look_up, "string")
    flow.source("orders", hf.files(root / "orders", "parquet", "id bigint, user bigint, amount bigint"))
    flow.source("users", hf.files(root / "users", "json", "user bigint, city bigint"))
    for name, sql in VIEWS.items():
        flow.view(name, sql)
    for name in SINKS:
        flow.sink(name, hf.changelog(root / "out" / name))
    return flow


class Run:
    """One seed."""

    def __init__(self, seed: int, root: Path, shim: Shim, spark: Any) -> None:
        self.chance = random.Random(f"real {seed}")
        self.plan = Plan.draw(seed)
        self.root, self.shim, self.spark = root, shim, spark
        self.orders: list[tuple[int, int, int]] = []
        self.users: dict[int, int] = {}
        self.kept: dict[Path, str] = {}
        self.raised: list[str] = []
        self.failing = True
        for name in ("orders", "users", "out"):
            (root / name).mkdir(parents=True)

    def feed(self, number: int) -> None:
        """Files arrive. They are written under a name that no source looks at, which may fail as well: then again."""
        rows = [(10 * number + each, self.chance.randrange(8), self.chance.randrange(100)) for each in range(5)]
        columns = dict(zip(("id", "user", "amount"), map(list, zip(*rows, strict=True)), strict=True))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink)
        self._place(self.root / "orders" / f"{number}.parquet", sink.getvalue().to_pybytes())
        self.orders += rows
        if number < 8:
            user = {"user": number, "city": self.chance.randrange(3)}
            self._place(self.root / "users" / f"{number}.json", json.dumps(user).encode())
            self.users[number] = user["city"]

    def _place(self, path: Path, data: bytes) -> None:
        self.shim.disarm()
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(data)
        hidden.rename(path)
        self.kept[path] = hashlib.sha256(data).hexdigest()
        self._go_on()

    def _go_on(self) -> None:
        if self.failing:
            self.shim.rearm()

    def run(self) -> str:
        self.shim.arm(self.plan, [self.root])
        flow: hf.Flow | None = None
        for number in range(STEPS):
            self.feed(number)
            before = flow._engine.last if flow is not None and flow._engine is not None else None
            try:
                if flow is None:
                    flow = declare(self.root, self.spark)
                flow.step()
            except HoldfastError as error:
                self.raised.append(f"{type(error).__name__}: {str(error)[:200]}")
                engine = flow._engine if flow is not None else None
                if engine is not None and before not in (None, engine.last) and not error.fields.get("complete"):
                    return f"a step raised, and epoch {engine.last} counts: {error}"
                if type(error).__name__ == "Fenced" and flow is not None:
                    flow = self._left(flow)
            except Exception as error:
                return f"raised what is no error of Holdfast's: {type(error).__name__}: {str(error)[:600]}"
            if flow is not None and self.chance.random() < 0.2:
                flow = self._left(flow)
            if wrong := self.check_files():
                return wrong
        self.failing = False
        self.shim.disarm()
        if flow is not None and self.chance.random() < 0.5:
            flow = self._left(flow)
        return self.finish(flow)

    def _left(self, flow: hf.Flow) -> None:
        try:
            flow.close()
        except HoldfastError as error:
            self.raised.append(f"close: {type(error).__name__}: {str(error)[:200]}")
        # As a process that dies: its lock goes with it, whatever it could not do.
        if flow._engine is not None:
            flow._engine.abandon()

    def check_files(self) -> str:
        self.shim.disarm()
        try:
            for path, digest in self.kept.items():
                if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                    return f"{path.relative_to(self.root)} was whole, and is gone or another"
            for path in self.root.glob("out/*/*.parquet"):
                self.kept.setdefault(path, hashlib.sha256(path.read_bytes()).hexdigest())
        finally:
            self._go_on()
        return ""

    def finish(self, flow: hf.Flow | None) -> str:
        """Nothing fails any more."""
        for attempt in range(2):
            try:
                flow = flow or declare(self.root, self.spark)
                flow.run(until="idle")
                flow.wait_safe(timeout=60)
                break
            except HoldfastError as error:
                # Once it may still have to say what had happened before.
                if attempt:
                    return f"nothing fails any more, and it says: {type(error).__name__}: {str(error)[:600]}"
        assert flow is not None
        wrong = self.compare(flow)
        flow.close()
        if wrong:
            return wrong
        with declare(self.root, self.spark) as flow:
            return self.compare(flow) or "exact"

    def compare(self, flow: hf.Flow) -> str:
        cities: dict[int, list[int]] = {}
        for _, user, amount in self.orders:
            if user in self.users:
                cities.setdefault(self.users[user], []).append(amount)
        wanted = Counter((city, sum(held), len(held), max(held)) for city, held in cities.items())
        found = {name: Counter(tuple(row) for row in flow.read(name).collect()) for name in SINKS}
        if found["cities"] != wanted:
            return f"view cities is wrong: {sorted((found['cities'] - wanted) + (wanted - found['cities']))[:4]}"
        if Counter(row[0] for row in found["drawn"]) != Counter(row[0] for row in self.orders):
            return "view drawn has other rows than there are"
        for name in SINKS:
            total: Counter[Any] = Counter()
            for path in self.root.glob(f"out/{name}/*.parquet"):
                columns = pq.read_table(path).drop_columns(["_epoch"]).to_pydict().values()
                for *row, diff in zip(*columns, strict=True):
                    total[tuple(row)] += diff
            if Counter({row: count for row, count in total.items() if count}) != found[name]:
                return f"the changelog of {name} has other rows than the view"
        return self.check_files()


def main(root: Path, control: Path, seeds: range) -> None:
    from holdfast.spark.session import local_builder

    logging.disable()  # what fails is meant to
    shim = Shim(control)
    spark = local_builder(2).config("spark.sql.codegen.wholeStage", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print("open", flush=True)
    for seed in seeds:
        before = len(shim.failed)
        run = Run(seed, root / str(seed), shim, spark)
        try:
            said = run.run()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            shim.disarm()
        shutil.rmtree(root / str(seed), ignore_errors=True)
        print("seed", seed, len(shim.failed) - before, " ".join(said.split()), flush=True)
        if said != "exact":
            print("plan", run.plan, "| raised", run.raised, "|", shim.failed[before : before + 5], flush=True)
    spark.stop()


if __name__ == "__main__":
    first, count = int(sys.argv[3]), int(sys.argv[4])
    main(Path(sys.argv[1]), Path(sys.argv[2]), range(first, first + count))
