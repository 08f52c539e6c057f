"""Keeping one trace in shape, in one range of key hashes: merge layers, then remove layers that no reader needs.

Off the critical path. Upkeep may run at any time, beside epochs and reads, also twice at once. A merge adds a layer
whose name says what it holds, and removes no file. Only layers that no reader as of ``live_after`` or later needs are
removed, and a reader whose file was removed lists again. Removed layers are closed: a mapping would keep their space on
disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import LogDamaged
from holdfast.trace.cover import Chain, garbage, pinned
from holdfast.trace.empty_layer import is_empty
from holdfast.trace.layer import list_layers, open_layer, retain
from holdfast.trace.merge import merge, merge_in_parts, parts_of, plan_merge
from holdfast.trace.name import LayerName
from holdfast.trace.quiet_layers import ends_quietly, join_quiet_layers
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
    log: bool = False,
) -> int:
    """Merge until the trace is in shape (see ``merge.py``), remove layers, and return the number of merges.

    ``pins`` are ranges (live, end) of epochs that must stay readable for a reader that knows no epoch after ``end``.
    ``log``: epochs do not read the trace, so a large merge may be written as several layers side by side."""
    merged, lost = 0, 0
    ends = {end for _, end in pins}
    for name in join_quiet_layers(directory, layout, list_layers(directory), low, high, chain, ends):
        # `garbage`, below, would find the same; but it compares each layer with all others.
        (directory / name.text()).unlink(missing_ok=True)
        merged = 1
    while True:
        try:
            mine = [name for name in list_layers(directory) if name.low < high and low < name.high]
            if ends:
                # Merged with others, they would have to be kept as well, for readers that know less of the history.
                later = ends_quietly(mine, layout, min(ends))
                mine = [name for name in mine if name not in later]
            rows = {name: _rows(directory, name, layout) for name in mine}
            chosen = plan_merge(rows.items(), low, high, chain)
            if chosen is None:
                break
            if log:
                parts = parts_of(sum(rows[name] for name in chosen))
                merge_in_parts(directory, layout, chosen, low, high, since, chain, parts=parts)
            else:
                merge(directory, layout, chosen, low, high, since, chain)
        except (FileNotFoundError, LogDamaged):
            # Another partition's upkeep removed a layer that no reader needs any more: the layers left are enough.
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
    # A trace that epochs only write to is never opened again, so removed layers are closed here.
    retain(directory, {name.text() for name in names} - removed)
    return merged


def _rows(directory: Path, name: LayerName, layout: Layout) -> int:
    return 0 if is_empty(name, layout) else open_layer(directory / name.text()).rows
