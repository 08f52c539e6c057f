"""A flow may be used from any thread: no row is lost or counted twice, nobody waits for himself."""

from __future__ import annotations

import inspect
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors.input import Input
from holdfast.errors import FlowBusy, HoldfastError, SinkError
from holdfast.flow import Flow
from holdfast.runtime.turns import Turns
from logged import logged

COUNT = "SELECT k, count(*) AS n FROM t GROUP BY k"


def _together(*works: Callable[[], None]) -> None:
    """Do all at once; raise what one of them raised."""
    raised: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread waits for ever"
    if raised:
        raise raised[0]


def _counted(flow: Flow) -> dict[int, int]:
    return {row.k: row.n for row in flow.read("v").collect()}


def test_two_threads_that_step_take_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("threads", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        flow.view("v", COUNT)
        pushed = [0, 0]

        def push_and_step(thread: int) -> None:
            for number in range(8):
                t.insert([(thread,)] * (number + 1))
                pushed[thread] += number + 1
                flow.step()

        _together(lambda: push_and_step(0), lambda: push_and_step(1))
        flow.step()
        assert _counted(flow) == {0: pushed[0], 1: pushed[1]}


def hammered(flow: Flow, t: Any, seconds: float) -> int:
    """Ten threads use everything a flow has. The rows that were pushed and not discarded."""
    end = time.monotonic() + seconds
    kept = threading.Lock()
    total = [0]

    def during(work: Callable[[random.Random, int], None], seed: int) -> Callable[[], None]:
        def loop() -> None:
            chance, number = random.Random(seed), 0
            while time.monotonic() < end:
                work(chance, number)
                number += 1

        return loop

    def push(chance: random.Random, number: int) -> None:
        count = chance.randrange(1, 6)
        rows = [(chance.randrange(5),) for _ in range(count)]
        with kept:
            t.insert(rows)
            total[0] += count
        if number % 3 == 0:
            t.update([rows[0]], [((rows[0][0] + 1) % 5,)])
        if number % 40 == 39:
            with kept:
                forgotten = t.discard()
                total[0] -= forgotten.inserted - forgotten.deleted
        assert t.pending.changes >= 0
        time.sleep(0.02)

    def read(chance: random.Random, number: int) -> None:
        frame = flow.read("v")
        assert frame.count() == frame.count()
        flow.changes("v").count()
        time.sleep(0.05)

    def look(chance: random.Random, number: int) -> None:
        assert flow.status().epoch >= -1
        assert flow.explain("v") and flow.drawing() and repr(flow)
        assert flow.approximate is None and flow.repair() is None
        assert flow.last_recovery is not None
        time.sleep(0.05)

    def declare(chance: random.Random, number: int) -> None:
        name = f"w{threading.get_ident()}"
        flow.view(name, f"SELECT k, n + {number % 3} AS n FROM v")
        flow.table(name)
        flow.prepare()
        time.sleep(0.3)
        flow.drop(name)
        time.sleep(0.3)

    def safe(chance: random.Random, number: int) -> None:
        flow.wait_safe(timeout=60)
        time.sleep(0.1)

    def run(chance: random.Random, number: int) -> None:
        flow.run(epochs=chance.randrange(1, 4), until="idle", interval=0.01, on_epoch=lambda _: flow.status())
        if number % 5 == 0:
            flow.stop()

    def step(chance: random.Random, number: int) -> None:
        flow.step()

    works = [push, push, step, step, step, run, read, look, declare, safe]
    _together(*(during(work, seed) for seed, work in enumerate(works)))
    while not flow.step().idle:
        pass
    return total[0]


@pytest.mark.parametrize("seconds", [4.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_ten_threads_on_one_flow_lose_and_double_nothing(spark: SparkSession, tmp_path: Path, seconds: float) -> None:
    given: list[int] = []

    def count(epoch: int, change: pa.Table) -> None:
        given.append(sum(n * d for n, d in zip(*(change[name].to_pylist() for name in ("n", "_diff")), strict=True)))

    with hf.Flow("threads", log=tmp_path / "log", spark=spark, partitions=1, max_unsafe=20) as flow:
        t = flow.input("t", "k long")
        flow.view("v", COUNT).sink("v", hf.foreach(count))
        flow.step()
        total = hammered(flow, t, seconds)
        assert sum(_counted(flow).values()) == total == sum(given)
    with hf.Flow("threads", log=tmp_path / "log", spark=spark, partitions=1) as again:
        again.input("t", "k long")
        again.view("v", COUNT)
        assert sum(_counted(again).values()) == total


def test_what_would_wait_for_its_own_epoch_says_so(spark: SparkSession, tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    with hf.Flow("inside", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        refused: dict[str, Callable[[], object]] = {
            "step": flow.step,
            "run": lambda: flow.run(epochs=1),
            "close": flow.close,
            "repair": flow.repair,
            "prepare": flow.prepare,
            "view": lambda: flow.view("w", "SELECT k FROM t"),
            "drop": lambda: flow.drop("v"),
            "input": lambda: flow.input("u", "k long"),
            "sink": lambda: flow.sink("v", hf.foreach(print)),
        }

        def sink(epoch: int, change: pa.Table) -> None:
            for name, call in refused.items():
                with pytest.raises(FlowBusy, match="would wait for itself"):
                    call()
                seen[name] = True
            seen["rows"] = [row.n for row in flow.read("v").collect()]
            seen["epoch"] = flow.status().epoch
            t.insert([(1,)])

        flow.view("v", COUNT).sink("v", hf.foreach(sink))
        t.insert([(1,)])
        assert flow.step().epoch == 0
        assert seen == {**dict.fromkeys(refused, True), "rows": [1], "epoch": 0}
        assert t.pending.changes == 1


def test_a_sink_that_steps_fails_and_the_flow_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("inside", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long")
        wrong = [True]

        def sink(epoch: int, change: pa.Table) -> None:
            if wrong[0]:
                flow.step()

        flow.view("v", COUNT).sink("v", hf.foreach(sink))
        t.insert([(1,)])
        with pytest.raises(SinkError, match="FlowBusy"):
            flow.step()
        wrong[0] = False
        assert flow.step().idle
        assert _counted(flow) == {1: 1}


def test_closing_ends_a_run_of_another_thread(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("closed", log=tmp_path / "log", spark=spark, partitions=1)
    t = flow.input("t", "k long")
    flow.view("v", COUNT)
    began = threading.Event()

    def close() -> None:
        began.wait()
        flow.close()

    t.insert([(1,)])
    _together(lambda: flow.run(interval=0.01, on_epoch=lambda _: began.set()) and None, close)
    with pytest.raises(HoldfastError, match="closed"):
        flow.step()
    flow.close()


def test_others_have_their_turn_while_an_epoch_waits_for_storage(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing waits behind back-pressure that does not itself run an epoch."""
    store, away = tmp_path / "store", tmp_path / "away"
    with hf.Flow("held", log=store, local=tmp_path / "local", spark=spark, partitions=1, max_unsafe=1) as flow:
        t = flow.input("t", "k long")
        flow.view("v", COUNT)
        flow.step()
        flow.wait_safe(timeout=60)
        store.rename(away)
        store.write_text("not a directory")
        for _ in range(2):
            t.insert([(1,)])
            flow.step()
        t.insert([(2,)])
        with logged("waits for storage"):
            waiting = threading.Thread(target=flow.step, daemon=True)
            waiting.start()
            time.sleep(0.5)
            assert flow.status().durability.back_pressure
            assert _counted(flow) == {1: 2}
            flow.view("w", "SELECT n FROM v")  # closes the engine under it: it goes on with the next
            store.unlink()
            away.rename(store)
            waiting.join(60)
        assert not waiting.is_alive()
        while not flow.step().idle:
            pass
        assert _counted(flow) == {1: 2, 2: 1}


def test_turns_are_taken_in_the_order_in_which_they_were_asked_for() -> None:
    turns, order, asked = Turns("t"), [], []

    def ask(number: int) -> None:
        asked.append(number)
        with turns.taken(f"call {number}"):
            order.append(number)

    with turns.taken("the first"):
        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=ask, args=(number,)))
            threads[-1].start()
            while len(turns._queue) <= number:
                time.sleep(0.001)
        with pytest.raises(FlowBusy, match=r"again\(\) was called from inside the first"), turns.taken("again()"):
            pass
        with turns.taken("looking", looks=True):
            assert turns.inside_another
        assert not order
    for thread in threads:
        thread.join()
    assert order == asked == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [Flow, Input])
def test_every_public_method_says_from_which_threads_it_may_be_called(kind: type) -> None:
    own = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    source = {"poll", "advance", "reject", "parts", "waiting", "release", "fold"}  # what the flow itself calls
    silent = [
        name
        for name, value in own.items()
        if name not in source
        and (inspect.isfunction(value) or isinstance(value, property))
        and "rom any thread" not in (inspect.getdoc(value) or "")
    ]
    assert not silent
