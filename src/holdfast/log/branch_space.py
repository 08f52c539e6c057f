"""What a branch holds in a location of its parent beside its own files: layers that nobody else needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.coordinator.copy_plan import trusting
from holdfast.log.branch_location import Reference
from holdfast.log.replica import layer_path
from holdfast.trace.cover import garbage
from holdfast.trace.name import LayerName


def only_referred(
    references: Mapping[str, Reference], layers: Mapping[str, Collection[LayerName]], last: int, live_after: int
) -> list[Reference]:
    """Of what a branch shares, what its location would not keep for its own sake. ``layers``: trace → what the location
    holds of it; of that it needs what somebody reads as of epoch ``live_after``, or of a later one up to ``last``."""
    needed = {
        layer_path(trace, name)
        for trace, names in layers.items()
        for name in set(names) - set(garbage(names, trusting(last), live_after))
    }
    return [each for each in references.values() if each.path not in needed]
