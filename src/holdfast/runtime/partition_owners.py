"""Where the partitions of an open flow are kept, and what is done when that changes.

On one host there is nothing to do: all layers are in one directory. Where members have directories of their own, the
driver has them take partitions over when members come or go, and when a task ran elsewhere than at home; it reads and
measures their layers by tasks. What is missing then is brought by the recoverer (`runtime/recovery/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.coordinator.history import History
from holdfast.errors import MemberUnreachable
from holdfast.log.host_paths import host_path, take
from holdfast.log.working_directory import LogDirectory
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.recovery.fetch_layers import remove_stale
from holdfast.runtime.recovery.recoverer import Recoverer
from holdfast.runtime.recovery.scattered_log import ScatteredViewLog
from holdfast.runtime.replication import Replication
from holdfast.runtime.runner import Runner
from holdfast.runtime.statistics import Local, local_state, together
from holdfast.task.stage import TaskReport
from holdfast.task.view_log import ViewLog

_WAITS = 16
"""So many epochs a member that joins waits at most; then it gets its share anyway, from the others."""


class PartitionOwners:
    """The members of an open flow, as far as they keep layers."""

    def __init__(self, runner: Runner, state: CompiledFlow, directory: LogDirectory, history: History) -> None:
        """``history`` is the lineage of all complete epochs, as it grows."""
        self._runner = runner
        self._state = state
        self._directory = directory
        self._history = history
        self._awaited: int | None = None
        """Members have joined that wait until this epoch is safe."""

        self.unsettled = False
        """Whether members came or went while that could not be made up for."""

        self._tasks = self._found = 0
        """Keyed tasks, and those that found all their layers where they ran; where members have their own."""

        if runner.scattered:
            runner.refresh()
            runner.await_members(directory.read_members())
        else:
            remove_all_stale(state.directory, history)

    def take(self) -> None:
        """Have the layers of all members for this driver, without those of other histories."""
        if self._runner.scattered:
            directory, history = self._state.directory, self._history.copy()
            self._runner.everywhere("taking layers over", lambda: _take(directory, history))
            self._directory.write_members(sorted(set(self._runner.owners())))

    def adopt(self, durability: Replication, recoverer: Recoverer) -> None:
        """If members came or went, give partitions to those that are there now. What a lost one had is inherited at
        once. One that comes waits until what the others had then is safe: then it takes its share from the copies, and
        the little that came since from the others. It does not wait for ever, if storage fails."""
        membership_change, last = (
            self._runner.membership_change or ("unsettled" if self.unsettled else ""),
            self._history.last,
        )
        if not membership_change:
            return
        if membership_change != "lost" and durability.settings.durable:
            self._awaited = last if self._awaited is None else self._awaited
            if durability.safe < self._awaited and last < self._awaited + _WAITS:
                durability.hurry()
                return
        self._awaited, self.unsettled = None, False
        recoverer.adopt(settle=membership_change != "lost")

    def follow(self, reports: Sequence[TaskReport], recoverer: Recoverer) -> None:
        """A keyed task that ran elsewhere than at home has its layers there: its partition is kept there from now on,
        and what the new member lacks of the other stages is brought."""
        keyed = [report for report in reports if report.stage and report.member]
        self._tasks += len(keyed)
        self._found += sum(report.fetched == 0 for report in keyed)
        owners = self._runner.owners()
        moves = {report.partition: report.member for report in keyed if report.member != owners[report.partition]}
        if moves:
            self._runner.hand_over(moves)
            recoverer.rebalance()

    def readable(self, kept: ViewLog) -> ViewLog:
        """A log as the driver can read it."""
        return ScatteredViewLog.of(kept, self._runner) if self._runner.scattered else kept

    def local(self, *, rows: bool) -> dict[str, Local]:
        """What local layers there are. Members that cannot be reached just now have none."""
        directory, traces = self._state.directory, list(self._state.layouts)
        with suppress(MemberUnreachable):
            return together(
                self._runner.everywhere("measuring", lambda: local_state(directory, traces, rows=rows)).values()
            )
        return {}

    def status(self) -> dict[str, Any]:
        """Who keeps what; nothing where all is kept in one place."""
        if not self._runner.scattered:
            return {}
        members: dict[str, list[int]] = {}
        for partition, owner in enumerate(self._runner.owners()):
            members.setdefault(owner, []).append(partition)
        return {"members": members, "tasks": self._tasks, "local": self._found}


def remove_all_stale(directory: Path, history: History) -> None:
    """Remove the local layers, on this host, that are not of the history."""
    own = host_path(directory)
    if own.is_dir():
        remove_stale([path for path in own.iterdir() if path.is_dir()], history)


def _take(directory: Path, history: History) -> None:
    take(directory)
    remove_all_stale(directory, history)
