"""The crash matrix: what was predicted is what is observed, in every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from guarantees.matrix_apps import KINDS, SINKS, BareApp, output
from holdfast.testing import crash_matrix

STRATEGIES = [
    hf.nosync(),
    hf.synchronous_log(),
    hf.aligned_snapshot(4),
    hf.aligned_snapshot(4, output="early"),
    hf.passive_standby(4),
    hf.upstream_backup(4),
    hf.active_standby(),
    hf.gap(),
]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_predicted_is_observed_when_a_driver_dies(kind: str, sink: str, tmp_path: Path) -> None:
    matrix = crash_matrix(
        BareApp(kind, sink), output, strategies=STRATEGIES, times=(3,), processes=False, directory=tmp_path
    )
    assert matrix.agrees, str(matrix)
