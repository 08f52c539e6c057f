"""What each strategy really does in an engine: what it copies and when, when output leaves, and what a driver that
follows a dead one begins with."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.guarantees.strategies import Gap
from holdfast.testing import classify
from holdfast.testing.simulator.world import bag_of
from holdfast.trace.name import ALL

from .engines import Append, Life, Transactional, reference

HELD, EARLY = hf.aligned_snapshot(3), hf.aligned_snapshot(3, output="early")
KINDS = {"transactional": Transactional, "append": Append}


def test_a_snapshot_copies_all_at_its_epoch_and_nothing_between(tmp_path: Path) -> None:
    life = Life(tmp_path, HELD)
    life.run(2)
    assert life.copies() == set() and life.given.rows == [], "nothing is copied, nothing leaves"
    life.run(1)
    assert life.copies() and life.given.numbers == [0, 1, 2], "in order, once, with the snapshot"
    held = [store.snapshot() for store in life.stores]
    life.run(2)
    assert life.given.numbers == [0, 1, 2]
    assert [store.snapshot() for store in life.stores] == held
    life.finish()
    assert life.given.numbers == [0, 1, 2, 3, 4], "closing is a snapshot"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", ["passed", "counted"])
def test_held_output_of_epochs_that_died_never_left(tmp_path: Path, view: str, kind: str) -> None:
    life = Life(tmp_path / "a", HELD, KINDS[kind], view)
    life.run(5)
    before = list(life.given.rows)
    life.die()
    assert life.open().last == 2, "back to the snapshot"
    life.finish()
    wanted = reference(tmp_path / "b", view, 5) if view == "passed" else None
    if wanted is not None:
        found = classify(before, life.given.rows[len(before) :], wanted)
        assert found.recovery.value == ("precise" if kind == "transactional" else "rollback-repeating"), str(found)


def test_a_driver_that_dies_among_held_epochs_gives_a_plain_sink_all_of_them_again(tmp_path: Path) -> None:
    life = Life(tmp_path / "a", HELD, Append)
    life.run(2)
    life.feed(1)
    life.die_at("sink.after_commit", lambda: life.step())
    before = list(life.given.rows)
    assert life.given.numbers == [0], "of three epochs that left together"
    life.finish()
    assert life.given.numbers[:4] == [0, 0, 1, 2]
    found = classify(before, life.given.rows[len(before) :], reference(tmp_path / "b", "passed", 3))
    assert found.recovery is hf.RecoveryType.REPEATING, str(found)


@pytest.mark.parametrize("kind", KINDS)
def test_early_output_comes_again_after_a_crash_the_same_rows_of_repeatable_operators(
    tmp_path: Path, kind: str
) -> None:
    life = Life(tmp_path / "a", EARLY, KINDS[kind])
    life.run(5)
    before, numbers = list(life.given.rows), list(life.given.numbers)
    assert numbers == [0, 1, 2, 3, 4], "each at once"
    life.die()
    assert life.open().last == 2, "back to the snapshot"
    life.feed(1)
    life.finish()
    found = classify(before, life.given.rows[len(before) :], reference(tmp_path / "b", "passed", 6))
    assert found.recovery is hf.predict([hf.OperatorClass.REPEATABLE], EARLY, hf.SinkKind.APPEND).recovery, str(found)
    later = life.given.numbers[5:]
    assert all(number > 10**12 or (number == 2 and kind == "append") for number in later), (
        "no number is used for two things"
    )


def test_early_output_of_an_aggregate_converges_in_its_last_values(tmp_path: Path) -> None:
    life = Life(tmp_path, EARLY, Append, "counted")
    life.run(5)
    life.die()
    life.feed(1)
    life.finish()
    came = life.given.rows
    last = {city: n for city, n, diff in came if diff > 0}
    assert last == {0: 3, 1: 3}
    assert len(came) > len(set(came)) or len(came) > 10, "something came again"


def test_two_crashes_in_a_row_and_a_clean_end_leave_numbers_growing(tmp_path: Path) -> None:
    life = Life(tmp_path, EARLY)
    for _ in range(2):
        life.run(2)
        life.die()
    life.run(4)
    life.finish()
    numbers = list(life.given.numbers)
    life.run(1)
    life.finish()
    assert life.given.numbers[: len(numbers)] == numbers and len(life.given.numbers) == len(numbers) + 1
    assert numbers == sorted(set(numbers))
    assert {row[0] for row in life.given.rows} == set(range(1, 10)), "no row is lost"


def test_a_passive_standby_goes_on_from_its_last_copy_and_computes_the_rest_again(tmp_path: Path) -> None:
    life = Life(tmp_path / "a", hf.passive_standby(3), view="counted")
    life.run(5)
    before = list(life.given.rows)
    life.die()
    engine = life.open()
    assert engine.recovery.epochs == [3, 4] and engine.recovery.layers_fetched > 0 and engine.last == 4
    life.finish()
    assert life.given.rows == before, "the sink has all of it"


def test_upstream_backup_copies_no_state_and_computes_all_of_it_again(tmp_path: Path) -> None:
    life = Life(tmp_path / "a", hf.upstream_backup(2), view="counted")
    life.run(5)
    assert life.copies() == set(), "no state"
    assert life.open().safe == 4, "the lineage is safe"
    assert life.world.forgotten["users"] == 0, "its input is part of the state"
    life.die()
    shutil.rmtree(life.world.local(0))
    engine = life.open()
    assert engine.recovery.epochs == [0, 1, 2, 3, 4] and engine.recovery.layers_fetched == 0
    before = list(life.given.rows)
    life.run(1)
    assert [row for row in life.given.rows[len(before) :] if row[2] > 0] == [(0, 3, 1)]


def test_upstream_backup_trims_its_queue_when_no_state_is_left_and_replays_from_there(tmp_path: Path) -> None:
    life = Life(tmp_path, hf.upstream_backup(2), view="ordered")
    for rows in ([((1, 7, 5), 1)], [((2, 7, 5), 1)], [((1, 7, 5), -1)], [((2, 7, 5), -1)], [((3, 8, 5), 1)]):
        life.world.feed("orders", rows)
        life.step()
    life.open().step()  # tells sources what they may forget
    assert life.world.forgotten["orders"] == 4, "all rows of epochs 0 to 3 are gone"
    life.die()
    shutil.rmtree(life.world.local(0))
    engine = life.open()
    assert engine.recovery.epochs == [4], "the input of the others could not be read"
    life.world.feed("orders", [((4, 8, 5), 1)])
    life.step()
    assert set(life.given.rows[-2:]) == {(8, 1, -1), (8, 2, 1)}


@pytest.mark.parametrize("kind", KINDS)
def test_gap_skips_the_epoch_that_died_and_says_so(tmp_path: Path, kind: str) -> None:
    life = Life(tmp_path / "a", hf.gap(), KINDS[kind])
    life.run(3)
    before = list(life.given.rows)
    life.feed(1)
    life.die_at("epoch.ran", lambda: life.step())
    engine = life.open()
    assert engine.recovery.missing == [3]
    life.run(2)
    life.finish()
    found = classify(before, life.given.rows[len(before) :], reference(tmp_path / "b", "passed", 6))
    assert found.recovery is hf.RecoveryType.GAP and [row[0] for row in found.missing] == [4], str(found)


def test_gap_begins_empty_where_state_is_gone_and_says_which_epochs_are_missing(tmp_path: Path) -> None:
    life = Life(tmp_path, hf.gap(), view="counted")
    life.run(4)
    life.die()
    shutil.rmtree(life.world.local(0) / "traces")
    engine = life.open()
    assert engine.recovery.missing == [0, 1, 2, 3] and engine.recovery.sources == {}
    life.run(1)
    assert life.given.rows[-1] == (1, 1, 1), "it counts from nothing"


def test_a_flow_that_was_closed_goes_on_whatever_the_strategy(tmp_path: Path) -> None:
    some = (HELD, EARLY, hf.passive_standby(3), hf.upstream_backup(), hf.gap(), hf.synchronous_log())
    for number, strategy in enumerate(some):
        life = Life(tmp_path / str(number), strategy)
        life.run(4)
        life.finish()
        engine = life.open()
        assert engine.last == 3 and engine.recovery.epochs == [] and engine.recovery.missing == []
        life.run(1)
        life.finish()
        assert [row[0] for row in life.given.rows] == [1, 2, 3, 4, 5], strategy


@pytest.mark.parametrize("host", [0, 1])
def test_an_active_standby_has_the_leaders_state_when_it_takes_over(tmp_path: Path, host: int) -> None:
    life = Life(tmp_path, hf.active_standby(), view="counted")
    life.run(2)
    ready = life.prepared(host)
    follower = ready.following()
    assert follower is not None
    follower.follow()
    before = list(life.given.rows)
    if host == 0:
        life.run(3, upkeep=False)  # the lineage is in the stash alone
        assert follower.follow() == 3
    else:
        life.run(3)
        follower.follow()
    assert follower.last == 4
    assert life.given.rows[: len(before)] == before and life.given.numbers == [0, 1, 2, 3, 4], "it gives nothing"
    follower.stop()
    life.die()
    shutil.rmtree(life.world.local(0) / "traces")
    engine = life.open(ready)
    recovery = engine.recovery
    assert recovery.followed == 4 and recovery.epochs == [] and recovery.layers_fetched == 0, recovery
    life.run(1)
    assert [row for row in life.given.rows[-2:] if row[2] > 0] == [(0, 3, 1)]
    assert not (life.world.local(host) / ".following").exists() or not any(
        (life.world.local(host) / ".following").iterdir()
    )


def test_an_active_standby_that_joins_late_begins_with_the_copies(tmp_path: Path) -> None:
    life = Life(tmp_path, hf.active_standby(), view="counted")
    life.run(4)
    ready = life.prepared(1)
    follower = ready.following()
    assert follower is not None
    follower.follow()
    assert follower.last == 3 and life.open().safe == 3
    follower.stop()


def test_an_active_standby_drops_fetched_layers_of_a_history_that_was_replaced(tmp_path: Path) -> None:
    """It has run no epoch since it fetched them, so only the digest of the last fetched epoch tells."""
    life = Life(tmp_path, hf.active_standby(), Append, view="counted")
    life.run(2)
    ready = life.prepared(0)
    follower = ready.following()
    assert follower is not None
    assert follower.follow() == 0 and follower.last == 1, "all of it was fetched"
    life.die()
    for kept in ("lineage", "traces"):
        shutil.rmtree(life.world.local(0) / kept)
    (life.world.local(0) / "begun.jsonl").unlink()
    life.stores[0].lose()
    life.world.forgotten["users"] = 0  # the source has all of it still
    life.feed(4)  # each epoch takes two batches now
    life.step()
    life.step()
    assert life.open().last == 1, "as many epochs as before, of another history"
    life.run(1, upkeep=False)
    follower.follow()
    assert follower.last == 2
    follower.stop()
    before = bag_of(life.open().views.readable("counted", None)[0].rows(0, ALL, 2))
    life.die()
    shutil.rmtree(life.world.local(0) / "traces")
    engine = life.open(ready)
    assert engine.recovery.followed == 2 and engine.recovery.epochs == []
    assert bag_of(engine.views.readable("counted", None)[0].rows(0, ALL, 2)) == before == {(0, 3): 1, (1, 3): 1}


def test_an_active_standby_follows_another_history_from_the_beginning(tmp_path: Path) -> None:
    life = Life(tmp_path, hf.active_standby(), Append)
    life.run(2, upkeep=False)
    ready = life.prepared(0)
    follower = ready.following()
    assert follower is not None
    follower.follow()
    life.die()
    shutil.rmtree(life.world.local(0) / "lineage")
    shutil.rmtree(life.world.local(0) / "traces")
    (life.world.local(0) / "begun.jsonl").unlink()
    life.feed(1)
    life.step(upkeep=False)
    assert life.open().last == 0, "what nobody has is gone"
    follower.follow()
    assert follower.last == 0
    follower.stop()
    follower.discard()


@dataclass(frozen=True)
class DropsAcknowledgements(Gap):
    """Gives the last epoch again, as if the sink had not taken it."""

    def surely_has(self, last: int) -> int:
        return last - 1


def test_a_strategy_that_drops_an_acknowledgement_is_caught_by_the_classifier(tmp_path: Path) -> None:
    outcomes = []
    for number, strategy in enumerate((hf.gap(), DropsAcknowledgements())):
        life = Life(tmp_path / str(number), strategy, Append)
        life.run(3)
        before = list(life.given.rows)
        life.die()
        life.run(2)
        life.finish()
        wanted = reference(tmp_path / f"reference{number}", "passed", 5)
        outcomes.append(classify(before, life.given.rows[len(before) :], wanted).recovery)
    assert outcomes == [hf.RecoveryType.PRECISE, hf.RecoveryType.REPEATING], "at most once, and not"


def test_a_flow_may_change_its_strategy_with_all_that_sinks_have(tmp_path: Path) -> None:
    life = Life(tmp_path, EARLY)
    life.run(5)
    life.die()
    life.run(1)
    for strategy in (hf.nosync(), hf.upstream_backup(2), HELD, hf.passive_standby(2), EARLY, hf.gap(), hf.nosync()):
        life.finish()
        life.strategy = strategy
        life.run(2)
    life.finish()
    assert {row[0] for row in life.given.rows} == set(range(1, 21))
    assert life.given.numbers == sorted(set(life.given.numbers)) and life.given.numbers[-1] > 10**12
