"""Two drivers at work at once, one of them stale, with a function that cannot tell what it was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.coordinator.true_history import abandoned
from holdfast.runtime.delivery_numbers import DeliveryNumbers, Numbers
from holdfast.testing import simulate


def test_a_function_is_given_what_a_stale_driver_ran_meanwhile_under_a_new_number() -> None:
    """Its own epoch 2 was given to the function, and then that of the stale driver counts: under the number of the
    first one, a function that skips what it has seen would skip it."""
    assert simulate(212) is None


def test_a_function_is_given_what_a_stale_driver_ran_although_the_disk_that_says_what_it_was_given_is_lost() -> None:
    """As before, and then the working directory of the driver that gave its own epoch to the function is lost: only
    the log's locations say that it was there, and where its history ended."""
    assert simulate(850) is None


def test_a_commit_that_failed_is_not_taken_for_made_because_another_driver_made_its_own() -> None:
    """A sink fails before it takes an epoch; another driver gives it its epoch of that number; and the first one, which
    is stale, asks the sink what it has. It must stop, and not go on to the next sink with its own."""
    assert simulate(1606, scattered=True) is None


def test_an_epoch_that_the_driver_of_these_numbers_did_not_know_was_overtaken() -> None:
    early = _epochs(3, 1)
    stale = [replace(each, term=1) for each in _epochs(2, 2, early[-1])]
    numbers = Numbers(base=2, first=3, known=2)
    assert numbers.overtaken(History(early)) is None
    assert numbers.overtaken(History([*early, *stale])) == 3
    assert numbers.overtaken(History([*early, *(replace(each, term=2) for each in stale)])) is None
    assert numbers.renewed(3, 2, 4).overtaken(History([*early, *stale])) is None
    assert Numbers(base=2, first=0, known=-1).overtaken(History(early)) == 0
    assert Numbers(base=2, first=3).overtaken(History([*early, *stale])) is None, "a log of old does not say"


def test_what_had_to_be_given_again_is_not_forgotten_by_a_crash_in_between(tmp_path: Path) -> None:
    history = History(_epochs(5, 1))
    first = DeliveryNumbers(tmp_path, {}, ["v/Foreach/0"], history, 1, abandoned=2)
    assert first.again == 2
    second = DeliveryNumbers(tmp_path, {}, ["v/Foreach/0"], history, 2)
    assert (second.again, second.numbers) == (2, first.numbers)
    second.gave_again()
    assert DeliveryNumbers(tmp_path, {}, ["v/Foreach/0"], history, 3).again is None


def _epochs(count: int, seed: int, before: Lineage | None = None) -> list[Lineage]:
    found: list[Lineage] = []
    last = before
    for _ in range(count):
        epoch, parent = (0, GENESIS) if last is None else (last.epoch + 1, last.digest)
        last = Lineage(epoch, parent, {}, clock=epoch, seed=seed)
        found.append(last)
    return found


def test_an_epoch_that_was_complete_and_is_another_one_in_the_history_is_abandoned() -> None:
    common = _epochs(3, 1)
    ours, theirs = _epochs(2, 2, common[-1]), _epochs(4, 3, common[-1])
    assert abandoned([*common, *ours], History([*common, *theirs])) == 3
    assert abandoned([*common, *ours], History(common)) == 3
    assert abandoned([*common, *theirs[:1]], History([*common, *theirs])) is None
    assert abandoned([], History([])) is None
