"""Syncing local layers to the disk of the host that has them, and removing the layers of traces that are not used.

All functions run in tasks, or on each member, and touch only what their arguments name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.errors import LogError
from holdfast.foundation.atomic_files import read_file, replace_file, sync_directory
from holdfast.foundation.retries import retrying
from holdfast.log.host_paths import host_path
from holdfast.trace.layer import check_bytes, list_layers
from holdfast.trace.name import LayerName


@dataclass(frozen=True)
class Unsynced:
    """A trace whose local layers could not be synced. Its copies in locations are durable all the same."""

    trace: str
    why: str


def sync_all(directories: Sequence[str], after: int) -> list[Unsynced]:
    """Sync the layers of these traces that end after epoch ``after``. Returns the traces for which that failed."""
    failed = []
    for directory in map(host_path, directories):
        try:
            sync_layers(directory, after)
        except (OSError, LogError) as error:
            failed.append(Unsynced(directory.name, str(error)))
    return failed


def forget_others(directory: Path, kept: Collection[str]) -> None:
    """Remove the local traces that are not in ``kept``."""
    own = host_path(directory)
    for path in own.iterdir() if own.is_dir() else ():
        if path.is_dir() and path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def sync_layers(directory: Path, after: int) -> None:
    """Sync the layers of a trace that end after epoch ``after``, and their directory. Raises OSError, or `LogError` for
    a damaged layer."""
    for name in list_layers(directory):
        if name.last > after:
            with suppress(FileNotFoundError):  # merged and removed in the meantime
                _sync_layer(directory, name)
    with suppress(FileNotFoundError):
        retrying(partial(sync_directory, directory))


def _sync_layer(directory: Path, name: LayerName) -> None:
    path = directory / name.text()
    opened = retrying(partial(os.open, path, os.O_RDONLY))
    try:
        os.fsync(opened)
        return
    except OSError:
        pass
    finally:
        os.close(opened)
    # A second sync after a failed one reports success although pages may be lost: so the file is written anew.
    data = read_file(path)
    check_bytes(data, name, str(path))
    replace_file(path, data, sync=True)
