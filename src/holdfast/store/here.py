"""Where local layers are, on the host that asks.

On one host, a trace's directory is what its path says. On a cluster whose hosts have a directory each
(``HOLDFAST_LOCAL`` in the environment of the executors), the driver does not know those directories: paths that it
hands out begin with `SCATTERED`, and every task puts its own host's directory there. A host directory has a name of its
own, by which the driver tells members apart.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

LOCAL = "HOLDFAST_LOCAL"
SCATTERED = Path("/@holdfast-local")


def scattered(local: Path) -> Path:
    """The working directory ``local``, on whichever host."""
    return SCATTERED / hashlib.blake2b(str(local.absolute()).encode(), digest_size=8).hexdigest()


def here(directory: str | Path) -> Path:
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
        hidden = Path(root) / f".member.{secrets.token_hex(8)}"
        hidden.write_text(secrets.token_hex(8))
        try:
            os.link(hidden, name)  # whoever links first has named it
        except FileExistsError:
            pass
        finally:
            hidden.unlink()
        return name.read_text()
