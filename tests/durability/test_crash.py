"""Crashes on purpose: every mark is known, and a crash happens where and when it was asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import testing
from holdfast.foundation import failpoints
from holdfast.testing import MARKS, Crash, crash_at


def test_all_marks_of_the_code_are_known() -> None:
    root = Path(holdfast.__file__).parent
    found = [
        mark
        for path in root.rglob("*.py")
        if "simulator" not in path.parts  # its tasks have marks of their own
        for mark in re.findall(r'failpoints\.reach\("([^"]+)"\)', path.read_text("utf-8"))
    ]
    assert sorted(found) == sorted(MARKS), "each mark is reached in one place, and listed in testing.MARKS"


def test_a_crash_comes_at_the_time_that_was_asked_for() -> None:
    def work(log: list[int]) -> None:
        for number in range(5):
            failpoints.reach("epoch.ran")
            failpoints.reach("epoch.complete")
            log.append(number)

    done: list[int] = []
    with pytest.raises(Crash, match=r"epoch\.complete"), crash_at("epoch.complete", times=3):
        work(done)
    assert done == [0, 1]
    assert failpoints.hook is None
    with crash_at("epoch.complete", times=6):
        work(done)
    assert done == [0, 1, 0, 1, 2, 3, 4]


def test_a_crash_is_not_caught_as_an_error() -> None:
    with pytest.raises(Crash), crash_at("merge"):
        try:
            failpoints.reach("merge")
        except Exception:
            pytest.fail("a process that dies catches nothing")


def test_crashes_nest() -> None:
    with crash_at("merge", times=2), pytest.raises(Crash, match=r"epoch\.ran"), crash_at("epoch.ran"):
        failpoints.reach("merge")
        failpoints.reach("epoch.ran")
    with crash_at("merge", times=2):
        with crash_at("epoch.ran"):
            failpoints.reach("merge")
        with pytest.raises(Crash, match="merge"):
            failpoints.reach("merge")


def test_a_mark_that_there_is_not_is_refused() -> None:
    with (
        pytest.raises(ValueError, match=r"mark 'epoch\.run' not found; expected one of epoch\.ran, "),
        crash_at("epoch.run"),
    ):
        pass
    with pytest.raises(ValueError, match="times must be at least 1, not 0"), crash_at("merge", times=0):
        pass


def test_the_kit_needs_no_spark_unless_the_oracle_does() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
    code = (
        "import sys, holdfast.testing as kit; kit.Unreliable, kit.MemoryLocation, kit.crash_at, kit.simulate;"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'pyspark'], 'pyspark was imported'"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(Path(holdfast.__file__).parents[1])}
    )
