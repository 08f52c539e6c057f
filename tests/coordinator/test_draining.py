"""A member that leaves on purpose: who keeps its partitions, as a list of events."""

from __future__ import annotations

from holdfast.coordinator.events import MemberLeaves, MemberLeft
from holdfast.coordinator.instructions import BringOver
from holdfast.coordinator.partition_ownership import PartitionOwnership

from .flow_states import Case


def owned(*members: str, partitions: int = 8) -> PartitionOwnership:
    ownership = PartitionOwnership(partitions)
    ownership.seen(members)
    return ownership


def test_others_keep_what_a_member_had_that_leaves_and_nothing_else_moves() -> None:
    ownership = owned("a", "b", "c")
    before = ownership.owners
    assert ownership.leave("b")
    assert set(ownership.owners) == {"a", "c"}
    assert all(new == old for old, new in zip(before, ownership.owners, strict=True) if old != "b")
    assert "b" in ownership.asked, "it still has layers that the others need"
    ownership.left("b")
    assert ownership.asked == {"a", "c"}


def test_an_heir_that_kept_nothing_so_far_is_asked_too() -> None:
    ownership = owned("a", "b", "c")
    ownership.hand_over({partition: "a" for partition, owner in enumerate(ownership.owners) if owner == "c"})
    assert ownership.asked == {"a", "b"}
    ownership.leave("b")
    assert set(ownership.owners) <= ownership.asked


def test_it_gets_nothing_back_while_it_is_there() -> None:
    ownership = owned("a", "b", "c")
    ownership.leave("b")
    ownership.seen({"a", "b", "c", "d"})
    assert set(ownership.owners) == {"a", "c", "d"}
    ownership.seen({"a", "b", "c", "d"}, settle=True)
    assert set(ownership.owners) == {"a", "c", "d"}
    ownership.seen({"a", "c", "d"})
    ownership.seen({"a", "b", "c", "d"}, settle=True)
    assert set(ownership.owners) == {"a", "b", "c", "d"}, "one that went and came back is like a new one"


def test_it_gets_nothing_back_where_spark_ran_a_task_on_it_all_the_same() -> None:
    ownership = owned("a", "b")
    ownership.leave("a")
    ownership.left("a")
    ownership.hand_over({0: "a", 1: "b"})
    assert set(ownership.owners) == {"b"} and ownership.asked == {"b"}


def test_it_gets_nothing_back_when_there_are_other_partitions() -> None:
    before = owned("a", "b", "c")
    before.leave("b")
    after = PartitionOwnership(5, before.leaving)
    after.seen({"a", "b", "c"})
    assert set(after.owners) == {"a", "c"} and after.able == {"a", "c"}
    after.seen({"a", "c"})
    after.seen({"a", "b", "c"}, settle=True)
    assert "b" in after.owners, "one that went and came back is like a new one"


def test_the_last_one_cannot_leave() -> None:
    ownership = owned("a", "b")
    assert ownership.leave("a") and not ownership.leave("b") and not ownership.leave("nobody")
    assert set(ownership.owners) == {"b"}


def test_one_that_is_to_leave_stays_if_all_others_are_lost() -> None:
    ownership = owned("a", "b")
    ownership.leave("a")
    ownership.seen({"a"})
    assert set(ownership.owners) == {"a"}


def test_an_heir_that_is_lost_before_the_member_has_left_is_inherited_by_the_others() -> None:
    ownership = owned("a", "b", "c")
    ownership.leave("b")
    ownership.seen({"a", "b"})
    assert set(ownership.owners) == {"a"} and "b" in ownership.asked, "it may have what the lost heir did not take yet"
    ownership.left("b")
    assert ownership.asked == {"a"}


def test_the_state_has_what_a_member_keeps_brought_over_before_it_is_let_go() -> None:
    case = Case(members=["a", "b", "a", "b"])
    ownership = case.state.ownership
    assert ownership is not None
    ownership.members = ownership.asked = frozenset("ab")
    assert case.state.handle(MemberLeaves("b")) == [BringOver("b")]
    assert set(ownership.owners) == {"a"} and ownership.asked == {"a", "b"}
    assert case.state.handle(MemberLeft("b")) == [] and ownership.asked == {"a"}
    assert case.state.handle(MemberLeaves("a")) == [], "it is the last one"
    assert Case().state.handle(MemberLeaves("a")) == [], "nobody keeps layers of their own"
