"""Rosters: which locations count, and that nobody opens a log without what was safe."""

from __future__ import annotations

import itertools
import random

from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.roster import Roster, is_in_force, safe_under, successor

OLD = Roster((1, 0), 2, {"a": "A", "b": "B", "c": "C"})


def held(**upto: int) -> dict[str, Holding]:
    return {identity: Holding({}, epoch, identity) for identity, epoch in upto.items()}


def test_an_epoch_is_safe_when_enough_locations_of_the_roster_have_it() -> None:
    assert safe_under([OLD], held(a=5, b=3, c=1), [], 9, 2) == 3
    assert safe_under([OLD], held(a=5, d=5, e=5), [], 9, 2) == -1, "others do not count"
    assert safe_under([OLD], held(a=5, b=3, c=1), [], 9, 3) == 1, "as many as the user wants, if that is more"
    assert safe_under([OLD, Roster((1, 1), 1, {"c": "C"})], held(a=5, b=3, c=1), [], 9, 1) == 1, "under both"


def test_a_new_location_is_put_on_the_roster_when_it_has_all_that_was_promised() -> None:
    declared = {"a": "A", "b": "B", "c": "C", "d": "D"}
    assert successor(OLD, declared, True, held(a=5, b=5, c=5, d=3), [], 9, 4, 2, 1) is None
    new = successor(OLD, declared, True, held(a=5, b=5, c=5, d=4), [], 9, 4, 2, 1)
    assert new is not None and set(new.locations) == {"a", "b", "c", "d"} and new.version == (1, 1)


def test_a_location_that_is_gone_is_taken_off_when_the_others_do_without_it() -> None:
    declared = {"a": "A", "c": "C"}
    assert successor(OLD, declared, True, held(a=5, c=3), [], 9, 4, 2, 2) is None
    new = successor(OLD, declared, True, held(a=5, c=4), [], 9, 4, 2, 2)
    assert new is not None and set(new.locations) == {"a", "c"} and new.version == (2, 0)
    assert successor(OLD, declared, False, held(a=5, c=4), [], 9, 4, 2, 2) is None, "it may be one that is away now"


def test_no_roster_is_in_force_before_whoever_opens_the_log_sees_it() -> None:
    """Of all ways in which two rosters, the locations that have the new one, and those that can be reached may be:
    where enough can be reached by one roster, and the new one is in force, one that can be reached has it."""
    chance = random.Random(3)
    names = "abcde"
    seen = 0
    for _ in range(3_000):
        one, two = (
            Roster((1, n), chance.randint(1, len(some)), dict.fromkeys(some, ""))
            for n, some in enumerate(chance.sample(names, chance.randint(1, 4)) for _ in range(2))
        )
        have = set(chance.sample(names, chance.randint(0, 5)))
        if not is_in_force(one, two, have, names, True):
            continue
        for count in range(1, 6):
            for there in itertools.combinations(names, count):
                for roster in (one, two):
                    if len(roster.locations.keys() & set(there)) >= roster.needed:
                        seen += 1
                        assert have & set(there), (one, two, have, there)
    assert seen > 10_000
