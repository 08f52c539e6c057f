"""Syncs local layers to disk now and then, in the background.

Most layers are merged and removed before a sync would matter, and a layer that has a copy is durable without a sync. So
layers are synced every half minute, when epochs pause, and when a location fails. A disk that cannot sync delays
nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.log.layer_sync import sync_all
from holdfast.runtime.runner import Beside, Runner

_PAUSE = 30.0
"""The least seconds between two syncs while epochs run and are copied."""


class LocalSync:
    """Syncs the local layers of one open flow."""

    def __init__(self, runner: Runner, traces: Sequence[str], directory: Path) -> None:
        self._runner = runner
        self._directories = [str(directory / trace) for trace in traces]
        self._synced_at = float("-inf")
        self._round_before = -1
        """The last epoch at the previous call of `is_due`: if it is still the last one, epochs pause."""

        self.synced = -1
        """The epoch up to which local layers are on disk."""

        self.unsynced: dict[str, str] = {}
        """Trace whose local layers could not be synced → the reason. Layers of it that have copies are durable."""

    def is_due(self, last: int, troubled: bool) -> bool:
        """Whether it is time to sync, with ``last`` the last epoch; ``troubled``: a location fails."""
        recent = self._runner.threads and time.monotonic() - self._synced_at < _PAUSE
        moves, self._round_before = last > self._round_before, last
        return not recent or not moves or troubled

    def sync(self, last: int) -> None:
        """Sync the layers up to epoch ``last``; traces that cannot be synced go into `unsynced`."""
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
