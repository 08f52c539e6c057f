"""The simulator finds what it is there to find: a build that is broken on purpose fails within a few seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.coordinator.flow_state import FlowState
from holdfast.coordinator.instructions import ReleaseInput
from holdfast.log import durable_layer
from holdfast.operators import draw
from holdfast.operators.step import Context
from holdfast.operators.temporal import TemporalSpec
from holdfast.task import stage
from holdfast.task.messages import COUNT
from holdfast.testing.simulator import SimulationFailure, run, shrink, simulate
from holdfast.testing.simulator.actions import Feed, Step, actions_of
from holdfast.trace import layer

SEEDS = 150


def caught(seeds: int = SEEDS) -> tuple[int, SimulationFailure]:
    """The first seed that fails."""
    for seed in range(seeds):
        failure = simulate(seed)
        if failure is not None:
            return seed, failure
    pytest.fail(f"{seeds} seeds did not notice")


@pytest.mark.slow  # (in `make test`: a strategy that forwards nothing, test_strategies.py)
def test_lineage_that_is_not_forwarded_to_the_sinks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def own_only(self: FlowState, epoch: int, held: object = None) -> bytes:
        return self.history[epoch].to_json().encode() + b"\n"

    monkeypatch.setattr(FlowState, "uncommitted", own_only)
    assert "the lineage between is in none of the places" in caught()[1].what


@pytest.mark.slow
def test_a_skipped_digest_check_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layer, durable_layer):
        monkeypatch.setattr(module, "check_bytes", lambda *_: None)
    caught()


def test_input_released_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowState, "release", lambda self: ReleaseInput(self.last))
    assert "was released, and is read again" in caught()[1].what


def test_a_task_that_takes_broken_off_input_for_all_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "arrived", lambda messages, senders: [each for each in messages if each[1][0] != COUNT])
    caught()


def test_answers_that_are_asked_for_again_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    recalled = draw.ask

    def again(*given: Any) -> Any:
        return recalled(*given[:-1], replace(given[-1], answers=None))

    monkeypatch.setattr(draw, "ask", again)
    assert any(simulate(seed) is not None for seed in range(1, SEEDS, 8))


@pytest.mark.slow
def test_a_stale_layer_that_is_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.log import replica
    from holdfast.runtime.recovery import fetch_layers, find_history

    for module in (fetch_layers, find_history, replica):
        monkeypatch.setattr(module, "is_true", lambda name, history: name.last < len(history))
    caught()


@pytest.mark.slow
def test_a_failing_seed_fails_again_and_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FlowState, "uncommitted", lambda self, epoch, held=None: self.history[epoch].to_json().encode() + b"\n"
    )
    seed, failure = caught()
    again = simulate(seed)
    assert again == failure
    shortest = shrink(seed, failure, attempts=60)
    assert len(shortest.actions) < len(failure.actions)
    assert run(seed, shortest.actions) == shortest
    assert any(isinstance(action, Feed | Step) for action in shortest.actions)


def test_a_seed_gives_the_same_actions_always() -> None:
    assert actions_of(7, 30) == actions_of(7, 30)
    assert actions_of(7, 30) != actions_of(8, 30)


def test_time_that_does_not_pass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = TemporalSpec.step

    def standing(spec: Any, arrived: Any, traces: Any, context: Context) -> Any:
        return step(spec, arrived, traces, replace(context, before=context.clock))

    monkeypatch.setattr(TemporalSpec, "step", standing)
    assert "is wrong" in caught()[1].what


def test_an_edit_that_sinks_are_not_told_of_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.runtime import late_changes

    whole = late_changes.difference
    monkeypatch.setattr(late_changes, "difference", lambda *logs: whole(*logs).slice(0, 0))
    caught()
