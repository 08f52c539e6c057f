"""A process that outlives the one that started it, by as long as it takes to clean up after it.

``python janitor.py NAME VALUE DIRECTORY``: waits until its standard input ends, which it does when the process that
started it ends, however that happens; then kills every process that has ``NAME=VALUE`` in its environment, paused ones
too, and deletes the directory. It is run as a file, without the package, so that it starts at once and holds little.
"""

import os
import shutil
import signal
import sys
import time

_QUIET = 5
"""So many looks in a row must find nobody: one that is being started has no environment to be seen for a moment."""


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
            continue  # it ended, or it is somebody else's
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
