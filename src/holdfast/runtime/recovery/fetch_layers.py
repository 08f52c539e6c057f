"""Fetching layers: lists the local layers and those of the log locations, and fetches the missing ones.

Local layers are used as they are. A missing layer is fetched from any location that has an intact copy; a copy with a
wrong checksum is set aside, and another copy is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import pairwise
from pathlib import Path

from holdfast.coordinator.copy_plan import Copied, Failed, Holding, trusting
from holdfast.coordinator.history import History
from holdfast.errors import EpochUnavailable, HoldfastError, LogDamaged, LogError, LogFormat, LogUnreadable, StoreError
from holdfast.foundation import failpoints
from holdfast.foundation.atomic_files import remove_temporary
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.host_paths import host_path, member
from holdfast.log.location import Location
from holdfast.log.replica import Replica, is_true
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.runner import Runner
from holdfast.task.program import partition_range
from holdfast.trace.cover import Piece, cover, covered
from holdfast.trace.layer import list_files, list_layers, verify_layer
from holdfast.trace.name import LayerName

local_layers = list_layers
"""`list_layers`, under the name that the driver's modules use."""


_ASIDE = "damaged"
"""The directory of layers that were set aside, next to the directory of the traces."""


def remove_stale(directories: Sequence[Path], history: History) -> None:
    """Remove local layers of epochs that are not in the history: a crash or an abandoned epoch left them."""
    for directory in directories:
        remove_temporary(directory)
        for name in local_layers(directory):
            if not is_true(name, history):
                (directory / name.text()).unlink(missing_ok=True)


def remove_others(directory: Path, owners: Sequence[str]) -> None:
    """On a member: remove the layers of partitions that it does not own. Called when their owners have all of them."""
    own, me = host_path(directory), member()
    mine = [partition_range(each, len(owners)) for each, owner in enumerate(owners) if owner == me]
    for trace in own.iterdir() if own.is_dir() else ():
        for name in local_layers(trace):
            if not any(name.low < high and low < name.high for low, high in mine):
                (trace / name.text()).unlink(missing_ok=True)


def set_aside(path: Path, root: Path, unfit: bool = False) -> bool:
    """Move a damaged local layer to the directory of layers set aside. Return whether the file exists. The layer is
    verified once more first, and stays where it is if it is intact; ``unfit`` skips that, for an intact layer that
    cannot be used."""
    target = root / _ASIDE / path.parent.name
    try:
        if not unfit:
            try:
                verify_layer(path)
                return True
            except (LogDamaged, LogFormat):
                pass
        target.mkdir(parents=True, exist_ok=True)
        os.replace(path, target / path.name)
    except FileNotFoundError:
        return False
    return True


def has_set_aside(directory: Path) -> bool:
    """On a member: whether any layer is set aside."""
    return bool(_names(host_path(directory).parent / _ASIDE))


def look_again(directory: Path) -> int:
    """On a member: put layers that were set aside back into use if they turn out to be intact. Return how many."""
    own = host_path(directory)
    aside, found = own.parent / _ASIDE, 0
    for trace in _names(aside):
        for name in _names(aside / trace):
            if LayerName.parse(name) is None:
                continue
            try:
                verify_layer(aside / trace / name)
            except (LogError, FileNotFoundError):
                continue  # damaged, or not readable now: it stays set aside until the next look
            (own / trace).mkdir(parents=True, exist_ok=True)
            os.replace(aside / trace / name, own / trace / name)
            found += 1
    return found


def _names(directory: Path) -> list[str]:
    try:
        return sorted(list_files(directory))
    except (FileNotFoundError, LogUnreadable):
        return []


Listing = Mapping[str, Sequence[LayerName]]
"""Trace → its local layers."""


def listed(directory: Path, traces: Sequence[str]) -> Listing:
    """Return the local layers of this host."""
    return {trace: local_layers(host_path(directory) / trace) for trace in traces}


