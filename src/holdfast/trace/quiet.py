"""When a trace changed last, also where compaction has collapsed its epochs.

A layer whose epochs up to ``since`` were collapsed has lost at which of them its rows came, and rows that cancelled
left no trace. So a merge that collapses epochs records the last epoch at which a row changed, if that is before
``since`` (`CHANGED` in the layer's metadata; -1: no row ever changed). The entry is a function of the rows and
``since``, like everything in a layer. A layer without the entry may have changed at ``since``: to assume a change that
did not happen is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from holdfast.trace.name import LayerName
from holdfast.trace.physical import Ints

CHANGED = "holdfast.changed"


def last_change(name: LayerName, metadata: Mapping[str, str], epochs: Ints, upto: int) -> int:
    """The last epoch ≤ ``upto`` at which rows of a layer changed; -1 if none did. ``epochs`` are the epochs of its
    rows."""
    folded = name.floor if name.floor > name.first else -1
    own = epochs[(epochs > folded) & (epochs <= upto)]
    return max(
        int(metadata.get(CHANGED, folded)) if folded >= 0 else -1,
        int(own.max()) if len(own) else -1,
    )


def changed_metadata(found: Iterable[tuple[LayerName, Mapping[str, str], Ints]], since: int) -> dict[str, str]:
    """The `CHANGED` entry of a layer made by merging these layers and collapsing epochs up to ``since``.

    ``found`` has (name, metadata, epochs of the rows) of each layer merged. The result is empty if rows may have
    changed at ``since``, or if nothing is collapsed (``since`` is -1)."""
    if since < 0:
        return {}
    changed = max((last_change(name, said, epochs, since) for name, said, epochs in found), default=-1)
    return {CHANGED: str(changed)} if changed < since else {}


def folded_after(found: Iterable[tuple[LayerName, Mapping[str, str]]], after: int) -> int | None:
    """The epoch up to which these layers were collapsed, if no row changed after ``after`` in their collapsed epochs.

    ``after`` itself if none was collapsed beyond it; None if rows may have changed after it."""
    folded = [(name, said) for name, said in found if name.floor > name.first and name.floor > after]
    none = np.zeros(0, np.int64)
    if any(last_change(name, said, none, name.floor) > after for name, said in folded):
        return None
    return max((name.floor for name, _ in folded), default=after)
