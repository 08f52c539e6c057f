"""Which tasks may run on another member than their own. (What those do that may, the simulator shows.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.log.host_paths import LOCAL, Misplaced, member, traces_of
from holdfast.task.missing_layers import fetch_missing_layers
from holdfast.task.stage import EpochSpec
from holdfast.trace.cover import Chain


@pytest.fixture
def epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EpochSpec:
    """Epoch 0, of one partition, which another member keeps."""
    monkeypatch.setenv(LOCAL, str(tmp_path))
    traces = str(traces_of(Path("/flow"), 1))
    return EpochSpec(0, 0, "0" * 16, Chain(-1, ()), 1, traces, owners=("home",))


def _program(asks: bool = False) -> Any:
    return SimpleNamespace(at=lambda stage: [SimpleNamespace(id="a", spec=SimpleNamespace(asks=asks))])


def test_a_task_at_home_fetches_nothing(epoch: EpochSpec) -> None:
    assert fetch_missing_layers(_program(asks=True), 1, 0, replace(epoch, owners=(member(),))) == 0
    assert fetch_missing_layers(_program(asks=True), 1, 0, replace(epoch, owners=())) == 0


def test_the_first_epoch_needs_nothing_and_runs_anywhere(epoch: EpochSpec) -> None:
    assert fetch_missing_layers(_program(), 1, 0, epoch) == 0


def test_a_task_that_neither_reads_nor_writes_runs_anywhere(epoch: EpochSpec) -> None:
    assert fetch_missing_layers(_program(asks=True), 1, 0, replace(epoch, write={}, answers={})) == 0


def test_a_task_that_only_passes_on_what_others_sent_runs_anywhere(epoch: EpochSpec) -> None:
    assert fetch_missing_layers(_program(asks=True), 1, 0, replace(epoch, number=5, run={"a": frozenset({1})})) == 0


def test_a_task_that_asks_outside_functions_runs_at_home_alone(epoch: EpochSpec) -> None:
    with pytest.raises(Misplaced, match=r"member home.*asks outside"):
        fetch_missing_layers(_program(asks=True), 1, 0, epoch, pause=0.0)


@pytest.mark.parametrize(
    "how", [{"run": {"a": frozenset({0})}}, {"write": {"a": frozenset()}}, {"first": 0, "number": 5}]
)
def test_a_replay_runs_at_home_alone(epoch: EpochSpec, how: Mapping[str, Any]) -> None:
    with pytest.raises(Misplaced, match="must run there"):
        fetch_missing_layers(_program(), 1, 0, replace(epoch, **how), pause=0.0)
