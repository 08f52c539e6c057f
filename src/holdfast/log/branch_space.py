"""The space that a branch takes in a location of its parent beside its own files: layers that are kept only for it."""

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
    """Branch → the references that it has in a location and that no other branch has. Branches whose references do not
    parse are left out."""
    found: dict[str, set[Reference]] = {}
    for name in location.directories(DIRECTORY):
        with suppress(LogDamaged):
            found[name] = set(BranchLocation(location, name).references().values())
    sharing = Counter(each for references in found.values() for each in references)
    return {name: [each for each in references if sharing[each] == 1] for name, references in found.items()}


def only_referred(
    references: Collection[Reference], layers: Mapping[str, Collection[LayerName]], last: int, live_after: int
) -> list[Reference]:
    """The references whose layers the location would not keep without the branch. ``layers``: trace → the layers that
    the location holds. The location itself needs the layers for reading as of epoch ``live_after`` or a later epoch up
    to ``last``."""
    needed = {
        layer_path(trace, name)
        for trace, names in layers.items()
        for name in set(names) - set(garbage(names, trusting(last), live_after))
    }
    return [each for each in references if each.path not in needed]
