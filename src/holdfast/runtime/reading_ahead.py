"""Reading ahead: while an epoch is committed, tasks read what the next epoch will probably take.

It begins when an epoch counts and the sources were told, before the sinks get their change. Each source says what it
would offer next (`Source.upcoming`), and the job has the parts read, if a task is free. The next epoch is polled,
begun and run as always; if it reads equal parts, these are there already. So the order of calls to sources and sinks,
the offers and the lineage are the same with and without reading ahead, and whatever goes wrong here has no effect.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from holdfast.runtime.intake import Intake
from holdfast.runtime.runner import Job


class ReadingAhead:
    """Reads ahead for the epochs of an open flow."""

    def __init__(self, intake: Intake, job: Job, partitions: int) -> None:
        self._intake = intake
        self._job = job
        self._partitions = partitions
        self._began = False

    def begin(self, sources: Collection[str], patient: bool) -> None:
        """Have the next epoch's input read. ``patient``: as in `Intake.poll`."""
        with suppress(Exception):  # the next epoch meets the error, too, and reports it
            if self._job.reads_ahead and (offers := self._intake.upcoming(sources, patient)):
                self._began = True
                self._job.read_ahead(self._intake.work(offers), self._partitions)

    def drop(self) -> None:
        """Drop what was read: the flow is closed."""
        if self._began:
            self._job.read_ahead([], self._partitions)
