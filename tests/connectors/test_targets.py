"""One place takes the changes of one view, however its path is spelled."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.connectors import changelog, foreach
from holdfast.connectors.sink import check_target
from holdfast.errors import DeclarationError


@pytest.mark.parametrize("spelling", ["out", "out/", "./out", "sub/../out", "link", "link/"])
def test_a_directory_is_refused_twice_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "sub").mkdir()
    os.symlink(tmp_path / "out", tmp_path / "link")
    first = changelog(tmp_path / "out")
    with pytest.raises(
        DeclarationError, match=r"sink of view 'b': .*/out takes the changes of view 'a' already"
    ) as caught:
        check_target([("a", first)], "b", changelog(spelling))
    assert caught.value.fields["taken"] == "a"
    check_target([("a", first)], "b", changelog("other"))


def test_one_sink_for_two_views_is_refused() -> None:
    def take(epoch: int, change: pa.Table) -> None:
        pass

    sink = foreach(take)
    with pytest.raises(DeclarationError, match="the same sink takes the changes of view 'a' already"):
        check_target([("a", sink)], "b", sink)
    check_target([("a", sink)], "b", foreach(take))
