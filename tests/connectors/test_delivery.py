"""Each sink gets each epoch of its view, in order, once: what the flow asks of sinks and remembers for them. The engine
is the real one, Spark is the simulator's."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.guarantees.engines import Append, Life

import holdfast as hf
from holdfast.connectors import changelog, foreach
from holdfast.connectors.changelog import committed, delivered
from holdfast.connectors.sink import Sink
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.lineage import from_lines
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import SinkError
from holdfast.guarantees.strategies import NoSync
from holdfast.plan.nodes import Field
from holdfast.runtime import delivery_numbers
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.runtime.recovery.recoverer import Recoverer
from holdfast.testing.simulator.model import SOURCES, VIEWS, plans
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import SimulatedSource, World

FLOW = ("buyers", "spend")


class Shop:
    """Two views over orders: who ever bought something, and what each spent."""

    def __init__(self, root: Path) -> None:
        self.world = World(2, root)
        assert self.world.flow == FLOW
        self.root = root
        self.engine: Engine | None = None
        self.orders = 0

    def open(self, *sinks: tuple[str, Sink], retain: int = 6, told: ConnectorProgress | None = None) -> Engine:
        declared = Declaration(
            name="shop",
            local=self.world.local(0),
            locations=tuple(self.world.locations()),
            sources={name: SimulatedSource(self.world, name) for name in SOURCES},
            views=plans(FLOW),
            texts={view: VIEWS[view] for view in FLOW},
            sinks=sinks,
            settings=DurabilitySettings(NoSync(), 2, Bound(), Retention(epochs=retain)),
        )
        runner = SimulatedRunner(self.world, 2)
        self.engine = Engine(PreparedFlow(declared, runner), told or ConnectorProgress())
        return self.engine

    def die(self) -> None:
        """The process is killed."""
        assert self.engine is not None
        self.engine.abandon()
        self.engine = None

    def lose_host(self) -> None:
        """The host is gone, with its directory; the log locations are there."""
        self.die()
        shutil.rmtree(self.world.local(0))

    def run(self, epochs: int, user: int = 1, upkeep: bool = True) -> None:
        """Run epochs, each with an order of one user."""
        assert self.engine is not None
        for _ in range(epochs):
            self.orders += 1
            self.world.feed("orders", [((self.orders, user, 10), 1)])
            assert self.engine.step().epoch is not None
            if upkeep:
                self.engine.upkeep()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    if shop.engine is not None:
        shop.engine.abandon()


class Recording(Sink):
    """A table of rows with their epochs; its last epoch is that of the last row."""

    def __init__(self, rows: list[tuple[int, tuple[Any, ...]]]) -> None:
        self.rows = rows
        self.commits: list[int] = []
        self.carried: list[int] = []
        self.raising = ""

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        return max((epoch for epoch, _ in self.rows), default=-1)

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        self.commits.append(epoch)
        self.carried.append(len(from_lines(lineage)))
        if self.raising == "before":
            raise ConnectionError("the server does not answer")
        self.rows += [(epoch, row) for row in zip(*(column.to_pylist() for column in change.columns), strict=True)]
        if self.raising == "after":
            raise ConnectionError("the connection was lost after COMMIT")

    def total(self) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for _, row in self.rows:
            found[row[:-1]] += row[-1]
        return +found


class Asked(Recording):
    """The same, and it can be asked after a commit."""

    def taken(self) -> int | None:
        return self.open("", ())


def total(path: Path) -> Counter[tuple[Any, ...]]:
    """What a changelog adds up to."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in pq.read_table(path).drop_columns(["_epoch"]).to_pylist():
        *values, diff = row.values()
        found[tuple(values)] += diff
    return +found