class Layers:
    """The layers of all live traces: local ones, and those that the log locations hold.

    The local layers of a partition are those of its owner; layers that another member has of it do not count.
    """

    def __init__(
        self,
        runner: Runner,
        traces: Sequence[str],
        directory: Path,
        last: int,
        holdings: Mapping[int, Holding],
        history: History,
        owners: Mapping[tuple[int, int], str] | None = None,
    ) -> None:
        """``owners``: range of key hashes → the member that is to keep it; None: the runner's partitions and their
        owners."""
        self._directory = directory
        self._chain = trusting(last)
        self.last = last
        found = runner.everywhere("listing layers", lambda: listed(directory, traces))
        self._members = {
            member: {trace: [name for name in names if is_true(name, history)] for trace, names in listing.items()}
            for member, listing in found.items()
        }
        count = runner.partitions
        kept = {partition_range(each, count): owner for each, owner in enumerate(runner.owners())}
        self._owners = kept if owners is None else dict(owners)
        self._alone = owners is None and len(self._members) == 1
        self._holdings = holdings
        self._spare: int | None = None

    def beside(self, holdings: Mapping[int, Holding]) -> Layers:
        """Return a copy with the same local layers and these holdings of the log locations."""
        found = copy(self)
        found._holdings = dict(holdings)
        return found

    def lasting(self, holdings: Mapping[int, Holding], spare: int) -> Layers:
        """Return a copy that tells only the epochs and changes that are not lost with the members: at most ``spare`` of
        these locations have collapsed them. (What a location has not got yet, it gets as it is here.)"""
        found = self.beside(holdings)
        found._spare = spare
        return found

    def _lasts(self, trace: str, after: int) -> bool:
        """Whether enough locations can tell the epochs after ``after`` one by one, as far as they have them."""
        if self._spare is None:
            return True
        collapsed = 0
        for holding in self._holdings.values():
            late = [name for name in holding.layers.get(trace, {}) if name.last > after]
            collapsed += any(min(name.since, name.last) > max(after, 0) for name in late)
        return collapsed <= self._spare

    @property
    def count(self) -> int:
        """The number of local layers."""
        return sum(len(names) for listing in self._members.values() for names in listing.values())

    def _local(self, trace: str, low: int, high: int) -> Sequence[LayerName]:
        """Return the local layers of a range; the range is a partition's, or a single member has all layers."""
        if self._alone:
            return next(iter(self._members.values()))[trace]
        # A member that is to own a range and owns nothing so far was not listed.
        return self._members.get(self._owners[low, high], {}).get(trace, ())

    def _remote(self, trace: str) -> list[LayerName]:
        return [name for holding in self._holdings.values() for name in holding.layers.get(trace, {})]

    def _others(self, trace: str) -> list[LayerName]:
        return [name for listing in self._members.values() for name in listing[trace]]

    def _pieces(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return the range itself, or the partitions in it if they have different owners."""
        if (low, high) in self._owners or self._alone:
            return [(low, high)]
        return [each for each in self._owners if low <= each[0] < high]

    def reach(self, trace: str, low: int, high: int, *, others: bool = False) -> int:
        """Return the epoch up to which local layers and copies together cover the range; -1: none. ``others``: count
        layers that are on other members than the owner, too."""
        remote = [*self._remote(trace), *(self._others(trace) if others else ())]
        return min(
            covered([*self._local(trace, *each), *remote], *each, self._chain) for each in self._pieces(low, high)
        )

    def has(self, trace: str) -> int:
        """Return the epoch up to which every partition is covered by its owner's local layers; -1: none."""
        return min(covered(self._local(trace, *each), *each, self._chain) for each in self._pieces(0, 2**64))

    def elsewhere(
        self, trace: str, low: int, high: int, epochs: tuple[int, int] | None = None
    ) -> list[tuple[str, Piece]]:
        """Return the pieces of layers that the range's owner lacks and another member has, each with that member:
        enough to cover the range as far as members can; with ``epochs`` (first, last), to read it as of each of
        them."""
        if self._alone:
            return []
        found = []
        for piece in self._lacking(self._local(trace, low, high), self._others(trace), low, high, epochs):
            giver = min(one for one, listing in self._members.items() if piece.name in listing[trace])
            found.append((giver, piece))
        return found

    def _lacking(
        self,
        local: Sequence[LayerName],
        more: Sequence[LayerName],
        low: int,
        high: int,
        epochs: tuple[int, int] | None = None,
    ) -> Iterator[Piece]:
        """Yield the pieces of ``more`` that ``local`` needs to cover the range as far as both can. If the number of
        partitions changed, a part of the range may be whole already: no piece is needed for it."""
        if epochs is not None:
            yield from self._lacking_as_of(local, more, low, high, epochs)
            return
        here = set(local)
        inner = {each for name in here for each in (name.low, name.high) if low < each < high}
        for left, right in pairwise([low, *sorted(inner), high]):
            have = covered(local, left, right, self._chain)
            there = covered([*local, *more], left, right, self._chain)
            if there > have:
                for piece in self._cover([*local, *more], left, right, there, have):
                    if piece.name not in here:
                        yield piece

    def _lacking_as_of(
        self, local: Sequence[LayerName], more: Sequence[LayerName], low: int, high: int, epochs: tuple[int, int]
    ) -> Iterator[Piece]:
        """Yield the pieces of ``more`` that ``local`` needs to be readable as of each of these epochs (first, last)."""
        here = set(local)
        for epoch in range(epochs[0], epochs[1] + 1):
            for names in (local, [*local, *more]):
                with suppress(EpochUnavailable, LogDamaged):
                    yield from (
                        piece for piece in cover(names, low, high, epoch, self._chain) if piece.name not in here
                    )
                    break

    def _cover(self, names: Sequence[LayerName], low: int, high: int, upto: int, after: int) -> list[Piece]:
        try:
            return cover(names, low, high, upto, self._chain, after=after)
        except (EpochUnavailable, LogDamaged):
            return cover(names, low, high, upto, self._chain)

    def readable(self, trace: str, low: int, high: int, first: int, last: int) -> bool:
        """Whether local layers and copies can be read as of each epoch from ``first`` to ``last``, in the range."""
        for part in self._pieces(low, high):
            names = [*self._local(trace, *part), *self._remote(trace)]
            try:
                for each in range(max(first, 0), last + 1):
                    cover(names, *part, each, self._chain)
            except (EpochUnavailable, LogDamaged):
                return False
        return True

    def has_epochs(self, trace: str, first: int, last: int) -> bool:
        """Whether the owners' local layers can be read as of each epoch from ``first`` to ``last``, in all
        partitions."""
        try:
            for part in self._pieces(0, 2**64):
                for each in range(max(first, 0), last + 1):
                    cover(self._local(trace, *part), *part, each, self._chain)
        except (EpochUnavailable, LogDamaged):
            return False
        return self._lasts(trace, first)

    def has_changes(self, trace: str, low: int, high: int, after: int, upto: int) -> bool:
        """Whether the owner's local layers tell the changes of the epochs after ``after``, up to ``upto``, in the
        range."""
        try:
            for part in self._pieces(low, high):
                if after < upto:
                    cover(self._local(trace, *part), *part, upto, self._chain, after=after, exact=True)
        except (EpochUnavailable, LogDamaged):
            return False
        return self._lasts(trace, after)

    def sizes(self, fetches: Sequence[Fetch]) -> int:
        """Return the bytes that the layers to fetch have in the locations."""
        return sum(self._holdings[one.locations[0]].layers[one.trace][one.name] for one in fetches)

    def missing(
        self, trace: str, ranges: Sequence[tuple[int, int]], epochs: tuple[int, int] | None = None
    ) -> list[Fetch]:
        """Return what to fetch so that the local layers cover as much as the copies can; with ``epochs`` (first, last),
        so that they can be read as of each of these epochs, as far as the copies can."""
        wanted: dict[tuple[str, LayerName], tuple[int, list[tuple[int, int]]]] = {}
        remote = self._remote(trace)
        for low, high in ranges:
            for piece in self._lacking(self._local(trace, low, high), remote, low, high, epochs):
                # A single host fetches a layer once and whole. A member fetches the ranges that it owns.
                whole = (piece.name.low, piece.name.high)
                owner, cut = ("", whole) if self._alone else (self._owners[low, high], (piece.low, piece.high))
                _, cuts = wanted.setdefault((owner, piece.name), (low, []))
                if cuts and cuts[-1][1] == cut[0]:
                    cuts[-1] = (cuts[-1][0], cut[1])
                elif cut not in cuts:
                    cuts.append(cut)
        return [
            Fetch(
                trace,
                name,
                str(self._directory / trace),
                tuple(n for n, holding in self._holdings.items() if name in holding.layers.get(trace, {})),
                low,
                tuple(cuts),
            )
            for (_, name), (low, cuts) in wanted.items()
        ]


def _low(fetch: Fetch) -> int:
    return fetch.low


def _too_small(error: HoldfastError, size: int, count: int) -> LogError:
    """Return the error that the local disk has no room for the layers to be fetched."""
    free = error.fields.get("free", -1)
    room = f"{free / 1e6:,.1f} MB are free, and " if isinstance(free, int) and free >= 0 else ""
    return LogError(
        f"log {error}; {room}{count} layers are to be brought back, {size / 1e6:,.1f} MB in the log's locations, which "
        "take several times that here. Nothing is lost: make room there, or give the flow a larger directory with "
        "local=…, and open it again",
        **{**error.fields, "needed": size, "layers": count},
    )


def fetch_missing(
    runner: Runner,
    look: Callable[[], Layers],
    traces: Sequence[str],
    ranges: Sequence[tuple[int, int]],
    locations: Sequence[Location],
    recovery: RecoveryRecord,
    epochs: Mapping[str, tuple[int, int]] | None = None,
) -> Layers:
    """Fetch the layers that local traces lack and a location has, and return all layers that are there then. A damaged
    copy is set aside, and another copy is used. ``epochs``: trace → the first and the last epoch as of which the trace
    must be readable; by default the last epoch alone. Raise the error of a location if no further layer can be fetched,
    and `LogError` if the local disk is full."""
    asked = epochs or {}
    while True:
        layers = look()
        fetches = [fetch for trace in traces for fetch in layers.missing(trace, ranges, asked.get(trace))]
        if not fetches:
            return layers
        failpoints.reach("recovery.before_fetch")
        some = len(ranges)
        results = runner.tasks("bringing layers back", lambda items: fetch_all(items, locations), fetches, some, _low)
        progress, problem = False, None
        for result in results:
            match result:
                case Copied():
                    recovery.layers_fetched += 1
                    recovery.bytes_fetched += result.bytes
                    progress = True
                case Failed(name=name) if name is not None:
                    try:
                        Replica(locations[result.location]).set_aside(result.trace, name)
                    except StoreError as error:
                        problem = problem or error
                        continue
                    recovery.damaged.append(str(result.error))
                    progress = True
                case Failed(location=-1):
                    raise _too_small(result.error, layers.sizes(fetches), len(fetches))
                case Failed():
                    recovery.unreachable[locations[result.location].uri] = str(result.error)
        if not progress:
            if problem is not None:
                raise problem
            raise next(result.error for result in results if isinstance(result, Failed))
