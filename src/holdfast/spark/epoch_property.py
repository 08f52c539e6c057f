"""The epoch of a task, sent as a property of the job, so that the functions sent to tasks never change.

Spark writes properties of jobs to its event log and shows them on its web page. The log's locations may contain
credentials, so they are not in the property: tasks get them from a broadcast, which Spark does not show.
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import replace
from typing import TypeAlias

from pyspark import Broadcast, SparkContext, TaskContext, cloudpickle

from holdfast.log.location import Location
from holdfast.task.stage import EpochSpec

_PROPERTY = "holdfast.epoch"

Copies: TypeAlias = "Broadcast[tuple[Location, ...]] | None"
"""The log's locations, for tasks; None where no task needs them."""


def tell(context: SparkContext, epoch: EpochSpec) -> None:
    """Set the epoch of the jobs that this thread starts next."""
    told = replace(epoch, copies=()), bool(epoch.copies)
    context.setLocalProperty(_PROPERTY, base64.b64encode(cloudpickle.dumps(told)).decode())


def current_epoch(copies: Copies = None) -> EpochSpec:
    """In a task: return its epoch, with the log's locations if the epoch has any and ``copies`` is given."""
    task = TaskContext.get()
    told = task.getLocalProperty(_PROPERTY) if task is not None else None
    if told is None:
        raise RuntimeError("this task was not told its epoch")
    epoch: EpochSpec
    epoch, has_copies = pickle.loads(base64.b64decode(told))
    return replace(epoch, copies=copies.value) if has_copies and copies is not None else epoch


def current_partition() -> int:
    """In a task: return its partition."""
    task = TaskContext.get()
    return task.partitionId() if task is not None else 0
