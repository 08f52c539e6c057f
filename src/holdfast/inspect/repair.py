"""Repairing a log: each place is filled up from the intact copies of the others. Only `verify` calls it.

Nothing is deleted: damaged files are moved to ``damaged/``, and apart from that files are only added, under names that
say what they hold. So after a crash in the middle, repairing again completes the work.

Between log locations a layer is copied as it is: the same name and the same bytes. A working directory gets Arrow
layers that are decoded from durable ones; a location gets durable layers encoded from local ones if no other location
has them. Epochs that no copy holds stay missing: the flow computes them again when it opens, if its sources still have
the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.coordinator.copy_plan import Copied, Ship, trusting
from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.inspect.places import Durable, Place, Sizes, Working, chain_of
from holdfast.log.copying import Fetch, Shipment, fetch_all, read_intact, ship_all
from holdfast.log.replica import Segment
from holdfast.log.stash import LineageLog
from holdfast.log.working_directory import LogDirectory
from holdfast.reporting.activity import doing
from holdfast.runtime.recovery.fetch_layers import look_again, set_aside
from holdfast.trace.cover import cover, covered
from holdfast.trace.layer import open_layer
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.rows import Layout

if TYPE_CHECKING:
    from holdfast.inspect.audit import Audit


class Repair:
    """Repairs what an audit found."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._history = audit.history
        self._last = audit.history.last
        self._chain = trusting(self._last)
        self._places = list(audit.reachable)
        self._durable = [place for place in self._places if isinstance(place, Durable)]
        self._working = [place for place in self._places if isinstance(place, Working)]
        self._held: dict[tuple[Place, str], Sizes] = {}

    def run(self) -> None:
        for place in self._places:
            self._describe(place)
        with ExitStack() as locks:
            for place in self._working:
                locks.callback(LogDirectory.open(place.directory, self._audit.flow, exclusive=True).close)
            for place in self._places:
                self._look_again(place)
            for place, trace, name in self._audit.damaged:
                self._set_aside(place, trace, name)
            if self._audit.whole:
                # Only if the history is whole: after a hole it is not known which files belong to it.
                for place in self._places:
                    self._fill_lineage(place)
                self._copy_by_name()
                with doing(f"log of flow '{self._audit.flow}'", "filling places", len(self._audit.traces)) as activity:
                    for trace in self._audit.traces:
                        self._fill(trace)
                        activity.advance()

    # -- the small files ----------------------------------------------------------------------------------------------

    def _describe(self, place: Place) -> None:
        """Write the header and the description of a place again, if they are damaged or missing."""
        if place in self._audit.headless:
            self._move_aside(place, "holdfast.json")
            place.replica.open(self._audit.flow)
        if place in self._audit.undescribed:
            self._move_aside(place, "collections.json")
            place.replica.write_collections(self._audit.kept)

    @staticmethod
    def _move_aside(place: Place, path: str) -> None:
        try:
            place.location.move(path, f"damaged/{path}")
        except FileNotFoundError:
            return  # the file was missing

    def _set_aside(self, place: Place, trace: str, name: LayerName) -> None:
        if isinstance(place, Working):
            set_aside(place.directory / place.path(trace, name), place.directory)
        else:
            place.replica.set_aside(trace, name)

    def _look_again(self, place: Place) -> None:
        """Put back files that were set aside before, and hold what their names say after all."""
        if isinstance(place, Working):
            look_again(place.layers_directory)
            listed = {trace: place.layers(trace) for trace in place.traces()}
        else:
            back = [(trace, name) for trace, name in place.replica.aside() if place.replica.put_back(trace, name)]
            listed = {trace: place.layers(trace) for trace in {trace for trace, _ in back}}
        damaged = {(trace, name) for where, trace, name in self._audit.damaged if where is place}
        for trace, layers in listed.items():
            held = self._audit.layers.setdefault(place, {}).setdefault(trace, {})
            held.update({name: size for name, size in layers.items() if (trace, name) not in damaged})

    # -- lineage ------------------------------------------------------------------------------------------------------

    def _fill_lineage(self, place: Place) -> None:
        found = self._audit.lineages[place]
        if isinstance(place, Working):
            if found.damaged:
                # The whole stash is written again; the damaged one is kept for people to look at.
                self._move_aside(place, "lineage/log.jsonl")
            if found.damaged or found.upto(self._history) < self._last:
                LineageLog(place.stash, self._history).close()
            return
        for damage in found.damaged:
            segment = Segment.parse(damage.path.rpartition("/")[2])
            if segment is not None and segment.last <= self._last:
                # Only segments of known epochs are moved: a damaged segment that no place can replace stays where it
                # is, since a person may still read a part of it.
                self._move_aside(place, damage.path)
        held = {record.digest for record in found.records}
        start = None
        for lineage in self._history:
            if lineage.digest in held:
                if start is not None:
                    place.replica.write_lineage(self._history[start : lineage.epoch])
                start = None
            elif start is None:
                start = lineage.epoch
        if start is not None:
            place.replica.write_lineage(self._history[start:])

    # -- layers -------------------------------------------------------------------------------------------------------

    def _names(self, place: Place, trace: str) -> Sizes:
        if (place, trace) not in self._held:
            self._held[place, trace] = self._audit.true_layers(place, trace)
        return self._held[place, trace]

    def _copy_by_name(self) -> None:
        """Copy back layers that are damaged in one location and intact, under the same name, in another."""
        for place, trace, name in self._audit.damaged:
            for other in self._durable if isinstance(place, Durable) else ():
                held = self._audit.layers[other].get(trace, {})
                if other is not place and name in held and self._copy(other, place, trace, name):
                    break

    def _copy(self, source: Place, target: Place, trace: str, name: LayerName) -> bool:
        try:
            data, _ = read_intact(source.replica, trace, name)
        except LogDamaged:
            return False  # it was damaged after the audit
        target.replica.write_layer(trace, name, data)
        self._names(target, trace)[name] = len(data)
        return True

    def _fill(self, trace: str) -> None:
        for place in self._durable:
            others = {other: self._names(other, trace) for other in self._durable if other is not place}
            for name in self._lacking(self._names(place, trace), [n for names in others.values() for n in names]):
                for other, names in others.items():
                    if name in names and self._copy(other, place, trace, name):
                        break
        for directory in self._working:
            self._fetch(directory, trace)
        for place in self._durable:
            for directory in self._working:
                self._ship(directory, place, trace)

    def _lacking(self, own: Iterable[LayerName], others: Iterable[LayerName]) -> list[LayerName]:
        """The layers among ``others`` that a place with the layers ``own`` needs to cover as much as all of them
        together do."""
        mine = set(own)
        both = [*mine, *(name for name in others if name not in mine)]
        wanted: dict[LayerName, None] = {}
        for low, high in _strips(both):
            here = covered(mine, low, high, self._chain)
            there = covered(both, low, high, self._chain)
            if there <= here:
                continue
            try:
                pieces = cover(both, low, high, there, self._chain, after=here)
            except (EpochUnavailable, LogDamaged):
                pieces = cover(both, low, high, there, self._chain)
            wanted.update(dict.fromkeys(piece.name for piece in pieces if piece.name not in mine))
        return list(wanted)

    def _fetch(self, place: Working, trace: str) -> None:
        locations = [other.location for other in self._durable]
        names = [self._names(other, trace) for other in self._durable]
        fetches = [
            Fetch(
                trace,
                name,
                str(place.layers_directory / trace),
                tuple(number for number, held in enumerate(names) if name in held),
            )
            for name in self._lacking(self._names(place, trace), [name for held in names for name in held])
        ]
        for result in fetch_all(fetches, locations):
            if isinstance(result, Copied):
                self._names(place, trace)[result.name] = result.bytes

    def _ship(self, source: Working, place: Place, trace: str) -> None:
        """Encode local layers as durable ones, for the epochs that a location lacks and no other location has."""
        local = self._names(source, trace)
        if not local:
            return
        directory = source.layers_directory / trace
        layout = open_layer(directory / next(iter(local)).text()).layout
        for low, high in _strips([*local, *self._names(place, trace)]):
            reach = covered(local, low, high, self._chain)
            while (held := covered(self._names(place, trace), low, high, self._chain)) < reach:
                # Ship up to the next layer in the location; if local layers cannot be cut there, ship all they hold.
                there = _within(self._names(place, trace), low, high)
                later = [name.first - 1 for name in there if name.first > held + 1]
                ships = [Ship(trace, low, high, held, upto, (0,)) for upto in {min([reach, *later]): 0, reach: 0}]
                if not any(self._ship_one(directory, layout, place, ship) for ship in ships):
                    break

    def _ship_one(self, directory: Path, layout: Layout, place: Place, ship: Ship) -> bool:
        shipment = Shipment(
            ship=ship,
            directory=str(directory),
            layout=layout,
            chain=chain_of(self._history),
            digest=self._history.digest(ship.upto) or "",
            since=-1,
            metadata={},
        )
        copied = [result for result in ship_all([shipment], [place.location]) if isinstance(result, Copied)]
        for result in copied:
            self._names(place, ship.trace)[result.name] = result.bytes
        return bool(copied)


def _strips(names: Iterable[LayerName]) -> Sequence[tuple[int, int]]:
    """Ranges of key hashes, each of which lies completely inside or outside every layer."""
    bounds = {0, ALL}
    for name in names:
        bounds |= {name.low, name.high}
    return list(pairwise(sorted(bounds)))


def _within(names: Iterable[LayerName], low: int, high: int) -> list[LayerName]:
    return [name for name in names if name.low < high and low < name.high]
