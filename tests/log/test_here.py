"""Directories of hosts of their own: their names, and who may use the layers in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Fenced
from holdfast.log.host_paths import LOCAL, host_path, member, take, traces_of

LOCAL_FLOW = Path("/flows/shop")


def test_a_host_directory_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCAL, str(tmp_path / "a"))
    first = member()
    assert first and member() == first
    monkeypatch.setenv(LOCAL, str(tmp_path / "b"))
    assert member() not in ("", first)
    monkeypatch.delenv(LOCAL)
    assert member() == ""


def test_a_path_that_is_not_scattered_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL, raising=False)
    assert host_path(tmp_path) == tmp_path
    with pytest.raises(RuntimeError, match=LOCAL):
        host_path(traces_of(LOCAL_FLOW, 1))


def test_a_driver_of_a_higher_term_has_the_layers_and_one_before_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCAL, str(tmp_path))
    old, new = traces_of(LOCAL_FLOW, 2), traces_of(LOCAL_FLOW, 5)
    take(old)
    (host_path(old) / "layer").touch()
    take(old)
    take(new)
    assert (host_path(new) / "layer").exists() and not host_path(old).exists()
    # What the driver before still writes is where nobody reads; and it cannot have the layers back.
    host_path(old).mkdir()
    (host_path(old) / "stale").touch()
    with pytest.raises(Fenced):
        take(old)
    take(new)
    assert [path.name for path in host_path(new).iterdir()] == ["layer"] and not host_path(old).exists()
