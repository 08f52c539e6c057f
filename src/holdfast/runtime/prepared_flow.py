"""What can be made of a flow before its log is touched: the dataflow, compiled, and a job that has run.

A driver that stands by keeps one, so that all it has left to do when it takes over is to open the log. The first jobs
of a Spark session are slow: its classes are loaded and compiled, Python workers are forked and import what they need,
and queries are planned. So an epoch is run over nothing, reading nothing and writing nothing, until it is fast.
"""

from __future__ import annotations

import time
from copy import copy

from holdfast.coordinator.lineage import GENESIS
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.declaration import Declaration
from holdfast.runtime.following import Follower
from holdfast.runtime.runner import Runner
from holdfast.task.stage import EpochSpec
from holdfast.trace.cover import Chain

_RUNS = 8
_GAIN = 0.9
"""It is fast when a run takes more than this part of the one before …"""

_LEAST = 3
"""… but after so many runs at the earliest."""


class PreparedFlow:
    """A flow that needs but its log."""

    def __init__(self, declared: Declaration, runner: Runner) -> None:
        """``views`` are the declared ones, typed."""
        self.declared = declared
        self.runner = runner
        self.state = CompiledFlow(declared, declared.local / "traces")
        self.job = runner.job(self.state.flow, self.state.program)
        self._warm = False
        self.follower: Follower | None = None
        """Runs the epochs of the driver that leads, while this one stands by; None if it does not."""

    def over(self, runner: Runner) -> PreparedFlow:
        """The same flow for another runner, which has another number of partitions: nothing is compiled or planned
        anew, and what is warm stays so."""
        other = copy(self)
        other.runner, other.follower = runner, None
        other.job = runner.job(self.state.flow, self.state.program, self.job)
        return other

    def following(self) -> Follower | None:
        """What follows the leader, if the strategy wants that; members that keep their own layers cannot."""
        if self.declared.settings.strategy.follows and not self.runner.scattered:
            self.follower = Follower(self.state, self.runner, self.job)
        return self.follower

    def warm_up(self) -> None:
        """Have everything run that an epoch runs, until that is fast."""
        if self._warm:
            return
        before = float("inf")
        for number in range(_RUNS):
            spent = self.run_empty()
            if number >= _LEAST and spent > _GAIN * before:
                break
            before = spent
        self._warm = True

    def run_empty(self) -> float:
        """Run an epoch over nothing; the seconds it took. Every now and then it keeps Spark's Python workers: those
        that have nothing to do for a minute are ended."""
        started = time.perf_counter()
        deliver = frozenset(self.state.flow.views[view] for view, _ in self.declared.sinks)
        nowhere = str(self.declared.local / "traces" / ".nowhere")
        epoch = EpochSpec(
            0, 0, GENESIS, Chain(-1, ()), self.runner.partitions, nowhere, deliver=deliver, answers={}, write={}
        )
        self.job.warm_up(epoch, tuple(self.state.flow.sources), f"{self.declared.name}: warming up")
        self.runner.tasks("warming up", _nothing, list(range(2)), 2)
        return time.perf_counter() - started


def _nothing(items: list[int]) -> list[int]:
    """Import in a worker what background work needs there."""
    from holdfast.runtime import merging, replication

    return [len(items)] if merging and replication else []
