"""Nothing that comes from a log is executed."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast

SOURCES = Path(holdfast.__file__).parent
READERS = ("log", "trace", "coordinator", "runtime", "inspect", "connectors", "standby")
"""The rooms that read logs, changelogs and leases."""

EXECUTES = re.compile(
    r"\b(?:import|from)\s+(?:pickle|cloudpickle|marshal|shelve|dill|yaml)\b|\bcloudpickle\b|\b(?:eval|exec)\("
)


def test_the_rooms_that_read_logs_execute_nothing() -> None:
    for room in READERS:
        found = list((SOURCES / room).rglob("*.py"))
        assert found, room
        for path in found:
            assert not EXECUTES.search(path.read_text()), path
    for path in SOURCES.glob("*.py"):
        assert not EXECUTES.search(path.read_text()), path
