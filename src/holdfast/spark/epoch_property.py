"""How tasks are told of the epoch: by a property of the job, so that what is sent to them never changes.

Properties of jobs are written to Spark's event log and shown by its web page. The log's locations may have credentials
in them, so they are no part of the property: tasks have them from a broadcast, which Spark shows to nobody.
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
"""The log's locations, for tasks; None where no task asks them."""


def tell(context: SparkContext, epoch: EpochSpec) -> None:
    """The jobs that this thread starts next are of ``epoch``."""
    told = replace(epoch, copies=()), bool(epoch.copies)
    context.setLocalProperty(_PROPERTY, base64.b64encode(cloudpickle.dumps(told)).decode())


def current_epoch(copies: Copies = None) -> EpochSpec:
    """In a task: the epoch it belongs to, with the log's locations if it has any and ``copies`` brings them."""
    task = TaskContext.get()
    told = task.getLocalProperty(_PROPERTY) if task is not None else None
    if told is None:
        raise RuntimeError("this task was not told its epoch")
    epoch: EpochSpec
    epoch, has_copies = pickle.loads(base64.b64decode(told))
    return replace(epoch, copies=copies.value) if has_copies and copies is not None else epoch


def current_partition() -> int:
    """In a task: its partition."""
    task = TaskContext.get()
    return task.partitionId() if task is not None else 0
