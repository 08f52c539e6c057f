"""A log location: one complete, self-sufficient copy of a flow's log, in any place that holds blobs.

    <location>/holdfast.json                              {"format": 3, "flow": "revenue"}
    <location>/collections.json                           the flow's collections; for tools that only read
    <location>/roster/<term>-<count>-<location>.json      the locations of the log, and the identity of this one
    <location>/claims/<term>-<owner>.json                 the driver that claims the log; the highest claim wins
    <location>/lineage/<first>-<last>-<digest>.jsonl      segments of the lineage
    <location>/layers/<trace>/<layer>.parquet             durable layers
    <location>/damaged/<trace>/<layer>.parquet            layers whose checksum did not match, set aside

Every file is written whole, under a name that says what it holds, and never changed; only the two small JSON files are
replaced. So no write needs a lock or a protocol: two drivers that write at once write different names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage, from_lines, to_lines
from holdfast.coordinator.roster import Roster, Version
from holdfast.errors import LogDamaged, StoreError
from holdfast.foundation.retries import retrying
from holdfast.log import header
from holdfast.log.location import Location
from holdfast.trace.layer import check_bytes
from holdfast.trace.name import LayerName

_SEGMENT = re.compile(r"(\d{12,})-(\d{12,})-([0-9a-f]{16})\.jsonl")
_ROSTER = re.compile(r"(\d{12,})-(\d{6,})-([0-9a-f]{16})\.json")
_CLAIM = re.compile(r"(\d{12,})-([0-9a-f]{16})\.json")
_SEGMENTS = 8
"""The number of segments of the lineage from which on they are merged."""


SECOND_LOOK = (0.0,)
"""Pauses before reading again, in seconds. A file counts as damaged only if a second read finds damage, too: a broken
connection or a memory error is not damage of the file."""

AtOnce = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
"""Calls a function on all items, concurrently if it can, and returns the results in order."""


def in_turn(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    return [work(item) for item in items]


@dataclass(frozen=True, order=True)
class Segment:
    """The lineage of epochs first … last; ``digest`` is the digest of ``last``, so it names all of them."""

    first: int
    last: int
    digest: str

    def text(self) -> str:
        return f"{self.first:012d}-{self.last:012d}-{self.digest}.jsonl"

    @staticmethod
    def parse(text: str) -> Segment | None:
        match = _SEGMENT.fullmatch(text)
        return Segment(int(match[1]), int(match[2]), match[3]) if match else None


class Replica:
    """The copy of a log in one location."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.identity = ""
        """The identity of the location (`coordinator/roster.py`) at the last look; "" if it has none."""

        self.roster_version: Version = (-1, -1)
        self.torn: list[Segment] = []
        """Segments of the lineage that were read and do not hold what their names say."""

        self._segments: list[Segment] = []
        """The segments that were there at the last look (`holding`)."""

    def __repr__(self) -> str:
        return f"Replica({self.location.uri})"

    # -- whose it is ------------------------------------------------------------------------------------------------

    def open(self, flow: str) -> None:
        """Make sure that the location can be used and belongs to this flow. A new location gets a header. Raises
        `StoreError`, `LogForeign` or `LogFormat`."""
        self.location.check()
        try:
            name = self.flow()
        except LogDamaged:
            name = None  # the header is torn; the digests in the rest of the log tell which flow it belongs to
        if name is None:
            self._write_json(header.FILE, header.header_of(flow))
            return
        header.check_flow(name, flow, self.location.uri)
        if (self._json(header.FILE) or {}).get("format") != header.FORMAT:
            self._write_json(header.FILE, header.header_of(flow))

    def flow(self) -> str | None:
        """The name of the flow whose log this is; None if there is no log."""
        said = self._json(header.FILE)
        return None if said is None else header.flow_of(said, self.location.uri)

    def write_collections(self, collections: dict[str, Any]) -> None:
        with suppress(LogDamaged):
            if self.read_collections() == collections:
                return
        self._write_json("collections.json", collections)

    def read_collections(self) -> dict[str, Any]:
        return self._json("collections.json") or {}

    def write_rates(self, rates: dict[str, float]) -> None:
        """Keep the measured rates of the flow (`coordinator.forecast`)."""
        self._write_json("rates.json", dict(rates))

    def read_rates(self) -> dict[str, Any]:
        """The rates that were kept last; empty if none were."""
        return self._json("rates.json") or {}

    def _json(self, path: str) -> dict[str, Any] | None:
        try:
            return header.from_text(self.location.read(path), self.location.uri, path)
        except FileNotFoundError:
            return None

    def _write_json(self, path: str, held: dict[str, Any]) -> None:
        self.location.write(path, header.to_text(held).encode())

    # -- which location it is ---------------------------------------------------------------------------------------

    def identify(self) -> list[tuple[Version, str]]:
        """Find the identity of this location and the version of its roster. Returns version and identity of all rosters
        that are there, the newest first."""
        found = [_ROSTER.fullmatch(entry.name) for entry in self.location.list("roster")]
        there = sorted((((int(each[1]), int(each[2])), each[3]) for each in found if each), reverse=True)
        self.roster_version, self.identity = there[0] if there else ((-1, -1), "")
        return there

    def read_roster(self) -> Roster | None:
        """The newest roster that can be read; None if there is none."""
        for version, identity in self.identify():
            with suppress(LogDamaged, FileNotFoundError, KeyError, TypeError, ValueError):
                held = self._json(_roster_path(version, identity)) or {}
                locations = {str(each): str(uri) for each, uri in held["locations"].items()}
                return Roster(version, int(held["min_replicas"]), locations)
        return None

    def write_roster(self, roster: Roster, identity: str) -> None:
        """Write a roster, and make this the location ``identity``. Older rosters are removed."""
        said = {"min_replicas": roster.min_replicas, "locations": dict(roster.locations)}
        self._write_json(_roster_path(roster.version, identity), said)
        for version, other in self.identify():
            if (version, other) < (roster.version, identity) or other != identity:
                self.location.remove(_roster_path(version, other))
        self.roster_version, self.identity = roster.version, identity

    # -- who drives -------------------------------------------------------------------------------------------------

    def claims(self) -> list[Claim]:
        found = (_CLAIM.fullmatch(entry.name) for entry in self.location.list("claims"))
        return sorted(Claim(int(match[1]), match[2]) for match in found if match)

    def claim(self, claim: Claim, said: dict[str, Any]) -> None:
        """Claim the log; the claims of earlier drivers are removed."""
        self._write_json(_claim_path(claim), said)
        for other in self.claims():
            if other < claim:
                self.location.remove(_claim_path(other))

    def claimed_by(self, claim: Claim) -> dict[str, Any]:
        return self._json(_claim_path(claim)) or {}

    # -- lineage ----------------------------------------------------------------------------------------------------

    def segments(self) -> list[Segment]:
        found = (Segment.parse(entry.name) for entry in self.location.list("lineage"))
        return sorted(segment for segment in found if segment is not None)

    def read_segment(self, segment: Segment) -> list[Lineage]:
        """The records of a segment. Raises `LogDamaged` if it does not hold what its name says."""
        path = f"lineage/{segment.text()}"

        def read() -> list[Lineage]:
            lineages = from_lines(self.location.read(path))
            _check_chain(lineages, segment)
            return lineages

        try:
            return retrying(read, on=ValueError, pauses=SECOND_LOOK)
        except ValueError as error:
            self.torn.append(segment)
            raise LogDamaged(f"log {self.location.uri}: {path}: {error}", path=path) from None

    def write_lineage(self, lineages: Sequence[Lineage]) -> None:
        """Write these records as a new segment."""
        path = f"lineage/{Segment(_first(lineages), lineages[-1].epoch, lineages[-1].digest).text()}"
        try:
            self.location.write(path, to_lines(lineages))
        except StoreError:
            with suppress(StoreError):
                # A blob that a failed write left must not count as a copy.
                self.location.remove(path)
            raise

    def merge_lineage(self, history: History, at_once: AtOnce = in_turn) -> None:
        """Keep the number of segments small: if there were many at the last look, the newest ones become one segment,
        together with each older one that is less than twice as large. Segments of other histories stay, since they are
        small and recovery may need their epochs."""
        mine = [segment for segment in self._segments if _is_of(segment, history)]
        # Segments that end before the history's base are replaced by one with the base and the epochs after it.
        folded = bool(mine) and history.base is not None and min(segment.last for segment in mine) < history.base.epoch
        if len(mine) < _SEGMENTS and not folded:
            return
        first, last = mine[-1].first, max(segment.last for segment in mine)
        for segment in reversed(mine):
            if not folded and segment.last - segment.first + 1 >= 2 * (last - first + 1):
                break
            first = min(first, segment.first)
        lineages = history[first : last + 1]
        if not lineages:
            return
        first = _first(lineages)
        self.write_lineage(lineages)
        merged = [
            segment
            for segment in mine
            if first <= segment.first and segment.last <= last and (segment.first, segment.last) != (first, last)
        ]
        at_once(lambda segment: self.location.remove(f"lineage/{segment.text()}"), merged)

    def ends(self) -> set[int]:
        """The last epoch of each segment that was there at the last look."""
        return {segment.last for segment in self._segments}

    # -- layers -----------------------------------------------------------------------------------------------------

    def layers(self, trace: str) -> dict[LayerName, int]:
        """Layer → bytes, for all durable layers of a trace, of any history."""
        found = ((LayerName.parse_durable(entry.name), entry.size) for entry in self.location.list(f"layers/{trace}"))
        return {name: size for name, size in found if name is not None}

    def traces(self) -> list[str]:
        return self.location.directories("layers")

    def holding(self, history: History, traces: Sequence[str], at_once: AtOnce = in_turn) -> Holding:
        """What the location holds of this history, from names alone."""
        looks: list[Callable[[], Any]] = [
            self.identify, self.segments, *(partial(self.layers, trace) for trace in traces)
        ]  # fmt: skip
        _, self._segments, *found = at_once(lambda look: look(), looks)
        upto = -1
        for segment in self._segments:
            if segment.first <= upto + 1 and _is_of(segment, history):
                upto = max(upto, segment.last)
        layers = {
            trace: {name: size for name, size in all_of_it.items() if is_true(name, history)}
            for trace, all_of_it in zip(traces, found, strict=True)
        }
        return Holding(layers, upto, self.identity, self.roster_version)

    def read_layer(self, trace: str, name: LayerName) -> bytes:
        return self.location.read(layer_path(trace, name))

    def write_layer(self, trace: str, name: LayerName, data: bytes) -> None:
        self.location.write(layer_path(trace, name), data)

    def remove_layer(self, trace: str, name: LayerName) -> None:
        self.location.remove(layer_path(trace, name))

    def set_aside(self, trace: str, name: LayerName) -> None:
        """Move a damaged layer out of use. It is kept, and checked again when the flow is opened."""
        with suppress(FileNotFoundError):
            self.location.move(layer_path(trace, name), f"damaged/{trace}/{name.durable()}")

    def aside(self) -> list[tuple[str, LayerName]]:
        """The layers that were set aside, with their traces."""
        return [
            (trace, name)
            for trace in self.location.directories("damaged")
            for entry in self.location.list(f"damaged/{trace}")
            if (name := LayerName.parse_durable(entry.name)) is not None
        ]

    def put_back(self, trace: str, name: LayerName) -> bool:
        """Put a layer that was set aside back into use if its checksum matches after all. Returns whether it does."""
        path = f"damaged/{trace}/{name.durable()}"
        try:
            check_bytes(self.location.read(path), name, path)
        except (FileNotFoundError, LogDamaged):
            return False
        self.location.move(path, layer_path(trace, name))
        return True


