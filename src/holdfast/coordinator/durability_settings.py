"""What the user wants of durability, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.coordinator.retention import Bound, Retention
from holdfast.guarantees.strategies import NoSync
from holdfast.guarantees.strategy import Strategy


@dataclass(frozen=True)
class DurabilitySettings:
    """What the user wants of durability."""

    strategy: Strategy = field(default_factory=NoSync)
    min_replicas: int = 1
    bound: Bound = field(default_factory=Bound)
    retention: Retention = field(default_factory=Retention)
    accept_loss: bool = False
    """Begin although too few locations are there to be sure that nothing is lost."""
    fold: int = 256
    """So many epochs behind what is retained are folded at once."""

    @property
    def durable(self) -> bool:
        """Whether anything is ever copied."""
        return self.strategy.durable
