"""A process that cleans up after the process that started it has ended.

``python janitor.py NAME VALUE DIRECTORY``: waits until its standard input ends, which happens when the process that
started it ends, however it ends. Then it kills every process with ``NAME=VALUE`` in its environment, also paused ones,
and deletes the directory. It runs as a file, without the package, so that it starts at once and needs little memory.
"""

import os
import shutil
import signal
import sys
import time

_QUIET = 5
"""Searches in a row that must find no process: a process that is just being started has no visible environment for a
moment."""


def _marked(wanted: bytes) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as environment:
                if wanted not in environment.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(name))
        except OSError:
            continue  # it ended, or belongs to another user
    return found


def main(name: str, value: str, directory: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    quiet, deadline = 0, time.monotonic() + 30.0
    while quiet < _QUIET and time.monotonic() < deadline:
        pids = _marked(f"{name}={value}".encode())
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        quiet = 0 if pids else quiet + 1
        time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
