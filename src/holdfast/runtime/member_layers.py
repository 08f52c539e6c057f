"""The layers of an open flow's members: which member has them, and how the driver reads and measures them.

On one host there is nothing to do: all layers are in one directory. If each member has a directory of its own, the
driver has the members take their layers over when it begins and when members come or go
(`coordinator/partition_ownership.py` says who owns which partition), and reads and measures their layers by tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.coordinator.history import History
from holdfast.errors import EpochUnavailable, LogDamaged, MemberUnreachable
from holdfast.log.host_paths import host_path, take
from holdfast.log.working_directory import LogDirectory
from holdfast.results.flow_results import PlacementStatus
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.recovery.fetch_layers import has_set_aside, local_layers, remove_stale
from holdfast.runtime.recovery.scattered_log import ScatteredViewLog
from holdfast.runtime.runner import Runner
from holdfast.runtime.statistics import Local, local_state, together
from holdfast.task.stage import TaskReport
from holdfast.task.view_log import ViewLog
from holdfast.trace.cover import Chain
from holdfast.trace.name import ALL
from holdfast.trace.rows import Layout
from holdfast.trace.trace import Trace


class MemberLayers:
    """The layers that the members of an open flow keep."""

    def __init__(
        self,
        runner: Runner,
        compiled: CompiledFlow,
        directory: LogDirectory,
        history: History,
        without_state: bool = False,
    ) -> None:
        """``history``: the lineage of all complete epochs; the object grows as epochs complete. ``without_state``:
        state that an earlier driver left is removed, except the rows that code pushed."""
        self._runner = runner
        self._compiled = compiled
        self._directory = directory
        self._history = history
        self._tasks = self._found = 0
        """The number of keyed tasks, and of those that found all their layers on the member where they ran; counted
        only if members have layers of their own."""

        self._without = frozenset(compiled.layouts) - compiled.inputs if without_state else frozenset()
        """The traces whose layers are not taken over."""

        self.known_branches: Collection[str] | None = None
        """The names of existing branches: members remove directories of other branches, once. None: not known."""

        self.set_aside = True
        """Whether layers may have been set aside as damaged."""

        if runner.scattered:
            runner.refresh()
            runner.await_members(directory.read_members())
        else:
            remove_all_stale(compiled.directory, history)
            _remove_traces(compiled.directory, self._without)

    def take(self) -> None:
        """Have all members take their layers over for this driver, and remove those of other histories."""
        if self._runner.scattered:
            directory, history, without = self._compiled.directory, self._history.copy(), self._without
            known = self.known_branches
            aside = self._runner.everywhere("taking layers over", lambda: _take(directory, history, without, known))
            self.set_aside = any(aside.values())
            self._without, self.known_branches = frozenset(), None
            self._directory.write_members(sorted(set(self._runner.owners())))

    def ran(self, reports: Sequence[TaskReport]) -> tuple[tuple[int, str], ...]:
        """Count the keyed tasks of an epoch. Return the partition of each, and the member on which it ran, if members
        have layers of their own."""
        keyed = [report for report in reports if report.stage and report.member]
        self._tasks += len(keyed)
        self._found += sum(report.fetched == 0 for report in keyed)
        return tuple((report.partition, report.member) for report in keyed)

    def readable(self, kept: ViewLog) -> ViewLog:
        """Return a log in the form in which the driver can read it."""
        return ScatteredViewLog.of(kept, self._runner) if self._runner.scattered else kept

    def local(self, *, rows: bool) -> dict[str, Local]:
        """Return, for each trace, its local layers, their bytes and rows; empty if a member cannot be reached now."""
        directory, traces = self._compiled.directory, list(self._compiled.layouts)
        with suppress(MemberUnreachable):
            return together(
                self._runner.everywhere("measuring", lambda: local_state(directory, traces, rows=rows)).values()
            )
        return {}

    def is_empty(self, chain: Chain) -> bool:
        """Whether no trace has a row as of the last epoch. The smallest traces are read first: one row is enough to
        know."""
        directory = self._compiled.directory
        sizes = self.local(rows=False)
        layouts = sorted(self._compiled.layouts.items(), key=lambda each: sizes.get(each[0], (0, 0, 0))[1])
        with suppress(MemberUnreachable):
            return all(self._runner.everywhere("acknowledging", lambda: _is_empty(directory, layouts, chain)).values())
        return False

    def status(self) -> PlacementStatus | None:
        """Return which member owns which partitions; None if all layers are in one directory."""
        if not self._runner.scattered:
            return None
        members: dict[str, list[int]] = {}
        for partition, owner in enumerate(self._runner.owners()):
            members.setdefault(owner, []).append(partition)
        return PlacementStatus(members, self._tasks, self._found)


def remove_all_stale(directory: Path, history: History) -> None:
    """Remove the layers on this host that are not of the history."""
    own = host_path(directory)
    if own.is_dir():
        remove_stale([path for path in own.iterdir() if path.is_dir()], history)


def _take(directory: Path, history: History, without: frozenset[str], known: Collection[str] | None) -> bool:
    """On a member: take its layers over. Return whether layers are set aside there."""
    take(directory, known)
    remove_all_stale(directory, history)
    _remove_traces(directory, without)
    return has_set_aside(directory)


def _is_empty(directory: Path, layouts: Sequence[tuple[str, Layout]], chain: Chain) -> bool:
    own = host_path(directory)
    try:
        traces = (Trace.open(own / trace, layout, 0, ALL, chain.end, chain) for trace, layout in layouts)
        return all(trace.scan().rows == 0 for trace in traces)
    except (EpochUnavailable, LogDamaged):
        return False  # a member has a part of the key hashes only: then nothing is acknowledged


def _remove_traces(directory: Path, traces: Collection[str]) -> None:
    """Remove all layers of some traces on this host."""
    for trace in traces:
        for name in local_layers(host_path(directory) / trace):
            (host_path(directory) / trace / name.text()).unlink(missing_ok=True)
