"""From which epochs a branch of an open flow can be made, and with which layers it begins.

Views and inputs must be readable as of the root, here and in enough locations. The state of an operator reaches back a
few epochs only: where it does not, it is left out, and made again from rows that views and inputs have, when the branch
is opened, as that of a new view is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from holdfast.coordinator.copy_plan import trusting
from holdfast.errors import DeclarationError, EpochUnavailable
from holdfast.log.branch_making import is_readable
from holdfast.log.host_paths import host_path
from holdfast.runtime.open_flow import OpenFlow
from holdfast.trace.cover import cover
from holdfast.trace.layer import list_layers
from holdfast.trace.name import ALL, LayerName


class BranchRoots:
    """The epochs of an open flow with which a branch can begin."""

    def __init__(self, flow: OpenFlow) -> None:
        self._flow = flow
        self._name = flow.compiled.declared.name
        self._state = flow.state

    def epoch(self, at: int | datetime | None) -> int:
        """The epoch that is meant: by default the last; of a time, the last one that was over then. An error if it is
        not there, or not any more."""
        history = self._state.history
        if history.last < 0:
            raise DeclarationError(f"flow '{self._name}': there is no epoch yet to branch from", flow=self._name)
        if at is None:
            return history.last
        if isinstance(at, datetime):
            moment = int(at.timestamp() * 1e6)
            before = [record.epoch for record in history if record.clock <= moment]
            if not before and history.base is None:
                raise EpochUnavailable(
                    f"flow '{self._name}': it had no epoch yet at {at}: epoch {history.first} is its first, at "
                    f"{datetime.fromtimestamp(history[history.first].clock / 1e6).astimezone()}",
                    epoch=history.first - 1,
                    earliest=history.first,
                )
            if not before:
                raise self._gone(history.first - 1, history.first, f"what was at {at}")
            return before[-1]
        if at > history.last:
            raise EpochUnavailable(
                f"flow '{self._name}': epoch {at} is not there yet; the last is {history.last}",
                epoch=at,
                latest=history.last,
            )
        if at < history.first:
            raise self._gone(at, history.first, f"epoch {at}")
        return at

    def _gone(self, epoch: int, earliest: int, what: str) -> EpochUnavailable:
        kept = self._state.history.last - max(epoch, 0)
        return EpochUnavailable(
            f"flow '{self._name}': no branch can begin with {what} any more: it is behind what the flow retains; the "
            f"earliest epoch from which one can is {earliest}. retain={kept} (or more) would have kept it",
            epoch=epoch,
            earliest=earliest,
        )

    def shared(self, root: int) -> set[str]:
        """The traces that the branch begins with; `EpochUnavailable` if one that it must have was compacted."""
        compiled, state = self._flow.compiled, self._state
        directory, digests = compiled.directory, state.history.digests()
        listed: dict[str, set[LayerName]] = {}
        for found in self._flow.runner.everywhere("listing layers", partial(_listed, directory)).values():
            for trace, names in found.items():
                listed.setdefault(trace, set()).update(names)
        whole = {trace for trace, names in listed.items() if is_readable(names, digests, root)}
        required = self._required(root)
        for trace in sorted(required.keys() - whole):
            true = [name for name in listed.get(trace, ()) if digests.get(name.last) == name.digest]
            try:
                cover(true, 0, ALL, root, trusting(state.history.last))  # LogDamaged: something is missing here
            except EpochUnavailable:
                raise self._gone(root, self._earliest(listed, root), f"epoch {root} of '{required[trace]}'") from None
        if not self._is_kept(root):
            raise self._gone(root, self._earliest(listed, root), f"epoch {root}")
        # An operator is made again as a whole.
        halves = {each for each, traces in compiled.traces.items() if not whole.issuperset(traces)}
        return {trace for trace in whole if trace.partition(".")[0] not in halves}

    def _earliest(self, listed: Mapping[str, Collection[LayerName]], root: int) -> int:
        """The first epoch after ``root`` from which a branch can be made of these layers."""
        history = self._state.history
        digests = history.digests()
        for epoch in range(root + 1, history.last):
            required = self._required(epoch)
            if self._is_kept(epoch) and all(is_readable(listed.get(trace, ()), digests, epoch) for trace in required):
                return epoch
        return history.last

    def having(self, root: int) -> set[int]:
        """The locations that have, as of an epoch, what cannot be made again, should the working directory be lost.
        Their copies may have been compacted further than local layers."""
        required, digests = self._required(root), self._state.history.digests()
        return {
            number
            for number, holding in list(self._state.copies.holdings.items())
            if all(is_readable(holding.layers.get(trace, ()), digests, root) for trace in required)
        }

    def _is_kept(self, root: int) -> bool:
        """Whether enough of the locations that were seen have it. What is not safe yet was not compacted."""
        copies, wanted = self._state.copies, self._state.settings.min_replicas
        return root > copies.safe or len(self.having(root)) >= min(wanted, len(copies.holdings))

    def _required(self, root: int) -> dict[str, str]:
        """The traces that cannot be made again as of an epoch, each with a view or input that needs it: rows, and
        values that were drawn."""
        compiled, versions = self._flow.compiled, self._state.versions
        required: dict[str, str] = {}
        for view, version in compiled.versions().items():
            past = versions.of(view)
            if not past or past[versions.at(view, root)].version != version:
                continue  # it was another one then: the branch makes it anew, as an edited view
            drawn = compiled.flow.ancestors({version.log}) & compiled.drawing
            for trace in [version.trace, *(trace for operator in drawn for trace in compiled.traces[operator])]:
                required.setdefault(trace, view)
        return required


def _listed(directory: Path) -> dict[str, list[LayerName]]:
    own = host_path(directory)
    found = sorted(os.listdir(own)) if own.is_dir() else []
    return {trace: list_layers(own / trace) for trace in found if (own / trace).is_dir()}
