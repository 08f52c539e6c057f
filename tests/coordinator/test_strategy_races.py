"""What each strategy makes of the same events: when output leaves, what is copied, what may be forgotten."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.events import SafetyWanted, SinkAnswered, StateGone
from holdfast.coordinator.instructions import (
    AdvanceSources,
    AwaitSafe,
    CatchUp,
    Commit,
    Instruction,
    RequestCopies,
    ShipLayers,
    WriteLineage,
)
from holdfast.coordinator.lineage import from_lines

from .flow_states import Case

HELD, EARLY, PASSIVE = hf.aligned_snapshot(3), hf.aligned_snapshot(3, output="early"), hf.passive_standby(3)


def case(strategy: hf.Strategy, sinks: int = 1, **how: object) -> Case:
    return Case(sinks=[-1] * sinks, settings=DurabilitySettings(strategy), **how)  # type: ignore[arg-type]


def kinds(found: list[Instruction]) -> list[type]:
    return [type(each) for each in found]


def delivered(state: Case, epoch: int) -> None:
    state.state.handle(SinkAnswered(0, epoch))


def test_held_output_leaves_with_the_snapshot_that_includes_it_and_not_before() -> None:
    flow = case(HELD)
    for _ in range(2):
        assert kinds(flow.epochs(1)) == [AdvanceSources], "nothing is copied, nothing leaves"
        assert flow.state.deliverable == -1
    found = flow.epochs(1)
    assert kinds(found) == [AdvanceSources, RequestCopies, AwaitSafe, CatchUp]
    assert found[2:] == [AwaitSafe(2), CatchUp(0, 2)], "all three epochs, in order"
    assert flow.state.deliverable == -1, "until it is safe"
    flow.round(0, 2)
    assert flow.state.deliverable == 2


def test_early_output_leaves_at_once_and_carries_its_own_record_alone() -> None:
    flow = case(EARLY)
    for epoch in range(2):
        assert kinds(flow.epochs(1)) == [AdvanceSources, Commit]
        delivered(flow, epoch)
    assert [each.epoch for each in from_lines(flow.state.uncommitted(1))] == [1]
    assert kinds(flow.epochs(1)) == [AdvanceSources, RequestCopies, AwaitSafe, Commit]


def test_between_snapshots_a_round_that_is_due_copies_nothing_that_came_since() -> None:
    flow = case(HELD)
    flow.epochs(2)
    assert flow.due() == [], "no snapshot yet"
    flow.epochs(3)
    assert {ship.upto for ship in flow.seen_ships()} == {2}


def test_whoever_waits_for_an_epoch_between_snapshots_gets_it() -> None:
    flow = case(HELD)
    flow.epochs(2)
    flow.state.handle(SafetyWanted(1))
    assert {ship.upto for ship in flow.seen_ships()} == {1}


def test_a_want_of_an_epoch_that_is_not_there_yet_copies_what_is_there() -> None:
    flow = case(HELD)
    flow.epochs(1)
    flow.state.handle(SafetyWanted(99))
    assert {ship.upto for ship in flow.seen_ships()} == {0}


def test_a_passive_standby_copies_every_few_epochs_and_waits_for_none() -> None:
    flow = case(PASSIVE)
    said = []
    for epoch in range(6):
        said.append(kinds(flow.epochs(1)))
        delivered(flow, epoch)
    between, at = [AdvanceSources, Commit], [AdvanceSources, RequestCopies, Commit]
    assert said == [between, between, at, between, between, at]
    flow.epochs(1)
    assert {ship.upto for ship in flow.seen_ships()} == {5}
    carried = [each.epoch for each in from_lines(flow.state.uncommitted(6))]
    assert carried == list(range(7)), "all lineage that is not durable travels with output"


def test_upstream_backup_copies_lineage_and_pushed_input_and_no_state() -> None:
    flow = Case(sinks=[-1], settings=DurabilitySettings(hf.upstream_backup()), traces={"t": None, "pushed": None})
    assert flow.state.copies.traces == [], "no input is in the log alone"
    flow.epochs(2)
    flow.due()
    found = flow.seen(0, flow.holding(0, -1))
    assert [each.upto for each in found if isinstance(each, WriteLineage)] == [1]
    assert [each.ships for each in found if isinstance(each, ShipLayers)] == [()]


def test_upstream_backup_keeps_input_until_no_state_has_anything_of_it() -> None:
    flow = case(hf.upstream_backup())
    flow.epochs(5)
    flow.round(0, 4, t=-1)
    assert flow.state.copies.cleared == 4
    assert flow.state.release().upto == -1, "safe, and still part of the state"
    flow.state.handle(StateGone(4))
    assert flow.state.release().upto == -1, "level-1 without level-0: the sink lacks output"
    assert flow.seen_ships() == []
    delivered(flow, 4)
    flow.state.handle(StateGone(4))
    assert flow.state.release().upto == -1, "locations do not know it yet"
    assert {(ship.trace, ship.upto) for ship in flow.seen_ships()} == {("t", 4)}
    flow.shipped(0)
    flow.seen(0, flow.holding(0, 4, t=4))
    flow.claimed(0)
    assert flow.state.release().upto == 4
    flow.epochs(2)
    assert flow.seen_ships() == [], "what came since is not copied"


def test_gap_copies_nothing_and_gives_nothing_twice() -> None:
    flow = case(hf.gap())
    assert kinds(flow.epochs(1)) == [AdvanceSources, Commit]
    assert flow.due() == []
    assert flow.state.surely_has(4) == 4, "a sink that cannot tell is not given the last epoch again"


@pytest.mark.parametrize(("last", "has"), [(2, -1), (3, 2), (4, 2), (5, 2), (6, 5)])
def test_a_sink_that_cannot_tell_gets_again_what_left_with_the_last_snapshot(last: int, has: int) -> None:
    assert case(HELD).state.surely_has(last) == has
    assert case(EARLY).state.surely_has(last) == last - 1


@pytest.mark.parametrize("strategy", [hf.nosync(), hf.active_standby()], ids=str)
def test_the_default_neither_waits_nor_holds(strategy: hf.Strategy) -> None:
    flow = case(strategy)
    assert kinds(flow.epochs(1)) == [AdvanceSources, RequestCopies, Commit]
    assert flow.state.deliverable == 0
