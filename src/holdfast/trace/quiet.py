"""When a trace changed last, also where compaction has made its epochs one.

A layer whose epochs up to ``since`` were collapsed cannot tell any more at which of them its rows came, and rows that
cancelled left nothing at all. So whoever collapses writes down the last epoch at which anything changed, if that is
before ``since`` (`CHANGED` in the layer's metadata; -1: nothing ever did). It is a function of the rows and ``since``,
as everything in a layer. A layer that does not say so may have changed at ``since``: to say too much is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from holdfast.trace.name import LayerName
from holdfast.trace.physical import Ints

CHANGED = "holdfast.changed"


def last_change(name: LayerName, metadata: Mapping[str, str], epochs: Ints, upto: int) -> int:
    """The last epoch up to ``upto`` at which rows of a layer changed, of which some have these epochs."""
    folded = name.floor if name.floor > name.first else -1
    own = epochs[(epochs > folded) & (epochs <= upto)]
    return max(
        int(metadata.get(CHANGED, folded)) if folded >= 0 else -1,
        int(own.max()) if len(own) else -1,
    )


def changed_metadata(found: Iterable[tuple[LayerName, Mapping[str, str], Ints]], since: int) -> dict[str, str]:
    """What a layer says that is made of (name, metadata, epochs of the rows) with epochs up to ``since`` collapsed."""
    if since < 0:
        return {}
    changed = max((last_change(name, said, epochs, since) for name, said, epochs in found), default=-1)
    return {CHANGED: str(changed)} if changed < since else {}


def folded_after(found: Iterable[tuple[LayerName, Mapping[str, str]]], after: int) -> int | None:
    """How far these layers were collapsed beyond ``after``, where nothing changed between that and what was collapsed;
    ``after`` itself if they were not; None if they cannot tell."""
    folded = [(name, said) for name, said in found if name.floor > name.first and name.floor > after]
    none = np.zeros(0, np.int64)
    if any(last_change(name, said, none, name.floor) > after for name, said in folded):
        return None
    return max((name.floor for name, _ in folded), default=after)
