"""Recovery: brings every live trace back to the last epoch, exactly, from what a crash or a loss has left.

1. **Lineage.** The history is found (`runtime/recovery/find_history.py`). What a sink has seen is always part of it.
2. **Layers.** Local layers of that history are used as they are; missing layers are fetched from copies
   (`runtime/recovery/fetch_layers.py`).
3. **Replay.** State that no copy holds is computed again, and no other state (`coordinator/recovery_plan.py` plans it,
   `runtime/recovery/replay.py` carries it out): from the nearest logs, or from the sources by lineage if no log holds
   the input.

Every step only adds layers whose names say what they are. So after a crash in any step the same recovery can run again
and has less to do. A layer that turns out to be damaged later is treated in the same way: it is set aside, steps 2 and
3 are done again, and the work that met it is repeated.

The file is long because damage or a loss may be met in the middle of any of these steps, so that they call each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.recovery_plan import Replay, demand, plan_recovery
from holdfast.errors import EpochUnavailable, LogDamaged, MemberUnreachable, SinkError, StoreError
from holdfast.foundation import failpoints
from holdfast.guarantees.strategy import OnLoss
from holdfast.log.host_paths import host_path
from holdfast.reporting.activity import doing
from holdfast.runtime.known_sources import Known
from holdfast.runtime.open_flow import OpenFlow
from holdfast.runtime.recovery.fetch_layers import Layers, fetch_missing, look_again, remove_others, set_aside
from holdfast.runtime.recovery.layer_transfer import hand_over
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.recovery.replay import Again, ReplayRun
from holdfast.runtime.recovery.retaken import is_logged
from holdfast.runtime.schema_changes import FormerLog
from holdfast.task.program import partition_range

_LOOKS = 3
_REPAIRS = 10
"""How often one piece of work may meet a damaged layer before it gives up."""

T = TypeVar("T")


@contextmanager
def timed(recovery: RecoveryRecord, phase: str) -> Iterator[None]:
    """Add the seconds that the context takes to a phase of the record."""
    started = time.perf_counter()
    try:
        yield
    finally:
        recovery.seconds[phase] = recovery.seconds.get(phase, 0.0) + time.perf_counter() - started


class Recoverer:
    """Keeps every live trace of an open flow at its last epoch."""

    def __init__(
        self, flow: OpenFlow, again: Again, fresh: Collection[str], rested: Collection[str], recovery: RecoveryRecord
    ) -> None:
        """``again`` runs a replay, by the flow's own job or another. ``fresh``: the new operators. ``rested``: the logs
        of inputs that were not declared for a while, and got no rows in that time. ``recovery``: the record of opening
        the flow."""
        self._flow = flow
        self._compiled = flow.compiled
        self._state = flow.state
        self._runner = flow.runner
        self._durability = flow.durability
        self._replaying = ReplayRun(flow, again)
        self._fresh: Collection[str] = fresh
        self._rested = frozenset(rested)
        self._later = flow.state.edits.later(flow.compiled.flow)
        """The operators that were added to the flow after its first epoch."""

        self._taken = False
        self._looked = False
        self._opening = True
        self._together = False
        """Whether all damage that is met from now on goes into one record."""

        self.recovery = recovery
        """The record of the last recovery."""

        self.filled = -1
        """The last epoch as of which state was filled since the flow was opened; -1: none. It is kept beside `recovery`
        because one step may need several recoveries, each with its own record."""

    @contextmanager
    def following(self, former: Mapping[str, FormerLog]) -> Iterator[None]:
        """While the context is open, make the logs of inputs whose schema changed from their former logs."""
        self._replaying.former.update(former)
        try:
            yield
        finally:
            self._replaying.former.clear()

    def open(self) -> None:
        """Bring every live trace to the last epoch: when a flow is opened, and when its layers were damaged or
        moved."""
        self._opening = True
        self.repairing(self._recover)
        self._opening = False
        self._fresh = ()  # from now on no operator is new: lost state is recovered, not filled
        self._durability.look()

    @contextmanager
    def one_record(self) -> Iterator[RecoveryRecord]:
        """Count everything that is repaired while the context is open as one recovery. Yield its record."""
        self.recovery, self._together = RecoveryRecord(epoch=self._state.epochs.last), True
        try:
            yield self.recovery
        finally:
            self._together = False

    def repair(self, found: Sequence[LogDamaged]) -> None:
        """Repair layers that background work found damaged."""
        self.recovery = RecoveryRecord(epoch=self._state.epochs.last)
        self._opening = True
        for error in found:
            self.repairing(partial(self._set_aside, error))
        self.open()

    def adopt(self, settle: bool) -> None:
        """Assign partitions anew after members came or went, and bring layers to the new owners. ``settle``: take the
        assignment at rest, which depends on the members alone."""
        self.adopted(self._runner.refresh(settle))

    def adopted(self, changed: bool) -> None:
        """Bring layers to their owners after the runner has looked which members are there. ``changed``: a partition
        has a new owner."""
        self._taken = False
        if changed:
            self.rebalance()
        else:
            self.repairing(self._take_over)

    def rebalance(self) -> None:
        """Bring the new owners of partitions the layers that they lack, and then remove the former owners' layers."""
        self._taken = False
        if not self._together:
            self.recovery = RecoveryRecord(epoch=self._state.epochs.last)
        self.open()
        self.remove_others()

    def remove_others(self) -> None:
        """Have each member remove the layers of partitions that it does not own."""
        directory, owners = self._compiled.directory, self._runner.owners()
        with suppress(MemberUnreachable):  # a member that cannot be reached keeps them
            self._runner.everywhere("removing what others keep", lambda: remove_others(directory, owners))

    def repairing(self, work: Callable[[], T], gives_up: Callable[[Exception], bool] = lambda error: False) -> T:
        """Do ``work`` and return its result. When it meets a damaged or lost layer, recover and do it again, unless
        ``gives_up`` says that the error is to be raised."""
        told = self._opening or self._together  # whether the current record takes what is repaired here
        for _ in range(_REPAIRS):
            try:
                return work()
            except (LogDamaged, MemberUnreachable) as error:
                if gives_up(error):
                    raise
                damage = error
            if not told:
                self.recovery, told = RecoveryRecord(epoch=self._state.epochs.last), True
            self.recover_from(damage)
        return work()

    def recover_from(self, error: LogDamaged | MemberUnreachable) -> None:
        """Set a damaged layer aside and recover without it. Raise ``error`` if that changes nothing."""
        for attempt in range(_REPAIRS):
            aside, before = False, self.recovery.work
            if isinstance(error, MemberUnreachable):
                # A member cannot be reached: look which members are there, and go on with them.
                if attempt:
                    time.sleep(0.2 * attempt if self._runner.threads else 0.0)
                self._runner.refresh()
                self._taken = False
                aside = True
            try:
                aside = self._set_aside(error) or aside
                self._recover()
            except (LogDamaged, MemberUnreachable) as another:
                if not aside and str(another) == str(error):
                    raise
                error = another
                continue
            if aside or self.recovery.work != before:
                return
            raise error
        raise error

    def _set_aside(self, error: LogDamaged | MemberUnreachable) -> bool:
        """Take the damaged layer that ``error`` names out of use. Return False if it names none. (A layer that is gone
        needs no removal, and is recovered in the same way.)"""
        path = error.fields.get("path")
        if not isinstance(path, str):
            return False
        directory, name, unfit = self._compiled.directory, Path(path), bool(error.fields.get("unfit"))

        def aside() -> bool:
            own = host_path(directory)
            return name.parent.parent == own and set_aside(name, own.parent, unfit)

        if not self._runner.scattered and name.parent.parent != directory:
            return False
        self._runner.everywhere("setting a damaged layer aside", aside)
        self._flow.layers.set_aside = True
        self.recovery.damaged.append(str(error))
        return True

    def _recover(self) -> None:
        last, recovery = self._state.epochs.last, self.recovery
        self._take_over()
        if last < 0:
            return
        traces = list(self._compiled.layouts)
        directory = self._compiled.directory
        ranges = [partition_range(partition, self._runner.partitions) for partition in range(self._runner.partitions)]
        self._fetch_former(ranges)

        listed: list[Layers] = []  # the members' layers if they were just listed, to be used once

        def look() -> Layers:
            self._durability.look()
            if listed:
                return listed.pop().beside(self._durability.holdings)
            return self._layers(traces, self._durability.holdings)

        def is_whole(layers: Layers) -> bool:
            return all(layers.has(trace) >= last for trace in traces)

        with timed(recovery, "look"):
            layers = self._layers(traces, {})
            whole = is_whole(layers)
            if not whole and self._look_again():
                layers = self._layers(traces, {})
                whole = is_whole(layers)
        listed.append(layers)
        if not whole and self._durability.is_durable:
            with timed(recovery, "fetch"), doing(self._subject, "fetching layers from the log's locations"):
                layers = self._fetch(look, traces, ranges)
                whole = is_whole(layers)
        if not whole and self._runner.scattered:
            with timed(recovery, "hand"):
                layers = hand_over(self._runner, look, traces, ranges, directory, recovery)
        if self._fetch_owed(layers, ranges):
            layers = self._layers(traces, self._durability.holdings)
        recovery.layers_reused = max(0, layers.count - recovery.layers_fetched)
        if whole:
            return
        self._fresh = {*self._fresh, *self._as_new(layers), *self._cannot_undo(layers, ranges)}
        # New operators are filled from the state of the others, which must be whole first. Operators that read new ones
        # are recovered with them.
        self._replay(self._plan(layers, ranges, self._with_readers(self._fresh)), layers)
        if self._fresh:
            layers = self._layers(traces, self._durability.holdings)
            self._replay(self._plan(layers, ranges), layers)

    def _look_again(self) -> bool:
        """Look once more at layers that were set aside, since the reason may have passed (a disk that could not be
        read). Return whether a local layer is back in use."""
        if self._looked:
            return False
        self._looked = True
        self._durability.look_again(self._compiled.layouts)
        if not self._flow.layers.set_aside:
            return False
        directory = self._compiled.directory
        found = self._runner.everywhere("looking again at what was set aside", lambda: look_again(directory))
        return any(found.values())

    def _layers(self, traces: Sequence[str], holdings: Mapping[int, Holding]) -> Layers:
        found = dict(holdings)  # a copy: rounds in other threads change the original
        return Layers(
            self._runner, traces, self._compiled.directory, self._state.epochs.last, found, self._state.history
        )

    def _take_over(self) -> None:
        if not self._taken:
            self._flow.layers.take()
            self._taken = True

    def _with_readers(self, operators: Collection[str]) -> set[str]:
        flow, new = self._compiled.flow, set(operators)
        return new | {operator for operator in flow.operators if flow.ancestors({operator}) & new}

    def _as_new(self, layers: Layers) -> Iterator[str]:
        """Return the operators that were filled when they were added, and then lost before any copy had that state.
        They are filled again, because the input of the epochs before may have been released."""
        for operator in set(self._later) - self._compiled.drawing:
            if any(layers.reach(trace, 0, 2**64) < 0 for trace in self._compiled.traces[operator]):
                yield operator

    def _cannot_undo(self, layers: Layers, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
        """Return the operators that lost the epoch of a rewind and whose traces no longer tell what it undid. The
        rewind computed them as a new view is computed, so they are filled again."""
        last, rewinds = self._state.epochs.last, self._state.rewinds.since(-1)
        for operator in set(self._compiled.traces) - self._compiled.drawing if rewinds else ():
            traces = self._compiled.traces[operator]
            for low, high in ranges:
                upto = min(layers.reach(trace, low, high) for trace in traces)
                undone = [to for epoch, to in rewinds.items() if to <= upto < epoch <= last]
                if not all(layers.has_changes(trace, low, high, to, upto) for to in undone for trace in traces):
                    yield operator
                    break

    def _replay(self, plan: Sequence[Replay], layers: Layers) -> None:
        recovery = self.recovery
        filling = any(replay.first == 0 and replay.epoch > 0 for replay in plan) or bool(self._fresh)
        what = f"filling {self._names(plan)}" if filling else "computing epochs again"
        with timed(recovery, "replay"), doing(self._subject, what, len(plan)) as activity:
            for replay in plan:
                failpoints.reach("recovery.before_replay")
                if replay.first == 0:
                    # This replay takes all rows so far, so operators that are new must ask outside. That is also true
                    # of the first epoch alone: its change is all rows that were there after it.
                    replay = replace(replay, asking=frozenset(self._fresh))
                self._replaying.carry_out(replay, layers, recovery)
                self.filled = max(self.filled, -1 if recovery.filled is None else recovery.filled)
                activity.advance()

    @property
    def _subject(self) -> str:
        return f"flow '{self._compiled.declared.name}'"

    def _names(self, plan: Sequence[Replay]) -> str:
        """Return the names of up to three views that a recovery fills, as text for users."""
        written = {operator for replay in plan for operator in replay.write}
        names = [name for name, log in self._compiled.flow.views.items() if log in written]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "state"

    def _fetch(self, look: Callable[[], Layers], traces: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Layers:
        """Fetch missing layers from the log's locations, and return what is there then. If layers are still missing and
        a location does not answer, that location may hold them, and state that a log still holds is not computed
        again: try a few times, then raise `StoreError`."""
        kept = [
            trace for operator, some in self._compiled.traces.items() if operator not in self._fresh for trace in some
        ]
        for attempt in range(_LOOKS):
            layers = fetch_missing(self._runner, look, traces, ranges, self._durability.locations, self.recovery)
            troubles = dict(self._durability.troubles)
            if not troubles or all(layers.reach(trace, 0, 2**64, others=True) >= layers.last for trace in kept):
                return layers
            if self._runner.threads:
                time.sleep(0.5 * (attempt + 1))
        number, trouble = next(iter(sorted(troubles.items())))
        raise StoreError(
            f"{trouble.error}; state that is missing here may be there: try again when it answers, or take "
            f"{self._durability.locations[number].uri} out of the log's locations to compute it again",
            location=self._durability.locations[number].uri,
        )

    def _fetch_former(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch the former logs of edited views from which a sink still needs a difference. They cannot be computed
        again, because the former query is not declared any more. (If it is declared again, its log is filled as of the
        last epoch; only the former log tells the earlier epochs that a sink needs.) Raise `SinkError` if epochs of such
        a log are missing everywhere, and `LogDamaged` for the former log of an input."""
        logs = {version.trace: log for version, log in self._state.edits.former().items()}
        returned = {trace: (log.since, log.upto) for trace, log in logs.items() if trace in self._compiled.layouts}
        former = {trace: (log.upto, log.view) for trace, log in logs.items() if trace not in returned}
        inputs = {known.version.trace: (known.upto, name) for name, known in self._replaying.former.items()}
        former |= inputs

        def lacking(layers: Layers) -> list[str]:
            return [trace for trace, (upto, _) in former.items() if layers.reach(trace, 0, 2**64) < upto]

        traces = [*former, *returned]
        if not traces:
            return

        def look() -> Layers:
            return self._layers(traces, self._durability.peek(traces))

        layers = self._layers(traces, {})
        whole = all(layers.has(trace) >= upto for trace, (upto, _) in former.items())
        whole = whole and all(layers.has_epochs(trace, *epochs) for trace, epochs in returned.items())
        locations, directory, recovery = self._durability.locations, self._compiled.directory, self.recovery
        if not whole and self._durability.is_durable:
            layers = fetch_missing(self._runner, look, traces, ranges, locations, recovery, returned)
        if not whole and self._runner.scattered:
            layers = hand_over(self._runner, look, traces, ranges, directory, recovery, returned)
        for trace in lacking(layers):
            upto, view = former[trace]
            reach = layers.reach(trace, 0, 2**64)
            if trace in inputs:
                raise self._incomplete(view, reach + 1, upto)
            raise SinkError(
                f"sink of view '{view}': it was not brought away yet from what the view was before it was edited, and "
                f"of that log epochs {reach + 1} to {upto} are in none of the places that were looked at; open the "
                "flow once more with the query as it was, or start the sink anew in an empty place",
                view=view,
                first=reach + 1,
                last=upto,
            )

    def _fetch_owed(self, layers: Layers, ranges: Sequence[tuple[int, int]]) -> bool:
        """Fetch the single changes of input that epochs take again after a rewind, for the logs that tell them no more.
        (A copy in which they are collapsed is enough for the last epoch, and is fetched for that.) Return whether
        anything was looked for."""
        rewinds, last = self._state.rewinds, layers.last
        if not rewinds.since(-1):
            return False
        reached = min((layers.has(trace) for trace in self._compiled.layouts), default=last)
        again = [owed for epoch in range(reached + 1, last + 1) if (owed := rewinds.retaken(epoch)) is not None]
        since: dict[str, int] = {}
        logs = {name: log for name, log in self._compiled.flow.views.items() if name in self._compiled.declared.sources}
        for owed in (*rewinds.owed, *again):
            # What epochs took that were folded since is safe, and is not taken again.
            took = self._state.history[owed.epoch].offers if owed.epoch >= self._state.history.first else {}
            for name in took.keys() & logs.keys():
                if is_logged(self._flow, name):
                    trace = f"{logs[name]}.rows"
                    since[trace] = min(since.get(trace, last), owed.epoch - 1)
        epochs = {trace: (first, last) for trace, first in since.items() if not layers.has_epochs(trace, first, last)}
        if not epochs:
            return False

        def look() -> Layers:
            return self._layers(list(epochs), self._durability.peek(list(epochs)))

        if self._durability.is_durable:
            fetch_missing(self._runner, look, list(epochs), ranges, self._durability.locations, self.recovery, epochs)
        if self._runner.scattered:
            hand_over(self._runner, look, list(epochs), ranges, self._compiled.directory, self.recovery, epochs)
        return True

    def reading_former(self, trace: str, epoch: int, read: Callable[[], T]) -> T:
        """Read a view's former log (from before an edit) as of an epoch. Damaged or missing layers are fetched if a
        copy has them; they cannot be computed again."""
        problem = ""
        for _ in range(_REPAIRS):
            try:
                return read()
            except (EpochUnavailable, LogDamaged, MemberUnreachable) as error:
                if str(error) == problem:
                    raise
                problem = str(error)
                if isinstance(error, LogDamaged):
                    self._set_aside(error)
            self._fetch_as_of(trace, epoch)
        return read()

    def _fetch_as_of(self, trace: str, epoch: int) -> None:
        ranges = [partition_range(partition, self._runner.partitions) for partition in range(self._runner.partitions)]
        needed, record = {trace: (epoch, epoch)}, RecoveryRecord(epoch=self._state.epochs.last)

        def look() -> Layers:
            return self._layers([trace], self._durability.peek([trace]))

        if self._durability.is_durable:
            fetch_missing(self._runner, look, [trace], ranges, self._durability.locations, record, needed)
        if self._runner.scattered:
            hand_over(self._runner, look, [trace], ranges, self._compiled.directory, record, needed)

    def _plan(self, layers: Layers, ranges: Sequence[tuple[int, int]], without: Collection[str] = ()) -> list[Replay]:
        last = self._state.epochs.last
        covers = {
            (operator, partition): min(layers.reach(trace, low, high) for trace in traces)
            for operator, traces in self._compiled.traces.items()
            if operator not in without
            for partition, (low, high) in enumerate(ranges)
        }
        lost = {operator for (operator, _), upto in covers.items() if upto < last}
        if not lost:
            return []
        if self._state.settings.strategy.on_loss is OnLoss.REPLAY:
            self._check_input(covers)
        rested = self._after_a_rest(covers, last)
        views = {name for name, operator in self._compiled.flow.views.items() if operator in lost}
        behind = self._state.edits.behind(views, self._flow.delivery.lost())
        return rested + plan_recovery(
            self._compiled.flow,
            covers,
            len(ranges),
            last,
            last if behind is None else max(min(behind, last), self._state.history.first),
            lambda operator, partition, epoch: all(
                layers.readable(trace, *ranges[partition], epoch, covers[operator, partition])
                for trace in self._compiled.traces[operator]
            ),
            fresh=self._fresh,
            drawing=self._compiled.drawing,
            base=base.epoch if (base := self._state.history.base) is not None else -1,
            rewinds=self._state.rewinds.since(-1),
            undoable=lambda operator, partition, to: all(
                layers.has_changes(trace, *ranges[partition], to, covers[operator, partition])
                for trace in self._compiled.traces[operator]
            ),
        )

    def _after_a_rest(self, covers: dict[tuple[str, int], int], last: int) -> list[Replay]:
        """Return the replays that bring rested operators (`_rested`) to the last epoch, one replay for the whole gap.
        In ``covers``, these operators are marked as covered up to the last epoch."""
        places: dict[int, dict[str, set[int]]] = {}
        for (operator, partition), upto in covers.items():
            if operator in self._rested and 0 <= upto < last:
                places.setdefault(upto, {}).setdefault(operator, set()).add(partition)
                covers[operator, partition] = last
        replays = []
        for upto, write in sorted(places.items()):
            frozen = {operator: frozenset(where) for operator, where in write.items()}
            replays.append(Replay(upto + 1, last, frozen, demand(self._compiled.flow, frozen, self._runner.partitions)))
        return replays

    def whole(self, absent: Mapping[str, Known]) -> dict[str, int]:
        """Return the logs of undeclared inputs that are whole in the working directory and so can be copied: trace →
        last epoch."""
        logs = {known.version.trace: known.upto or 0 for known in absent.values()}
        if not logs or self._runner.scattered:
            return {}
        layers = self._layers(list(logs), {})
        return {trace: upto for trace, upto in logs.items() if layers.has(trace) >= upto}

    def _check_input(self, covers: Mapping[tuple[str, int], int]) -> None:
        """Raise `LogDamaged` if rows that code pushed are missing: they are only in the log, and cannot be taken from a
        source again."""
        for name, source in self._compiled.declared.sources.items():
            log = self._compiled.flow.views.get(name)
            if (
                source.replayable
                or log is None
                or name not in self._flow.intake.taken
                or name in self._replaying.former
            ):
                continue
            upto = min(
                (cover for (operator, _), cover in covers.items() if operator == log), default=self._state.epochs.last
            )
            lost = [
                epoch
                for epoch, _ in self._flow.intake.taken[name]
                if epoch > upto
                and (name, epoch) not in self._flow.pushed
                and self._state.rewinds.retaken(epoch) is None  # retaken rows are in the epoch that first took them
            ]
            if lost:
                raise self._incomplete(name, lost[0], lost[-1])

    def _incomplete(self, name: str, first: int, last: int) -> LogDamaged:
        return LogDamaged(
            f"log {self._compiled.declared.local}: the rows pushed to input '{name}' in epochs {first} to {last} are "
            "not complete, and there is no copy to take them from",
            name=name,
            first=first,
            last=last,
        )
