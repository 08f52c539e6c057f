"""The working directory of a log that is only remote: nobody else can have prepared it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import LogError
from holdfast.log.location import open_location
from holdfast.log.private_directory import make_private
from holdfast.log.working_directory import LogDirectory
from holdfast.runtime.settings import working_directory
from logged import logged

REMOTE = "s3://bucket/log"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    return tmp_path / "state"


def test_the_working_directory_of_a_remote_log_is_of_this_user_alone(state: Path) -> None:
    found = working_directory([open_location(REMOTE)])
    assert found.parent == state / "holdfast"
    for directory in (found, found.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert directory.stat().st_uid == os.geteuid()
    assert working_directory([open_location(REMOTE)]) == found, "always the same for the same log"
    assert working_directory([open_location("s3://bucket/other")]) != found


def test_without_a_state_directory_of_its_own_it_is_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert working_directory([open_location(REMOTE)]).is_relative_to(tmp_path / "home/.local/state/holdfast")


def test_a_link_in_the_place_of_the_working_directory_is_refused(state: Path, tmp_path: Path) -> None:
    path = working_directory([open_location(REMOTE)])
    path.rmdir()
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LogError, match="it is a link, and must be a directory"):
        working_directory([open_location(REMOTE)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_a_directory_of_another_user_is_refused(state: Path) -> None:
    path = working_directory([open_location(REMOTE)])
    os.chown(path, 65534, 65534)
    with pytest.raises(LogError, match=r"it belongs to user \S+, not to root; .*local=") as caught:
        working_directory([open_location(REMOTE)])
    assert caught.value.fields["owner"] == 65534


def test_a_directory_that_others_may_write_to_is_refused_and_one_that_they_may_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir(mode=0o755)
    (tmp_path / "base").chmod(0o755)
    make_private(tmp_path / "base" / "one", tmp_path / "base")
    assert stat.S_IMODE((tmp_path / "base").stat().st_mode) == 0o700
    (tmp_path / "base").chmod(0o777)
    with pytest.raises(LogError, match="others may write to it"):
        make_private(tmp_path / "base" / "one", tmp_path / "base")


@pytest.mark.parametrize("planted", ["lock", "lineage/log.jsonl"])
def test_a_link_that_somebody_planted_in_a_log_is_not_written_through(tmp_path: Path, planted: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("of root")
    log = tmp_path / "log"
    (log / "lineage").mkdir(parents=True)
    (log / planted).symlink_to(precious)
    try:
        from holdfast.log.stash import LineageLog

        LogDirectory.open(log, "flow", create=True, exclusive=True).close()
        LineageLog(log / "lineage" / "log.jsonl", []).close()
    except LogError as error:
        assert "symbolic link" in str(error)
    assert precious.read_text() == "of root"


def test_the_working_directory_of_a_version_before_is_left_and_named(tmp_path: Path) -> None:
    import getpass

    path = working_directory([open_location(REMOTE)])
    old = tmp_path / "tmp" / f"holdfast-{getpass.getuser()}" / path.name
    old.mkdir(parents=True)
    with logged("where it was before, is not used any more"):
        assert working_directory([open_location(REMOTE)]) == path
