"""A flow that is prepared before its log is touched: its dataflow is compiled, and its job has run once.

A standby driver keeps a prepared flow, so that it only has to open the log when it takes over. The first jobs of a
Spark session are slow: classes are loaded and compiled, Python workers are forked and import their modules, and queries
are planned. So an empty epoch, which reads and writes nothing, is run until it is fast.
"""

from __future__ import annotations

import time
from copy import copy

from holdfast.coordinator.lineage import GENESIS
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.declaration import Declaration
from holdfast.runtime.following import Follower
from holdfast.runtime.runner import Runner
from holdfast.task.sink_parts import writers_of
from holdfast.task.stage import EpochSpec
from holdfast.trace.cover import Chain

_RUNS = 8
_GAIN = 0.9
"""Runs end when one takes more than this part of the time of the run before it, because it gains no more."""

_LEAST = 3
"""The least number of runs before the check of `_GAIN`."""


class PreparedFlow:
    """A compiled flow with its job, ready to open its log."""

    def __init__(self, declared: Declaration, runner: Runner) -> None:
        """Compile the declared views and make their job."""
        self.declared = declared
        self.runner = runner
        self.state = CompiledFlow(declared, declared.local / "traces")
        writers = writers_of(declared.sinks, self.state.fields, self.state.flow.views)
        self.job = runner.job(self.state.flow, self.state.program, writers=writers)
        self._warm = False
        self.follower: Follower | None = None
        """Runs the leader's epochs while this driver stands by; None if this driver does not follow."""

    def over(self, runner: Runner) -> PreparedFlow:
        """Return the same flow for another runner, with another number of partitions. Nothing is compiled or planned
        again, and the job stays warm."""
        other = copy(self)
        other.runner, other.follower = runner, None
        other.job = runner.job(self.state.flow, self.state.program, self.job)
        return other

    def following(self) -> Follower | None:
        """Make and return a `Follower` if the strategy asks for one; None otherwise, and if members keep layers of
        their own, since they cannot follow."""
        if self.declared.settings.strategy.follows and not self.runner.scattered:
            self.follower = Follower(self.state, self.runner, self.job)
        return self.follower

    def warm_up(self) -> None:
        """Run empty epochs until they are fast; only the first call does."""
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
        """Run an empty epoch and return its seconds. Called now and then, it also keeps Spark's Python workers alive:
        Spark ends workers that are idle for a minute."""
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
    """Import in a worker the modules that background work needs there."""
    from holdfast.runtime import merging, replication

    return [len(items)] if merging and replication else []
