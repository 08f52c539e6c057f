"""Rewinds as lists of records: which epochs are in effect, what is owed, and what must be kept for it."""

from __future__ import annotations

import pytest

from holdfast.coordinator import events
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.instructions import AdvanceSources, CatchUp
from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.coordinator.recovery_plan import Replay
from holdfast.coordinator.rewinds import Owed, Rewinds, state_clock

from .flow_states import Case
from .test_recovery import plan


def history(*said: object) -> History:
    """Epochs from 0 on: a name is what one took, a number where a rewind goes back to, ``(epoch,)`` takes it again."""
    found = History()
    for epoch, each in enumerate(said):
        parent = found[-1].digest if found else GENESIS
        offers = {"s": {"of": each}} if isinstance(each, str) else {}
        rewind = {"to": each} if isinstance(each, int) else None
        again = each[0] if isinstance(each, tuple) else None
        found.append(Lineage(epoch, parent, offers, 100 + epoch, 0, rewind=rewind, again=again))
    return found


def owed(rewinds: Rewinds) -> list[tuple[int, int]]:
    return [(each.origin, each.epoch) for each in rewinds.owed]


def live(rewinds: Rewinds, at: int) -> list[int]:
    return [epoch for epoch in range(at + 1) if rewinds.is_live(epoch, at)]


def test_what_was_undone_is_not_in_effect_and_is_owed_in_its_order() -> None:
    rewinds = Rewinds(history("a", "b", "c", 0))
    assert live(rewinds, 3) == [0] and live(rewinds, 2) == [0, 1, 2]
    assert owed(rewinds) == [(1, 1), (2, 2)]


def test_an_epoch_without_input_is_not_owed() -> None:
    found = history("a", "b")
    found.append(Lineage(2, found[-1].digest, {}, 102, 0))
    found.append(Lineage(3, found[-1].digest, {}, 103, 0, rewind={"to": 0}))
    assert owed(Rewinds(found)) == [(1, 1)]


def test_what_is_taken_again_is_owed_no_more() -> None:
    rewinds = Rewinds(history("a", "b", "c", 0, (1,), (2,), "d"))
    assert rewinds.owed == () and live(rewinds, 6) == [0, 4, 5, 6]
    assert rewinds.retaken(5) == Owed(2, 2, (3,)) and rewinds.retaken(6) is None


def test_a_rewind_in_the_middle_of_taking_again_owes_the_rest_too() -> None:
    rewinds = Rewinds(history("a", "b", "c", "d", 0, (1,), 0))
    assert owed(rewinds) == [(1, 5), (2, 2), (3, 3)]
    assert [each.rewinds for each in rewinds.owed] == [(6,), (4, 6), (4, 6)], "what is skipped stays skipped"


def test_a_rewind_can_itself_be_undone() -> None:
    rewinds = Rewinds(history("a", "b", "c", 0, (1,), 2))
    assert live(rewinds, 5) == [0, 1, 2] and owed(rewinds) == []


def test_going_back_to_before_a_rewind_owes_what_came_after_it() -> None:
    rewinds = Rewinds(history("a", "b", 0, (1,), "c", 1))
    assert live(rewinds, 5) == [0, 1] and owed(rewinds) == [(4, 4)]


def test_the_clock_of_the_state_is_that_of_the_epoch_it_went_back_to() -> None:
    found = history("a", "b", "c", 1, 3)
    assert [state_clock(found, epoch) for epoch in (2, 3, 4)] == [102, 101, 101]


@pytest.mark.parametrize(("upto", "safe", "allowed"), [(1, 9, 1), (3, 9, 1), (4, 9, 1), (6, 9, 6), (6, 5, 1)])
def test_a_base_is_never_among_what_was_undone_nor_after_input_that_may_be_read_again(
    upto: int, safe: int, allowed: int
) -> None:
    assert Rewinds(history("a", "b", "c", "d", 1, (2,), (3,), "e")).foldable(upto, safe) == allowed


def test_input_that_a_rewind_to_an_undone_epoch_would_take_again_is_reachable() -> None:
    """Epoch 3 undid epoch 1, and epoch 4 brought it back: a rewind to epoch 3 would undo it once more."""
    rewinds = Rewinds(history("a", "b", "c", 0, 1, (2,)))
    assert [rewinds.reachable(floor) for floor in (1, 2, 3, 4)] == [0, 0, 0, None]
    rewinds.add(Lineage(6, "", {}, 106, 0, rewind={"to": 3}))
    assert owed(rewinds) == [(1, 1), (2, 5)]
    assert Rewinds(history("a", "b", "c")).reachable(0) is None


