"""Where local layers are, on the host that asks.

On one host, a trace's directory is what its path says. On a cluster whose hosts have a directory each
(``HOLDFAST_LOCAL`` in the environment of the executors), the driver does not know those directories: paths that it
hands out begin with `SCATTERED`, and every task puts its own host's directory there. A host directory has a name of its
own, by which the driver tells members apart.

    <host directory>/member                       its name
    <host directory>/<flow>/traces-<term>/        the layers that this host has, as the driver of that term knows them
    <host directory>/<flow>/branches/<name>/traces-<term>/    those of a branch of the flow (`log/branches.py`)

A driver of a higher term takes the layers over by renaming their directory (`take`; see `fencing.py`): whatever a
driver before still writes, it writes by the old name, where nobody reads.
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
    """A task runs on another member than the one whose layers it needs. It fails, for Spark to try it again."""

    def __init__(self, wanted: str, found: str, why: str = "") -> None:
        at = found or "a host without a directory"
        super().__init__(f"{MISPLACED}: it needs member {wanted}, and is on {at}{why and ': '}{why}")


def scattered(local: Path) -> Path:
    """The working directory ``local``, on whichever host. That of a branch lies in its flow's, as in the log."""
    if local.parent.name == _BRANCHES:
        return scattered(local.parent.parent) / _BRANCHES / local.name
    return SCATTERED / hashlib.blake2b(str(local.absolute()).encode(), digest_size=8).hexdigest()


def traces_of(local: Path, term: int) -> Path:
    """Where the layers of a flow are, on whichever host, for the driver of a term."""
    return scattered(local) / f"traces-{term:012d}"


def take(directory: Path, known: Collection[str] | None = None) -> None:
    """On a member: have the flow's layers under the name ``directory``, whatever driver had them before. ``known``: the
    branches that there are (None: that is not known); what is left of others goes."""
    own = host_path(directory)
    relisted(lambda: take_over(own))  # another attempt of this task may rename it at the same time
    if known is not None:
        for branch in own.parent.glob(f"{_BRANCHES}/*"):
            if branch.name not in known:
                shutil.rmtree(branch, ignore_errors=True)


def host_path(directory: str | Path) -> Path:
    """A directory as this host has it."""
    path = Path(directory)
    if not path.is_relative_to(SCATTERED):
        return path
    root = os.environ.get(LOCAL)
    if not root:
        raise RuntimeError(f"{path} is on the executors' own disks, and this process has no {LOCAL}")
    return Path(root) / path.relative_to(SCATTERED)


def member() -> str:
    """The name of this host's directory: drawn by whoever is first there."""
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
