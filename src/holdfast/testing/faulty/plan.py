"""Plans of faults in files: a list of faults that a seed draws.

A fault says: from the n-th call of a kind on, a number of calls fail with this error. Calls are counted by kind, over
all files below the directories that are to fail. A plan can be carried out in this process (`layer`) or, by a library
that is loaded before the C library, in any process (`shim`).

    kind       calls                                                  errors
    open       open a file or directory for reading                   EACCES EIO EMFILE ESTALE
    create     open a file for writing                                EACCES EIO EMFILE ENOSPC ESTALE
    read       read from an open file                                 EIO ESTALE, short
    write      write to an open file                                  EIO ENOSPC, short
    sync       fsync, fdatasync                                       EIO EINVAL ENOSPC
    truncate   truncate, ftruncate                                    EIO ENOSPC
    map        mmap of a file                                         EACCES EIO EMFILE (too many mappings: ENOMEM)
    stat       stat, access                                           EACCES EIO ESTALE
    list       list a directory                                       EACCES EIO EMFILE ESTALE
    mkdir      make a directory                                       EACCES EIO ENOSPC
    remove     unlink, rmdir                                          EACCES EIO ESTALE
    rename     rename                                                 EACCES EIO ENOSPC ESTALE
    link       link, symlink                                          EACCES EIO ENOSPC ESTALE
    lock       flock                                                  EIO ENOLCK

*short*: the call does only a part of the work, and returns how much; that is no error, and callers must continue. A
fault with ``after`` lets the call happen and then reports a failure, as network file systems do.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

KINDS = (
    "open", "create", "read", "write", "sync", "truncate", "map", "stat", "list", "mkdir", "remove", "rename", "link",
    "lock",
)  # fmt: skip

SHORT = "short"

FOREVER = 1 << 40
"""More calls than any run makes."""

_ERRORS: dict[str, tuple[str, ...]] = {
    "open": ("EACCES", "EIO", "EMFILE", "ESTALE"),
    "create": ("EACCES", "EIO", "EMFILE", "ENOSPC", "ESTALE"),
    "read": ("EIO", "ESTALE", SHORT),
    "write": ("EIO", "ENOSPC", "ENOSPC", SHORT),
    "sync": ("EIO", "EINVAL", "ENOSPC"),
    "truncate": ("EIO", "ENOSPC"),
    "map": ("EACCES", "EIO", "EMFILE", "ENOMEM"),
    "stat": ("EACCES", "EIO", "ESTALE"),
    "list": ("EACCES", "EIO", "EMFILE", "ESTALE"),
    "mkdir": ("EACCES", "EIO", "ENOSPC"),
    "remove": ("EACCES", "EIO", "ESTALE"),
    "rename": ("EACCES", "EIO", "ENOSPC", "ESTALE"),
    "link": ("EACCES", "EIO", "ENOSPC", "ESTALE"),
    "lock": ("EIO", "ENOLCK"),
}

_USUAL: dict[str, int] = {
    "open": 340, "create": 200, "read": 70, "write": 100, "sync": 340, "truncate": 2, "map": 60, "stat": 800,
    "list": 300, "mkdir": 110, "remove": 22, "rename": 200, "link": 11, "lock": 2,
}  # fmt: skip
"""Kind → about how many calls a small flow makes in its first seven epochs. Faults are drawn within this range."""

_AFTER = ("rename", "link", "remove", "mkdir")


@dataclass(frozen=True)
class Fault:
    """From the ``number``-th call of a kind on (the first is 1), ``times`` calls fail with ``error``."""

    kind: str
    number: int
    error: str
    times: int = 1
    after: bool = False
    """Whether the call happens and is then reported as failed."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"fault: kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.error == SHORT and self.kind not in ("read", "write"):
            raise ValueError(f"fault: only a read or a write can be short, not {self.kind!r}")
        if self.error != SHORT and not isinstance(getattr(errno, self.error, None), int):
            raise ValueError(f"fault: {self.error!r} is not the name of an error; expected one such as 'EIO'")
        if self.number < 1 or self.times < 1:
            raise ValueError(f"fault: calls are counted from 1, and times is at least 1: {self.number}, {self.times}")

    @property
    def code(self) -> int:
        """The error number; 0 for a short call."""
        return 0 if self.error == SHORT else int(getattr(errno, self.error))

    def __str__(self) -> str:
        times = "for ever" if self.times >= FOREVER else "once" if self.times == 1 else f"{self.times} times"
        return f"{self.kind} #{self.number}: {self.error} {times}{', after it happened' if self.after else ''}"


@dataclass(frozen=True)
class Plan:
    """A set of faults; their order has no meaning."""

    faults: tuple[Fault, ...]

    @staticmethod
    def draw(seed: int) -> Plan:
        """Return the plan of a seed: one to eight faults, most of which last for few calls."""
        chance = random.Random(f"faults {seed}")
        faults = []
        for _ in range(chance.choice((1, 2, 3, 5, 8))):
            kind = chance.choice(KINDS)
            most = _USUAL[kind]
            # Half of the faults come early, because opening a flow makes few calls, and all of them matter.
            number = chance.randint(1, most) if chance.random() < 0.5 else int(most ** chance.random())
            faults.append(
                Fault(
                    kind,
                    number,
                    chance.choice(_ERRORS[kind]),
                    chance.choice((1, 1, 1, 2, 5, 30, FOREVER)),
                    kind in _AFTER and chance.random() < 0.3,
                )
            )
        return Plan(tuple(faults))

    def __str__(self) -> str:
        return "; ".join(map(str, self.faults)) or "no faults"
