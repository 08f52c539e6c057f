"""The clock of a flow follows the host's, but not into a future that has not come."""

from __future__ import annotations

import pytest

from holdfast.coordinator.clock import LONGEST_REST, FlowClock, Reading
from holdfast.coordinator.epochs import EpochSequence
from holdfast.errors import ClockJumped, DeclarationError
from holdfast.runtime.settings import parse_clock_jump

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
NOON = 1_790_000_000 * SECOND


def reading(wall: int, uptime: int, start: str = "monday") -> Reading:
    return Reading(wall, start, uptime)


def running(bound: int | None = HOUR) -> FlowClock:
    """The clock of a flow that ran an epoch at noon, when its host had been up for a day."""
    clock = FlowClock("f", bound, None, None)
    clock.completed(clock.read(reading(NOON, DAY)))
    return clock


def test_time_that_passes_is_no_jump_however_long_it_is() -> None:
    clock = running()
    for rest in (SECOND, 400 * DAY):
        assert clock.read(reading(NOON + rest, DAY + rest)) == NOON + rest


def test_a_clock_that_is_ahead_is_refused_until_it_is_right_again() -> None:
    clock = running()
    for _ in range(2):
        with pytest.raises(ClockJumped, match=r"3652 days.*ahead of the time that has passed.*accept_clock") as caught:
            clock.read(reading(NOON + 3653 * DAY, DAY + SECOND))
        assert caught.value.fields["host"] == NOON + 3653 * DAY
    assert clock.read(reading(NOON + HOUR // 2, DAY + SECOND)), "within the bound"
    assert clock.read(reading(NOON + 2 * SECOND, DAY + 2 * SECOND))


def test_a_clock_that_is_set_back_and_right_again_has_not_jumped() -> None:
    clock = running()
    clock.read(reading(NOON - 5 * HOUR, DAY + SECOND))
    assert clock.read(reading(NOON + 2 * SECOND, DAY + 2 * SECOND)) == NOON + 2 * SECOND


def test_a_jump_between_two_processes_of_one_host_is_found_whatever_the_rest() -> None:
    known = running().known
    again = FlowClock("f", HOUR, NOON, known)
    assert again.read(reading(NOON + 90 * DAY, 91 * DAY)) == NOON + 90 * DAY
    with pytest.raises(ClockJumped):
        FlowClock("f", HOUR, NOON, known).read(reading(NOON + 90 * DAY + 2 * HOUR, 91 * DAY))


def test_on_another_host_a_rest_is_believed_up_to_a_month() -> None:
    known = running().known
    other = FlowClock("f", HOUR, NOON, known)
    assert other.read(reading(NOON + LONGEST_REST, SECOND, "tuesday"))
    with pytest.raises(ClockJumped, match="last epoch's clock"):
        FlowClock("f", HOUR, NOON, known).read(reading(NOON + LONGEST_REST + SECOND, SECOND, "tuesday"))
    with pytest.raises(ClockJumped):
        FlowClock("f", HOUR, NOON, None).read(reading(NOON + LONGEST_REST + SECOND, SECOND, ""))
    assert FlowClock("f", 99 * DAY, NOON, None).read(reading(NOON + 99 * DAY, SECOND, ""))
    assert FlowClock("f", None, NOON, known).read(reading(NOON + 9999 * DAY, SECOND, "tuesday"))
    assert FlowClock("f", HOUR, None, None).read(reading(0, SECOND)) == 0, "the first epoch has nothing before it"


def test_what_is_accepted_is_accepted_once_ahead_and_back() -> None:
    clock, coordinator = running(), EpochSequence()
    coordinator.complete(coordinator.begin({}, NOON, 1))
    clock.accept()
    ahead = clock.read(reading(NOON + 3653 * DAY, DAY + SECOND))
    lineage = coordinator.begin({}, ahead, 2, back=clock.accepts)
    coordinator.complete(lineage)
    clock.completed(lineage.clock)
    assert lineage.clock == NOON + 3653 * DAY and not clock.accepts

    now = reading(NOON + 2 * SECOND, DAY + 2 * SECOND)
    assert clock.ahead(now.wall) > 3652 * DAY
    stuck = coordinator.begin({}, clock.read(now), 3, back=clock.accepts)
    assert stuck.clock == ahead, "by itself it never goes back"
    coordinator.abandon(stuck)
    clock.accept()
    lineage = coordinator.begin({}, clock.read(now), 4, back=clock.accepts)
    assert lineage.clock == now.wall, "the way back"
    coordinator.complete(lineage)
    clock.completed(lineage.clock)
    assert clock.ahead(now.wall) == 0
    with pytest.raises(ClockJumped):
        clock.read(reading(NOON + 3653 * DAY, DAY + 3 * SECOND))


@pytest.mark.parametrize("value", [3600, "an hour", "", True, "all", -1])
def test_a_bound_that_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(DeclarationError, match="max_clock_jump must be a time such as '1h'"):
        parse_clock_jump("f", value)
    assert parse_clock_jump("f", "90m") == 5400 * SECOND and parse_clock_jump("f", None) is None
