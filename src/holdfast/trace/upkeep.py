"""Keeping one trace in shape, in one range of key hashes: merge what should be merged, remove what nobody needs.

Off the critical path. It may run at any time, beside epochs and reads, also twice at once: a merge adds a layer whose
name says what it holds, and removes nothing; only layers that no reader as of ``live_after`` or later needs are removed,
and a reader that lost a race for a file lists again.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.trace.cover import Chain, garbage
from holdfast.trace.layer import open_layer
from holdfast.trace.merge import merge, plan_merge
from holdfast.trace.name import LayerName
from holdfast.trace.rows import Layout


def layer_names(directory: Path) -> list[LayerName]:
    """The layers of a trace."""
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return []
    return [name for entry in entries if (name := LayerName.parse(entry.name)) is not None]


def keep_in_shape(
    directory: Path, layout: Layout, low: int, high: int, since: int, chain: Chain, live_after: int
) -> int:
    """Merge until the sizes are geometric. The number of merges made."""
    merged = 0
    while True:
        names = layer_names(directory)
        sized = [(name, open_layer(directory / name.text()).rows) for name in names]
        chosen = plan_merge(sized, low, high, chain)
        if chosen is None:
            break
        merge(directory, layout, chosen, low, high, since, chain, {})
        merged += 1
    for name in garbage(layer_names(directory), chain, live_after):
        (directory / name.text()).unlink(missing_ok=True)
    return merged
