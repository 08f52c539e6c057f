"""Faults for real processes: a C library (`shim.c`) that is loaded before the C library, and its controls.

The library is compiled with gcc when it is first needed. It is loaded into processes started with `Shim.environment`,
and into the processes that they start (the JVM, Spark's Python workers), so Arrow's C++ meets the errors, too. All of
them share one control file: they share the counters, and are armed and disarmed together.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from holdfast.testing.faulty.plan import KINDS, Plan

_SOURCE = Path(__file__).with_name("shim.c")
_SIZE = 16384
_COUNTERS, _FAULTS, _UNDER = 8 * 8, 64 * 8, 8192


def missing() -> str | None:
    """Return why the shim cannot be built here; None if it can."""
    return None if shutil.which("gcc") else "there is no gcc to compile the library with"


def build(directory: Path) -> Path:
    """Compile the library into a directory. Return its path."""
    library = directory / "holdfast-faults.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-w", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


class Shim:
    """The compiled library, and its control file."""

    def __init__(self, directory: Path) -> None:
        self.library = directory / "holdfast-faults.so"
        self.control = directory / "faults"
        if not self.control.exists():  # otherwise another process has made both
            self.library = build(directory)
            self.control.write_bytes(b"HFFAULTS".ljust(_SIZE, b"\0"))
        with open(self.control, "r+b") as file:
            self._held = mmap.mmap(file.fileno(), _SIZE)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a process needs to load the library."""
        return {"LD_PRELOAD": str(self.library), "HOLDFAST_FAULTS": str(self.control)}

    def arm(self, plan: Plan, under: Iterable[str | os.PathLike[str]]) -> None:
        """Start to count calls from 1, and to make them fail by the plan. Raises `ValueError` if the plan is too
        long."""
        self.disarm()
        places = b"".join(os.fsencode(os.path.abspath(one)) + b"\0" for one in under)
        if len(places) >= _SIZE - _UNDER or len(plan.faults) > 100:
            raise ValueError(f"the plan is too long for the control file: {len(plan.faults)} faults")
        self._held[_COUNTERS:] = bytes(_SIZE - _COUNTERS)
        self._held[_UNDER : _UNDER + len(places)] = places
        for place, fault in enumerate(plan.faults):
            words = (KINDS.index(fault.kind), fault.number, fault.code, fault.times, int(fault.after))
            struct.pack_into("<5q", self._held, _FAULTS + 40 * place, *words)
        struct.pack_into("<q", self._held, 16, len(plan.faults))
        struct.pack_into("<q", self._held, 8, 1)

    def disarm(self) -> None:
        """Stop: nothing fails any more, and nothing is counted."""
        struct.pack_into("<q", self._held, 8, 0)

    def rearm(self) -> None:
        """Continue with the plan where `disarm` stopped it."""
        struct.pack_into("<q", self._held, 8, 1)

    @property
    def counts(self) -> dict[str, int]:
        """Kind → number of calls since the last `arm`, of all processes."""
        return dict(zip(KINDS, struct.unpack_from(f"<{len(KINDS)}q", self._held, _COUNTERS), strict=True))

    @property
    def failed(self) -> list[str]:
        """The calls that failed, in all processes, one line each: process, kind, error number, path."""
        log = Path(f"{self.control}.log")
        return log.read_text(errors="replace").splitlines() if log.exists() else []
