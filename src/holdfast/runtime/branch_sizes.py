"""The space that each branch of an open flow holds: what removing it would free, in all places."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from holdfast.errors import LogDamaged, MemberUnreachable, StoreError
from holdfast.log import branches
from holdfast.log.branch_location import BranchLocation, Reference
from holdfast.log.branch_space import only_referred
from holdfast.log.branches import BranchRecord
from holdfast.log.host_paths import host_path, scattered
from holdfast.log.location import Location
from holdfast.runtime.open_flow import OpenFlow


class BranchSizes:
    """The sizes of the branches of one open flow."""

    def __init__(self, flow: OpenFlow, missed: Callable[[Location, Exception], None]) -> None:
        """``missed`` is told of a location that does not answer."""
        self._flow = flow
        self._log = flow.directory.path
        self._locations = list(flow.compiled.declared.locations)
        self._state = flow.state
        self._missed = missed

    def held(self, record: BranchRecord) -> int:
        """The bytes that removing a branch would free."""
        name, found = record.name, branches.local_bytes(self._log, record.name)
        if self._flow.runner.scattered:
            target = scattered(branches.directory_of(self._log, name))
            with suppress(MemberUnreachable):  # what those have that cannot be reached is not known
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
        return found + sum(
            each.size
            for number, location in enumerate(self._locations)
            for each in self._only_referred(number, BranchLocation(location, name))
        )

    def _only_referred(self, number: int, location: BranchLocation) -> list[Reference]:
        """What a branch shares with a location that would not keep it for its own sake, as it was seen last."""
        holding = self._state.copies.holdings.get(number)
        if holding is None:
            return []
        state = self._state
        try:
            return only_referred(location.references(), holding.layers, state.history.last, state.copies.live_after)
        except (StoreError, LogDamaged):
            return []
