"""The sizes that a status says, taken while layers are merged."""

from __future__ import annotations

from pathlib import Path

from holdfast.state import local_sizes


def test_a_layer_that_is_merged_while_sizes_are_taken_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "layer").write_bytes(b"four")
    (tmp_path / "merged").symlink_to(tmp_path / "gone")  # it is listed, and is not there when it is looked at
    assert local_sizes(tmp_path) == [4]
    assert local_sizes(tmp_path / "none") == []
