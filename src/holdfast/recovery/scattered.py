"""The log of a collection whose layers are on several hosts: read by tasks, each where its partition is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from holdfast.errors import HoldfastError
from holdfast.operators.kept import Kept
from holdfast.operators.program import partition_range
from holdfast.runner import Runner


class ScatteredKept(Kept):
    """A `Kept` that this process can read although it has no layers itself."""

    _runner: Runner

    @staticmethod
    def of(kept: Kept, runner: Runner) -> ScatteredKept:
        found = ScatteredKept(kept.directory, kept.spec, kept.fields, kept.chain)
        object.__setattr__(found, "_runner", runner)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks read what is where they are.
        return Kept, (self.directory, self.spec, self.fields, self.chain)

    def changes(self, low: int, high: int, after: int, upto: int) -> pa.Table:
        return self._everywhere(lambda kept, low, high: kept.changes(low, high, after, upto))

    def snapshot(self, low: int, high: int, at: int) -> pa.Table:
        return self._everywhere(lambda kept, low, high: kept.snapshot(low, high, at))

    def check(self, name: str, epoch: int) -> None:
        def look(kept: Kept, low: int, high: int) -> pa.Table:
            kept._open(low, high, epoch)
            return pa.table({})

        try:
            self._everywhere(look)
        except HoldfastError as error:
            text = f"view '{name}': {error}" if "earliest" in error.fields else str(error)
            raise type(error)(text, **{**error.fields, "view": name, "epoch": epoch}) from None

    def _everywhere(self, read: Callable[[Kept, int, int], pa.Table]) -> pa.Table:
        """All partitions' rows."""
        plain = Kept(self.directory, self.spec, self.fields, self.chain)

        def share(ranges: list[tuple[int, int]]) -> list[pa.Table | HoldfastError]:
            found: list[pa.Table | HoldfastError] = []
            for low, high in ranges:
                try:
                    found.append(read(plain, low, high))
                except HoldfastError as error:
                    found.append(error)
            return found

        count = self._runner.partitions
        ranges = [partition_range(partition, count) for partition in range(count)]
        results = self._runner.tasks("reading a log", share, ranges, count, lambda one: one[0])
        for result in results:
            if isinstance(result, HoldfastError):
                raise result
        return pa.concat_tables(results)
