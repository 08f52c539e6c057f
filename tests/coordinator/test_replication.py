"""The safe point and what to copy where, from names alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordinator.copy_plan import (
    COMPACT_FROM,
    Holding,
    plan_compactions,
    plan_removals,
    plan_ships,
    reached,
    safe_point,
)
from holdfast.trace.name import ALL, LayerName

HALF = 1 << 63
HALVES = [(0, HALF), (HALF, ALL)]


def layer(first: int, last: int, low: int = 0, high: int = ALL, since: int = -1) -> LayerName:
    return LayerName(low, high, first, last, f"{last:016x}", since, "0" * 16)


def holding(lineage: int, **traces: list[LayerName]) -> Holding:
    return Holding({trace: dict.fromkeys(names, 100) for trace, names in traces.items()}, lineage)


def test_the_safe_point_needs_every_trace_and_the_lineage_in_enough_locations() -> None:
    one = holding(9, a=[layer(0, 9)], b=[layer(0, 5)])
    two = holding(7, a=[layer(0, 3), layer(4, 8)], b=[layer(0, 9)])
    assert safe_point([one, two], ["a", "b"], 9, 1) == 9
    assert safe_point([one, two], ["a", "b"], 9, 2) == 5
    assert safe_point([one, two], ["a"], 9, 2) == 7
    assert safe_point([one, Holding({}, -1)], ["a"], 9, 2) == -1


def test_a_partition_that_lacks_a_layer_holds_the_safe_point_back_and_an_empty_layer_does_not() -> None:
    quiet = layer(4, 4, HALF)  # an empty layer has a name like any other
    assert safe_point([holding(9, a=[layer(0, 3), layer(4, 4, 0, HALF)])], ["a"], 9, 1) == 3
    assert safe_point([holding(9, a=[layer(0, 3), layer(4, 4, 0, HALF), quiet])], ["a"], 9, 1) == 4


def test_a_location_that_is_behind_gets_all_it_lacks_as_one_layer() -> None:
    near, far = holding(6, a=[layer(0, 6)]), holding(2, a=[layer(0, 2)])
    ships = plan_ships({0: near, 1: far, 2: far}, ["a"], HALVES, 7)
    assert [(ship.low, ship.after, ship.upto, ship.locations) for ship in ships] == [
        (0, 2, 7, (1, 2)),
        (0, 6, 7, (0,)),
        (HALF, 2, 7, (1, 2)),
        (HALF, 6, 7, (0,)),
    ]


def test_a_layer_is_removed_only_when_others_hold_its_epochs() -> None:
    small = [layer(epoch, epoch) for epoch in range(4)]
    assert plan_removals({0: holding(3, a=small)}, 3, 1) == []
    removals = plan_removals({0: holding(3, a=[*small, layer(0, 3)])}, 3, 1)
    assert [set(removal.names) for removal in removals] == [set(small)]


def test_nothing_that_was_readable_from_the_safe_point_on_is_removed() -> None:
    collapsed = layer(0, 3, since=3)
    held = holding(3, a=[layer(0, 1), layer(2, 2), layer(3, 3), collapsed])
    (kept_readable,) = plan_removals({0: held}, 3, 1)
    assert kept_readable.names == (layer(3, 3),), "epochs 1 and 2 need the others, epoch 3 has the collapsed one"
    assert {name for removal in plan_removals({0: held}, 3, 3) for name in removal.names} == {
        layer(0, 1),
        layer(2, 2),
        layer(3, 3),
    }


@given(st.lists(st.integers(1, 3), min_size=1, max_size=120))
def test_the_number_of_files_stays_logarithmic(lengths: list[int]) -> None:
    """Layers of some epochs each arrive; what the plan says is merged and removed."""
    names: dict[LayerName, int] = {}
    last = -1
    for length in lengths:
        new = layer(last + 1, last + length)
        last += length
        names[new] = 100 * length
        while compactions := plan_compactions({0: Holding({"a": names}, last)}, [(0, ALL)], last):
            chosen = compactions[0].names
            merged = layer(min(name.first for name in chosen), max(name.last for name in chosen))
            names[merged] = sum(names[name] for name in chosen)
            for removal in plan_removals({0: Holding({"a": names}, last)}, last, last):
                for name in removal.names:
                    del names[name]
        assert reached(Holding({"a": names}, last), ["a"], last) == last
        assert len(names) <= COMPACT_FROM + last.bit_length()
