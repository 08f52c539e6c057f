"""Processes that a test starts, and that must not outlive it.

Every process of a cluster has a mark in its environment, and so has every process that it starts: executors, their
Python daemons, the daemons' workers. A process to kill is found by that mark, however deep it is and whichever process
has adopted it. Linux only: it reads ``/proc``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from holdfast.foundation.retries import wait_until

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Process:
    """A process as it was when ``/proc`` was read."""

    pid: int
    parent: int
    command: tuple[str, ...]
    environment: Mapping[str, str]


def marked(name: str, value: str) -> list[Process]:
    """Return all processes with ``name=value`` in their environment."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            if wanted not in environment:
                continue
            command = (entry / "cmdline").read_bytes().split(b"\0")
            # The command's name, in brackets, may contain anything; the text after the last bracket is regular.
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it ended, or belongs to another user
        if state != "Z":
            pairs = (item.decode(errors="replace").partition("=") for item in environment if item)
            texts = tuple(item.decode(errors="replace") for item in command if item)
            found.append(Process(int(entry.name), int(parent), texts, {key: text for key, _, text in pairs}))
    return found


def below(pid: int, among: Sequence[Process]) -> list[int]:
    """Return ``pid`` and the pids of all its descendants in ``among``."""
    found = {pid}
    grown = True
    while grown:
        more = {process.pid for process in among if process.parent in found} - found
        found |= more
        grown = bool(more)
    return sorted(found)


def kill(pids: Sequence[int]) -> None:
    """SIGKILL these processes; a process that is already gone is ignored."""
    send(pids, signal.SIGKILL)


def send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_gone(name: str, value: str, seconds: float) -> list[Process]:
    """Wait until no process has the mark. Return the processes that still have it after ``seconds``."""
    wait_until(lambda: not marked(name, value), seconds, 0.05)
    return marked(name, value)


class Spawner:
    """Starts processes that die with this one, whatever kills it.

    The system signals a child when the *thread* that started it ends. So one thread, which lives until `close`, starts
    all of them.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-spawner")

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], directory: Path | None = None
    ) -> subprocess.Popen[bytes]:
        return self._thread.submit(self._start, command, environment, output, directory).result()

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], directory: Path | None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )

    def close(self) -> None:
        self._thread.shutdown()


def die_with_parent() -> Callable[[], None]:
    """Return a function for ``subprocess.Popen(preexec_fn=…)``: the process is killed when the thread that starts it
    ends, however it ends."""
    parent, control = os.getpid(), ctypes.CDLL(None).prctl  # looked up here: after a fork, less is allowed

    def prepare() -> None:
        control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the call above

    return prepare
