"""The log of a collection whose layers are on several members: it is read by tasks, each on its partition's owner."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa

from holdfast.errors import EpochUnavailable, HoldfastError, MemberUnreachable
from holdfast.runtime.runner import Runner
from holdfast.task.program import partition_range
from holdfast.task.view_log import ViewLog


class ScatteredViewLog(ViewLog):
    """A `ViewLog` that this process can read although it has no layers of it."""

    _runner: Runner
    _without: Collection[int]

    @staticmethod
    def of(kept: ViewLog, runner: Runner, without: Collection[int] = ()) -> ScatteredViewLog:
        """Return ``kept`` as a scattered log. ``without``: the lost partitions, which are left out."""
        found = ScatteredViewLog(kept.directory, kept.spec, kept.fields, kept.chain)
        object.__setattr__(found, "_runner", runner)
        object.__setattr__(found, "_without", without)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        # In a task it becomes a plain `ViewLog`, which reads the layers of the task's member.
        return ViewLog, (self.directory, self.spec, self.fields, self.chain)

    def rows(self, low: int, high: int, at: int) -> pa.Table:
        return self.over(low, high, lambda kept, low, high: kept.rows(low, high, at))

    def changes(self, low: int, high: int, after: int, upto: int) -> pa.Table:
        return self.over(low, high, lambda kept, low, high: kept.changes(low, high, after, upto))

    def snapshot(self, low: int, high: int, at: int) -> pa.Table:
        return self.over(low, high, lambda kept, low, high: kept.snapshot(low, high, at))

    def stored(self, low: int, high: int, after: int | None, upto: int) -> pa.Table:
        return self.over(low, high, lambda kept, low, high: kept.stored(low, high, after, upto))

    def folded(self, low: int, high: int, after: int, at: int) -> pa.Table:
        return self.over(low, high, lambda kept, low, high: kept.folded(low, high, after, at))

    def quiet(self, low: int, high: int, after: int, upto: int, at: int) -> pa.Table:
        return self.over(low, high, lambda kept, low, high: kept.quiet(low, high, after, upto, at))

    def check(self, name: str, epoch: int) -> None:
        def look(kept: ViewLog, low: int, high: int) -> pa.Table:
            kept.open(low, high, epoch)
            return pa.table({})

        try:
            self.over(0, 2**64, look)
        except EpochUnavailable as error:
            raise EpochUnavailable(
                f"view '{name}': {error}", **{**error.fields, "view": name, "epoch": epoch}
            ) from None

    def over(self, low: int, high: int, read: Callable[[ViewLog, int, int], pa.Table]) -> pa.Table:
        """Call ``read`` for each partition, on its owner, with the part of its range that is in [low, high), and return
        the tables as one. Raise `MemberUnreachable` if no partition is left."""
        plain = ViewLog(self.directory, self.spec, self.fields, self.chain)

        def share(ranges: list[tuple[int, int]]) -> list[pa.Table | HoldfastError]:
            found: list[pa.Table | HoldfastError] = []
            for low, high in ranges:
                try:
                    found.append(read(plain, low, high))
                except HoldfastError as error:
                    found.append(error)
            return found

        count = self._runner.partitions
        all_ranges = [partition_range(partition, count) for partition in range(count) if partition not in self._without]
        ranges = [(max(low, left), min(high, right)) for left, right in all_ranges if left < high and low < right]
        if not ranges:
            raise MemberUnreachable("all members that keep the flow's layers are lost: nothing is left to read")
        results = self._runner.tasks("reading a log", share, ranges, count, lambda one: one[0])
        errors = [result for result in results if isinstance(result, HoldfastError)]
        # Errors that a recovery can repair come first; then, of compacted epochs, the error with the latest epoch.
        for error in sorted(errors, key=lambda error: (isinstance(error, EpochUnavailable), -_earliest(error))):
            raise error
        return pa.concat_tables(results)


def _earliest(error: HoldfastError) -> int:
    found = error.fields.get("earliest")
    return found if isinstance(found, int) else -1
