"""Parts of a change that tasks write for a sink, so that large changes do not pass through the driver.

A sink that has a `PartWriter` (`Sink.part_writer`) gets the change of a large epoch in two steps. Each task writes its
rows as a *part*, beside the target: a file with a hidden name, rows in a staging table. Then the driver has the sink
commit all parts of the epoch in one atomic write, with the lineage (`Sink.commit_parts`). No one else sees a part
before that.

A part is written before its epoch counts, and Spark may run a task twice. So there may be parts that are never
committed: of an epoch that failed, of a task's second attempt. Each part belongs to an *attempt*, a text that no other
epoch of any driver has; `Sink.drop_parts` removes what is left of an attempt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa


class PartWriter(ABC):
    """Writes parts of a change, in tasks. It is sent to them by pickling; it must not hold connections or open
    files."""

    @abstractmethod
    def write(self, epoch: int, attempt: str, change: pa.Table) -> Any:
        """Write these rows as a new part of ``attempt``, and return a description of it for `Sink.commit_parts`: text,
        numbers, and tuples, lists and dicts of them. Return None if this process cannot write to the sink's place (it
        runs on a host that does not see the place): the rows then pass through the driver.

        ``change`` has the view's columns and ``_diff`` (int64). When: in a task, before the epoch counts. How often:
        once per task and view with many rows; again, with the same rows, if Spark runs the task again. Each call must
        write a part of its own: calls for one attempt may run at the same time, in threads or on other hosts.
        Not guaranteed: that the part is committed. If this raises, the rows pass through the driver, and the error is
        logged.
        """
