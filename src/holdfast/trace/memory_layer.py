"""A layer in memory, without a file: rows of this epoch that later steps of the same epoch search like a trace.

A `MemoryLayer` has the parts of a layer that searches need (hash, sub, columns, epoch, rows), but no name and no path.
A `Run` is a growing list of memory layers. A new layer is merged with the layers before it while they have less than
twice its rows. So *n* rows that come in any number of pieces lie in at most log2(n) + 1 layers, and each row is merged
O(log n) times.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.trace.layer import Layer, has_collisions
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.search import Slice

_FACTOR = 2


class MemoryLayer(Layer):
    """Canonical rows as a layer."""

    def __init__(self, block: Block, layout: Layout, *, collided: bool | None = None) -> None:
        """``collided``: whether two keys share a hash; None: find out."""
        self.rows = block.rows
        self.layout = layout
        self.collided = has_collisions(block, layout) if collided is None else collided
        self.constant = None
        self.metadata = {}
        self.hash = block.hash
        self.sub = block.sub
        self.columns = block.columns
        self.epoch = block.epoch
        self.whole = block


class Run:
    """Rows of one epoch that come piece by piece, kept as a few layers in memory."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.layers: list[MemoryLayer] = []

    @property
    def rows(self) -> int:
        return sum(layer.rows for layer in self.layers)

    def add(self, block: Block) -> None:
        """Add canonical rows."""
        while self.layers and self.layers[-1].rows < _FACTOR * block.rows:
            block = consolidate(Block.concat([self.layers.pop().whole, block]), self.layout)
        if block.rows:
            self.layers.append(MemoryLayer(block, self.layout))

    def absorb(self, blocks: Iterable[Block]) -> None:
        """Add the blocks of other runs as layers of their own. They are few; a later ``add`` merges them if needed."""
        self.layers += [MemoryLayer(block, self.layout) for block in blocks if block.rows]
        self.layers.sort(key=lambda layer: -layer.rows)

    def slices(self) -> list[Slice]:
        """The layers as slices, for searches."""
        return [Slice(layer, 0, layer.rows, -1, 0, cut=False) for layer in self.layers]

    def block(self) -> Block:
        """All rows, not consolidated."""
        return Block.concat([layer.whole for layer in self.layers]) if self.layers else Block.empty(self.layout)
