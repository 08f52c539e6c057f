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
from collections.abc import Iterable
from pathlib import Path

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
    root: Path, traces: Iterable[tuple[str, Layout]], *, low: int, high: int, epoch: int, digest: str
) -> int:
    """Write a layer without rows and metadata, of one epoch, to each of these traces: (name of its directory below
    ``root``, layout). Return their bytes. Raises OSError as `write_layer` does."""
    names: dict[Layout, tuple[str, int]] = {}
    written, above = 0, os.fspath(root)
    for trace, layout in traces:
        if layout not in names:
            content, checksum = empty_layer(layout)
            names[layout] = LayerName(low, high, epoch, epoch, digest, -1, checksum).text(), len(content)
        text, size = names[layout]
        written += size
        path = f"{above}/{trace}/{text}"
        if not _linked(above, layout, path):
            write_layer(
                root / trace, Block.empty(layout), layout, low=low, high=high, first=epoch, last=epoch, digest=digest
            )
            if len(_sources) >= _KEPT:
                _sources.clear()
            _sources[above, layout] = _Source(path)
    return written


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
