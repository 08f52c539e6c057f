"""Ten threads read two views while epochs run: whatever they use, none of them ever sees half of an epoch."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf

ACCOUNTS, SECONDS = 20, 4.0

# Every epoch moves amounts between accounts, so all balances sum up to nothing, and both views count the same entries.
BALANCES = "SELECT account, sum(amount) AS amount, count(*) AS n FROM entries GROUP BY account"
SIDES = "SELECT account % 2 AS side, sum(amount) AS amount, count(*) AS n FROM entries GROUP BY account % 2"


def _check(balances: hf.Found, sides: hf.Found) -> None:
    assert balances.epoch == sides.epoch
    one, other = balances.table, sides.table
    assert sum(one["amount"].to_pylist()) == 0 == sum(other["amount"].to_pylist())
    assert sum(one["n"].to_pylist()) == sum(other["n"].to_pylist())


def test_ten_threads_that_read_two_views_never_see_half_of_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    everyone = list(range(ACCOUNTS))
    with hf.Flow("bank", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        entries = flow.input("entries", "account long, amount long, id long")
        flow.view("balances", BALANCES).view("sides", SIDES)
        entries.insert([(account, 0, -account - 1) for account in everyone])
        flow.step()
        flow.start(interval=0.0)
        end = time.monotonic() + SECONDS
        raised: list[BaseException] = []
        seen: list[set[int]] = []

        def lookups(epochs: set[int]) -> None:
            balances = flow.lookup("balances", everyone)
            _check(balances, flow.lookup("sides", [0, 1], at=balances.epoch))
            epochs.add(balances.epoch)

        def scans(epochs: set[int]) -> None:
            found = flow.lookup("balances", [{"n": count} for count in range(1, 5000)], scan=True)
            assert sum(found.table["amount"].to_pylist()) == 0 and len(found) == ACCOUNTS
            epochs.add(found.epoch)

        def reader() -> Callable[[set[int]], None]:
            log = hf.open_log(tmp_path / "log")

            def read(epochs: set[int]) -> None:
                log.refresh()
                balances = log.lookup("balances", everyone)
                _check(balances, log.lookup("sides", [0, 1]))
                assert sum(log.arrow("sides")["n"].to_pylist()) == sum(balances.table["n"].to_pylist())
                epochs.add(balances.epoch)

            return read

        def subscriber(subscription: hf.Subscription) -> Callable[[set[int]], None]:
            def take(epochs: set[int]) -> None:
                for change in subscription:
                    table = change.table
                    moved = zip(table["amount"].to_pylist(), table["_diff"].to_pylist(), strict=True)
                    assert sum(amount * diff for amount, diff in moved) == 0, change.epoch
                    epochs.add(change.epoch)

            return take

        works = [lookups] * 4 + [scans] + [reader() for _ in range(3)]
        works.append(subscriber(flow.subscribe("balances", timeout=0.2)))
        works.append(subscriber(hf.open_log(tmp_path / "log").subscribe("sides", timeout=0.2)))
        assert len(works) == 10

        def guarded(work: Callable[[set[int]], None]) -> None:
            epochs: set[int] = set()
            seen.append(epochs)
            try:
                while time.monotonic() < end:
                    work(epochs)
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        chance, number, held = random.Random(4), 0, []
        while time.monotonic() < end:
            one, other = chance.sample(everyone, 2)
            number += 1
            pair = [(one, 5, number), (other, -5, number)]
            if held and chance.random() < 0.4:
                entries.update(held.pop(chance.randrange(len(held))), pair)
            else:
                entries.insert(pair)
            held.append(pair)
            time.sleep(0.005)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a reader waits for ever"
        if raised:
            raise raised[0]
        flow.stop()
        assert all(len(epochs) >= 3 for epochs in seen), [len(epochs) for epochs in seen]
