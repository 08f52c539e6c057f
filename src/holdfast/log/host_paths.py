"""The directories of local layers on a host.

If all layers are on one host, a trace's directory is its path. On a cluster whose hosts each have a directory of their
own (``HOLDFAST_LOCAL`` in the environment of the executors), the driver does not know those directories: its paths
begin with the placeholder `SCATTERED`, and every task replaces that by its own host's directory. A host directory has a
random name, by which the driver tells members apart.

    <host directory>/member                       the name of the member
    <host directory>/<flow>/traces-<term>/        the layers that this host has, for the driver of that term
    <host directory>/<flow>/branches/<name>/traces-<term>/    the layers of a branch of the flow (`log/branches.py`)

A driver of a higher term takes the layers over by renaming their directory (`take`; see `fencing.py`): tasks of an
earlier driver still write under the old name, which is never read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from holdfast.foundation.atomic_files import create_file
from holdfast.foundation.retries import relisted
from holdfast.log.fencing import take_over

LOCAL = "HOLDFAST_LOCAL"
SCATTERED = Path("/@holdfast-local")
MISPLACED = "holdfast: misplaced task"
_BRANCHES = "branches"


class Misplaced(RuntimeError):
    """A task runs on another member than the one whose layers it needs. It fails, so that Spark tries it again."""

    def __init__(self, wanted: str, found: str, why: str = "") -> None:
        at = found or "a host without a directory"
        super().__init__(f"{MISPLACED}: it needs member {wanted}, and is on {at}{why and ': '}{why}")


def scattered(local: Path) -> Path:
    """The working directory ``local`` as a path for any host, which begins with `SCATTERED`. The directory of a branch
    is inside that of its flow, as in the log."""
    if local.parent.name == _BRANCHES:
        return scattered(local.parent.parent) / _BRANCHES / local.name
    return SCATTERED / hashlib.blake2b(str(local.absolute()).encode(), digest_size=8).hexdigest()


def traces_of(local: Path, term: int) -> Path:
    """The directory of a flow's layers for the driver of a term, as a path for any host."""
    return scattered(local) / f"traces-{term:012d}"


def take(directory: Path, known: Collection[str] | None = None) -> None:
    """On a member: rename the directory of the flow's layers to ``directory``, whichever driver had it before.
    ``known``: the existing branches; the layers of all others are removed (None: they are not known, and none are)."""
    own = host_path(directory)
    relisted(lambda: take_over(own))  # another attempt of this task may rename it at the same time
    if known is not None:
        for branch in own.parent.glob(f"{_BRANCHES}/*"):
            if branch.name not in known:
                shutil.rmtree(branch, ignore_errors=True)


def host_path(directory: str | Path) -> Path:
    """A directory as a path on this host."""
    path = Path(directory)
    if not path.is_relative_to(SCATTERED):
        return path
    root = os.environ.get(LOCAL)
    if not root:
        raise RuntimeError(f"{path} is on the executors' own disks, and this process has no {LOCAL}")
    return Path(root) / path.relative_to(SCATTERED)


def member() -> str:
    """The name of this host's directory, "" if it has none. The first process that asks draws a random name."""
    root = os.environ.get(LOCAL)
    if not root:
        return ""
    name = Path(root) / "member"
    try:
        return name.read_text()
    except FileNotFoundError:
        Path(root).mkdir(parents=True, exist_ok=True)
        create_file(name, secrets.token_hex(8).encode())
        return name.read_text()
