"""The space that each branch of an open flow holds: the bytes that removing it would free, on disks and locations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.errors import MemberUnreachable, StoreError
from holdfast.log import branches
from holdfast.log.branch_location import Reference
from holdfast.log.branch_space import only_referred, shared_once
from holdfast.log.branches import BranchRecord
from holdfast.log.host_paths import host_path, scattered
from holdfast.log.location import Location
from holdfast.runtime.open_flow import OpenFlow


class BranchSizes:
    """The sizes of the branches of one open flow."""

    def __init__(self, flow: OpenFlow, missed: Callable[[Location, Exception], None]) -> None:
        """``missed`` is called with a location that does not answer, and its error."""
        self._flow = flow
        self._log = flow.directory.path
        self._locations = list(flow.compiled.declared.locations)
        self._state = flow.state
        self._missed = missed

    def held(self, records: Sequence[BranchRecord]) -> dict[str, int]:
        """Return, for each branch, the bytes that removing it would free."""
        shared = [self._shared(number, location) for number, location in enumerate(self._locations)] if records else []
        return {
            each.name: self._own(each)
            + sum(one.size for references in shared for one in references.get(each.name, ()) if not each.approximate)
            for each in records
        }

    def _own(self, record: BranchRecord) -> int:
        """Return the bytes of files that belong to a branch alone."""
        name, found = record.name, branches.local_bytes(self._log, record.name)
        if self._flow.runner.scattered:
            target = scattered(branches.directory_of(self._log, name))
            with suppress(MemberUnreachable):  # the bytes on members that cannot be reached are not known
                found += sum(
                    self._flow.runner.everywhere(
                        "measuring a branch", lambda: branches.unshared_bytes(host_path(target))
                    ).values()
                )
        if record.approximate:
            return found
        for location in self._locations:
            if location.local() == self._log:
                continue
            try:
                found += branches.blobs(location, name)
            except StoreError as error:
                self._missed(location, error)
        return found

    def _shared(self, number: int, location: Location) -> dict[str, list[Reference]]:
        """Return, for each branch, its references to layers that the location keeps only because of this branch:
        neither the flow nor another branch needs them. It is computed from the last listing of the location."""
        holding, state = self._state.copies.holdings.get(number), self._state
        if holding is None:
            return {}
        try:
            found = shared_once(location)
        except StoreError as error:
            self._missed(location, error)
            return {}
        last, live = state.history.last, state.copies.live_after
        return {name: only_referred(references, holding.layers, last, live) for name, references in found.items()}