# -- commits that raised ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raising", ["before", "after"])
def test_a_commit_that_raised_is_asked_about_before_it_is_made_again(shop: Shop, raising: str) -> None:
    sink = Asked([])
    shop.open(("spend", sink))
    shop.run(2)
    sink.raising = raising
    with pytest.raises(SinkError, match=r"sink of view 'spend': epoch 2: the (server|connection)"):
        shop.run(1)
    sink.raising = ""
    shop.run(1)
    assert sink.commits == [0, 1, 2, 3] if raising == "after" else [0, 1, 2, 2, 3]
    assert sink.total() == {(1, 40, 4): 1}, "no row twice, none lost"


def test_a_sink_that_cannot_be_asked_is_given_the_epoch_again(shop: Shop) -> None:
    sink = Recording([])
    shop.open(("spend", sink))
    shop.run(1)
    sink.raising = "before"
    with pytest.raises(SinkError):
        shop.run(1)
    sink.raising = ""
    shop.run(1)
    assert sink.commits == [0, 1, 1, 2]


# -- what was damaged -------------------------------------------------------------------------------------------------


def test_a_changelog_torn_in_the_middle_is_restored_from_the_views_log(shop: Shop) -> None:
    out = shop.root / "out"
    shop.open(("spend", changelog(out)))
    shop.run(5)
    before = pq.read_table(out).sort_by("_epoch").to_pylist()
    shop.die()
    (out / "epoch-000000000001.parquet").write_bytes(b"")
    damaged = out / "epoch-000000000003.parquet"
    damaged.write_bytes(b"PAR1" + bytes(200) + damaged.read_bytes()[204:])
    shop.open(("spend", changelog(out)))
    shop.run(1)
    assert pq.read_table(out).sort_by("_epoch").to_pylist()[: len(before)] == before
    assert total(out) == {(1, 60, 6): 1}
    assert len(os.listdir(out / "_damaged")) == 2


def _zeroed_long_ago(path: Path, epoch: int) -> Path:
    """Have the pages of an epoch's file be zeros, and hours between any two files."""
    for place, file in enumerate(sorted(path.glob("epoch-*.parquet"))):
        if place == epoch:
            damaged, data = file, file.read_bytes()
            length = int.from_bytes(data[-8:-4], "little") + 8
            file.write_bytes(b"PAR1" + bytes(len(data) - length - 4) + data[-length:])
        os.utime(file, (3600 * place, 3600 * place))
    return damaged


def test_a_file_of_long_ago_that_is_found_damaged_while_the_flow_runs_is_restored(shop: Shop) -> None:
    out = shop.root / "out"
    shop.open(("spend", changelog(out)))
    shop.run(4)
    damaged = _zeroed_long_ago(out, 1)
    with pytest.raises(OSError, match="page header"):
        pq.ParquetFile(damaged, page_checksum_verification=True).read()
    shop.run(1)
    assert not (out / "_damaged").exists(), "it was found after the epoch, beside it"
    shop.run(1)
    assert len(os.listdir(out / "_damaged")) == 1
    assert total(out) == {(1, 60, 6): 1}
    assert sorted(pq.read_table(damaged).column("_diff").to_pylist()) == [-1, 1]


def test_a_damaged_file_that_nothing_can_restore_may_be_removed_while_the_flow_runs(shop: Shop) -> None:
    out = shop.root / "out"
    engine = shop.open(("spend", changelog(out)), retain=1)
    shop.run(14)
    damaged = _zeroed_long_ago(out, 1)
    shop.run(1)
    with pytest.raises(
        SinkError, match=r"epoch-000000000001.parquet is damaged.*remove it if its consumer has read it"
    ):
        engine.step()
    damaged.unlink()
    shop.run(2)


def test_files_that_were_put_together_are_restored_together(shop: Shop) -> None:
    out = shop.root / "out"
    shop.open(("spend", changelog(out, compact=2)), retain=20)
    shop.run(8)
    before = pq.read_table(out).sort_by("_epoch").to_pylist()
    shop.die()
    (out / "epochs-000000000000-000000000003.parquet").write_bytes(b"PAR1")
    shop.open(("spend", changelog(out, compact=2)), retain=20)
    shop.run(1)
    assert pq.read_table(out).sort_by("_epoch").to_pylist()[: len(before)] == before
    assert total(out) == {(1, 90, 9): 1}


