"""A directory that no other user can have prepared, for working files for which the user has not chosen a place.

A user who can write to a directory can put a link there under a name that is known in advance, and make Holdfast write
through the link. So the directory is in the user's own state directory, each part of it that Holdfast makes has mode
0700, and a part is refused if it is a link, belongs to another user, or is writable for others.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from holdfast.errors import LogError
from holdfast.foundation.os_errors import fix


def state_directory() -> Path:
    """Holdfast's directory in the user's state directory: ``$XDG_STATE_HOME/holdfast`` or ``~/.local/state/holdfast``.
    Raises `LogError` if the user has neither."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".local" / "state"
    if not base.is_absolute():
        raise LogError(
            "working directory: this user has no home directory, and XDG_STATE_HOME is not set; give the flow a "
            "directory with local=…"
        )
    return base / "holdfast"


def make_private(directory: Path, base: Path) -> None:
    """Make ``directory``, and each directory between ``base`` and it, for this user alone. Raises `LogError` if one of
    them exists and cannot be trusted. Directories above ``base`` are made if they are missing, and not checked."""
    try:
        base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in (base, *(base / path for path in reversed(directory.relative_to(base).parents)), directory):
            try:
                os.mkdir(part, 0o700)
            except FileExistsError:
                _check(part)
    except OSError as error:
        raise LogError(
            f"working directory {directory}: {fix(error)}; or give the flow one with local=…",
            path=str(directory),
            errno=error.errno,
        ) from error


def _check(directory: Path) -> None:
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "a file"
        raise _refusal(directory, f"it is {kind}, and must be a directory; remove it")
    if found.st_uid != os.geteuid():
        raise _refusal(
            directory,
            f"it belongs to user {_name(found.st_uid)}, not to {_name(os.geteuid())}; remove it, or give the flow a "
            "directory with local=…",
            owner=found.st_uid,
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        if found.st_mode & 0o022:
            raise _refusal(directory, f"others may write to it; remove it, or: chmod 700 {directory}")
        os.chmod(directory, 0o700)


def _refusal(directory: Path, why: str, **fields: object) -> LogError:
    return LogError(f"working directory {directory}: {why}", path=str(directory), **fields)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
