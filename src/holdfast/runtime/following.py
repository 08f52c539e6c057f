"""A driver that stands by and runs the leader's epochs (``hf.active_standby()``).

It reads the lineage that the leader writes (its stash, where both have the working directory, else the segments in the
log's locations), and runs each epoch with it: the same offers, clock, seed and answers, and so the same layers, byte
for byte, in a directory of its own. Nothing of it is given to a sink: what it would deliver is in the logs of its
views, its output queue, and when it leads, each sink is given what it lacks of that.

It begins with what the log's locations hold, and computes the rest again. A history that turns out to be another one
(the leader before had gone on after it was taken over from) is followed from the beginning. Whatever goes wrong is
tried again; a driver that could not follow leads all the same, and recovers as any other.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.rewinds import state_clock
from holdfast.coordinator.true_history import choose
from holdfast.errors import HoldfastError, InputError
from holdfast.log.lineage_copies import read_location
from holdfast.log.replica import Replica
from holdfast.log.stash import read_stash
from holdfast.reporting.redaction import logger
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.locations import Locations
from holdfast.runtime.merging import MergeRequest, Merging
from holdfast.runtime.outcomes import crowded
from holdfast.runtime.recovery.fetch_layers import Layers, fetch_missing, local_layers
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.runtime.runner import Job, Runner, Work
from holdfast.task.program import partition_range
from holdfast.task.stage import EpochSpec
from holdfast.trace.cover import Chain

_LOG = logger("holdfast.standby")

DIRECTORY = ".following"
"""In the working directory: a directory for each driver that follows, by its process."""

_PAUSE = 0.05
_PAUSE_AWAY = 0.5
"""Seconds between two looks for new lineage: in the working directory, and in the log's locations."""

_AGAIN = 1.0


class Follower:
    """Runs the epochs of another driver."""

    def __init__(self, compiled: CompiledFlow, runner: Runner, job: Job) -> None:
        self._compiled = compiled
        self._declared = compiled.declared
        self._runner = runner
        self._job = job
        self._home = self._declared.local / DIRECTORY / str(os.getpid())
        self._traces = self._home / "traces"
        self._stash = self._declared.local / "lineage" / "log.jsonl"
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._merging = Merging(runner, lambda: (self._chain(), self.last - 1))
        self._base = -1
        """Layers up to this epoch are trusted: they were fetched."""

        self._digests: list[str] = []
        """Those of the epochs after it."""

        self._begun = False
        self.failure: str | None = None
        """Why it could not follow, the last time that it tried."""

    @property
    def last(self) -> int:
        """The last epoch that it has; -1: none."""
        return self._base + len(self._digests)

    def _chain(self) -> Chain:
        return Chain(self._base, tuple(self._digests))

    # -- beside the leader --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow in a thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, name="holdfast-following", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, after the epoch at hand."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._merging.close()

    def _run(self) -> None:
        self._remove_others()
        while not self._stopping.is_set():
            pause = _PAUSE
            try:
                pause = _PAUSE if self._stash.exists() else _PAUSE_AWAY
                self.follow(self._stopping.is_set)
                self.failure = None
            except Exception as error:
                if self.failure != str(error):
                    _LOG.warning(
                        "flow '%s': the leader could not be followed, and will be: %s",
                        self._declared.name,
                        error,
                        extra={"flow": self._declared.name, "error": str(error), "epoch": self.last},
                    )
                self.failure, pause = str(error), _AGAIN
                self._begin_again()
            self._stopping.wait(pause)

    def follow(self, stopping: Callable[[], bool] = lambda: False) -> int:
        """Run all epochs that the leader has completed and this one has not; how many."""
        history = self._history()
        if self._digests and history.digest(self.last) != self._digests[-1]:
            self._begin_again()  # another history, or one that is folded beyond this driver
        if not self._begun and history:
            self._begin(history)
        done, caught_up = 0, False
        while self.last < history.last and not stopping():
            try:
                self._run_epoch(history, history[self.last + 1])
                done += 1
            except InputError:
                if caught_up:
                    raise
                # Its input was released, since the log's locations have what was made of it: that is taken from there.
                caught_up = True
                self._begin_again()
                self._begin(history)
        return done

    def _history(self) -> History:
        """The leader's history, as far as it can be read now."""
        if self._stash.exists():
            records = read_stash(self._stash)[0]
            return choose(records) if records else History()
        found: list[Lineage] = []
        for location in self._declared.locations:
            with suppress(HoldfastError, FileNotFoundError):
                found += read_location(Replica(location)).records
        return choose(found) if found else History()

    def _begin(self, history: History) -> None:
        """Take what the log's locations hold."""
        traces = list(self._compiled.layouts)
        self._traces.mkdir(parents=True, exist_ok=True)
        places = Locations(self._declared.locations, history, self._runner.threads)
        partitions = self._runner.partitions
        ranges = [partition_range(each, partitions) for each in range(partitions)]

        def look() -> Layers:
            holdings = places.look(places.able(), traces) if self._declared.settings.durable else {}
            return Layers(self._runner, traces, self._traces, history.last, holdings, history)

        record = RecoveryRecord()
        layers = fetch_missing(self._runner, look, traces, ranges, self._declared.locations, record)
        self._base = min((layers.has(trace) for trace in traces), default=-1)
        self._digests = []
        if self._base < history.first - 1 or (history.base is not None and self._base < history.base.epoch):
            raise HoldfastError(
                f"flow '{self._declared.name}': the log's locations hold its state up to epoch {self._base}, and its "
                f"lineage begins with epoch {history.first}"
            )
        self._begun = True

    def _begin_again(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        self._base, self._digests, self._begun = -1, [], False

    def _run_epoch(self, history: History, lineage: Lineage) -> None:
        epoch = EpochSpec(
            number=lineage.epoch,
            first=lineage.epoch,
            digest=lineage.digest,
            chain=self._chain(),
            partitions=self._runner.partitions,
            traces=str(self._traces),
            parent=lineage.parent,
            clock=lineage.clock,
            before=state_clock(history, lineage.epoch - 1) if lineage.epoch else -(2**63),
            undo=None if lineage.rewind is None else lineage.rewind["to"],
            seed=lineage.seed,
            answers=lineage.answers,
        )
        sources = self._declared.sources
        work = [Work(name, sources[name], [offer]) for name, offer in lineage.offers.items() if name in sources]
        outcome = self._job.run(epoch, work, f"{self._declared.name}: following epoch {lineage.epoch}")
        self._digests.append(lineage.digest)
        if many := crowded(outcome, self._merging.tolerated):
            layouts = self._compiled.layouts
            self._merging.request(
                [MergeRequest(self._traces / trace, layouts[trace], -1, -1) for trace in many if trace in layouts]
            )

    # -- taking over --------------------------------------------------------------------------------------------------

    def adopt(self, directory: Path) -> int:
        """This driver leads: have its layers among those of the working directory. The last epoch that it has. (Layers
        of another history than the one that is found are removed there, as all such are.)"""
        last = self.last
        for trace in self._compiled.layouts:
            for name in local_layers(self._traces / trace):
                target = directory / trace / name.text()
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.link(self._traces / trace / name.text(), target)
        self.discard()
        return last

    def discard(self) -> None:
        """Remove what it wrote."""
        shutil.rmtree(self._home, ignore_errors=True)

    def _remove_others(self) -> None:
        """Remove what drivers left behind that followed once, and died."""
        for each in self._home.parent.glob("*"):
            if each.name.isdigit() and each != self._home and not Path(f"/proc/{each.name}").exists():
                shutil.rmtree(each, ignore_errors=True)