def test_what_the_log_no_longer_holds_is_an_error_that_names_the_file(shop: Shop) -> None:
    out = shop.root / "out"
    shop.open(("spend", changelog(out)), retain=2)
    shop.run(14)
    shop.die()
    (out / "epoch-000000000001.parquet").write_bytes(b"")
    engine = shop.open(("spend", changelog(out)), retain=2)
    with pytest.raises(SinkError, match=r"epoch-000000000001.parquet is damaged, and the view's log does not reach"):
        engine.step()
    assert (out / "epoch-000000000001.parquet").exists(), "it is left for whoever has a copy"


# -- delivery is remembered -------------------------------------------------------------------------------------------


def test_a_consumer_that_deletes_what_it_has_read_gets_nothing_again(shop: Shop) -> None:
    out = shop.root / "out"
    shop.open(("spend", changelog(out)))
    shop.run(4)
    for epoch in committed(out):
        (out / f"epoch-{epoch:012d}.parquet").unlink()
    shop.lose_host()
    shop.open(("spend", changelog(out)))
    shop.run(1)
    assert committed(out) == [4]


def test_quiet_epochs_leave_no_file_and_are_delivered_once(shop: Shop) -> None:
    out = shop.root / "out"
    shop.open(("buyers", changelog(out)))
    shop.run(8)
    assert (committed(out), delivered(out)) == ([0], 7)
    shop.lose_host()
    shop.open(("buyers", changelog(out)))
    shop.run(1, user=2)
    assert (committed(out), delivered(out)) == ([0, 8], 8)


@pytest.mark.parametrize("lost", [False, True])
def test_a_sink_that_records_nothing_for_quiet_epochs_is_not_refused(shop: Shop, lost: bool) -> None:
    sink = Recording([])
    shop.open(("buyers", sink), retain=2)
    shop.run(1, user=7)
    shop.run(8)
    assert sink.open("", ()) == 1, "nothing has changed since: the same buyers"
    if lost:
        shop.lose_host()
    else:
        shop.die()
    again = Recording(sink.rows)
    shop.open(("buyers", again), retain=2)
    shop.run(1, user=2)
    assert again.total() == {(1,): 1, (2,): 1, (7,): 1}


def test_a_sink_that_lacks_changes_which_were_compacted_is_refused(shop: Shop) -> None:
    sink = Recording([])
    shop.open(("buyers", sink), retain=2)
    for user in range(10):  # the view changes in each epoch: layers without rows are not compacted
        shop.run(1, user=user)
    shop.die()
    engine = shop.open(("buyers", Recording(sink.rows[:1])), retain=2)  # as a backup of it has them
    with pytest.raises(SinkError, match="it has epoch 0, and the view's changes after that were compacted"):
        engine.step()


# -- functions --------------------------------------------------------------------------------------------------------


class Consumer:
    """It adds up what it is given, and skips what it has dealt with, by its number."""

    def __init__(self) -> None:
        self.seen = -1
        self.numbers: list[int] = []
        self.total: Counter[tuple[Any, ...]] = Counter()
        self.raising = ""

    def __call__(self, epoch: int, change: pa.Table) -> None:
        self.numbers.append(epoch)
        if epoch <= self.seen:
            return
        if self.raising == "before":
            raise ConnectionError("no answer")
        for row in zip(*(column.to_pylist() for column in change.columns), strict=True):
            self.total[row[:-1]] += row[-1]
        self.seen = epoch
        if self.raising == "after":
            raise ConnectionError("no answer")


def test_a_function_is_called_again_under_the_same_number_after_a_crash(shop: Shop) -> None:
    consumer = Consumer()
    shop.open(("spend", foreach(consumer)))
    shop.run(3)
    shop.die()
    shop.open(("spend", foreach(consumer)))
    shop.run(1)
    assert consumer.numbers == [0, 1, 2, 2, 3]
    assert +consumer.total == {(1, 40, 4): 1}


