"""The state of an open flow behind a lock: threads change it one at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from holdfast.coordinator.events import Event
from holdfast.coordinator.flow_state import FlowState
from holdfast.coordinator.instructions import Instruction
from holdfast.coordinator.lineage import Lineage


class GuardedState:
    """A `FlowState`, and the one lock that guards its changes."""

    def __init__(self, state: FlowState) -> None:
        self.state = state
        """The state. Without the lock it may be read, never changed."""

        self._lock = threading.RLock()

    def begin(
        self,
        offers: dict[str, Any],
        clock: int,
        seed: int,
        back: bool,
        rewind: Mapping[str, Any] | None = None,
        again: int | None = None,
    ) -> Lineage:
        """Begin the next exact epoch and return its lineage (`FlowState.begin`)."""
        with self._lock:
            return self.state.begin(offers, clock, seed, back, rewind, again)

    def begin_on_branch(self, offers: dict[str, Any], clock: int, seed: int) -> Lineage:
        """Begin the next approximate epoch and return its lineage (`FlowState.begin_on_branch`)."""
        with self._lock:
            return self.state.begin_on_branch(offers, clock, seed)

    def tell(self, event: Event) -> list[Instruction]:
        """Tell the state of an event. Return the instructions that follow from it."""
        with self._lock:
            return self.state.handle(event)
