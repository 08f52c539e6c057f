"""The state of an open flow, for the threads that use it: one at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from holdfast.coordinator.events import Event
from holdfast.coordinator.flow_state import FlowState
from holdfast.coordinator.instructions import Instruction
from holdfast.coordinator.lineage import Lineage


class GuardedState:
    """A `FlowState` with the one lock around it."""

    def __init__(self, state: FlowState) -> None:
        self.state = state
        """To be asked, never to be changed, by whoever does not have the lock."""

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
        """The lineage of the next exact epoch (`FlowState.begin`)."""
        with self._lock:
            return self.state.begin(offers, clock, seed, back, rewind, again)

    def begin_on_branch(self, offers: dict[str, Any], clock: int, seed: int) -> Lineage:
        """The lineage of the next approximate epoch (`FlowState.begin_on_branch`)."""
        with self._lock:
            return self.state.begin_on_branch(offers, clock, seed)

    def tell(self, event: Event) -> list[Instruction]:
        """Tell the state of an event; what follows from it."""
        with self._lock:
            return self.state.handle(event)
