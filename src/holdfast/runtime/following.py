"""A standby driver that runs the leader's epochs too (``hf.active_standby()``).

The standby reads the lineage that the leader writes (its stash if both have the working directory, otherwise the
segments in the log's locations) and runs each epoch with it: the same offers, clock, seed and answers, and so the same
layers, byte for byte, in a separate directory. Sinks get nothing from the standby. The logs of its views serve as its
output queue: when it becomes the leader, each sink is given the epochs that it lacks.

The standby begins with the layers that the log's locations hold, and computes later epochs. If the history is replaced
by another one (the old leader ran on after a new driver had taken over), the standby discards its layers and begins
again. Any failure is tried again. A driver that could not follow can still become the leader, and then recovers like
any other driver.
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
"""The directory, in the working directory, that has a directory for each standby driver, named by its process id."""

_PAUSE = 0.05
_PAUSE_AWAY = 0.5
"""Seconds between two looks for new lineage: in the working directory, or in the log's locations."""

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
        """The epoch up to which layers were fetched from the locations, and are trusted."""

        self._fetched: str | None = None
        """The digest of `_base`: the history that the fetched layers belong to."""

        self._digests: list[str] = []
        """The digests of the epochs after `_base`, which this driver has run."""

        self._begun = False
        self.failure: str | None = None
        """Why the last attempt to follow failed; None if it succeeded."""

    @property
    def last(self) -> int:
        """The last epoch that this driver has; -1: none."""
        return self._base + len(self._digests)

    def _chain(self) -> Chain:
        return Chain(self._base, tuple(self._digests))

    # -- beside the leader --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow in a thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, name="holdfast-following", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following after the current epoch."""
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
        """Run all epochs that the leader has completed and this driver has not. Return how many were run."""
        history = self._history()
        if self.last >= 0 and history.digest(self.last) != (self._digests[-1] if self._digests else self._fetched):
            self._begin_again()  # another history, or its epochs were folded beyond those of this driver
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
                # The input was released, because the log's locations hold the state that was made of it: fetch that.
                caught_up = True
                self._begin_again()
                self._begin(history)
        return done

    def _history(self) -> History:
        """Return the leader's history, as far as it can be read now."""
        if self._stash.exists():
            records = read_stash(self._stash)[0]
            return choose(records) if records else History()
        found: list[Lineage] = []
        for location in self._declared.locations:
            with suppress(HoldfastError, FileNotFoundError):
                found += read_location(Replica(location)).records
        return choose(found) if found else History()

    def _begin(self, history: History) -> None:
        """Fetch the layers that the log's locations hold. Raise if the lineage does not continue from them."""
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
        self._fetched, self._digests = history.digest(self._base), []
        if self._base < history.first - 1 or (history.base is not None and self._base < history.base.epoch):
            raise HoldfastError(
                f"flow '{self._declared.name}': the log's locations hold its state up to epoch {self._base}, and its "
                f"lineage begins with epoch {history.first}"
            )
        self._begun = True

    def _begin_again(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        self._base, self._fetched, self._digests, self._begun = -1, None, [], False

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
        layouts = self._compiled.layouts
        if many := crowded(
            outcome, lineage.epoch, self._compiled.trace_names, self._merging.tolerated, self._compiled.only_written
        ):
            self._merging.request(
                [MergeRequest(self._traces / trace, layouts[trace], -1, -1) for trace in many if trace in layouts]
            )

    # -- taking over --------------------------------------------------------------------------------------------------

    def adopt(self, directory: Path) -> int:
        """Link this driver's layers into the working directory, because it leads now. Return the last epoch that it
        has. (The opening removes layers of any other history than the one that it finds.)"""
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
        """Remove everything that this driver wrote while it followed."""
        shutil.rmtree(self._home, ignore_errors=True)

    def _remove_others(self) -> None:
        """Remove the directories of standby drivers that have died."""
        for each in self._home.parent.glob("*"):
            if each.name.isdigit() and each != self._home and not Path(f"/proc/{each.name}").exists():
                shutil.rmtree(each, ignore_errors=True)
