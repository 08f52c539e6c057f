"""Members that leave on purpose cost no epoch, among crashes and losses."""

from __future__ import annotations

import pytest

from .seeds import check


def test_members_that_leave_hand_over_what_they_keep() -> None:
    check([1, 2], scattered=True, drains=True)


def test_a_member_that_has_kept_nothing_so_far_may_inherit_what_one_that_leaves_keeps() -> None:
    check([15], scattered=True, drains=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_members_of_many_seeds_that_leave_hand_over_what_they_keep(first: int) -> None:
    check(range(first, first + 20), scattered=True, drains=True)


@pytest.mark.slow
def test_members_leave_where_a_flow_goes_on_without_lost_ones_and_is_rewound() -> None:
    check(range(20), scattered=True, drains=True, rewinds=True, on_loss="continue")
