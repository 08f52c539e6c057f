"""Local layers on disk: synced now and then, beside everything else.

Most layers are merged and removed before a sync would matter, and what a copy has is durable without one. So layers are
synced every half minute, when epochs pause, and when a location fails. A disk that cannot sync holds up nobody.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.log.layer_sync import sync_all
from holdfast.runtime.runner import Beside, Runner

_PAUSE = 30.0
"""Seconds: layers are synced no more often while epochs come and are copied."""


class LocalSync:
    """Syncs the local layers of one open flow."""

    def __init__(self, runner: Runner, traces: Sequence[str], directory: Path) -> None:
        self._runner = runner
        self._directories = [str(directory / trace) for trace in traces]
        self._synced_at = float("-inf")
        self._round_before = -1
        """The last epoch when the round before began: if there is no later one, epochs pause."""

        self.synced = -1
        """The local layers up to this epoch are on disk."""

        self.unsynced: dict[str, str] = {}
        """Traces whose local layers could not be synced → why. What copies hold of them is durable all the same."""

    def is_due(self, last: int, troubled: bool) -> bool:
        """Whether it is time, after epoch ``last``; ``troubled``: a location fails."""
        recent = self._runner.threads and time.monotonic() - self._synced_at < _PAUSE
        moves, self._round_before = last > self._round_before, last
        return not recent or not moves or troubled

    def sync(self, last: int) -> None:
        """Have the layers up to epoch ``last`` on disk, as far as that can be."""
        after, directories = self.synced, self._directories
        if self._runner.scattered:
            found = self._runner.everywhere("syncing layers", lambda: sync_all(directories, after))
            self.unsynced = {one.trace: f"member {member}: {one.why}" for member, some in found.items() for one in some}
        else:
            failed = self._runner.tasks(
                "syncing layers", lambda some: sync_all(some, after), directories, Beside.COPYING
            )
            self.unsynced = {one.trace: one.why for one in failed}
        self._synced_at = time.monotonic()
        if not self.unsynced:
            self.synced = last
