"""The crash matrix on a cluster: executors are killed while the driver lives, at marks and at random."""

from __future__ import annotations

import pytest

import holdfast as hf
from amounts import times
from cluster.matrix_scenes import killed_executors
from guarantees.matrix_apps import KINDS, SINKS
from guarantees.test_crash_matrix import STRATEGIES
from holdfast.guarantees.prediction import SinkKind, predict
from holdfast.guarantees.strategy import Strategy
from holdfast.testing.cluster import Cluster


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_output_is_as_predicted_when_executors_are_killed(
    kind: str, sink: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 strategies, an executor lost at a mark and one at random, with what it kept on its host: 16 kills for each
    class and kind of sink."""
    points = ["epoch.ran"] + ["random"] * times(1)
    with Cluster(workers=2, cores=2, memory=512) as cluster:
        seen = cluster.driver(killed_executors, [(kind, sink)], list(STRATEGIES), points).result(600.0)
    cells = [(predict_lost(kind, strategy), *cell) for (_, strategy, *cell) in seen]
    with capsys.disabled():
        print(f"\n{kind} × {sink}: {len(seen)} executors killed")
        for (_, strategy, *_), (predicted, point, _, observed) in zip(seen, cells, strict=True):
            print(f"  {strategy!s:42} {point:10} {predicted.value:20} {observed.value}")
    assert all(killed and observed is predicted for predicted, _, killed, observed in cells)


def predict_lost(kind: str, strategy: Strategy) -> hf.RecoveryType:
    """What the loss of an executor does, whatever the sink: the driver lives, and knows what it has given to it."""
    predicted = {
        predict([hf.OperatorClass(kind)], strategy, sink, failure="executor").recovery for sink in SinkKind
    }  # fmt: skip
    spoiled = strategy == hf.gap() and kind != "repeatable"
    assert predicted == {hf.RecoveryType.DIVERGENT if spoiled else hf.RecoveryType.PRECISE}
    return predicted.pop()
