"""How much memory a process and its children use: the peak, sampled; and now, by kind of process."""

from __future__ import annotations

import os
import threading
from types import TracebackType

_EVERY = 0.25


class Peak:
    """Within ``with``, samples the memory of this process's children (the JVM, and the Python workers that it starts).

    It is the proportional set size: pages that several processes have mapped, such as layers, count once. ``self`` is
    not counted, unless ``whole`` is said: a benchmark holds its input.
    """

    def __init__(self, whole: bool = False) -> None:
        self.bytes = 0
        self._whole = whole
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            processes = [*_descendants(os.getpid()), *([os.getpid()] if self._whole else [])]
            self.bytes = max(self.bytes, sum(map(_memory, processes)))
            if self._done.wait(_EVERY):
                return


def by_kind() -> dict[str, int]:
    """Bytes that this process (the driver), the JVM and the Python workers use now, as `Peak` counts them."""
    found = {"driver": _memory(os.getpid()), "JVM": 0, "workers": 0}
    for process in _descendants(os.getpid()):
        found["JVM" if _is_java(process) else "workers"] += _memory(process)
    return found


def open_files() -> int:
    """The open files of this process and its children."""
    return sum(len(_listed(process, "fd")) for process in [os.getpid(), *_descendants(os.getpid())])


def threads() -> int:
    """The threads of this process and its children."""
    return sum(len(_listed(process, "task")) for process in [os.getpid(), *_descendants(os.getpid())])


def _listed(process: int, what: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{process}/{what}")
    except OSError:
        return []


def workers() -> set[int]:
    """The processes that this process and its children have started, but for the JVM."""
    return {process for process in _descendants(os.getpid()) if not _is_java(process)}


def _is_java(process: int) -> bool:
    try:
        with open(f"/proc/{process}/comm") as file:
            return file.read().strip() == "java"
    except OSError:
        return False


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    found, waiting = [], [root]
    while waiting:
        waiting += (mine := children.get(waiting.pop(), []))
        found += mine
    return found


def _memory(process: int) -> int:
    try:
        with open(f"/proc/{process}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
