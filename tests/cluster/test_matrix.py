"""The crash matrix on a cluster: executors are killed while the driver lives, at marks and at random."""

from __future__ import annotations

import pytest

import holdfast as hf
from amounts import times
from cluster.matrix_scenes import killed_executors
from guarantees.matrix_apps import KINDS, SINKS
from guarantees.test_crash_matrix import STRATEGIES
from holdfast.guarantees.prediction import SinkKind, predict
from holdfast.testing.cluster import Cluster


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_output_is_as_predicted_when_executors_are_killed(
    kind: str, sink: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 strategies, an executor killed at a mark and one at random: 16 kills for each class and kind of sink."""
    points = ["epoch.ran"] + ["random"] * times(1)
    with Cluster(workers=2, cores=2, memory=512) as cluster:
        seen = cluster.driver(killed_executors, [(kind, sink)], list(STRATEGIES), points).result(600.0)
    with capsys.disabled():
        print(f"\n{kind} × {sink}: {sum(bool(killed) for *_, killed, _ in seen)} executors killed")
    for _, strategy, point, killed, observed in seen:
        predicted = predict([hf.OperatorClass(kind)], strategy, SinkKind.APPEND, failure="executor").recovery
        spoiled = strategy == hf.gap() and kind != "repeatable"
        assert predicted is (hf.RecoveryType.DIVERGENT if spoiled else hf.RecoveryType.PRECISE)
        # Where the executor that replaces a killed one is on the same host, it finds the state there.
        possible = {predicted, hf.RecoveryType.PRECISE}
        assert observed in possible and (killed or point == "random"), (strategy, point, killed, observed)
