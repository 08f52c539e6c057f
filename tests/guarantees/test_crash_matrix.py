"""The crash matrix: what was predicted is what is observed, in every cell; and what is broken on purpose is caught.

`BareApp` is the engine over real files, without Spark: its runs die in this process (thousands of them) or in processes
of their own that are really killed. `SparkApp` is the same flow on Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

import holdfast as hf
from guarantees.matrix_apps import KINDS, SINKS, BareApp, SparkApp, output
from holdfast.connectors import row_ids
from holdfast.coordinator.flow_state import FlowState
from holdfast.guarantees.strategies import NoSync, UpstreamBackup
from holdfast.runtime import delivery
from holdfast.testing import crash_matrix

STRATEGIES = (
    hf.nosync(),
    hf.synchronous_log(),
    hf.aligned_snapshot(4),
    hf.aligned_snapshot(4, output="early"),
    hf.passive_standby(4),
    hf.upstream_backup(4),
    hf.active_standby(),
    hf.gap(),
)
PAIRS = list(zip(KINDS, ("append", "transactional", "de-duplicating", "append"), strict=True))
TWO = ("epoch.ran", "sink.after_commit")


@pytest.mark.parametrize(("kind", "sink"), PAIRS)
def test_processes_that_are_really_killed_leave_what_was_predicted(kind: str, sink: str, tmp_path: Path) -> None:
    """Eight kills at marks for each pair, 32 in all; and four at moments that are drawn."""
    strategies = (hf.nosync(), hf.aligned_snapshot(4, output="early"), hf.upstream_backup(4), hf.gap())
    matrix = crash_matrix(
        BareApp(kind, sink), output, strategies=strategies, points=TWO, at_random=1, processes="forked",
        directory=tmp_path,
    )  # fmt: skip
    assert matrix.agrees and matrix.kills >= 8, str(matrix)


def test_a_process_of_its_own_is_killed_too(tmp_path: Path) -> None:
    matrix = crash_matrix(
        BareApp("repeatable", "append"), output, strategies=("gap",), points=["epoch.ran"], directory=tmp_path
    )
    assert matrix.agrees and matrix.kills == 1, str(matrix)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_of_the_matrix_in_thousands_of_crashes(
    kind: str, sink: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 × 4 × 3 cells, 24 crashes each: 2,304 in all."""
    matrix = crash_matrix(
        BareApp(kind, sink), output, strategies=STRATEGIES, times=range(1, 7), processes=False, directory=tmp_path
    )
    with capsys.disabled():
        print(f"\n{kind} × {sink}\n{matrix}")
    assert matrix.agrees and matrix.kills >= 8 * 16, str(matrix)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_of_the_matrix_in_processes_that_are_killed(
    kind: str, sink: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 × 4 × 3 cells, four kills at marks and two at moments that are drawn in each: 576 in all."""
    matrix = crash_matrix(
        BareApp(kind, sink), output, strategies=STRATEGIES, at_random=2, processes="forked", directory=tmp_path
    )
    with capsys.disabled():
        print(f"\n{kind} × {sink}, killed\n{matrix}")
    assert matrix.agrees and matrix.kills >= 32, str(matrix)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sink"), PAIRS)
def test_flows_on_spark_that_are_killed_leave_what_was_predicted(
    kind: str, sink: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strategies = (hf.nosync(), hf.aligned_snapshot(4, output="early"), hf.gap())
    matrix = crash_matrix(SparkApp(kind, sink), output, strategies=strategies, points=TWO, directory=tmp_path)
    with capsys.disabled():
        print(f"\n{kind} × {sink}, on Spark\n{matrix}")
    assert matrix.agrees and matrix.kills == 6, str(matrix)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
def test_what_was_predicted_is_observed_when_a_host_is_lost(sink: str, tmp_path: Path) -> None:
    """With the working directory the lineage that is not durable goes, unless a sink holds it."""
    strategies = (hf.nosync(), hf.synchronous_log(), hf.aligned_snapshot(4))
    for kind in KINDS:
        matrix = crash_matrix(
            BareApp(kind, sink), output, strategies=strategies, points=TWO, failure="host", processes=False,
            directory=tmp_path,
        )  # fmt: skip
        assert matrix.agrees, f"{kind}: {matrix}"


# -- what is broken on purpose ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakesASinksWordForGranted(NoSync):
    """It takes a sink that cannot tell to have what it may not have: an acknowledgement that never came."""

    name: ClassVar[str] = "broken"

    def surely_has(self, last: int) -> int:
        return last


def test_an_acknowledgement_that_never_came_is_seen_as_a_gap(tmp_path: Path) -> None:
    matrix = crash_matrix(
        BareApp("repeatable", "append"), output, strategies=[TakesASinksWordForGranted()],
        points=["sink.before_commit"], processes=False, directory=tmp_path,
    )  # fmt: skip
    assert not matrix.agrees and matrix.cells[0].observed is hf.RecoveryType.GAP
    assert "missing: (2, 2), (0, 3)" in str(matrix)


def test_lineage_that_is_not_forwarded_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of an epoch carries its own record alone, and not those that it follows."""
    whole = FlowState.uncommitted

    def last_alone(self: FlowState, epoch: int, held: object = None) -> bytes:
        return whole(self, epoch, held).splitlines(keepends=True)[-1]  # type: ignore[arg-type]

    monkeypatch.setattr(FlowState, "uncommitted", last_alone)
    matrix = crash_matrix(
        BareApp("convergent-capable", "transactional"), output, strategies=["nosync"], points=["sink.after_commit"],
        times=[3], failure="host", processes=False, directory=tmp_path,
    )  # fmt: skip
    assert matrix.cells[0].predicted.recovery is hf.RecoveryType.PRECISE and not matrix.agrees


@dataclass(frozen=True)
class TrimsEarly(UpstreamBackup):
    """It lets go of input when the lineage is safe, although state that only that input can give again is not."""

    name: ClassVar[str] = "broken"

    def releasable(self, cleared: int, state: int) -> int:
        return cleared


def test_input_that_is_let_go_of_too_early_is_seen(tmp_path: Path) -> None:
    strategies = [hf.upstream_backup(4), TrimsEarly(4)]
    matrix = crash_matrix(
        BareApp("convergent-capable", "transactional", forgets=True), output, strategies=strategies,
        points=["epoch.ran"], times=[6], processes=False, directory=tmp_path,
    )  # fmt: skip
    patient, hasty = matrix.cells
    assert patient.agrees and patient.kills == 1, str(matrix)
    assert not hasty.agrees and hasty.observed is hf.RecoveryType.DIVERGENT, str(matrix)


def test_ids_that_are_not_the_same_again_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def numbered(view: str, epoch: int, change: pa.Table) -> pa.Table:
        calls.append(epoch)
        return row_ids.with_ids(view, len(calls), change)

    monkeypatch.setattr(delivery, "with_ids", numbered)
    matrix = crash_matrix(
        BareApp("repeatable", "de-duplicating"), output, strategies=["nosync"], points=["sink.after_commit"],
        processes=False, directory=tmp_path,
    )  # fmt: skip
    assert not matrix.agrees and matrix.cells[0].observed is hf.RecoveryType.REPEATING


def test_a_point_that_is_not_reached_is_no_agreement(tmp_path: Path) -> None:
    matrix = crash_matrix(
        BareApp("repeatable", "append"), output, strategies=["nosync"], times=[99], processes=False, directory=tmp_path
    )
    assert not matrix.agrees and matrix.kills == 0 and "no point was reached" in str(matrix)
    assert replace(matrix, cells=()).agrees
