"""The parts of an open flow, for the modules that carry out what its state decides."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.coordinator.flow_state import FlowState
from holdfast.log.stash import LineageLog
from holdfast.log.working_directory import LogDirectory
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.guarded_state import GuardedState
from holdfast.runtime.intake import Intake
from holdfast.runtime.member_layers import MemberLayers
from holdfast.runtime.recovery.held_input import HeldInput
from holdfast.runtime.replication import Replication
from holdfast.runtime.runner import Runner
from holdfast.task.view_log import ViewLog


@dataclass(frozen=True)
class OpenFlow:
    """The parts of an open flow."""

    compiled: CompiledFlow
    guard: GuardedState
    runner: Runner
    directory: LogDirectory
    lineage: LineageLog
    """The stash."""

    intake: Intake
    delivery: Delivery
    durability: Replication
    layers: MemberLayers
    pushed: HeldInput
    """Pushed rows, which are in no source, held by the driver until they are safe."""

    @property
    def state(self) -> FlowState:
        return self.guard.state

    def log_of(self, name: str) -> ViewLog:
        """Return the log of a view, or of a source whose rows are kept, in a form that this process can read."""
        return self.layers.readable(self.compiled.kept(name, self.state.epochs.chain()))
