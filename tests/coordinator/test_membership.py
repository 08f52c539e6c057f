"""The sequence of membership changes: races are lists of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordinator.membership import Change, Member, Sequencer

A, B, C = Member("1", "hostA"), Member("2", "hostB"), Member("10", "hostC")


def test_initial_set_is_told_once_enough_are_there() -> None:
    sequencer = Sequencer(least=2)
    sequencer.joined(A)
    assert list(sequencer.changes) == []
    sequencer.joined(B)
    assert list(sequencer.changes) == [Change(0, (A, B), (A, B), (), -1)]


def test_each_event_is_one_change_in_order() -> None:
    sequencer = Sequencer()
    sequencer.joined(A)
    sequencer.begin()
    sequencer.joined(C, epoch=3)
    sequencer.lost("1", "killed", epoch=4)
    assert [(change.number, change.joined, change.lost, change.members) for change in sequencer.changes] == [
        (0, (A,), (), (A,)),
        (1, (C,), (), (A, C)),
        (2, (), (A,), (C,)),
    ]
    assert [(change.epoch, change.reason) for change in sequencer.changes] == [(-1, ""), (3, ""), (4, "killed")]


def test_an_event_that_comes_twice_changes_nothing() -> None:
    sequencer = Sequencer()
    sequencer.begin()
    for _ in range(2):
        sequencer.joined(A)
    for _ in range(2):
        sequencer.lost("1")
    assert len(sequencer.changes) == 3


def test_a_loss_that_is_heard_before_the_joining_keeps_the_member_out() -> None:
    sequencer = Sequencer()
    sequencer.begin()
    sequencer.lost("1")
    sequencer.joined(A)
    assert sequencer.members == ()
    assert len(sequencer.changes) == 1


def test_one_that_went_before_the_beginning_is_not_part_of_it() -> None:
    sequencer = Sequencer(least=2)
    sequencer.joined(A)
    sequencer.lost("1")
    sequencer.joined(B)
    assert list(sequencer.changes) == []
    sequencer.joined(C)
    assert sequencer.changes[0].members == (B, C)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))), st.integers(0, 4))
def test_changes_add_up_to_the_members(events: list[tuple[bool, int]], least: int) -> None:
    sequencer = Sequencer(least)
    for joins, number in events:
        if joins:
            sequencer.joined(Member(str(number), "host"))
        else:
            sequencer.lost(str(number))
    sequencer.begin()
    known: set[Member] = set()
    for number, change in enumerate(sequencer.changes):
        assert change.number == number
        assert not set(change.joined) & known and set(change.lost) <= known
        known = known | set(change.joined) - set(change.lost)
        known -= set(change.lost)
        assert known == set(change.members)
        assert number == 0 or len(change.joined) + len(change.lost) == 1
    assert known == set(sequencer.members)