def test_nothing_behind_a_base_is_known_as_a_rewind() -> None:
    rewinds = Rewinds(history("a", "b", 0, (1,), "c"))
    rewinds.add(Folded(3, "", {}, 103, 0))
    assert live(rewinds, 4) == [0, 1, 2, 3, 4] and rewinds.since(-1) == {}


def test_what_a_record_says_of_a_rewind_is_read_back() -> None:
    rewind = Lineage(3, GENESIS, {}, 7, 8, rewind={"to": 1, "reason": "bad", "skip": {"s": {"names": ["x"]}}})
    again = Lineage(4, rewind.digest, {"s": {}}, 7, 8, again=2)
    assert Lineage.from_json(rewind.to_json()) == rewind and Lineage.from_json(again.to_json()) == again
    plain = Lineage(3, GENESIS, {}, 7, 8)
    assert "rewind" not in plain.to_json() and plain.digest != rewind.digest


def test_what_was_told_to_sources_is_kept_apart_in_a_base() -> None:
    base = Folded(3, "", {}, 7, 0, end="d", taken={"s": ((0, {"a": 1}),)}, told={"s": ((3, {"a": 2}),)})
    assert Lineage.from_json(base.to_json()) == base


def count(case: Case, **said: object) -> list[object]:
    state = case.state
    lineage = state.begin(said.pop("offers", {}), 1, 2, **said)  # type: ignore[arg-type]
    state.handle(events.EpochRan(lineage))
    state.handle(events.EpochWritten(lineage))
    return list(state.handle(events.EpochCounted(lineage, 10)))


def test_sinks_are_brought_back_from_their_logs_and_sources_are_not_told_twice() -> None:
    case = Case(sinks=[1])
    for number in range(2):
        count(case, offers={"s": {"n": number}})
    case.state.handle(events.SinkAnswered(0, 1, None))
    assert CatchUp(0, 2) in count(case, rewind={"to": 0})
    told = count(case, offers={"s": {"n": 1}}, again=1)
    assert not any(isinstance(each, AdvanceSources) for each in told)


def test_input_is_not_released_while_it_may_be_taken_again() -> None:
    case = Case()
    for number in range(3):
        count(case, offers={"s": {"n": number}})
    case.state.copies.cleared = 2
    assert case.state.release().upto == 2
    count(case, rewind={"to": 0})
    case.state.copies.cleared = 3
    assert case.state.release().upto == 0, "epochs 1 and 2 are owed"
    count(case, offers={"s": {"n": 1}}, again=1)
    count(case, offers={"s": {"n": 2}}, again=2)
    assert case.state.release().upto == 0, "the epochs that took it again are not safe"
    case.state.copies.cleared = 5
    assert case.state.release().upto == 5


def test_input_that_a_branch_will_be_fed_is_not_released_although_it_was_taken_first_before_its_root() -> None:
    case = Case()
    for number in range(3):
        count(case, offers={"s": {"n": number}})
    count(case, rewind={"to": 0})
    case.state.handle(events.BranchMade("b", 3))
    count(case, offers={"s": {"n": 1}}, again=1)
    count(case, offers={"s": {"n": 2}}, again=2)
    case.state.copies.cleared = 5
    assert case.state.release().upto == 0
    case.state.handle(events.BranchRemoved("b"))
    assert case.state.release().upto == 5


def test_a_lost_rewind_is_computed_by_each_operator_for_itself() -> None:
    (replay,) = plan({("join", 1): 8}, rewinds={9: 6})
    assert replay == Replay(9, 9, {"join": frozenset({1})}, {"join": frozenset({1})}, undo=6)


def test_a_lost_rewind_whose_changes_cannot_be_told_is_filled_as_of_after_it() -> None:
    (replay,) = plan({("join", 1): 8}, rewinds={9: 6}, undoable=lambda *_: False)
    assert (replay.first, replay.epoch, replay.undo) == (0, 9, None)


def test_nothing_is_filled_as_of_an_epoch_that_was_undone() -> None:
    from holdfast.coordinator.recovery_plan import plan_recovery

    from .test_recovery import FLOW

    covers = {(name, partition): 9 for name in FLOW.operators for partition in range(2)} | {("join-log", 0): -1}
    fills = plan_recovery(FLOW, covers, 2, 9, 7, lambda *_: True, fresh=["join-log"], rewinds={8: 5})
    assert [(each.first, each.epoch, each.undo) for each in fills] == [
        (0, 5, None), (6, 6, None), (7, 7, None), (8, 8, 5), (9, 9, None)
    ]  # fmt: skip
