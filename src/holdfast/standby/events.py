"""The events by which a driver under a lease tells what happens to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.standby.lease import Holder

What = Literal["preparing", "standby", "acquired", "leading", "released", "lost"]


@dataclass(frozen=True)
class LeaseEvent:
    """A change of this driver: it prepares, stands by (again when the holder changed), has acquired the lease, leads
    (the log is open), has given the lease back (released), or has lost it."""

    event: What
    lease: str
    holder: Holder | None = None
    """The driver that holds the lease, if known."""

    trouble: str | None = None
    """Why the lease cannot be read now; None if it can."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Phase (``prepare``, ``wait``, ``open``, and the phases of opening) → its seconds."""

    epoch: int | None = None
    """The last complete epoch, in the event ``leading``."""

    def to_dict(self) -> dict[str, Any]:
        found = {
            "event": self.event,
            "lease": self.lease,
            "holder": self.holder.to_dict() if self.holder else None,
            "trouble": self.trouble,
            "seconds": {name: round(spent, 4) for name, spent in self.seconds.items()} or None,
            "epoch": self.epoch,
        }
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        match self.event:
            case "preparing":
                return "standby: getting ready"
            case "standby" if self.trouble:
                return f"standby: waiting for the lease ({self.trouble})"
            case "standby":
                return f"standby: waiting for the lease (held by {self.holder or 'somebody'})"
            case "acquired":
                return "the lease is ours: opening the log"
            case "leading":
                begun = "from epoch 0 on" if self.epoch is None or self.epoch < 0 else f"after epoch {self.epoch}"
                return f"leading, {begun}; the log was opened in {self.seconds['open']:.2f} s"
            case "lost":
                return "the lease is lost: another driver leads"
        return "the lease is given back"
