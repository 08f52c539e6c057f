"""Making a branch of a log, place by place (`log/branches.py` says what a branch is on disk).

Used by the driver that has the log open, and by the command line, which holds its lock: no other process may compact
epochs at the root meanwhile. Each step only adds files; the branch exists when the caller, last, writes its
``branch.json``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from holdfast.coordinator.claim import Claim
from holdfast.coordinator.copy_plan import trusting
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import to_lines
from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.foundation.atomic_files import replace_file
from holdfast.foundation.retries import relisted
from holdfast.log import branches, header
from holdfast.log.branch_location import BranchLocation, Reference
from holdfast.log.branches import BranchRecord
from holdfast.log.clean_end import note_end
from holdfast.log.linked_layers import layers_until
from holdfast.log.location import Location
from holdfast.log.replica import Replica, layer_path
from holdfast.trace.cover import cover
from holdfast.trace.name import ALL, LayerName


class BranchMaking:
    """Makes the files of a branch: its history up to the root, and the traces that it begins with."""

    def __init__(
        self, record: BranchRecord, history: History, shared: Collection[str], kept: Mapping[str, Any]
    ) -> None:
        """``shared``: the traces that the branch begins with; ``kept``: the content of the parent's
        ``collections.json``."""
        self.record = record
        self._lineage = history[: record.root + 1]
        self._digests = history.digests()
        self._shared = shared
        self._description = _described(kept, shared)
        self._flow = branches.branch_flow(record.flow, record.name)

    def work_in(self, log: Path, link: Callable[[Mapping[int, str], int, Collection[str]], object]) -> None:
        """Make the working directory of the branch, in that of the parent. ``link`` is called with the history's
        digests, the root and the shared traces, and links their layers."""
        branches.remove_local(log, self.record.name)
        target = branches.directory_of(log, self.record.name)
        (target / "lineage").mkdir(parents=True)
        link(self._digests, self.record.root, self._shared)
        replace_file(target / "lineage" / "log.jsonl", to_lines(self._lineage))
        replace_file(target / header.FILE, header.to_text(header.header_of(self._flow)).encode())
        replace_file(target / "collections.json", header.to_text(self._description).encode())
        if (members := log / "members.json").exists():
            replace_file(target / members.name, members.read_bytes())
        note_end(target, self.record.digest)

    def refer_in(self, location: Location, meanwhile: AbstractContextManager[object] | None = None) -> None:
        """Make the location of the branch, in a location of the parent. ``meanwhile``: a context in which no layers are
        removed there."""
        own = BranchLocation(location, self.record.name)
        with meanwhile or nullcontext():
            relisted(lambda: self._refer(Replica(location), own))
        replica = Replica(own)
        replica.open(self._flow)
        replica.write_collections(self._description)
        replica.claim(Claim(self._lineage[-1].term, secrets.token_hex(8)), {"branched": self.record.name})
        replica.write_lineage(self._lineage)

    def _refer(self, replica: Replica, own: BranchLocation) -> None:
        """Write the references, and then check that their layers are there: layers that are there after that stay.
        Raises FileNotFoundError if one was removed in between."""
        found = {}
        for trace in self._shared:
            sizes = replica.layers(trace)
            for part, name in layers_until(sizes, self._digests, self.record.root).items():
                found[layer_path(trace, part)] = Reference(layer_path(trace, name), sizes[name])
        own.refer(found)
        there = {layer_path(trace, name) for trace in self._shared for name in replica.layers(trace)}
        for each in found.values():
            if each.path not in there:
                raise FileNotFoundError(f"{each.path} was merged meanwhile")


def is_readable(names: Collection[LayerName], digests: Mapping[int, str], root: int) -> bool:
    """Whether these layers hold all of a trace as of ``root``."""
    try:
        cover(layers_until(names, digests, root), 0, ALL, root, trusting(root))
    except (EpochUnavailable, LogDamaged):
        return False
    return True


def _described(kept: Mapping[str, Any], shared: Collection[str]) -> dict[str, Any]:
    """The branch's description (``collections.json``) at its root: that of the parent, with only the operators whose
    traces the branch has. All other operators are new to it."""
    has = {trace.partition(".")[0] for trace in shared}
    operators = {each: kind for each, kind in kept.get("operators", {}).items() if each in has}
    collections = {
        name: entry for name, entry in kept.get("collections", {}).items() if entry["fingerprint"] in operators
    }
    rest: dict[str, Any] = {key: kept[key] for key in ("session", "sources", "before", "versions") if key in kept}
    return {"collections": collections, "operators": operators, **rest}
