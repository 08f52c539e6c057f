"""What a flow promises about the loss of log locations, and what it says when it was more than it promises to bear."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from holdfast.errors import DeclarationError, StoreError
from holdfast.inspect.verify import verify
from holdfast.log.location import LocalLocation
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.engine import Engine
from holdfast.testing import Unreliable
from holdfast.testing.memory import MemoryLocation
from holdfast.trace.layer import forget_all

from .simulated import Shop, die


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def settled(shop: Shop, engine: Engine) -> None:
    """Rounds until everything is where it should be."""
    for _ in range(3):
        engine.upkeep()
        engine._durability._round()


def test_epochs_that_were_safe_on_a_lost_location_alone_are_not_forgotten_silently(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = MemoryLocation("a"), Unreliable(MemoryLocation("b"))
    engine = shop.open([a, b], sinks=False)
    shop.run(engine, 2)
    b.fail_before = 1.0  # its disk is full
    shop.run(engine, 7)
    assert engine.safe == 8, "one of two is enough"
    die(engine)
    a.lose()
    b.fail_before = 0.0
    shutil.rmtree(tmp_path / "host0")
    with pytest.raises(StoreError, match=r"1 of the 2 locations .* reachable and whole, and 2 must be") as caught:
        shop.open([a, b], sinks=False)
    assert "memory:a was emptied or made again" in str(caught.value)
    assert "accept_loss=True" in str(caught.value)
    with pytest.raises(StoreError, match="1 of the 2"):
        shop.open([a, b], sinks=False)  # it has not become whole by being looked at
    with caplog.at_level(logging.WARNING, "holdfast.recovery"):
        engine = shop.open([a, b], sinks=False, accept_loss=True)
    assert engine.last == 1
    assert any("1 of the 2 locations" in lost for lost in engine.recovery.lost)
    assert any("memory:a was emptied" in record.getMessage() for record in caplog.records)
    die(engine)


def test_any_one_location_of_two_may_be_lost_when_both_are_required(shop: Shop, tmp_path: Path) -> None:
    places = [MemoryLocation("a"), MemoryLocation("b")]
    for round_, place in enumerate([*places, *places]):
        engine = shop.open(places, min_replicas=2)
        shop.run(engine, 2)
        settled(shop, engine)
        assert engine.safe == engine.last == 2 * round_ + 1
        die(engine)
        place.lose()
        shutil.rmtree(tmp_path / "host0")
    engine = shop.open(places, min_replicas=2)
    assert [lost for lost in engine.recovery.lost if "memory:b was emptied" in lost]
    shop.check(engine)
    engine.close()


def test_a_location_that_was_lost_does_not_count_before_it_is_filled_again(shop: Shop, tmp_path: Path) -> None:
    a, b, c = (Unreliable(MemoryLocation(name)) for name in "abc")
    engine = shop.open([a, b, c], min_replicas=2)
    shop.run(engine, 3)
    die(engine)
    assert isinstance(b.location, MemoryLocation)
    b.location.lose()
    b.fail_before = 1.0  # it is there, and cannot be filled
    engine = shop.open([a, b, c], min_replicas=2)
    shop.run(engine, 1)
    die(engine)
    b.fail_before = 0.0
    c.fail_before = 1.0
    shutil.rmtree(tmp_path / "host0")
    with pytest.raises(StoreError, match=r"1 of the 3 locations .* and 2 must be"):
        shop.open([a, b, c], min_replicas=2)
    c.fail_before = 0.0
    engine = shop.open([a, b, c], min_replicas=2)
    shop.run(engine, 1)
    settled(shop, engine)
    die(engine)
    c.fail_before = 1.0
    shutil.rmtree(tmp_path / "host0")
    engine = shop.open([a, b, c], min_replicas=2)
    shop.check(engine)
    c.fail_before = 0.0
    engine.close()


def test_a_further_location_is_just_given(shop: Shop, tmp_path: Path) -> None:
    a, b = MemoryLocation("a"), MemoryLocation("b")
    engine = shop.open([a])
    shop.run(engine, 3)
    engine.close()
    engine = shop.open([a, b], min_replicas=2)
    assert engine.recovery.lost == [] and not engine.status().durability.locations[1].counts
    shop.run(engine, 1)
    settled(shop, engine)
    assert engine.safe == 3 and engine.status().durability.locations[1].counts
    die(engine)
    a.lose()
    shutil.rmtree(tmp_path / "host0")
    engine = shop.open([a, b], min_replicas=2)
    shop.check(engine)
    engine.close()


def test_a_location_that_is_taken_out_may_have_been_the_only_one(shop: Shop) -> None:
    a, b = MemoryLocation("a"), MemoryLocation("b")
    engine = shop.open([a, b])
    shop.run(engine, 2)
    engine.close()
    with pytest.raises(StoreError, match="memory:b is not among the locations that were given"):
        shop.open([a])
    engine = shop.open([a], accept_loss=True)
    shop.run(engine, 1)
    engine.close()
    engine = shop.open([a])
    assert engine.recovery.lost == []
    shop.check(engine)
    engine.close()


def test_fewer_copies_may_be_required_from_one_run_to_the_next_and_more(shop: Shop, tmp_path: Path) -> None:
    a, b = Unreliable(MemoryLocation("a")), Unreliable(MemoryLocation("b"))
    for least in (2, 1, 2):
        engine = shop.open([a, b], min_replicas=least)
        shop.run(engine, 2)
        settled(shop, engine)
        assert engine.safe == engine.last
        die(engine)
    shutil.rmtree(tmp_path / "host0")
    b.fail_before = 1.0
    engine = shop.open([a, b], min_replicas=2)  # both have all of it
    shop.check(engine)
    b.fail_before = 0.0
    engine.close()


def test_a_new_flow_needs_all_its_locations(shop: Shop) -> None:
    away = Unreliable(MemoryLocation("away"), fail_before=1.0)
    with pytest.raises(StoreError, match="memory:away"):
        shop.open([MemoryLocation("here"), away, MemoryLocation("there")], min_replicas=2)


def test_one_place_that_is_reached_in_two_ways_is_refused(shop: Shop, tmp_path: Path) -> None:
    place = LocalLocation(tmp_path / "copy")
    shop.open([place]).close()
    spelled = Unreliable(place)  # as a mount of it elsewhere would be: nothing in its address tells
    with pytest.raises(DeclarationError, match="are the same place"):
        shop.open([place, _Renamed(spelled)])


def test_a_copy_of_a_location_becomes_a_location_of_its_own(shop: Shop, tmp_path: Path) -> None:
    engine = shop.open([LocalLocation(tmp_path / "a")])
    shop.run(engine, 2)
    engine.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    places = [LocalLocation(tmp_path / "a"), LocalLocation(tmp_path / "b")]
    engine = shop.open(places, min_replicas=2)
    shop.run(engine, 1)
    settled(shop, engine)
    assert engine.safe == 2
    assert len({path.name[-21:] for place in places for path in (place.path / "roster").iterdir()}) == 2
    engine.close()


class _Renamed(Unreliable):
    @property
    def uri(self) -> str:
        return "elsewhere"


def test_a_process_that_drove_the_log_last_goes_on_while_a_location_is_away(shop: Shop, tmp_path: Path) -> None:
    a, b = Unreliable(MemoryLocation("a")), Unreliable(MemoryLocation("b"))
    told = ConnectorProgress()
    engine = shop.open([a, b], sinks=False, told=told)
    shop.run(engine, 2)
    engine.close()
    b.fail_before = 1.0
    engine = shop.open([a, b], sinks=False, told=_told(told))  # as when a view is added
    shop.run(engine, 1)
    engine.close()
    with pytest.raises(StoreError, match="1 of the 2 locations"):
        shop.open([a, b], sinks=False)  # another process cannot know
    b.fail_before = 0.0
    other = shop.open([a, b], sinks=False)
    die(other)
    b.fail_before = 1.0
    with pytest.raises(StoreError, match="1 of the 2 locations"):
        shop.open([a, b], sinks=False, told=_told(told))  # somebody else had it meanwhile


def _told(before: ConnectorProgress) -> ConnectorProgress:
    """What is known of the log, for connectors that are new."""
    return ConnectorProgress(claim=before.claim, history=before.history)


@pytest.mark.parametrize("how", ["damaged", "unreadable"])
def test_lineage_that_cannot_be_read_may_be_of_epochs_that_were_safe(shop: Shop, tmp_path: Path, how: str) -> None:
    store = MemoryLocation("a")
    a, b = Unreliable(store), Unreliable(MemoryLocation("b"))
    engine = shop.open([a, b], sinks=False)
    shop.run(engine, 2)
    settled(shop, engine)
    b.fail_before = 1.0
    shop.run(engine, 2)
    assert engine.safe == 3
    die(engine)
    b.fail_before = 0.0
    shutil.rmtree(tmp_path / "host0")
    newest = max(path for path in store.snapshot() if path.startswith("lineage/") and "-000000000003-" in path)
    if how == "damaged":
        store.write(newest, store.read(newest)[:-9])
        why = "memory:a has a damaged lineage of epoch 3"
    else:
        store.__class__ = _Unreadable
        why = "memory:a cannot be reached .*made up"
    with pytest.raises(StoreError, match=f"1 of the 2 locations .* {why}"):
        shop.open([a, b], sinks=False)
    if how == "damaged":
        engine = shop.open([a, b], sinks=False, accept_loss=True)
        assert engine.last == 2 and any(why in lost for lost in engine.recovery.lost)
    else:
        store.__class__ = MemoryLocation
        engine = shop.open([a, b], sinks=False)
        assert engine.last == 3
    die(engine)


class _Unreadable(MemoryLocation):
    def read(self, path: str) -> bytes:
        if path.startswith("lineage/"):
            raise StoreError("made up")
        return super().read(path)


# -- lost while the flow runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_the_first_location_may_be_lost_while_the_flow_runs(shop: Shop, tmp_path: Path, crash: bool) -> None:
    first, second = LocalLocation(tmp_path / "first"), MemoryLocation("second")
    engine = shop.open([first, second], min_replicas=2, local=first.path)
    shop.run(engine, 3)
    shutil.rmtree(first.path)
    shop.run(engine, 1)
    if crash:
        die(engine)
    else:
        settled(shop, engine)
        assert engine.safe == engine.last and engine.status().durability.locations[0].counts
        engine.close()
    engine = shop.open([first, second], min_replicas=2, local=first.path)
    shop.check(engine)
    shop.run(engine, 2)
    settled(shop, engine)
    assert engine.safe == engine.last
    shop.check(engine)
    engine.close()


def test_a_location_that_is_lost_while_the_flow_runs_counts_no_more_until_it_is_filled(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = MemoryLocation("a"), Unreliable(MemoryLocation("b"))
    engine = shop.open([a, b])
    shop.run(engine, 2)
    b.fail_before = 1.0
    shop.run(engine, 1)
    a.lose()
    with caplog.at_level(logging.WARNING, "holdfast.recovery"):
        shop.run(engine, 2)
    assert any(
        "memory:a has lost what it held, and is filled again" in record.getMessage() for record in caplog.records
    )
    b.fail_before = 0.0
    settled(shop, engine)
    assert engine.safe == engine.last
    assert all(each.counts for each in engine.status().durability.locations)
    die(engine)
    shutil.rmtree(tmp_path / "host0")
    engine = shop.open([a, b])
    shop.check(engine)
    engine.close()


# -- what was set aside -----------------------------------------------------------------------------------------------


def test_a_repair_puts_back_what_was_set_aside_and_is_good(shop: Shop, tmp_path: Path) -> None:
    place, local = LocalLocation(tmp_path / "copy"), tmp_path / "local"
    engine = shop.open([place], local=local)
    shop.run(engine, 2)
    engine.close()
    forget_all()
    aside = []
    for root, pattern, at in ((local, "traces/*/*.arrow", local), (place.path, "layers/*/*.parquet", place.path)):
        path = sorted(root.glob(pattern))[0]
        target = at / "damaged" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        aside.append((path, target))
    report = verify([str(local), str(place.path)], repair=True)
    assert report.ok, report
    for path, target in aside:
        assert path.exists() and not target.exists()
    engine = shop.open([place], local=local)
    assert engine.recovery.layers_fetched == 0 and engine.recovery.epochs == []
    shop.check(engine)
    engine.close()
