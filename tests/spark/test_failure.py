"""What Spark says of a task that failed, as a user gets to see it."""

from __future__ import annotations

import errno
from pathlib import Path

import holdfast
from holdfast.errors import LogError
from holdfast.spark.failure import translated

OURS = str(Path(holdfast.__file__).parent / "operators" / "asked.py")


def told(*frames: str, error: str) -> RuntimeError:
    lines = [f'  File "{frame}", line 7, in task\n    something()' for frame in frames]
    return RuntimeError("\n".join(["An exception was thrown from the Python worker:", *lines, error, ""]))


def test_an_error_of_the_file_system_in_a_task_is_an_error_about_the_log() -> None:
    said = "OSError: [Errno 28] No space left on device: '/log/.1.tmp' -> '/log/.asked-1.json'"
    error = translated(
        told("/usr/lib/python3.11/pathlib.py", OURS, "/usr/lib/python3.11/os.py", error=said), "flow: epoch 3"
    )
    assert isinstance(error, LogError)
    assert (error.fields["errno"], error.fields["path"]) == (errno.ENOSPC, "/log/.asked-1.json")
    assert str(error) == "flow: epoch 3: /log/.asked-1.json: the disk is full; make room and try again"


def test_an_error_of_the_file_system_in_a_users_function_stays_the_users() -> None:
    said = "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/cities.csv'"
    assert translated(told(OURS, "/home/me/app.py", error=said), "flow: epoch 3") is None
