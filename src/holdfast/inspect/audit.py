"""An audit of a log: the content of every file is compared with its name, and every place with the history.

An audit checks each place (`places.py`) by itself: the flow it belongs to, each record of its lineage, each layer's
checksum and rows, and up to which epoch its intact layers cover every live trace. A place must hold everything up to
its *front*: the newest epoch of which it has any lineage or layer. While the flow runs, layers come after their
lineage, so then only a hole between layers counts as missing. Cost: one pass over all bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.coordinator.copy_plan import trusting
from holdfast.coordinator.history import History
from holdfast.coordinator.true_history import choose
from holdfast.errors import EpochUnavailable, LogDamaged, LogError, LogUnreadable, StoreError
from holdfast.foundation.atomic_files import is_temporary
from holdfast.foundation.retries import attempts
from holdfast.inspect.findings import AuditReport, Checked, Finding, Kind
from holdfast.inspect.places import LOCAL, REPLICA, Place, Sizes, Working, check_one_flow, declared, live_traces
from holdfast.log.branches import damaged, path_of
from holdfast.log.lineage_copies import FoundLineage, orphans, records_of
from holdfast.log.replica import is_true
from holdfast.trace.cover import cover, covered
from holdfast.trace.name import ALL, LayerName

_READERS = 4
"""The number of layers that are read concurrently: remote reads wait, and checksums release the interpreter's lock."""

_LOOKS = 4
_PAUSE = 0.2
"""The number of looks, and seconds between them: a running flow changes a place while it is listed."""

_OWN = {
    "claims", "collections.json", "damaged", "delivered.json", "layers", "lineage", "lock", "roster", "sinks.json",
    "traces",
}  # fmt: skip

Progress = Callable[[int, int], None]
"""Called with the bytes that were checked so far, and the bytes of everything to check."""


