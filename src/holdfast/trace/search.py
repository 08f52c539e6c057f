"""Binary searches in the mapped columns of a layer, for many keys at once.

A ``Slice`` is a piece of a cover, opened: a run of a layer's rows. Keys are sorted, so the first search (by hash) walks
through the column once, front to back. The second search (by sub, inside the run of a hash) does one step for all keys
at a time, log2(longest run) steps in all. Only the pages with probed rows and results are touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.errors import LogDamaged
from holdfast.trace import inner_loops, physical
from holdfast.trace.cover import Piece
from holdfast.trace.empty_layer import is_empty, open_empty
from holdfast.trace.layer import Layer, open_layer
from holdfast.trace.physical import Bools, Ints, Words
from holdfast.trace.rows import Block, Layout


@dataclass(frozen=True)
class Slice:
    """A piece of a cover, opened: rows [start, stop) of a layer; if ``cut``, only rows with after < epoch ≤ upto."""

    layer: Layer
    start: int
    stop: int
    after: int
    upto: int
    cut: bool

    def live(self, rows: npt.NDArray[np.integer]) -> Bools | None:
        """Whether each of these rows of the layer is in the piece's epochs; None if all are."""
        if not self.cut:
            return None
        epoch = self.layer.epoch[rows]
        live: Bools = (epoch > self.after) & (epoch <= self.upto)
        return live

    def block(self) -> Block:
        block = self.layer.block(self.start, self.stop)
        return block.filter((block.epoch > self.after) & (block.epoch <= self.upto)) if self.cut else block


def open_slice(directory: Path, piece: Piece, layout: Layout) -> Slice:
    """Open the rows of a piece. Raises FileNotFoundError if the layer has vanished, LogDamaged if its layout
    differs. A layer of which the name says that it has no rows is not read."""
    path = directory / piece.name.text()
    layer = open_empty(path, piece.name, layout) if is_empty(piece.name, layout) else open_layer(path)
    if layer.layout != layout:
        raise LogDamaged(f"layer {layer.path} has {layer.layout}, expected {layout}", path=str(layer.path), unfit=True)
    start = layer.find(piece.low) if piece.low > piece.name.low else 0
    stop = layer.find(piece.high) if piece.high < piece.name.high else layer.rows
    cut = piece.after >= piece.name.first or piece.upto < piece.name.last or piece.name.part
    if cut and layer.constant is not None:
        cut = False
        if not piece.after < layer.constant <= piece.upto:
            stop = start
    return Slice(layer, start, stop, piece.after, piece.upto, cut)


def subs(piece: Slice) -> Words:
    """The second sort key of the piece's layer, whose layout must have one."""
    assert piece.layer.sub is not None  # the layout was checked when the slice was opened
    return piece.layer.sub


def hash_runs(piece: Slice, hashes: Words) -> tuple[Ints, Ints, Ints]:
    """Of the hashes (sorted, unique) that are in the piece: their indices, and the rows [left, right) of the layer with
    each."""
    which, left, right = inner_loops.runs_of(piece.layer.hash[piece.start : piece.stop], hashes)
    return (which, left + piece.start, right + piece.start) if piece.start else (which, left, right)


def hits(piece: Slice, hashes: Words) -> tuple[Slice, Ints, Ints]:
    """(piece, index of the hash per row, row number in the layer) of all rows with these hashes."""
    size = piece.stop - piece.start
    if size and len(hashes) and size < len(hashes):
        # Fewer rows than keys: look the rows up among the keys.
        column = piece.layer.hash[piece.start : piece.stop]
        index = np.minimum(inner_loops.lower_bounds(hashes, column), len(hashes) - 1)
        rows = np.flatnonzero(inner_loops.gather(hashes, index) == column)
        return piece, index[rows], rows + piece.start
    which, left, right = hash_runs(piece, hashes)
    if len(which) and int((right - left).max()) == 1:
        return piece, which, left
    return piece, np.repeat(which, right - left), physical.ranges(left, right - left)


def lower_bound(column: Words, left: Ints, right: Ints, values: Words) -> Ints:
    """For each value, the first row of [left, right) that is not below it, or ``right``. All binary searches advance
    together."""
    left, right = left.copy(), right.copy()
    while len(open_ones := np.flatnonzero(left < right)):
        middle = (left[open_ones] + right[open_ones]) >> 1
        below = column[middle] < values[open_ones]
        left[open_ones[below]] = middle[below] + 1
        right[open_ones[~below]] = middle[~below]
    return left


def upper_bound(column: Words, left: Ints, right: Ints, values: Words) -> Ints:
    """For each value, the first row of [left, right) that is above it, or ``right``."""
    left, right = left.copy(), right.copy()
    while len(open_ones := np.flatnonzero(left < right)):
        middle = (left[open_ones] + right[open_ones]) >> 1
        above = column[middle] > values[open_ones]
        right[open_ones[above]] = middle[above]
        left[open_ones[~above]] = middle[~above] + 1
    return left
