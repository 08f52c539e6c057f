"""Layers whose names say that they have no rows, so that nobody has to open them.

All layers without rows and metadata of a layout have the same bytes (`layer.empty_layer`), and a layer's name ends with
the checksum of its bytes. So this checksum in a name says what the layer holds. It is not said of every layer without
rows: those with metadata, and those that another version of pyarrow or of Holdfast wrote, have other checksums, and are
opened as any other.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from holdfast.trace.layer import Layer, as_batch, empty_layer
from holdfast.trace.name import LayerName
from holdfast.trace.rows import Block, Layout


def is_empty(name: LayerName, layout: Layout) -> bool:
    """Whether the name alone says that the layer has no rows."""
    return name.checksum == empty_layer(layout)[1]


def is_quiet(name: LayerName, layout: Layout) -> bool:
    """Whether the name alone says that nothing changed in any epoch of the layer: it has no rows, and none of its
    epochs were collapsed, in which rows might have come and gone."""
    return name.since < 0 and is_empty(name, layout)


def open_empty(path: Path, name: LayerName, layout: Layout) -> Layer:
    """A layer of which the name says that it has no rows, without touching its file."""
    return Layer(path, name, _batch(layout))


@lru_cache(maxsize=256)
def _batch(layout: Layout) -> pa.RecordBatch:
    return as_batch(Block.empty(layout), layout, metadata={})
