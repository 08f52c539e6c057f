"""The epochs that can be the root of a branch, and the layers with which such a branch begins.

Views and inputs must be readable as of the root, in the working directory and in enough locations. The state of an
operator reaches back a few epochs only. State that does not reach back to the root is left out; when the branch is
opened it is filled from the rows of views and inputs, as the state of a new view is.
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
        """Return the epoch that ``at`` means: None is the last epoch, a time is the last epoch that was complete then.
        Raise `EpochUnavailable` if that epoch does not exist yet or was folded, `DeclarationError` if there is no epoch
        at all."""
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
        """Return the traces that a branch of this root begins with. Raise `EpochUnavailable` if a trace that it must
        have was compacted, `LogDamaged` if layers of it are missing in the working directory."""
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
                cover(true, 0, ALL, root, trusting(state.history.last))  # raises LogDamaged if layers are missing
            except EpochUnavailable:
                raise self._gone(root, self._earliest(listed, root), f"epoch {root} of '{required[trace]}'") from None
        if not self._is_kept(root):
            raise self._gone(root, self._earliest(listed, root), f"epoch {root}")
        # An operator is filled as a whole: it needs all its traces or none.
        halves = {each for each, traces in compiled.traces.items() if not whole.issuperset(traces)}
        return {trace for trace in whole if trace.partition(".")[0] not in halves}

    def _earliest(self, listed: Mapping[str, Collection[LayerName]], root: int) -> int:
        """Return the first epoch after ``root`` that can be a root with these layers."""
        history = self._state.history
        digests = history.digests()
        for epoch in range(root + 1, history.last):
            required = self._required(epoch)
            if self._is_kept(epoch) and all(is_readable(listed.get(trace, ()), digests, epoch) for trace in required):
                return epoch
        return history.last

    def having(self, root: int) -> set[int]:
        """Return the locations that hold, readable as of the root, all traces that cannot be computed again if the
        working directory is lost. Copies may have been compacted further than local layers."""
        required, digests = self._required(root), self._state.history.digests()
        return {
            number
            for number, holding in list(self._state.copies.holdings.items())
            if all(is_readable(holding.layers.get(trace, ()), digests, root) for trace in required)
        }

    def _is_kept(self, root: int) -> bool:
        """Whether enough locations hold the required traces as of the root. Epochs that are not safe yet were never
        compacted."""
        copies, wanted = self._state.copies, self._state.settings.min_replicas
        return root > copies.safe or len(self.having(root)) >= min(wanted, len(copies.holdings))

    def _required(self, root: int) -> dict[str, str]:
        """Return the traces that cannot be computed again as of the root, each with a view or input that needs it: the
        rows of views and inputs, and the traces of drawn values."""
        compiled, versions = self._flow.compiled, self._state.versions
        required: dict[str, str] = {}
        for view, version in compiled.versions().items():
            past = versions.of(view)
            if not past or past[versions.at(view, root)].version != version:
                continue  # the view had another version as of the root: the branch fills it, as an edited view
            drawn = compiled.flow.ancestors({version.log}) & compiled.drawing
            for trace in [version.trace, *(trace for operator in drawn for trace in compiled.traces[operator])]:
                required.setdefault(trace, view)
        return required


def _listed(directory: Path) -> dict[str, list[LayerName]]:
    own = host_path(directory)
    found = sorted(os.listdir(own)) if own.is_dir() else []
    return {trace: list_layers(own / trace) for trace in found if (own / trace).is_dir()}
