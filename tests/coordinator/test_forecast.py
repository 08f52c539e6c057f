"""What a crash would cost, from what locations hold and what was measured."""

from __future__ import annotations

import json

import pytest

from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.forecast import Circumstances, Lost, Rates, forecasts, lost_range, most_telling
from holdfast.trace.name import ALL

from .flow_states import QUARTER, layer

RATES = Rates(start=8.0, epoch=0.5, layer=0.01, byte=1e-6)


def holding(**traces: dict[object, int]) -> Holding:
    return Holding(traces, 9)  # type: ignore[arg-type]  # names of layers, each with its bytes


WHOLE = holding(t={layer(0, 5): 1000, layer(6, 9): 500})
BEHIND = holding(t={layer(0, 5): 1000})


def test_what_is_fetched_is_what_covers_the_range_and_the_rest_is_computed_again() -> None:
    assert lost_range([WHOLE], ["t"], 9) == Lost(2, 1500, 0)
    assert lost_range([BEHIND], ["t"], 9) == Lost(1, 1000, 4)
    assert lost_range([], ["t"], 9) == Lost(0, 0, 10)


def test_a_layer_that_another_one_replaces_is_not_fetched() -> None:
    merged = holding(t={layer(0, 5): 1000, layer(6, 9): 500, layer(0, 9): 1200})
    assert lost_range([merged], ["t"], 9) == Lost(1, 1200, 0)


def test_a_part_of_the_key_hashes_takes_its_share_of_the_bytes() -> None:
    assert lost_range([WHOLE], ["t"], 9, 0, QUARTER) == Lost(2, 375, 0)


def test_locations_make_up_for_each_other() -> None:
    other = holding(t={layer(6, 9): 500})
    assert lost_range([BEHIND, other], ["t"], 9) == Lost(2, 1500, 0)


def test_each_loss_has_its_own_parts() -> None:
    found = forecasts(
        RATES, {"a": BEHIND, "b": BEHIND}, ["t"], 9, Circumstances(detection=2.0)
    )  # fmt: skip
    driver, host, *locations = found
    assert (driver.what, driver.epochs, driver.bytes, driver.seconds) == ("driver", 0, 0, 2.0 + 8.0)
    assert (host.what, host.epochs, host.bytes) == ("driver's host", 4, 1000)
    assert host.parts == {"detection": 2.0, "start": 8.0, "fetch": pytest.approx(0.011), "replay": 2.0, "epoch": 0.0}
    assert [each.what for each in locations] == ["location a", "location b"]
    assert all(each.seconds == 0.5 and each.bytes == 0 for each in locations), "others serve"
    assert str(driver) == "10.0 s (detection 2.0 s, start 8.0 s; 0 epochs again, 0.0 MB fetched)"


def test_a_driver_that_leaves_nothing_behind_costs_what_its_host_does() -> None:
    driver, host, *_ = forecasts(RATES, {"a": BEHIND}, ["t"], 9, Circumstances(stays=False))
    assert (driver.seconds, driver.epochs) == (host.seconds, host.epochs)


def test_a_member_takes_its_ranges_along_and_the_driver_none() -> None:
    members = {"m1": [(0, QUARTER)], "m2": [(QUARTER, ALL)]}
    known = Circumstances(grace=3.0, members=members)
    assert Circumstances.from_json(json.loads(json.dumps(known.to_json()))) == known
    found = forecasts(RATES, {"a": WHOLE}, ["t"], 9, known)
    driver, host, first, second, location = found
    assert driver.bytes == host.bytes == 0 and driver.epochs == host.epochs == 0
    assert (first.what, first.bytes, second.bytes) == ("member m1", 375, 1125)
    assert first.parts["detection"] == 4.0 and first.parts["start"] == 0.0 and first.parts["epoch"] == 0.5
    shown = [("the driver", driver), ("the driver's host", host), ("member m2, the costliest of 2,", second)]
    assert most_telling(found) == [*shown, ("a log location", location)]


def test_a_host_with_the_only_location_leaves_nothing_to_go_on_from() -> None:
    driver, host, _ = forecasts(RATES, {"log": WHOLE}, ["t"], 9, Circumstances(), beside=["log"])
    assert driver.seconds == 8.0 and host.seconds is None and host.epochs == 10 and "never" in str(host)
    both = {"log": WHOLE, "far": BEHIND}
    assert forecasts(RATES, both, ["t"], 9, Circumstances(), beside=["log"])[1].epochs == 4


def test_rates_are_written_again_when_one_has_changed_by_a_quarter() -> None:
    assert not RATES.differs(RATES) and not Rates(epoch=0.45).differs(RATES)
    assert Rates(epoch=0.3).differs(RATES) and Rates(replay=1.0).differs(RATES)
    assert Rates(epoch=0.3).known(RATES) == Rates(8.0, 0.3, None, 0.01, 1e-6)
    assert Rates.from_json({**RATES.to_json(), "of a later version": 1}) == RATES


def test_a_measured_replay_counts_for_more_than_an_epoch() -> None:
    measured = Rates(start=8.0, epoch=0.5, replay=2.0)
    assert forecasts(measured, {"a": BEHIND}, ["t"], 9, Circumstances())[1].parts["replay"] == 8.0
