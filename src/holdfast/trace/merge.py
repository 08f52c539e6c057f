"""Merging layers, so that a trace has few layers however many epochs it has.

Shape: let the cover of a partition's latest epoch be runs of epochs, oldest first, of w_1, w_2, … rows. The trace is in
shape if w_i ≥ 2·w_{i+1} for all i: then there are at most log2(rows) + 1 runs. If it is not, the newest run that breaks
the rule is merged with the older runs before it, as long as each has less than twice the rows collected so far. A row
is merged again only when its layer grows by at least half, so it is rewritten O(log rows) times in its life. A run
without rows has weight one, so the layers of quiet epochs are merged with each other, or together with other layers.

A merge writes the canonical form of the rows it covers, with epochs ≤ since set to since. Sums of integers do not
depend on their order, so neither do the bytes: the same (range, epochs, since) gives the same file, whatever merges
came before. Reading and writing cost O(rows merged); planning reads only names and row counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from holdfast.errors import LogDamaged
from holdfast.trace.cover import Chain, Piece, cover, covered, span
from holdfast.trace.layer import list_layers, write_layer
from holdfast.trace.name import LayerName
from holdfast.trace.quiet import changed_metadata
from holdfast.trace.rows import Block, Layout
from holdfast.trace.search import open_slice

_FACTOR = 2
_SIDE_BY_SIDE = 4
"""A run of more layers than this, side by side (from when there were more partitions), is rewritten. So many layers a
large merge is written as."""

LARGE = 2_000_000
"""Rows from which on a merge is large."""


def plan_merge(
    names_with_rows: Iterable[tuple[LayerName, int]], low: int, high: int, chain: Chain
) -> list[LayerName] | None:
    """The layers to merge next in the partition [low, high); None if its trace is in shape."""
    rows = dict(names_with_rows)
    latest = covered(rows, low, high, chain)
    if latest < 0:
        return None
    runs = _runs(cover(rows, low, high, latest, chain))
    weights = [max(1, int(sum(_share(piece) * rows[piece.name] for piece in run))) for run in runs]
    for newest in range(len(runs) - 1, -1, -1):
        oldest, together = newest, weights[newest]
        while oldest > 0 and weights[oldest - 1] < _FACTOR * together:
            oldest -= 1
            together += weights[oldest]
        names = sorted({piece.name for run in runs[oldest : newest + 1] for piece in run})
        if oldest < newest or len(names) > _SIDE_BY_SIDE:
            return names
    return None


def _runs(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces grouped into runs of epochs, oldest first. A run ends at every epoch that no piece spans."""
    runs: list[list[Piece]] = []
    reached = -1
    for piece in sorted(pieces, key=lambda p: (p.after, p.upto)):
        if piece.after >= reached:
            runs.append([])
        runs[-1].append(piece)
        reached = max(reached, piece.upto)
    return runs


def _share(piece: Piece) -> float:
    """The estimated part of the layer's rows that is in the piece (0 to 1), as hashes are uniform."""
    return (piece.high - piece.low) / (piece.name.high - piece.name.low)


def merge(
    directory: Path,
    layout: Layout,
    names: Iterable[LayerName],
    low: int,
    high: int,
    since: int,
    chain: Chain,
    metadata: dict[str, str] | None = None,
) -> LayerName:
    """Write one layer of [low, high) with all epochs of these layers, where epochs ≤ since are collapsed; return its
    name.

    If a layer was already collapsed further than ``since``, so is the result: its name says how far. No file is
    removed. Raises LogDamaged if one of the layers has vanished.
    """
    (merged,) = merge_in_parts(directory, layout, names, low, high, since, chain, metadata, parts=1)
    return merged