def test_a_consumer_that_skips_what_it_has_seen_skips_nothing_new_after_a_lost_host(shop: Shop) -> None:
    consumer = Consumer()
    shop.open(("buyers", foreach(consumer)))
    shop.run(2, user=1)
    shop.run(1, user=2, upkeep=False)
    shop.run(1, user=3, upkeep=False)
    assert (consumer.seen, shop.engine and shop.engine.safe) == (3, 1)
    shop.lose_host()
    engine = shop.open(("buyers", foreach(consumer)))
    assert engine.last == 1, "the epochs that were not safe are lost with the host"
    shop.world.feeds["orders"][2:] = []  # other input comes in their place
    shop.run(1, user=8)
    shop.run(1, user=9)
    assert engine.last == 3
    assert consumer.total[8,] == consumer.total[9,] == 1
    assert [number % 10**12 for number in consumer.numbers[-2:]] == [2, 3]
    numbers = list(consumer.numbers)
    shop.die()
    shop.open(("buyers", foreach(consumer)))
    shop.run(1, user=10)
    assert consumer.numbers[len(numbers) :] == [numbers[-1], numbers[-1] + 1], "from then on numbers follow each other"


def test_a_function_that_is_new_to_an_old_view_is_first_given_its_contents(shop: Shop) -> None:
    first, second = Consumer(), Consumer()
    shop.open(("spend", foreach(first)), retain=2)
    shop.run(8)
    shop.die()
    shop.open(("spend", foreach(first)), ("spend", foreach(second)), retain=2)
    shop.run(1)
    assert +second.total == +first.total == {(1, 90, 9): 1}
    assert first.numbers == [*range(8), 7, 8]
    shop.lose_host()
    shop.open(("spend", foreach(first)), ("spend", foreach(second)), retain=2)
    shop.run(1)
    assert +second.total == +first.total == {(1, 100, 10): 1}, "it is not new any more, also where the log is alone"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_function_is_not_given_all_again_if_a_location_was_away_when_it_got_its_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """What the location lacks it gets later, from this process or the next one; then the host is lost."""
    monkeypatch.setattr(delivery_numbers, "_AGAIN", 0.0)
    life = Life(tmp_path, hf.nosync(), kind=Append, view="counted")
    life.open()
    write = life.stores[0].write

    def away(path: str, data: bytes) -> None:
        if path == "sinks.json":
            raise hf.StoreError("the location does not answer")
        write(path, data)

    monkeypatch.setattr(life.stores[0], "write", away)
    life.run(1)
    if restarts:
        life.die()
    monkeypatch.setattr(life.stores[0], "write", write)
    life.run(3)
    life.die()
    life.feed(1)
    life.open(life.prepared(1))
    life.step()
    life.die()
    given = [number % 10**12 for number in life.given.numbers]
    assert len(given) - len(set(given)) <= 1 + restarts, "a last epoch may come again, and no other"


