"""The sizes that a status says, taken while layers are merged."""

from __future__ import annotations

from pathlib import Path

from holdfast.coordinator.lineage import GENESIS
from holdfast.runtime.statistics import held
from holdfast.trace.name import LayerName


def test_a_layer_that_is_merged_while_sizes_are_taken_is_passed_over(tmp_path: Path) -> None:
    there, merged = (LayerName(0, 2**64, epoch, epoch, GENESIS, -1, "0" * 16).text() for epoch in (0, 1))
    (tmp_path / there).write_bytes(b"four")
    (tmp_path / merged).symlink_to(tmp_path / "gone")  # it is listed, and is not there when it is looked at
    assert held([tmp_path], rows=False) == (1, 4, 0)
    assert held([tmp_path / "none"], rows=False) == (0, 0, 0)
