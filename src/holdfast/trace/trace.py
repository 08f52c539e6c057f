"""A trace, open as of an epoch: the pieces of a cover, and searches over all of these pieces.

Every search goes piece by piece: a vectorised binary search in the mapped hash column, then a gather of the rows found.
Rows are returned as the layers hold them: a row may come several times, at several epochs, and its diffs may cancel.
Only ``scan`` and ``first`` consolidate rows. A search costs O(keys · log rows) per piece, plus the rows found; it reads
nothing else of the state. Searches match by hash: callers must compare the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.foundation.retries import retrying
from holdfast.trace import ordered, physical, search
from holdfast.trace.cover import Chain, Piece, cover
from holdfast.trace.empty_layer import is_quiet
from holdfast.trace.layer import list_files, retain
from holdfast.trace.name import LayerName
from holdfast.trace.physical import Ints, Words
from holdfast.trace.quiet import folded_after
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.search import Slice, open_slice

_ATTEMPTS = 20

T = TypeVar("T")


class Trace:
    """The state of one operator's trace in the hash range [low, high), as of an epoch."""

    def __init__(self, directory: Path, layout: Layout, low: int, high: int, as_of: int, chain: Chain) -> None:
        self.directory = directory
        self.layout = layout
        self.low, self.high = low, high
        self.as_of = as_of
        self.chain = chain
        self.slices: list[Slice] = []
        self.quiet: list[LayerName] = []
        """Layers of the cover that have no rows, as their names say. They are not opened, and are in no slice. (Only
        those found when this trace was opened, or extended.)"""

    @staticmethod
    def open(directory: Path, layout: Layout, low: int, high: int, as_of: int, chain: Chain) -> Trace:
        """Open a trace as of epoch ``as_of``. As of -1 it is empty, whether its directory exists or not.

        Raises EpochUnavailable and LogDamaged as ``cover`` does, and LogDamaged if layers keep vanishing."""
        trace = Trace(Path(directory), layout, low, high, as_of, chain)
        trace.slices, trace.quiet = trace._open_cover(-1, as_of, exact=False)
        return trace

    @staticmethod
    def names(directory: Path, layout: Layout, low: int, high: int, as_of: int, chain: Chain) -> list[LayerName]:
        """The layers that `open` would open. Only names are read, so the cost does not depend on how large layers are.
        Raises as `open` does if a layer is missing; damaged bytes are not noticed."""
        trace = Trace(Path(directory), layout, low, high, as_of, chain)
        return trace._covered(-1, as_of, lambda pieces: list(dict.fromkeys(piece.name for piece in pieces)))

    def extended(self, as_of: int, chain: Chain) -> Trace | None:
        """The same trace as of a later epoch of the same history: its pieces, then the pieces of the epochs since.

        None if layers of the epochs since were merged with earlier layers: then the caller opens the trace again."""
        later = Trace(self.directory, self.layout, self.low, self.high, as_of, chain)
        added, later.quiet = later._open_cover(self.as_of, as_of, exact=False)
        if any(piece.layer.name.first <= self.as_of for piece in added):
            return None
        later.slices = [*self.slices, *added]
        return later

    def near(self, least: int, most: int) -> Trace:
        """The same trace, with only the pieces that may have a hash from ``least`` to ``most`` (inclusive)."""
        fewer = Trace(self.directory, self.layout, self.low, self.high, self.as_of, self.chain)
        fewer.slices = [
            piece for piece in self.slices if piece.layer.name.low <= most and least < piece.layer.name.high
        ]
        return fewer

    def within(self, low: int, high: int) -> Trace:
        """The same trace, with only the rows whose hash is in [low, high)."""
        narrow = Trace(self.directory, self.layout, low, high, self.as_of, self.chain)
        for piece in self.slices:
            start, stop = max(piece.start, piece.layer.find(low)), min(piece.stop, piece.layer.find(high))
            if start < stop:
                narrow.slices.append(replace(piece, start=start, stop=stop))
        return narrow

    @property
    def layers(self) -> list[LayerName]:
        return list(dict.fromkeys([*(piece.layer.name for piece in self.slices), *self.quiet]))

    @property
    def rows(self) -> int:
        """Rows stored in the pieces. Rows as of the epoch may be fewer: stored rows may cancel or be of later
        epochs."""
        return sum(piece.stop - piece.start for piece in self.slices)

    def matching(self, hashes: Words) -> tuple[Ints, Block]:
        """(index of its hash per row, rows): all rows with these hashes (sorted, unique)."""
        return self._gathered([search.hits(piece, hashes) for piece in self.slices])

    def matching_pairs(self, hashes: Words, subs: Words) -> tuple[Ints, Block]:
        """(index of its pair per row, rows): all rows with these (hash, sub) pairs (sorted, unique). The run of a hash
        is searched by sub, never scanned."""
        fresh = np.ones(len(hashes), np.bool_)
        fresh[1:] = hashes[1:] != hashes[:-1]
        starts = np.flatnonzero(fresh)
        of_hash = np.cumsum(fresh) - 1
        found = []
        for piece in self.slices:
            which, left, right = search.hash_runs(piece, hashes[starts])
            # Every pair whose hash is in the piece searches the run of that hash.
            run = np.full(len(starts), -1, np.int64)
            run[which] = np.arange(len(which))
            pairs = np.flatnonzero(run[of_hash] >= 0)
            place = run[of_hash[pairs]]
            assert piece.layer.sub is not None
            first = search.lower_bound(piece.layer.sub, left[place], right[place], subs[pairs])
            after = search.upper_bound(piece.layer.sub, first, right[place], subs[pairs])
            found.append((piece, np.repeat(pairs, after - first), physical.ranges(first, after - first)))
        return self._gathered(found)

    def between(self, hashes: Words, after: np.uint64, upto: np.uint64) -> Block:
        """All rows with these hashes (sorted, unique) and after < sub ≤ upto. The run of a hash is searched, never
        scanned."""
        found = []
        for piece in self.slices:
            left, right = self._beyond(piece, hashes, after)
            stop = search.upper_bound(search.subs(piece), left, right, np.full(len(left), upto))
            rows = physical.ranges(left, stop - left)
            found.append((piece, np.zeros(len(rows), np.int64), rows))
        return self._gathered(found)[1]

    def ranges(self, hashes: Words, least: Words, most: Words) -> Block:
        """For each of the hashes (sorted), all rows with that hash and least ≤ sub ≤ most. A hash may have several
        ranges, which must not overlap. The run of a hash is searched, never scanned."""
        wanted = hashes[np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))] if len(hashes) else hashes
        found = []
        for piece in self.slices:
            which, left, right = search.hash_runs(piece, wanted)
            run = np.full(len(wanted), -1, np.int64)
            run[which] = np.arange(len(which))
            place = run[np.searchsorted(wanted, hashes)]
            some = np.flatnonzero(place >= 0)
            place = place[some]
            start = search.lower_bound(search.subs(piece), left[place], right[place], least[some])
            stop = search.upper_bound(search.subs(piece), start, right[place], most[some])
            rows = physical.ranges(start, stop - start)
            found.append((piece, np.zeros(len(rows), np.int64), rows))
        return self._gathered(found)[1]

    def least(self, hashes: Words, after: np.uint64) -> int | None:
        """The least sub above ``after`` among all rows of these hashes, also rows that cancel; None if there is
        none."""
        found = []
        for piece in self.slices:
            left, right = self._beyond(piece, hashes, after)
            some = left[left < right]
            found += [int(search.subs(piece)[some].min())] if len(some) else []
        return min(found, default=None)

    @staticmethod
    def _beyond(piece: Slice, hashes: Words, after: np.uint64) -> tuple[Ints, Ints]:
        """The rows [left, right) of each hash whose sub is above ``after``."""
        _, left, right = search.hash_runs(piece, hashes)
        return search.upper_bound(search.subs(piece), left, right, np.full(len(left), after)), right

    def first(self, hashes: Words, count: int, *, last: bool = False) -> tuple[Ints, Block]:
        """(index of its hash per row, rows): the first (``last``: the last) ``count`` rows in order of sub of each hash
        (sorted, unique).

        Rows are consolidated over layers and epochs, have positive diffs, and are sorted by (hash, sub, row). A row
        counts as often as its multiplicity. All rows that tie with the ``count``-th row are included. Where several
        keys share a hash, all rows of that hash are returned."""
        return ordered.first(self.slices, self.layout, self.as_of, hashes, count, last=last)

    def changes(self, after: int, upto: int) -> Block:
        """All rows with after < epoch ≤ upto, each at its epoch. Raises EpochUnavailable if compaction has passed
        ``after``, LogDamaged if a layer that is read is damaged."""
        return self._joined([piece.block() for piece in self._of_changes(after, upto)])

    def stored(self, after: int, upto: int) -> int:
        """The rows stored in the pieces that `changes` reads. Raises as it does, but for damage to rows."""
        return sum(piece.stop - piece.start for piece in self._of_changes(after, upto))

    def _of_changes(self, after: int, upto: int) -> list[Slice]:
        upto = min(upto, self.as_of)
        try:
            slices, _ = self._open_cover(after, upto, exact=True)
        except (EpochUnavailable, LogDamaged) as error:
            if "path" in error.fields:
                raise  # that layer is damaged; it was not read before, and once it is set aside, others may do
            # The trace is open, so its state exists. Only the history of the state is missing.
            names = [piece.layer.name for piece in self.slices]
            earliest = max([after + 1, *(name.floor for name in names if name.floor > name.first)])
            raise EpochUnavailable(
                f"the changes after epoch {after} up to {upto} were compacted and cannot be told apart any more; "
                f"those after epoch {earliest} can",
                after=after,
                upto=upto,
                earliest=earliest,
            ) from error
        return slices

    def folded_after(self, after: int) -> int | None:
        """The epoch up to which compaction has collapsed epochs after ``after`` in which no row changed.

        ``after`` itself if compaction has not passed it; None if rows may have changed in the collapsed epochs."""
        return folded_after(((piece.layer.name, piece.layer.metadata) for piece in self.slices), after)

    def is_quiet(self, after: int, upto: int) -> bool:
        """Whether no row in epochs that compaction has not collapsed has after < epoch ≤ ``upto``."""
        for piece in self.slices:
            name, epochs = piece.layer.name, piece.block().epoch
            folded = name.floor if name.floor > name.first else -1
            if ((epochs > max(after, folded)) & (epochs <= upto)).any():
                return False
        return True

    def scan(self) -> Block:
        """All rows as of the epoch, consolidated; the epoch of every row is ``as_of``."""
        return consolidate(self._joined([piece.block() for piece in self.slices]).at(self.as_of), self.layout)

    def _joined(self, blocks: Sequence[Block]) -> Block:
        return Block.concat(blocks) if blocks else Block.empty(self.layout)

    def _gathered(self, found: list[tuple[Slice, Ints, Ints]]) -> tuple[Ints, Block]:
        """Read the rows found: (piece, index per row, row number in the layer) → (index per row, rows)."""
        blocks, indices = [], []
        for piece, index, rows in found:
            live = piece.live(rows)
            if live is not None:
                index, rows = index[live], rows[live]
            indices.append(index)
            blocks.append(piece.layer.take(rows) if len(rows) else piece.layer.block(0, 0))
        return np.concatenate(indices) if indices else np.zeros(0, np.int64), self._joined(blocks)

    def _open_cover(self, after: int, upto: int, *, exact: bool) -> tuple[list[Slice], list[LayerName]]:
        """The pieces of a cover of the epochs after < e ≤ upto, and the layers of the cover that have no rows, as their
        names say."""

        def opened(pieces: list[Piece]) -> tuple[list[Slice], list[LayerName]]:
            quiet = {piece.name for piece in pieces if is_quiet(piece.name, self.layout)}
            slices = [open_slice(self.directory, piece, self.layout) for piece in pieces if piece.name not in quiet]
            return slices, sorted(quiet)

        return self._covered(after, upto, opened, exact=exact)

    def _covered(self, after: int, upto: int, use: Callable[[list[Piece]], T], *, exact: bool = False) -> T:
        """``use`` of the pieces of a cover. If a file vanishes meanwhile, a later listing is covered."""
        if upto <= after:
            return use([])
        seen: list[set[str]] = []

        def look() -> T:
            listing = set(list_files(self.directory))
            seen.append(listing)
            retain(self.directory, listing)
            names = [name for name in map(LayerName.parse, listing) if name is not None]
            return use(cover(names, self.low, self.high, upto, self.chain, after=after, exact=exact))

        def may_change(error: Exception) -> bool:
            if isinstance(error, FileNotFoundError):
                # A merge removed the file after the listing; the merged layer is in the next listing.
                return self.directory.exists()
            # A listing is not atomic: it may miss both the layer that a merge wrote and the layers that it removed.
            # Two equal listings in a row are believed.
            return isinstance(error, EpochUnavailable | LogDamaged) and (len(seen) < 2 or seen[-1] != seen[-2])

        try:
            return retrying(look, on=may_change, pauses=(0.0,) * (_ATTEMPTS - 1))
        except FileNotFoundError as error:
            raise LogDamaged(
                f"trace {self.directory} cannot be read as of epoch {upto}: {error}",
                path=str(self.directory),
                epoch=upto,
            ) from error
