"""Answers from outside, fixed for an epoch before anything is made of them.

Spark may run a task twice, and a second attempt that asked again would get other answers: what the first attempt sent
on and what the second one writes would not agree. So the answers of a task are put down beside its trace, under a name
that says which epoch and which range of hashes asked; the first attempt to link its file there wins, and all others go
by what it says. It needs no sync: it is for attempts of one epoch, and an epoch that is lost is lost with its answers.
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
    """Where the answers of one task are: those of epoch ``epoch`` in the history ``digest``, for hashes [low, high)."""
    return directory / f".asked-{epoch}-{digest}-{low:016x}-{high:017x}.json"


def recall(path: Path) -> dict[str, str] | None:
    """The answers that an earlier attempt was given; None if there was none."""
    try:
        found: dict[str, str] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def fix(path: Path, answers: Mapping[str, str]) -> Mapping[str, str]:
    """Put these answers down, unless there are some already: what counts from now on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not create_file(path, json.dumps(dict(answers)).encode()):
        return recall(path) or {}
    _clear(path)
    return answers


def _clear(path: Path) -> None:
    """Remove what no attempt can ask for any more: files of epochs before the last one."""
    own = _NAME.fullmatch(path.name)
    assert own is not None
    for name in os.listdir(path.parent):
        found = _NAME.fullmatch(name)
        if found is not None and int(found[1]) < int(own[1]) - 1:
            (path.parent / name).unlink(missing_ok=True)
