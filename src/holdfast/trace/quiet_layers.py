"""Layers without rows for many traces at once: how an epoch advances the traces that it does not change.

All layers without rows of a layout have the same bytes (`empty_layer`). So they need not be written one by one: each is
a hard link to one that this process wrote before, which is one system call and no new file. Where that one was merged
away, or the filesystem refuses a link, the layer is written as any other; the result is the same, name and bytes.

Invariant: no file is linked more than `_LINKS` times. So a bad block of the disk damages that many layers at most, all
of which say in their names what they hold; and no filesystem's limit of links is reached.

Cost: a system call for each trace; nothing is listed, opened or read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from holdfast.trace.cover import Chain
from holdfast.trace.empty_layer import is_quiet
from holdfast.trace.layer import empty_layer, write_layer
from holdfast.trace.name import LayerName
from holdfast.trace.rows import Block, Layout

_LINKS = 1000
_KEPT = 256


class _Source:
    """A layer without rows that this process wrote or linked last, and how many links of it this process made."""

    __slots__ = ("links", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.links = 0


_sources: dict[tuple[str, Layout], _Source] = {}


def write_quiet_layers(
    root: Path, traces: Iterable[tuple[str, Layout]], *, low: int, high: int, first: int, last: int, digest: str
) -> int:
    """Write a layer without rows and metadata, of the epochs first … last, to each of these traces: (name of its
    directory below ``root``, layout). Return their bytes. Raises OSError as `write_layer` does."""
    names: dict[Layout, tuple[str, int]] = {}
    written, above = 0, os.fspath(root)
    for trace, layout in traces:
        if layout not in names:
            content, checksum = empty_layer(layout)
            names[layout] = LayerName(low, high, first, last, digest, -1, checksum).text(), len(content)
        text, size = names[layout]
        written += size
        path = f"{above}/{trace}/{text}"
        if not _linked(above, layout, path):
            write_layer(
                root / trace, Block.empty(layout), layout, low=low, high=high, first=first, last=last, digest=digest
            )
            if len(_sources) >= _KEPT:
                _sources.clear()
            _sources[above, layout] = _Source(path)
    return written


def join_quiet_layers(
    directory: Path,
    layout: Layout,
    names: Iterable[LayerName],
    low: int,
    high: int,
    chain: Chain,
    ends: Collection[int] = (),
) -> list[LayerName]:
    """Write one layer for all quiet layers of [low, high) whose epochs follow each other, and return the layers that it
    replaces. ``names`` are the layers of the trace.

    It is a merge that collapses nothing, since there is nothing to collapse; so every epoch of it can still be read. A
    reader that knows no epoch after one of ``ends`` can read without the replaced layers, too: no layer that is written
    passes such an epoch."""
    mine = [name for name in names if (name.low, name.high) == (low, high) and is_quiet(name, layout) and not name.part]
    replaced: list[LayerName] = []
    for run in _runs((name for name in mine if chain.accepts(name)), ends):
        last = max(run, key=lambda name: name.last)
        joined = replace(last, first=run[0].first)
        if len(run) > 1:
            write_quiet_layers(
                directory.parent, [(directory.name, layout)], low=low, high=high,
                first=joined.first, last=joined.last, digest=joined.digest,
            )  # fmt: skip
            replaced += [
                name for name in run
                if name != joined and not any(name.last <= end < joined.last for end in ends)
            ]  # fmt: skip
    return replaced


def ends_quietly(names: Iterable[LayerName], layout: Layout, after: int) -> list[LayerName]:
    """The quiet layers at the end of a trace, of those that begin after epoch ``after``."""
    found: list[LayerName] = []
    for name in sorted(names, key=lambda name: name.last, reverse=True):
        if name.first <= after or not is_quiet(name, layout):
            break
        found.append(name)
    return found


def _runs(names: Iterable[LayerName], ends: Collection[int]) -> Iterator[list[LayerName]]:
    """Layers whose epochs follow each other or overlap, in order of their first epochs. A run does not go on behind one
    of ``ends``."""
    run: list[LayerName] = []
    reached = -1
    for name in sorted(names, key=lambda name: (name.first, name.last)):
        if run and (name.first > reached + 1 or any(reached <= end < name.last for end in ends)):
            yield run
            run = []
        run.append(name)
        reached = max(reached, name.last)
    if run:
        yield run


def _linked(root: str, layout: Layout, path: str) -> bool:
    source = _sources.get((root, layout))
    if source is None or source.links >= _LINKS:
        return False
    try:
        os.link(source.path, path)
    except OSError:
        # The layer was merged away, the trace has no directory yet, the name is taken (a torn file may have it), or
        # there can be no link. Writing the layer does in any case, or says what is wrong.
        return False
    source.path, source.links = path, source.links + 1
    return True