def layer_path(trace: str, name: LayerName) -> str:
    return f"layers/{trace}/{name.durable()}"


def is_true(name: LayerName, history: History) -> bool:
    """Whether a layer belongs to this history: its name has the digest of its last epoch there."""
    return history.digest(name.last) == name.digest


def _is_of(segment: Segment, history: History) -> bool:
    return history.digest(segment.last) == segment.digest


def _check_chain(lineages: list[Lineage], segment: Segment) -> None:
    parent = lineages[0].parent if lineages else GENESIS
    last = segment.first - 1
    for place, lineage in enumerate(lineages):
        folded = place == 0 and segment.first == 0 and isinstance(lineage, Folded)
        if not folded and (lineage.epoch != last + 1 or lineage.parent != parent):
            raise ValueError(f"epoch {lineage.epoch} does not follow the one before")
        parent, last = lineage.digest, lineage.epoch
    if last != segment.last or parent != segment.digest:
        raise ValueError("it does not hold the epochs that its name says")


def _roster_path(version: Version, identity: str) -> str:
    return f"roster/{version[0]:012d}-{version[1]:06d}-{identity}.json"


def _first(lineages: Sequence[Lineage]) -> int:
    """The first epoch of these records; a base stands for all epochs from 0 on."""
    return 0 if isinstance(lineages[0], Folded) else lineages[0].epoch


def _claim_path(claim: Claim) -> str:
    return f"claims/{claim.term:012d}-{claim.owner}.json"