def merge_in_parts(
    directory: Path,
    layout: Layout,
    names: Iterable[LayerName],
    low: int,
    high: int,
    since: int,
    chain: Chain,
    metadata: dict[str, str] | None = None,
    *,
    parts: int,
) -> list[LayerName]:
    """`merge`, with the result as so many layers side by side, written one after the other. (A merge needs several
    times the memory of the layer that it writes, and for a large one that is too much.)"""
    names = sorted(names)
    among = sorted({*names, *list_layers(directory)})
    after, upto, since = outline(names, low, high, since, chain, among=among)
    digest = _digest(upto, chain, among)
    assert digest is not None  # a layer ends there, or outline would have chosen another end
    ends = [low + (high - low) * part // parts for part in range(parts + 1)]
    return [
        _merged(directory, layout, names, left, right, after, upto, since, chain, digest, metadata or {})
        for left, right in pairwise(ends)
    ]


def parts_of(rows: int) -> int:
    """The number of layers, side by side, as which a merge of so many rows is written."""
    return 1 if rows <= LARGE else _SIDE_BY_SIDE


def _merged(
    directory: Path,
    layout: Layout,
    names: Sequence[LayerName],
    low: int,
    high: int,
    after: int,
    upto: int,
    since: int,
    chain: Chain,
    digest: str,
    metadata: dict[str, str],
) -> LayerName:
    """Write the layer of [low, high) with the epochs after < e ≤ upto of these layers."""
    blocks, found = [], []
    for piece in cover(names, low, high, upto, chain, after=after):
        try:
            opened = open_slice(directory, piece, layout)
            block = opened.block()
        except FileNotFoundError as error:
            raise LogDamaged(f"a layer to be merged is gone: {error}", path=str(directory)) from error
        found.append((piece.name, opened.layer.metadata, block.epoch))
        blocks.append(replace(block, epoch=np.maximum(block.epoch, since)) if since >= 0 else block)
    return write_layer(
        directory,
        Block.concat(blocks),
        layout,
        low=low,
        high=high,
        first=after + 1,
        last=upto,
        digest=digest,
        since=since,
        metadata={**metadata, **changed_metadata(found, since)},
    )


def outline(
    names: Sequence[LayerName], low: int, high: int, since: int, chain: Chain, *, among: Sequence[LayerName]
) -> tuple[int, int, int]:
    """(after, upto, since) of the layer that merging ``names`` gives. ``among`` are all layers of the directory."""
    after, upto = _whole_runs(names, low, high, chain, among) or span(names, low, high, chain)
    pieces = cover(names, low, high, upto, chain, after=after)
    floors = [piece.name.floor for piece in pieces if piece.name.floor > piece.name.first]
    since = min(max([since, *floors]), upto)
    # If there is nothing to collapse, the name must not depend on the ``since`` that was asked for.
    return after, upto, since if since > after + 1 else -1


def _whole_runs(
    names: Sequence[LayerName], low: int, high: int, chain: Chain, among: Sequence[LayerName]
) -> tuple[int, int] | None:
    """(after, upto) of the runs that consist of exactly these layers; None if they are not what ``plan_merge`` chose.

    Layers may hold more epochs than the runs use of them. Merging these epochs too would do harm: if they were
    collapsed, the result could not be left where the next run begins, no cover would use it, and the same layers would
    be merged again and again."""
    runs = _runs(cover(among, low, high, covered(among, low, high, chain), chain))
    wanted = set(names)
    mine = [i for i, run in enumerate(runs) if all(piece.name in wanted for piece in run)]
    if not mine or mine != list(range(mine[0], mine[-1] + 1)):
        return None
    if {piece.name for i in mine for piece in runs[i]} != wanted:
        return None
    after, upto = min(piece.after for piece in runs[mine[0]]), max(piece.upto for piece in runs[mine[-1]])
    return None if _digest(upto, chain, among) is None else (after, upto)


def _digest(epoch: int, chain: Chain, among: Sequence[LayerName]) -> str | None:
    """The lineage digest of an epoch, from the chain or, before the chain's first epoch, from the name of a layer that
    ends at this epoch; None if neither has it."""
    ending = (name.digest for name in among if name.last == epoch and chain.accepts(name))
    return chain.digest(epoch) or next(ending, None)
