"""A layer that is not in a file: rows of this epoch that later steps of the same epoch search as they search a trace.

A `MemoryLayer` has what searches need of a layer (hash, sub, columns, epoch, rows) and neither name nor path. A `Run`
is a growing list of them: a new one is merged with those before it while they are less than twice its size, so that
*n* rows that come in any number of pieces lie in at most log2(n) + 1 layers, and each is merged O(log n) times.
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
        """``collided``: whether two keys share a hash, if that is known already."""
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
    """Rows that come piece by piece, all of one epoch, as a few layers in memory."""

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
        """Take the blocks of other runs as they are: they are few, and merged when they are in the way."""
        self.layers += [MemoryLayer(block, self.layout) for block in blocks if block.rows]
        self.layers.sort(key=lambda layer: -layer.rows)

    def slices(self) -> list[Slice]:
        """The layers, to be searched."""
        return [Slice(layer, 0, layer.rows, -1, 0, cut=False) for layer in self.layers]

    def block(self) -> Block:
        """All rows, not consolidated."""
        return Block.concat([layer.whole for layer in self.layers]) if self.layers else Block.empty(self.layout)
