"""The user's settings of durability, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.coordinator.retention import Bound, Retention
from holdfast.guarantees.strategies import NoSync
from holdfast.guarantees.strategy import Strategy


@dataclass(frozen=True)
class DurabilitySettings:
    """The user's settings of durability."""

    strategy: Strategy = field(default_factory=NoSync)
    min_replicas: int = 1
    bound: Bound = field(default_factory=Bound)
    retention: Retention = field(default_factory=Retention)
    accept_loss: bool = False
    """Open the flow although too few locations can be read to be sure that nothing is lost."""
    fold: int = 256
    """The number of epochs that are folded at once, at least, after they are older than the retention."""

    @property
    def durable(self) -> bool:
        """Whether the strategy copies anything."""
        return self.strategy.durable
