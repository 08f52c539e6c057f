"""Answers of outside functions, fixed for an epoch before any result is computed from them.

Spark may run a task twice, and a second attempt that asked again would get other answers: the rows that the first
attempt sent and the layers that the second one writes would not agree. So the answers of a task are written to a file
beside its trace, whose name says the epoch and the range of hashes. The first attempt to link its file there wins, and
all other attempts use the answers in it. The file needs no sync: only attempts of one epoch use it, and if the epoch is
lost, its answers may be lost with it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.foundation.atomic_files import create_file

_NAME = re.compile(r"\.asked-(\d+)-.*\.json")


def asked_file(directory: Path, epoch: int, digest: str, low: int, high: int) -> Path:
    """Path of the file with one task's answers: of epoch ``epoch`` in the history ``digest``, for hashes [low,
    high)."""
    return directory / f".asked-{epoch}-{digest}-{low:016x}-{high:017x}.json"


def recall(path: Path) -> dict[str, str] | None:
    """Return the answers that an earlier attempt fixed; None if there was none."""
    try:
        found: dict[str, str] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def fix(path: Path, answers: Mapping[str, str]) -> Mapping[str, str]:
    """Fix these answers, unless an earlier attempt fixed its own. Return the answers to use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not create_file(path, json.dumps(dict(answers)).encode()):
        return recall(path) or {}
    _clear(path)
    return answers


def _clear(path: Path) -> None:
    """Remove the files that no attempt can need any more: those of epochs before the last one."""
    own = _NAME.fullmatch(path.name)
    assert own is not None
    for name in os.listdir(path.parent):
        found = _NAME.fullmatch(name)
        if found is not None and int(found[1]) < int(own[1]) - 1:
            (path.parent / name).unlink(missing_ok=True)
