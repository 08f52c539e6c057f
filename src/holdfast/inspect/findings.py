"""The findings of an audit of a log, as values.

* **damaged**: a file does not hold what its name says; **missing**: the place must hold some epochs, and none of its
  intact files does; **unreachable**: the place could not be read at all. These are wrong;
* **behind**: the place ends before the history, as a slow or late copy does; **stale**: files of an abandoned history,
  which are never read; **leftover**: half-written files of a crash, or files that were set aside before. These are
  harmless.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The kind of a finding (see the top of this file)."""

    DAMAGED = "damaged"
    MISSING = "missing"
    UNREACHABLE = "unreachable"
    BEHIND = "behind"
    STALE = "stale"
    LEFTOVER = "leftover"

    @property
    def wrong(self) -> bool:
        return self in (Kind.DAMAGED, Kind.MISSING, Kind.UNREACHABLE)


@dataclass(frozen=True)
class Finding:
    """One thing that an audit found at a place."""

    place: str
    level: str
    kind: Kind
    message: str
    path: str = ""
    """The path of the file, relative to the place."""

    trace: str = ""
    first: int | None = None
    last: int | None = None
    """The first and the last epoch that is missing or behind."""

    repaired: bool = False

    @property
    def wrong(self) -> bool:
        return self.kind.wrong and not self.repaired


@dataclass
class Checked:
    """The contents of a place, as an audit found them."""

    place: str
    level: str
    layers: int = 0
    bytes: int = 0
    checked: int = 0
    """The number of layers that were read and hold what their names say."""

    lineage: int = -1
    """The epoch up to which its lineage has no gap."""

    covered: dict[str, int] = field(default_factory=dict)
    """Live trace → the epoch up to which intact layers cover it."""

    damaged: list[str] = field(default_factory=list)
    missing: list[dict[str, Any]] = field(default_factory=list)
    """Trace (or ``lineage``) and epochs."""

    repaired: int = 0
    """The number of findings that were repaired."""


@dataclass
class AuditReport:
    """The result of `verify`: what it found and repaired."""

    flow: str
    epoch: int
    running: dict[str, Any] | None
    places: list[Checked]
    findings: list[Finding]
    repair: bool = False
    """Whether `verify` was called with ``repair``."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, or everything that was wrong is repaired."""
        return not any(finding.wrong for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}
