"""What to compute again after a loss: minimal, complete, in order."""

from __future__ import annotations

import pytest

from holdfast.coordinator.recovery_plan import LONG, Replay, demand, plan_recovery
from holdfast.errors import LogDamaged
from holdfast.plan.dataflow import Dataflow, Operator, Path
from holdfast.plan.nodes import Field, KeyedPart, Source

SOURCE = Source("s", (Field("a", "bigint"),))


def operator(name: str) -> Operator:
    return Operator(name, KeyedPart("aggregate", ((0,),), ((0,),), name), SOURCE, (SOURCE.fields,), SOURCE.fields)


FLOW = Dataflow(
    operators={name: operator(name) for name in ("agg", "agg-log", "join", "join-log")},
    paths=[
        Path("s", (), "agg", 0),
        Path("agg", (), "agg-log", 0, local=True),
        Path("agg", (), "join", 0),
        Path("t", (), "join", 1),
        Path("join", (), "join-log", 0, local=True),
    ],
    sources={"s": SOURCE, "t": SOURCE},
)
"""s → agg → join ← t, each with a log in the same task."""


def plan(lost: dict[tuple[str, int], int], last: int = 9, forgotten: int = -1, **options: object) -> list[Replay]:
    """``lost``: where → how far it is held; ``forgotten``: epochs before this one cannot be read as of."""
    covers = {(name, partition): last for name in FLOW.operators for partition in range(2)} | lost
    return plan_recovery(FLOW, covers, 2, last, last, lambda _, __, epoch: epoch >= forgotten, **options)  # type: ignore[arg-type]


def test_nothing_lost_is_nothing_to_do() -> None:
    assert plan({}) == []


def test_only_the_lost_partition_is_computed_again_for_the_epochs_that_no_copy_has() -> None:
    replays = plan({("agg", 1): 6})
    assert [(replay.first, replay.epoch) for replay in replays] == [(7, 7), (8, 8), (9, 9)]
    assert all(replay.write == replay.run == {"agg": frozenset({1})} for replay in replays)
    assert all(replay.sources == {"s"} for replay in replays)


def test_a_producer_in_the_same_task_is_run_in_the_same_partition_and_writes_nothing() -> None:
    (replay,) = plan({("agg-log", 0): 8})
    assert replay.write == {"agg-log": {0}}
    assert replay.run == {"agg-log": {0}, "agg": {0}}


def test_a_producer_behind_an_exchange_is_run_everywhere() -> None:
    (replay,) = plan({("join", 1): 8})
    assert replay.write == {"join": {1}}
    assert replay.run == {"join": {1}, "agg": {0, 1}}
    assert replay.sources == {"s", "t"}


def test_what_some_log_holds_is_never_written_again() -> None:
    replays = plan({("agg", 0): 4, ("join", 1): 7})
    for replay in replays:
        assert replay.write.get("agg", frozenset()) <= {0}
        assert ("join" in replay.write) == (replay.epoch > 7)
    assert [replay.epoch for replay in replays] == [5, 6, 7, 8, 9]


def test_a_new_operator_is_filled_in_one_go() -> None:
    replays = plan(
        {("join", 0): -1, ("join", 1): -1, ("join-log", 0): -1, ("join-log", 1): -1}, fresh={"join", "join-log"}
    )
    assert [(replay.first, replay.epoch) for replay in replays] == [(0, 9)]
    assert replays[0].write == {"join": {0, 1}, "join-log": {0, 1}}
    assert replays[0].run["agg"] == {0, 1}


def test_a_short_history_that_is_lost_is_computed_again_epoch_by_epoch_and_a_long_one_filled() -> None:
    assert [replay.epoch for replay in plan({("agg", 0): -1})] == list(range(10))
    assert [(replay.first, replay.epoch) for replay in plan({("agg", 0): -1}, last=LONG)] == [(0, LONG)]


def test_who_reads_a_producer_that_has_forgotten_is_filled() -> None:
    replays = plan({("join", 0): 3}, forgotten=5)
    assert [(replay.first, replay.epoch) for replay in replays] == [(0, 9)]


def test_what_was_drawn_is_never_filled() -> None:
    assert [replay.epoch for replay in plan({("agg", 0): -1}, last=LONG, drawing={"agg"})] == list(range(LONG + 1))
    with pytest.raises(LogDamaged, match="what it drew after epoch 3 is lost"):
        plan({("join", 0): 3}, forgotten=5, drawing={"join"})


def test_demand_follows_all_paths_back() -> None:
    assert demand(FLOW, {"join-log": frozenset({1})}, 3) == {"join-log": {1}, "join": {1}, "agg": {0, 1, 2}}
