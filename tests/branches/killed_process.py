"""A flow in a process of its own that is killed on the way, and what its sinks were given in the end.

The process is one of the programs beside this file: ``before`` takes what it finds, another word does what is tested
(it says so, and is killed at the mark that it is given, counted from there), ``after`` takes what is left and prints
what its views hold.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connectors.changelog import committed
from holdfast.testing import total_of_changes

KILLED_AT = "KILLED_AT"

ROUNDS = [f"round.before_{each}" for each in ("look", "layers", "lineage", "removal", "forgetting")]
"""Marks that copying beside epochs comes to, any number of times."""


def every(marks: dict[str, int]) -> list[str]:
    """All marks as a process is told them: how often each is reached, one by one, and those of copying."""
    return [f"{name}:{each + 1}" for name, times in marks.items() for each in range(times)] + ROUNDS


def given(out: Path) -> Counter[Any]:
    """What a changelog adds up to; every epoch of it was committed once."""
    changes = pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("*.parquet"))])
    assert len(committed(out)) == len(set(committed(out)))
    return Counter(zip(*total_of_changes(changes).to_pydict().values(), strict=True))


class Stage:
    """A program that has taken what it found, before anything is tested: the same for each test, in the same place."""

    def __init__(self, app: Path, root: Path) -> None:
        """``root`` has its input, in ``orders``."""
        self._app, self.root, self._saved = app, root, root.with_name(f"{root.name}-saved")
        before = self._run("before")
        assert before.returncode == 0, before.stderr[-2000:]
        shutil.copytree(root, self._saved, symlinks=True)

    def _restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._saved, self.root, symlinks=True)

    def check_marks(self, what: str, marks: dict[str, int]) -> None:
        """The program, if it is not killed, reaches these marks so often, and no others but those of copying."""
        self._restore()
        done = self._run(what, **{KILLED_AT: ""})
        assert done.returncode == 0, done.stderr[-2000:]
        lines = [line.removeprefix("reached ") for line in done.stdout.splitlines() if line.startswith("reached ")]
        assert Counter(line for line in lines if line not in ROUNDS) == marks

    def check_killed(self, what: str, said: str, mark: str, spend: list[list[Any]]) -> None:
        """Kill the program at a mark; a process after it ends with ``spend`` in both views, and each sink has it once.
        ``said``: what it prints when it begins with ``what``."""
        self._restore()
        killed = self._run(what, **{KILLED_AT: mark})
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
        assert said in killed.stdout
        (self.root / "orders" / "4.csv").write_text("ada,100\n")
        done = self._run("after")
        assert done.returncode == 0, done.stderr[-2000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {"spend": spend, "top": spend}
        for view in ("spend", "top"):
            assert given(self.root / "out" / view) == Counter(map(tuple, spend)), view

    def _run(self, what: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(self._app), str(self.root), what],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, **environment},
        )
