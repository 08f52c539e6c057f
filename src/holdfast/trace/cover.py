"""Which layers to read: a cover of a rectangle of (key hash × epochs), computed from layer names alone.

A layer is a rectangle [low, high) × [first, last]. It may be read in part: any slice of its hashes (rows are sorted by
hash), and any range of its epochs (rows carry their epoch), except that its epochs first … ``floor`` were collapsed
into one. A range of its epochs may begin after epoch first - 1 or after an epoch ≥ floor (the reader *enters* the layer
there), and must end at an epoch ≥ floor (the reader *leaves* it there).

The bounds of all layers cut the hash range into strips; inside a strip every layer covers all hashes or none. For a
strip, the *reach* is the set of epochs e such that (after, e] can be covered exactly. It grows from {after} by every
layer that can be entered from it, until nothing changes. The cover is then built backwards from ``as_of``, always with
the layer that leads back furthest. Each step ends at an epoch of the reach, so a next layer always exists. If no layer
is collapsed, this cover has the fewest pieces possible.

Pure: names in, names out. O(n log n) for the n layers of a strip. There are several strips only where the number of
partitions has changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from operator import attrgetter

from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.trace.name import ALL, LayerName

Reach = list[tuple[int, int]]
"""Disjoint, ascending, inclusive ranges of epochs."""


@dataclass(frozen=True)
class Chain:
    """The history that a reader believes. ``digests[i]`` is the digest of epoch base + 1 + i. Layers with last ≤ base
    are trusted (they were checked at start); later layers must carry the digest of their last epoch."""

    base: int
    digests: tuple[str, ...]

    @property
    def end(self) -> int:
        """The last epoch of the chain."""
        return self.base + len(self.digests)

    def digest(self, epoch: int) -> str | None:
        """The digest of an epoch; None if the epoch is not in the chain."""
        return self.digests[epoch - self.base - 1] if self.base < epoch <= self.end else None

    def accepts(self, name: LayerName) -> bool:
        """Whether the layer is known to be of this history."""
        return name.last <= self.base or self.digest(name.last) == name.digest

    def refutes(self, name: LayerName) -> bool:
        """Whether the layer is known to be of another history. A layer that ends after the chain is neither accepted
        nor refuted: it may be of an epoch that is running now."""
        return self.base < name.last <= self.end and not self.accepts(name)


@dataclass(frozen=True)
class Piece:
    """The part of a layer to read: its rows with hash in [low, high) and after < epoch ≤ upto."""

    name: LayerName
    low: int
    high: int
    after: int
    upto: int


def cover(
    names: Iterable[LayerName],
    low: int,
    high: int,
    as_of: int,
    chain: Chain,
    *,
    after: int = -1,
    exact: bool = False,
) -> list[Piece]:
    """Pieces that hold every row of [low, high) × (after, as_of] exactly once, in order of (low, after).

    ``exact``: use only layers in which compaction has not collapsed epochs after ``after``.
    Raises EpochUnavailable if compaction has passed ``as_of`` or ``as_of`` is after the chain's end, LogDamaged if a
    layer is missing."""
    if as_of <= after:
        return []
    usable = _usable(names, low, high, chain)
    if exact:
        usable = [name for name in usable if name.floor == name.first or name.floor <= after]
    pieces: list[Piece] = []
    open_pieces: dict[tuple[LayerName, int, int], Piece] = {}
    for left, right, here in _strips(usable, low, high):
        reach = _reach(here, after)
        if not _contains(reach, as_of):
            raise _missing(usable, low, high, after, as_of, chain, left, right, reach)
        still_open: dict[tuple[LayerName, int, int], Piece] = {}
        for name, start, stop in _path(here, reach, after, as_of):
            # A layer that is used for the same epochs in adjacent strips is one piece.
            before = open_pieces.pop((name, start, stop), None)
            piece = Piece(name, before.low if before else left, right, start, stop)
            still_open[name, start, stop] = piece
        pieces.extend(open_pieces.values())
        open_pieces = still_open
    pieces.extend(open_pieces.values())
    return sorted(pieces, key=lambda piece: (piece.low, piece.after, piece.high))


def covered(names: Iterable[LayerName], low: int, high: int, chain: Chain) -> int:
    """The greatest e such that epochs [0, e] are covered for all of [low, high); -1 if there is none."""
    usable = _usable(names, low, high, chain)
    return _common(usable, low, high, -1)[-1][1]


def span(names: Iterable[LayerName], low: int, high: int, chain: Chain) -> tuple[int, int]:
    """(after, upto): the widest range of epochs that these layers cover for all of [low, high). Raises LogDamaged if
    they cover no epoch for all of these hashes."""
    usable = _usable(names, low, high, chain)
    starts = {name.first - 1 for name in usable} | {name.floor for name in usable}
    spans = [(after, _common(usable, low, high, after)[-1][1]) for after in sorted(starts)]
    after, upto = max(spans, key=lambda s: s[1] - s[0], default=(-1, -1))
    if upto <= after:
        raise LogDamaged(
            f"{len(usable)} layers have no epoch in common for the hashes [{low:#018x}, {high:#018x})",
            low=low,
            high=high,
        )
    return after, upto


def garbage(names: Iterable[LayerName], chain: Chain, live_after: int) -> list[LayerName]:
    """Layers that no cover for as_of ≥ live_after needs: layers of another history, and layers whose epochs are also in
    other layers.

    When all of them are removed, every epoch ≥ live_after that was readable is still readable. The latest readable
    epoch stays readable even if it is below live_after. Layers after a gap are kept: the missing layer may come
    back."""
    known = sorted(names)
    usable = [name for name in known if chain.accepts(name)]
    needed: set[LayerName] = set()
    for _, _, here in _strips(usable, 0, ALL):
        needed |= _needed(here, live_after)
    return [name for name in known if chain.refutes(name) or (chain.accepts(name) and name not in needed)]


def pinned(names: Iterable[LayerName], chain: Chain, live_after: int, end: int) -> set[LayerName]:
    """Layers that a reader whose chain ends at ``end`` needs to read the epochs from ``live_after`` to ``end``.

    Epochs that such a reader cannot read from any layers are passed over."""
    usable = [name for name in sorted(names) if name.last <= end and chain.accepts(name)]
    needed: set[LayerName] = set()
    for _, _, here in _strips(usable, 0, ALL):
        needed |= _needed(here, live_after)
    return needed


def _needed(here: tuple[LayerName, ...], live_after: int) -> set[LayerName]:
    """Layers of the strip that suffice to reach every epoch ≥ live_after that all its layers reach.

    Small layers are dropped first, so that merged layers remain. More layers never reach less, so layers that can be
    dropped together can also be dropped one by one. So dropping halves gives the same result as trying each layer in
    turn, with fewer tries where few layers are needed."""
    doubled = _doubled(here)
    if not doubled:
        return set(here)
    full = _reach(here, -1)
    live = min(live_after, full[-1][1])
    wanted = _from(full, live)
    kept = set(here)

    def drop(some: list[LayerName]) -> None:
        if not some:
            return
        if _from(_reach(kept.difference(some), -1), live) == wanted:
            kept.difference_update(some)
        elif len(some) > 1:
            drop(some[: len(some) // 2])
            drop(some[len(some) // 2 :])

    candidates = [name for name in doubled if _entry(name, full) is not None]
    drop(sorted(candidates, key=lambda n: (n.last - n.first, n.floor, n)))
    return kept


def _doubled(here: tuple[LayerName, ...]) -> list[LayerName]:
    """Layers that share every one of their epochs with at least one other layer."""
    changes: dict[int, int] = {}
    for name in here:
        changes[name.first] = changes.get(name.first, 0) + 1
        changes[name.last + 1] = changes.get(name.last + 1, 0) - 1
    bounds = sorted(changes)
    depths = list(accumulate(changes[bound] for bound in bounds))
    alone = [0, *accumulate(int(depth == 1) for depth in depths)]
    return [n for n in here if alone[bisect_left(bounds, n.last + 1)] == alone[bisect_left(bounds, n.first)]]


def _usable(names: Iterable[LayerName], low: int, high: int, chain: Chain) -> list[LayerName]:
    return [name for name in names if name.low < high and low < name.high and chain.accepts(name)]


def _strips(usable: list[LayerName], low: int, high: int) -> Iterator[tuple[int, int, tuple[LayerName, ...]]]:
    """(left, right, layers) of each strip, ascending: a maximal hash range that every layer covers fully or not at
    all."""
    bounds = {low, high}
    for name in usable:
        bounds.update(bound for bound in (name.low, name.high) if low < bound < high)
    cuts = sorted(bounds)
    for left, right in pairwise(cuts):
        yield left, right, tuple(name for name in usable if name.low <= left and right <= name.high)


def _entry(name: LayerName, reach: Reach) -> int | None:
    """The least epoch of the reach after which the layer can be entered; None if there is none."""
    if _contains(reach, name.first - 1):
        return name.first - 1
    for start, stop in reach:
        if stop >= name.floor:
            entry = max(start, name.floor)
            return entry if entry < name.last else None
    return None


def _reach(here: Iterable[LayerName], after: int) -> Reach:
    """The epochs that these layers reach from ``after``. O(n log n) where each layer goes on where those before it end;
    a layer that was entered as early as it can be is not looked at again."""
    reach: Reach = [(after, after)]
    left = sorted(here, key=_by_end)
    grown = True
    while grown:
        grown = False
        again = []
        for name in left:
            start, stop = reach[-1]
            if name.first == stop + 1 and name.since <= name.first:
                # The usual case: the next epochs, none of them collapsed.
                reach[-1] = (start, name.last)
                grown = True
                continue
            entry = _entry(name, reach)
            if entry is None:
                again.append(name)
                continue
            start = max(name.floor, entry + 1)
            if not _contains_range(reach, start, name.last):
                reach = _joined(reach, start, name.last)
                grown = True
            if start > name.floor:
                again.append(name)  # it may yet be entered earlier, and then reach more
        left = again
    return reach


def _path(here: tuple[LayerName, ...], reach: Reach, after: int, as_of: int) -> list[tuple[LayerName, int, int]]:
    """The cover of one strip: (layer, after, upto), from ``as_of`` back to ``after``."""
    coming = sorted((name for name in here if _entry(name, reach) is not None), key=lambda name: name.last)
    choices: list[tuple[int, bool, int, int, int, LayerName]] = []
    path = []
    until = as_of
    while until > after:
        while coming and coming[-1].last >= until:
            name = coming.pop()
            entry = _entry(name, reach)
            assert entry is not None
            # Prefer the layer that leads back furthest; then the least cut, the most compacted, the widest; then the
            # order of names, so that all readers choose the same layers.
            heappush(choices, (entry, entry >= name.first, name.last, -name.floor, name.low - name.high, name))
        # A layer that cannot be left at ``until`` cannot be left at an earlier epoch either.
        while choices[0][-1].floor > until or choices[0][0] >= until:
            heappop(choices)
        entry, name = choices[0][0], choices[0][-1]
        path.append((name, entry, until))
        until = entry
    return path


def _missing(
    usable: list[LayerName],
    low: int,
    high: int,
    after: int,
    as_of: int,
    chain: Chain,
    left: int,
    right: int,
    reach: Reach,
) -> EpochUnavailable | LogDamaged:
    if as_of > chain.end:
        return EpochUnavailable(
            f"epoch {as_of} is not there yet: the last one is {chain.end}", epoch=as_of, latest=chain.end
        )
    later = _from(_common(usable, low, high, after), as_of)
    if later:
        earliest = later[0][0]
        return EpochUnavailable(
            f"epoch {as_of} cannot be read any more: it was compacted into epoch {earliest}, "
            f"the earliest from there on that can",
            epoch=as_of,
            earliest=earliest,
        )
    first = max((stop for _, stop in reach if stop < as_of), default=after) + 1
    starts = [name.first for name in usable if name.low < right and name.high > left and name.first > first]
    last = min([as_of, *(start - 1 for start in starts)])
    return LogDamaged(
        f"layers are missing: no layer holds epochs {first} to {last} of the hashes [{left:#018x}, {right:#018x}), "
        f"needed to read as of epoch {as_of}",
        low=left,
        high=right,
        first=first,
        last=last,
        epoch=as_of,
    )


def _common(usable: list[LayerName], low: int, high: int, after: int) -> Reach:
    """Epochs that every strip reaches. ``after`` is always among them."""
    common: Reach = [(after, ALL)]
    for _, _, here in _strips(usable, low, high):
        reach = _reach(here, after)
        common = [(max(a, c), min(b, d)) for a, b in common for c, d in reach if max(a, c) <= min(b, d)]
    return common


_by_end = attrgetter("last", "first")


# Plain loops: these two functions are called for every layer of every strip, and a generator would cost more than the
# comparisons.
def _contains(reach: Reach, epoch: int) -> bool:
    for start, stop in reach:  # noqa: SIM110
        if start <= epoch <= stop:
            return True
    return False


def _contains_range(reach: Reach, first: int, last: int) -> bool:
    for start, stop in reach:  # noqa: SIM110
        if start <= first and last <= stop:
            return True
    return False


def _joined(reach: Reach, first: int, last: int) -> Reach:
    joined: Reach = []
    for start, stop in sorted([*reach, (first, last)]):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _from(reach: Reach, least: int) -> Reach:
    return [(max(start, least), stop) for start, stop in reach if stop >= least]
