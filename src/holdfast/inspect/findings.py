"""What an audit of a log finds, as values.

* **damaged**: a file that is not what its name says; **missing**: epochs that the place must hold, and no intact file
  of it does; **unreachable**: what could not be read at all. These are wrong;
* **behind**: the place ends before the history does, as a slow or late copy does; **stale**: files of a history that
  was abandoned, which nobody reads; **leftover**: what a crash left half-written, or was set aside before. These are
  harmless.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a finding is."""

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
    """The file, inside the place."""

    trace: str = ""
    first: int | None = None
    last: int | None = None
    """The epochs that are missing or behind."""

    repaired: bool = False

    @property
    def wrong(self) -> bool:
        return self.kind.wrong and not self.repaired


@dataclass
class Checked:
    """What a place holds."""

    place: str
    level: str
    layers: int = 0
    bytes: int = 0
    checked: int = 0
    """Layers that were read and are what their names say."""

    lineage: int = -1
    """The last epoch up to which its lineage is whole."""

    covered: dict[str, int] = field(default_factory=dict)
    """Live trace → the last epoch up to which its intact layers cover it."""

    damaged: list[str] = field(default_factory=list)
    missing: list[dict[str, Any]] = field(default_factory=list)
    """Trace (or ``lineage``) and epochs."""

    repaired: int = 0
    """How many findings were repaired."""


@dataclass
class AuditReport:
    """What `verify` found, and did."""

    flow: str
    epoch: int
    running: dict[str, Any] | None
    places: list[Checked]
    findings: list[Finding]
    repair: bool = False
    """Whether it was asked to repair."""

    @property
    def ok(self) -> bool:
        """Nothing is wrong, or all that was wrong is repaired."""
        return not any(finding.wrong for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}
