"""Keeping one trace in shape, in one range of key hashes: merge what should be merged, remove what nobody needs.

Off the critical path. It may run at any time, beside epochs and reads, also twice at once: a merge adds a layer whose
name says what it holds, and removes nothing; only layers that no reader as of ``live_after`` or later needs are
removed, and a reader that lost a race for a file lists again. Layers that are gone are not kept open: they would hold
their space on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import LogDamaged
from holdfast.trace.cover import Chain, garbage, pinned
from holdfast.trace.layer import list_layers, open_layer, retain
from holdfast.trace.merge import merge, plan_merge
from holdfast.trace.rows import Layout

_ATTEMPTS = 5


def keep_in_shape(
    directory: Path,
    layout: Layout,
    low: int,
    high: int,
    since: int,
    chain: Chain,
    live_after: int,
    pins: Sequence[tuple[int, int]] = (),
) -> int:
    """Merge until the sizes are geometric. The number of merges made. ``pins`` are ranges of epochs that must stay
    readable for those who know none after them."""
    merged, lost = 0, 0
    while True:
        try:
            mine = [name for name in list_layers(directory) if name.low < high and low < name.high]
            chosen = plan_merge([(name, open_layer(directory / name.text()).rows) for name in mine], low, high, chain)
            if chosen is None:
                break
            merge(directory, layout, chosen, low, high, since, chain)
        except (FileNotFoundError, LogDamaged):
            # Another partition's upkeep removed a layer that nobody needs any more: what is there now is enough.
            lost += 1
            if lost == _ATTEMPTS:
                raise
            continue
        merged += 1
    names = list(list_layers(directory))
    held = {name for live, end in pins for name in pinned(names, chain, live, end)}
    removed = {name.text() for name in garbage(names, chain, live_after) if name not in held}
    for file in removed:
        (directory / file).unlink(missing_ok=True)
    # Of a trace that epochs only write to, nobody else notices here that layers are gone.
    retain(directory, {name.text() for name in names} - removed)
    return merged
