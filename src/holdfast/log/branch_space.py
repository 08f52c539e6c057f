"""What a branch holds in a location of its parent beside its own files: layers that nobody else needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress

from holdfast.coordinator.copy_plan import trusting
from holdfast.errors import LogDamaged
from holdfast.log.branch_location import DIRECTORY, BranchLocation, Reference
from holdfast.log.location import Location
from holdfast.log.replica import layer_path
from holdfast.trace.cover import garbage
from holdfast.trace.name import LayerName


def shared_once(location: Location) -> dict[str, list[Reference]]:
    """Branch → what it shares with a location, and no other branch does. References that do not read are left out."""
    found: dict[str, set[Reference]] = {}
    for name in location.directories(DIRECTORY):
        with suppress(LogDamaged):
            found[name] = set(BranchLocation(location, name).references().values())
    sharing = Counter(each for references in found.values() for each in references)
    return {name: [each for each in references if sharing[each] == 1] for name, references in found.items()}


def only_referred(
    references: Collection[Reference], layers: Mapping[str, Collection[LayerName]], last: int, live_after: int
) -> list[Reference]:
    """Of what a branch shares, what its location would not keep for its own sake. ``layers``: trace → what the location
    holds of it; of that it needs what somebody reads as of epoch ``live_after``, or of a later one up to ``last``."""
    needed = {
        layer_path(trace, name)
        for trace, names in layers.items()
        for name in set(names) - set(garbage(names, trusting(last), live_after))
    }
    return [each for each in references if each.path not in needed]
