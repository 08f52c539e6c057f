"""A flow and its storage, on real Spark: locations that refuse, input that is released, epochs that can be read."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import EpochUnavailable, StoreError
from logged import heard, logged

from .shop import (
    SOON,
    Batches,
    Shop,
    copy,
    engine,
    levels,
    one_round,
    stop_rounds,
    until,
)

# -- locations that refuse --------------------------------------------------------------------------------------------


def test_a_location_that_refuses_is_named_in_the_status_and_stops_nothing(shop: Shop, tmp_path: Path) -> None:
    good, bad, local = tmp_path / "good", copy(tmp_path, "bad"), tmp_path / "local"
    flow = shop.open([good, bad], local=local)
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    bad.fail_before = 1.0
    shop.run(flow, 2)
    assert flow.wait_safe(timeout=SOON) == 2, "one copy is enough"
    until(lambda: flow.status().durability.locations[1].failure is not None)
    sound, failing = flow.status().durability.locations
    assert sound.failure is None and "made up: nothing happened" in failing.failure
    assert str(tmp_path / "bad") in failing.failure
    assert levels(flow)[0][str(good)] == 2 and levels(flow)[0][bad.uri] < 2
    shop.check(flow)
    bad.fail_before = 0.0
    until(lambda: levels(flow)[0][bad.uri] == 2)
    until(lambda: flow.status().durability.locations[1].failure is None)
    flow.close()


def test_local_layers_are_synced_when_epochs_pause_or_a_copy_fails(shop: Shop, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", copy(tmp_path, "bad")
    flow = shop.open([good, bad], local=tmp_path / "local", min_replicas=2)
    stop_rounds(flow)

    def round_after(epochs: int) -> dict[str, int]:
        shop.run(flow, epochs)
        one_round(flow)
        return levels(flow)[0]

    assert round_after(1)["disk"] == 0
    seen = round_after(2)
    assert seen["disk"] == 0 and seen[str(good)] == seen[bad.uri] == 2, "the copies are durable without it"
    assert round_after(0)["disk"] == 2
    bad.fail_before = 1.0
    round_after(1)
    seen = round_after(1)
    assert seen["disk"] == 4 and seen[bad.uri] == 2
    bad.fail_before = 0.0
    flow.close()


@pytest.mark.slow
def test_local_layers_are_synced_although_no_more_epochs_come(shop: Shop, tmp_path: Path) -> None:
    flow = shop.open(tmp_path / "log")
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    until(lambda: levels(flow)[0]["disk"] == 1)
    flow.close()


@pytest.mark.slow
def test_a_location_that_refuses_while_a_flow_is_opened_is_done_without(shop: Shop, tmp_path: Path) -> None:
    good, bad, local = tmp_path / "good", copy(tmp_path, "bad"), tmp_path / "local"
    places = [good, bad, tmp_path / "better"]
    flow = shop.open(places, local=local, min_replicas=2)
    shop.run(flow, 1)
    flow.close()
    bad.fail_before = 1.0
    with logged("cannot be used now, and will be tried again: .*made up: nothing happened"):
        flow = shop.open(places, local=local, min_replicas=2)
    recovery = flow.last_recovery
    assert recovery is not None and list(recovery.unreachable) == [bad.uri]
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    bad.fail_before = 0.0
    until(lambda: levels(flow)[0][bad.uri] == 1)
    shop.check(flow)
    flow.close()


@pytest.mark.slow
def test_a_flow_waits_when_too_much_is_unsafe_and_goes_on_when_it_is_not(shop: Shop, tmp_path: Path) -> None:
    place = copy(tmp_path)
    flow = shop.open(place, local=tmp_path / "local", max_unsafe=2)
    shop.run(flow, 1)
    flow.wait_safe(timeout=SOON)
    place.fail_before = 1.0
    with heard() as said:
        shop.run(flow, 3)
    assert not [record for record in said if "waits" in record.getMessage()]
    with pytest.raises(StoreError, match=r"epoch 3 is not safe after 0\.2 s: .*made up: nothing happened"):
        until(lambda: flow.status().durability.locations[0].failure is not None)
        flow.wait_safe(timeout=0.2)
    status = flow.status().durability
    assert status.back_pressure is True and status.unsafe.epochs == 3 and status.safe == 0
    shop.feed()
    heal = threading.Timer(0.5, setattr, (place, "fail_before", 0.0))
    heal.start()
    with logged("flow 'shop' waits for storage: .* of 3 epochs are not safe yet"):
        result = flow.step()
    heal.join()
    assert result.epoch == 4 and result.timings["back-pressure"] > 0.2
    flow.wait_safe(timeout=SOON)
    assert flow.status().durability.back_pressure is False
    shop.check(flow)
    flow.close()


def test_a_flow_that_waits_for_storage_can_be_stopped(shop: Shop, tmp_path: Path) -> None:
    place = copy(tmp_path)
    flow = shop.open(place, local=tmp_path / "local", max_unsafe=1)
    place.fail_before = 1.0
    shop.run(flow, 2)
    shop.feed()
    stop = threading.Timer(0.3, flow.stop)
    stop.start()
    with logged("waits for storage"):
        assert flow.run(epochs=1) == 0
    stop.join()
    place.fail_before = 0.0
    assert flow.run(until="idle") == 1
    shop.check(flow)
    flow.close()


# -- how far back -----------------------------------------------------------------------------------------------------


def test_a_source_is_released_in_order_once_and_only_behind_the_safe_point(shop: Shop, tmp_path: Path) -> None:
    place = copy(tmp_path)
    flow = shop.open(place, local=tmp_path / "local")
    orders = flow._catalog.sources["orders"]
    assert isinstance(orders, Batches)
    shop.run(flow, 2)
    flow.wait_safe(timeout=SOON)
    stop_rounds(flow)
    place.fail_before = 1.0
    shop.run(flow, 2)
    assert orders.released == [0, 1], "epochs 2 and 3 are not safe"
    place.fail_before = 0.0
    engine(flow)._durability.troubles.clear()
    one_round(flow)
    flow.step()
    assert orders.released == [0, 1, 2, 3]
    flow.view("late", "SELECT user FROM users")  # a new engine, in the same process
    flow.step()
    assert orders.released == [0, 1, 2, 3]
    flow.close()


def test_how_far_back_a_view_can_be_read_is_what_was_retained(shop: Shop, tmp_path: Path) -> None:
    place = tmp_path / "copy"

    def run_until_merged(retain: int | str) -> hf.Flow:
        flow = shop.open(place, retain=retain, partitions=1, sinks=False)
        shop.run(flow, 9)
        flow.wait_safe(timeout=SOON)
        while not flow.status().maintenance.merges:
            shop.run(flow, 1)
            time.sleep(0.3)
        until(lambda: not flow.status().maintenance.busy)
        return flow

    flow = run_until_merged("24h")
    assert flow.read("top", at=0).count() == 3
    flow.close()
    flow = run_until_merged(3)
    with pytest.raises(EpochUnavailable, match="view 'top'") as caught:
        flow.read("top", at=0)
    earliest = caught.value.fields["earliest"]
    assert isinstance(earliest, int) and 0 < earliest <= engine(flow).last - 3 and str(earliest) in str(caught.value)
    assert flow.read("top", at=earliest).count() == 3
    shop.check(flow)
    flow.close()
    flow = shop.open(place, retain="all", partitions=1, sinks=False)
    with pytest.raises(EpochUnavailable, match=str(earliest)):
        flow.read("top", at=earliest - 1)
    assert flow.read("top", at=earliest).count() == 3
    flow.close()
