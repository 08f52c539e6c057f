"""Two drivers at work at once, one of them stale, with a function that cannot tell what it was given."""

from __future__ import annotations

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.coordinator.true_history import abandoned
from holdfast.testing import simulate


def test_a_function_is_given_what_a_stale_driver_ran_meanwhile_under_a_new_number() -> None:
    """Its own epoch 2 was given to the function, and then that of the stale driver counts: under the number of the
    first one, a function that skips what it has seen would skip it."""
    assert simulate(212) is None


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
