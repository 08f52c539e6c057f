"""Parts of the next epoch's input, read by the resident task before that epoch begins.

While an epoch is committed to its sinks, the resident task has nothing to do. The driver then tells it which parts the
next epoch will probably read (`ReadAhead`, which has no answer). The task reads them, runs stage 0 over them and keeps
the messages. Stage 0 depends on the rows, the program and the number of partitions, and on nothing else of an epoch.

Nobody relies on it. The request of the next epoch lists its parts, as if none was read ahead. A part is taken from here
if it equals, byte for byte, one that was read under the same program and number of partitions; all other parts are read
as usual. So an offer that changed, an edited view, a rewind or an error in reading ahead costs only the work. An error
is not reported from here, since the epoch meets it again. What the next request does not use is dropped.

Cost: the memory of an epoch's input after stage 0, at most ``most`` bytes, until the next request. A request waits for
at most one part: the task looks for requests before each part.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.task.program import Program
from holdfast.task.single_task import Routed, route
from holdfast.task.stage import EpochSpec
from holdfast.trace.cover import Chain

Item = tuple[str, bytes]
"""The name of a source, and a pickled part to read."""


@dataclass(frozen=True)
class ReadAhead:
    """Parts to read now, for a later request with the same ``key``. Without items: drop what was read. ``limit`` is in
    rows, as in `run_single_task`."""

    key: str
    partitions: int
    items: Sequence[Item]
    limit: int
    threads: int = 1


class PartsReadAhead:
    """The parts that a resident task has read ahead."""

    def __init__(self, most: int) -> None:
        """``most``: the bytes that may be kept."""
        self._most = most
        self._parts: dict[Item, Routed] = {}
        self._read_for = ("", 0)
        """The program's key and the number of partitions."""

    def read(self, told: ReadAhead, program: Program | None, is_asked: Callable[[], bool]) -> None:
        """Read parts until one fails, the memory is used up, or a request waits (``is_asked``)."""
        self.drop()
        if program is None or program.calls_users:
            return
        self._read_for = (told.key, told.partitions)
        kept, total = 0, Routed()
        for item in told.items:
            if is_asked():
                return
            try:
                part = [(item[0], pickle.loads(item[1]))]
                found = route(program, _any_epoch(told.partitions), part, told.limit, told.threads, total)
            except Exception:  # the epoch that reads the part meets the error, too, and reports it
                return
            kept += sum(content.nbytes for _, (_, content) in found.messages if isinstance(content, pa.Table))
            if kept > self._most:
                return
            self._parts[item] = found
            total = Routed([], total.read + found.read, total.sent + found.sent)

    def take(self, key: str, partitions: int, items: Sequence[Item]) -> tuple[list[Routed], list[Item]]:
        """Return those of an epoch's parts that were read ahead, and the items that are still to be read. Whatever else
        was read ahead is dropped."""
        known = self._parts if self._read_for == (key, partitions) else {}
        ready: list[Routed] = []
        left: list[Item] = []
        for item in items:
            found = known.pop(item, None)  # of two equal parts only one was read
            if found is None:
                left.append(item)
            else:
                ready.append(found)
        self.drop()
        return ready, left

    def drop(self) -> None:
        """Drop all parts."""
        self._parts, self._read_for = {}, ("", 0)

    def __len__(self) -> int:
        return len(self._parts)


def _any_epoch(partitions: int) -> EpochSpec:
    return EpochSpec(-1, -1, "", Chain(-1, ()), partitions, "")
