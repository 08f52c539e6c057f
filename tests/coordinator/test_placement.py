"""The assignment of partitions to members."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordinator.partition_assignment import assign, changing_hands, inherit
from holdfast.task.program import partition_range

MEMBERS = st.sets(st.text("abc0123456789.", min_size=1, max_size=8), min_size=1, max_size=12)


@given(st.integers(1, 64), MEMBERS)
def test_every_partition_has_a_member_and_loads_differ_by_one_at_most(partitions: int, members: set[str]) -> None:
    placed = assign(partitions, members)
    assert len(placed) == partitions and set(placed) <= members
    loads = Counter(dict.fromkeys(members, 0)) + Counter(placed)
    counts = [loads.get(member, 0) for member in members]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 64), MEMBERS, st.randoms())
def test_the_assignment_depends_on_the_set_of_members_alone(partitions: int, members: set[str], chance: object) -> None:
    shuffled = sorted(members)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert assign(partitions, shuffled) == assign(partitions, members)


@pytest.mark.parametrize("count", [3, 4, 6, 8])
def test_the_partitions_of_one_that_goes_spread_over_several_and_most_others_stay(count: int) -> None:
    partitions = 8 * count
    members = [f"10.0.0.{number}" for number in range(count)]
    before = assign(partitions, members)
    for gone in members:
        after = assign(partitions, [member for member in members if member != gone])
        heirs = {new for old, new in zip(before, after, strict=True) if old == gone}
        assert len(heirs) >= 2
        moved = sum(old != new for old, new in zip(before, after, strict=True) if old != gone)
        assert moved <= partitions // 4


def test_one_that_joins_takes_its_share() -> None:
    before = assign(32, ["a", "b", "c"])
    after = assign(32, ["a", "b", "c", "d"])
    assert Counter(after)["d"] == 8
    assert sum(old != new for old, new in zip(before, after, strict=True)) <= 8 + 8


@given(st.integers(1, 64), MEMBERS, st.randoms())
def test_what_is_lost_is_inherited_evenly_and_nothing_else_moves(
    partitions: int, members: set[str], chance: object
) -> None:
    left = chance.sample(sorted(members), chance.randint(1, len(members)))  # type: ignore[attr-defined]
    before = assign(partitions, members)
    if not set(left) & set(before):
        with pytest.raises(ValueError, match="inherit"):
            inherit(before, left)
        return
    after = inherit(before, left)
    assert all(new == old for old, new in zip(before, after, strict=True) if old in left)
    assert set(after) <= set(left)
    loads = [after.count(member) for member in left]
    assert max(loads) - min(loads) <= 1
    lost = [new for old, new in zip(before, after, strict=True) if old not in left]
    assert len(set(lost)) >= min(2, len(lost), len(left))


def test_one_that_had_nothing_does_not_inherit_everything() -> None:
    owners = ["a", "b", "c", "d", "e"]
    for number in range(20):
        after = inherit(owners, ["a", "b", "c", f"idle {number}"])
        assert after[3] != after[4], number


def test_without_members_there_is_no_assignment() -> None:
    with pytest.raises(ValueError, match="no member"):
        assign(4, [])


@pytest.mark.parametrize(("before", "after"), [(2, 8), (8, 3), (3, 5), (5, 5), (1, 7), (7, 1)])
def test_ranges_that_change_hands_are_those_whose_member_is_another_one(before: int, after: int) -> None:
    def kept(partitions: int, members: set[str]) -> list[tuple[int, int, str]]:
        owners = assign(partitions, members)
        return [(*partition_range(each, partitions), owner) for each, owner in enumerate(owners)]

    old, new = kept(before, {"a", "b"}), kept(after, {"a", "b", "c"})
    moves = changing_hands(old, new)
    for left, right in pairwise(sorted({bound for low, high, _ in (*old, *new, *moves) for bound in (low, high)})):
        was, becomes, moved = (
            [owner for low, high, owner in some if low <= left and right <= high] for some in (old, new, moves)
        )
        assert moved == ([] if was == becomes else becomes)
    assert changing_hands(old, old) == []