def test_a_function_is_not_given_the_view_again_where_the_flow_was_opened_in_vain_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, list[int]]] = []
    gone = foreach(lambda epoch, change: None)
    stays = foreach(lambda epoch, change: calls.append((epoch, change["_diff"].to_pylist())))
    shop.open(("spend", gone), ("spend", stays))
    shop.run(2)
    assert shop.engine is not None
    shop.engine.close()
    told = ConnectorProgress()
    shop.open(("spend", gone), ("spend", stays), told=told).close()
    with monkeypatch.context() as failing:
        failing.setattr(Recoverer, "open", lambda self: 1 // 0)  # as where the fill of a new view fails
        with pytest.raises(ZeroDivisionError):
            shop.open(("spend", stays), told=told)
    told.advanced.clear()  # its sources are other objects each time
    shop.open(("spend", stays), told=told)
    before = len(calls)
    shop.run(1)
    # It cannot tell whether it has epoch 1; it was given epoch 0 long before.
    assert calls[before:] == [(1, [-1, 1]), (2, [-1, 1])]


@pytest.mark.parametrize("raising", ["before", "after"])
def test_a_function_that_says_what_it_has_seen_is_called_once(shop: Shop, raising: str) -> None:
    consumer = Consumer()

    def sink() -> Sink:
        return foreach(consumer, seen=lambda: consumer.seen)

    shop.open(("spend", sink()))
    shop.run(2)
    consumer.raising = raising
    with pytest.raises(SinkError, match="raised ConnectionError: no answer"):
        shop.run(1)
    consumer.raising = ""
    shop.run(1)
    shop.die()
    shop.open(("spend", sink()))
    shop.run(1)
    assert consumer.numbers == [0, 1, 2, 3, 4] if raising == "after" else [0, 1, 2, 2, 3, 4]
    assert +consumer.total == {(1, 50, 5): 1}


# -- lineage ----------------------------------------------------------------------------------------------------------


def test_a_sink_that_keeps_lineage_is_carried_only_what_is_new(shop: Shop) -> None:
    kept, short = changelog(shop.root / "out"), Recording([])
    carried: list[int] = []
    commit, commit_parts = kept.commit, kept.commit_parts

    def counted(epoch: int, change: pa.Table, lineage: bytes) -> None:
        carried.append(len(from_lines(lineage)))
        commit(epoch, change, lineage)

    def counted_parts(epoch: int, parts: Sequence[object], change: pa.Table, lineage: bytes) -> None:
        carried.append(len(from_lines(lineage)))
        commit_parts(epoch, parts, change, lineage)

    kept.commit, kept.commit_parts = counted, counted_parts  # type: ignore[method-assign]  # to see what it is given
    shop.open(("spend", kept), ("buyers", short))
    shop.run(10, upkeep=False)  # no round: storage is away
    assert short.carried == list(range(1, 11)), "one that keeps the last commit's needs all of it each time"
    assert carried == [1] * 10
    shop.lose_host()
    engine = shop.open(("spend", changelog(shop.root / "out")), ("buyers", Recording(short.rows)))
    assert engine.last == 9, "what was carried, commit by commit, is the whole history"
    shop.run(1)
    assert total(shop.root / "out") == {(1, 110, 11): 1}


# -- the end ----------------------------------------------------------------------------------------------------------


class Closing(Recording):
    def __init__(self, error: Exception | None) -> None:
        super().__init__([])
        self.error = error
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error


def test_a_sink_that_cannot_be_closed_keeps_neither_the_others_open_nor_the_lock(shop: Shop) -> None:
    first, second = Closing(OSError("the connection is gone")), Closing(None)
    engine = shop.open(("spend", first), ("buyers", second))
    shop.run(1)
    with pytest.raises(SinkError, match="sink of view 'spend': it cannot be closed: OSError: the connection is gone"):
        engine.close()
    assert (first.closed, second.closed) == (1, 1)
    shop.open(("spend", Closing(None)))  # the lock is free


def test_sinks_are_closed_when_the_flow_cannot_be_opened(shop: Shop) -> None:
    class Refusing(Recording):
        def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
            raise SinkError("not today")

    first = Closing(None)
    with pytest.raises(SinkError, match="not today"):
        shop.open(("spend", first), ("buyers", Refusing([])))
    assert first.closed == 1


def test_a_function_of_a_flow_that_retains_nothing_gets_its_last_epoch_again(shop: Shop) -> None:
    consumer = Consumer()
    shop.open(("spend", foreach(consumer)), retain=0)
    shop.run(6)
    shop.die()
    shop.open(("spend", foreach(consumer)), retain=0)
    shop.run(1)
    assert consumer.numbers == [0, 1, 2, 3, 4, 5, 5, 6]
