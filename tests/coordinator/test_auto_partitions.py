"""The number of partitions that follows the cores of the members."""

from __future__ import annotations

from holdfast.coordinator.auto_partitions import MOST, STEADY, AutoPartitions, partitions_for


def test_there_is_a_partition_for_each_core_within_bounds() -> None:
    assert [partitions_for(cores) for cores in (0, 1, 6, 1000)] == [1, 1, 6, MOST]


def test_a_number_is_taken_when_it_has_stayed_the_same_for_a_while() -> None:
    auto = AutoPartitions()
    assert auto.seen(4, 4, 0.0) is None
    assert auto.seen(6, 4, 1.0) is None and auto.seen(6, 4, 1.0 + STEADY - 0.1) is None
    assert auto.seen(6, 4, 1.0 + STEADY) == 6
    assert auto.seen(6, 6, 9.0) is None


def test_executors_that_come_one_after_the_other_are_waited_for() -> None:
    auto = AutoPartitions()
    assert auto.seen(5, 4, 0.0) is None and auto.seen(6, 4, 2.0) is None
    assert auto.seen(6, 4, STEADY) is None, "the last change was at 2.0"
    assert auto.seen(6, 4, 2.0 + STEADY) == 6


def test_one_that_died_and_is_started_again_changes_nothing() -> None:
    auto = AutoPartitions()
    assert auto.seen(2, 4, 0.0) is None and auto.seen(4, 4, 1.0) is None
    assert auto.seen(2, 4, 2.0) is None and auto.seen(2, 4, STEADY) is None
    assert auto.seen(2, 4, 2.0 + STEADY) == 2