class Audit:
    """One audit of all places. Afterwards ``repair.py`` reads the damage from it."""

    def __init__(
        self,
        places: Sequence[Place],
        is_running: bool,
        progress: Progress | None = None,
        intact: Iterable[tuple[Place, str, LayerName]] = (),
    ) -> None:
        """``intact``: layers that an earlier audit found intact, and that are not read again."""
        self.places = list(places)
        self.is_running = is_running
        self.findings: list[Finding] = []
        self._progress = progress or (lambda done, total: None)
        self._before = {(place.uri, place.level, trace, name) for place, trace, name in intact}
        self.reachable: list[Place] = []
        self.headless: list[Place] = []
        """Places without a readable header, which do not say to which flow they belong."""

        self.undescribed: list[Place] = []
        """Places whose collections.json is not that of the flow."""

        self.lineages: dict[Place, FoundLineage] = {}
        self.layers: dict[Place, dict[str, Sizes]] = {}
        """All listed layers, without damaged ones."""

        self.damaged: list[tuple[Place, str, LayerName]] = []
        self.unread: set[tuple[Place, str, LayerName]] = set()
        self.flow = self._find_flow()
        self.kept = declared(self._described())
        self.history = History()
        self.whole = True
        """Whether the history is whole; if it has a hole, epochs after the hole cannot be judged."""

        self.traces: list[str] = []
        self._look()

    @property
    def intact(self) -> list[tuple[Place, str, LayerName]]:
        return [
            (place, trace, name)
            for place, traces in self.layers.items()
            for trace, layers in traces.items()
            for name in layers
            if (place, trace, name) not in self.unread
        ]

    def true_layers(self, place: Place, trace: str) -> Sizes:
        """The intact layers of a trace in a place that belong to the history."""
        layers = self.layers.get(place, {}).get(trace, {})
        return {name: size for name, size in layers.items() if is_true(name, self.history)}

    # -- whose log it is ----------------------------------------------------------------------------------------------

    def _find_flow(self) -> str:
        flows: dict[str, str | None] = {}
        for place in self.places:
            try:
                flows[place.uri] = place.flow()
                if flows[place.uri] is None:
                    self._headless(place, Kind.MISSING, "there is no holdfast.json that says whose log it is")
            except LogDamaged as error:
                self._headless(place, Kind.DAMAGED, str(error))
            except StoreError as error:
                self._found(place, Kind.UNREACHABLE, str(error))
                continue
            self.reachable.append(place)
        check_one_flow(flows)
        for place in self.headless:
            _check_is_ours(place)
        known = [flow for flow in flows.values() if flow is not None]
        if not known:
            said = "; ".join(finding.message for finding in self.findings)
            raise LogError(f"log {', '.join(place.uri for place in self.places)}: {said}")
        return known[0]

    def _headless(self, place: Place, kind: Kind, message: str) -> None:
        self.headless.append(place)
        self._found(place, kind, message, path="holdfast.json")

    def _described(self) -> list[Place]:
        """The places whose collections.json can be read; a finding for each other place, or if it is another flow's."""
        kept: dict[Place, dict[str, Any]] = {}
        for place in self.reachable:
            try:
                kept[place] = place.collections()
            except LogDamaged as error:
                self._found(place, Kind.DAMAGED, str(error), path="collections.json")
                self.undescribed.append(place)
        truth = declared(list(kept))
        for place, held in kept.items():
            if held != truth:
                self.undescribed.append(place)
                kind = Kind.BEHIND if held else Kind.MISSING
                self._found(place, kind, "collections.json is not what the flow keeps now", path="collections.json")
        return list(kept)

    # -- a look -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        before = list(self.findings)
        for is_last in attempts((_PAUSE,) * (_LOOKS - 1)):
            self.findings = list(before)
            vanished = self._list_and_check()
            self._judge()
            holes = any(finding.kind is Kind.MISSING for finding in self.findings[len(before) :])
            if is_last or not (vanished or (self.is_running and holes)):
                return

    def _list_and_check(self) -> bool:
        """List all places, and read the layers that were not read yet. Returns whether a file disappeared meanwhile."""
        listed: dict[Place, dict[str, Sizes]] = {}
        for place in list(self.reachable):
            try:
                listed[place] = {trace: place.layers(trace) for trace in place.traces()}
            except StoreError as error:
                self._lost(place, error)
        # Lineage is read after layers are listed, so that it has all epochs of the listed layers.
        self.lineages = {}
        for place in list(self.reachable):
            try:
                self.lineages[place] = place.lineage()
            except (StoreError, FileNotFoundError) as error:
                self._lost(place, error)
        self.traces = live_traces(self.reachable, self.kept)
        self.layers = {place: listed[place] for place in self.reachable}
        return self._check_layers()

    def _lost(self, place: Place, error: Exception) -> None:
        self.reachable.remove(place)
        self._found(place, Kind.UNREACHABLE, str(error))

    def _check_layers(self) -> bool:
        items = [
            (place, trace, name, size)
            for place, traces in self.layers.items()
            for trace, layers in traces.items()
            for name, size in layers.items()
            if (place.uri, place.level, trace, name) not in self._before
        ]
        self.damaged, self.unread = [], set()
        total, done, vanished = sum(size for *_, size in items), 0, False
        with ThreadPoolExecutor(_READERS) as pool:
            for (place, trace, name, size), problem in zip(items, pool.map(self._check, items), strict=True):
                done += size
                self._progress(done, total)
                path = place.path(trace, name)
                match problem:
                    case None:
                        self._before.add((place.uri, place.level, trace, name))
                    case FileNotFoundError():
                        vanished = True
                        del self.layers[place][trace][name]
                    case LogDamaged():
                        self.damaged.append((place, trace, name))
                        del self.layers[place][trace][name]
                        self._found(place, Kind.DAMAGED, _short(problem), path=path, trace=trace)
                    case _:
                        self.unread.add((place, trace, name))
                        self._found(place, Kind.UNREACHABLE, str(problem), path=path, trace=trace)
        return vanished

    @staticmethod
    def _check(item: tuple[Place, str, LayerName, int]) -> Exception | None:
        place, trace, name, _ = item
        try:
            place.check(trace, name)
        except (LogDamaged, LogUnreadable, StoreError, FileNotFoundError) as error:
            return error
        return None

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        records = records_of(self.lineages.values())
        self.history = choose(records)
        lines = self.history.last + 1 - self.history.first
        self.whole = not orphans(records) and not any(
            damage.line > lines for found in self.lineages.values() for damage in found.damaged
        )
        for place in self.reachable:
            self._judge_lineage(place)
            self._judge_layers(place)
            self._judge_rest(place)

    def front(self, place: Place) -> int:
        """The newest epoch of which the place has any lineage or layer; -1 if it has none."""
        true = [name.last for trace in self.traces for name in self.true_layers(place, trace)]
        gone = [n.last for where, trace, n in self.damaged if where is place and trace in self.traces and self._true(n)]
        return max([self.lineages[place].newest(self.history), *true, *gone], default=-1)

    def _true(self, name: LayerName) -> bool:
        return is_true(name, self.history)

    def _judge_lineage(self, place: Place) -> None:
        found, last = self.lineages[place], self.history.last
        for damage in found.damaged:
            line = f"line {damage.line}: " if damage.line else ""
            lost = "" if self.whole else "; no other copy was found, and the flow will look for one in its layers"
            self._found(place, Kind.DAMAGED, f"lineage: {line}{damage.why}{lost}", path=damage.path)
        held = {record.digest for record in found.records}
        front = self.front(place)
        missing = [record.epoch for record in self.history if record.epoch <= front and record.digest not in held]
        for first, upto in _ranges(missing):
            if not found.damaged:
                # A finding for a damaged line already says which epoch is missing.
                self._found(place, Kind.MISSING, f"the lineage of {_epochs(first, upto)}", first=first, last=upto)
        if front < last:
            message = f"it ends with epoch {front}, and the history with epoch {last}"
            self._found(place, Kind.BEHIND, message, first=front + 1, last=last)

    def _judge_layers(self, place: Place) -> None:
        front = self.front(place)
        damaged = {trace for where, trace, _ in self.damaged if where is place}
        for trace in self.traces:
            names = list(self.true_layers(place, trace))
            held = covered(names, 0, ALL, trusting(front)) if front >= 0 else -1
            if held >= front:
                continue
            first, last = _hole(names, held, front)
            hole = any(name.first > first for name in names)
            kind = Kind.BEHIND if self.is_running and not hole and trace not in damaged else Kind.MISSING
            message = f"layers of {_epochs(first, last)} of trace {trace}"
            self._found(place, kind, message, trace=trace, first=first, last=last)

    def _judge_rest(self, place: Place) -> None:
        stale = [
            (trace, name)
            for trace, layers in self.layers[place].items()
            for name in layers
            if not self._true(name)
            # A layer after the end may be of an epoch that runs right now, or of a lost part of the history.
            and (name.last <= self.history.last or (self.whole and not self.is_running and place.level == LOCAL))
        ]
        if stale:
            self._found(place, Kind.STALE, f"{len(stale)} layers of epochs that were abandoned or did not complete")
        unused = [trace for trace in self.layers[place] if trace not in self.traces and self.layers[place][trace]]
        if unused:
            self._found(place, Kind.STALE, f"{len(unused)} traces that no view of the flow uses now")
        self._judge_unknown(place)
        digests = {lineage.digest for lineage in self.history}
        other = [record for record in self.lineages[place].records if record.digest not in digests]
        if other and self.whole:
            self._found(place, Kind.STALE, f"the lineage of {len(other)} epochs that were abandoned")
        self._judge_branches(place)
        self._judge_leftovers(place)

    def _judge_unknown(self, place: Place) -> None:
        """Find epochs that the place has records or layers of, and whose lineage no place has."""
        records = records_of(self.lineages.values())
        mine = {record.digest for record in self.lineages[place].records}
        lost = {record.epoch - 1 for record in orphans(records) if record.digest in mine}
        if place.level == REPLICA:
            # In a location lineage is written before layers. (In a working directory layers are written first.)
            known = {record.digest for record in records}
            layers = [name for trace in self.traces for name in self.layers[place].get(trace, ())]
            lost |= {n.last for n in layers if n.last > self.history.last and n.digest not in known}
        for first, last in _ranges(sorted(lost)):
            message = f"the lineage of {_epochs(first, last)}, which is in none of these places"
            self._found(place, Kind.MISSING, message, first=first, last=last)

    def _judge_branches(self, place: Place) -> None:
        for name in damaged(place.location, ()):
            self._found(place, Kind.DAMAGED, f"it does not say what branch '{name}' is", path=path_of(name))

    def _judge_leftovers(self, place: Place) -> None:
        path = place.location.local()
        if path is None:
            return  # an object store has no leftovers, and other filesystems do not list them
        root = place.layers_directory if isinstance(place, Working) else path / "layers"
        torn = [file for file in root.rglob(".*.tmp") if is_temporary(file.name)] if not self.is_running else []
        if torn:
            self._found(place, Kind.LEFTOVER, f"{len(torn)} files that were being written when a process died")
        suffix = ".arrow" if place.level == LOCAL else ".parquet"
        aside = list((path / "damaged").rglob(f"*{suffix}"))
        if aside:
            self._found(
                place,
                Kind.LEFTOVER,
                f"{len(aside)} damaged layers that were set aside; a repair looks again",
                path="damaged",
            )

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _found(self, place: Place, kind: Kind, message: str, **fields: Any) -> None:
        self.findings.append(Finding(place.uri, place.level, kind, message, **fields))

    def report(self, holder: dict[str, Any] | None) -> AuditReport:
        return AuditReport(
            self.flow, self.history.last, holder, [self._checked(place) for place in self.places], self.findings
        )

    def _checked(self, place: Place) -> Checked:
        mine = [finding for finding in self.findings if (finding.place, finding.level) == (place.uri, place.level)]
        checked = Checked(place.uri, place.level)
        checked.damaged = [finding.path for finding in mine if finding.kind is Kind.DAMAGED]
        checked.missing = [
            {"trace": finding.trace or "lineage", "first": finding.first, "last": finding.last}
            for finding in mine
            if finding.kind is Kind.MISSING and finding.first is not None
        ]
        if place not in self.reachable:
            return checked
        sizes = [size for layers in self.layers[place].values() for size in layers.values()]
        checked.layers = len(sizes) + sum(where is place for where, _, _ in self.damaged)
        checked.bytes = sum(sizes)
        checked.checked = len(sizes) - sum(where is place for where, _, _ in self.unread)
        checked.lineage = self.lineages[place].upto(self.history)
        last = self.history.last
        checked.covered = {
            trace: covered(self.true_layers(place, trace), 0, ALL, trusting(last)) if last >= 0 else -1
            for trace in self.traces
        }
        return checked


def _check_is_ours(place: Place) -> None:
    """Raise `LogError` if a place holds other things and no log. (An empty place may have lost everything.)"""
    names = {entry.name for entry in place.location.list("")} | set(place.location.directories(""))
    foreign = sorted(name for name in names - _OWN if not name.startswith("."))
    if foreign and not names & _OWN:
        some = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        raise LogError(f"log {place.uri}: it holds other things ({some}) and no log; is it the right place?")


def _hole(names: Sequence[LayerName], held: int, front: int) -> tuple[int, int]:
    """The first range of epochs that no layer holds."""
    try:
        cover(names, 0, ALL, front, trusting(front))
    except LogDamaged as error:
        first, last = error.fields.get("first"), error.fields.get("last")
        if isinstance(first, int) and isinstance(last, int):
            return first, last
    except EpochUnavailable:
        pass
    return held + 1, front


def _ranges(epochs: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for epoch in epochs:
        if found and found[-1][1] == epoch - 1:
            found[-1] = (found[-1][0], epoch)
        else:
            found.append((epoch, epoch))
    return found


def _epochs(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def _short(error: LogDamaged) -> str:  # the finding has the path
    return str(error).partition("damaged: ")[2] or str(error)
