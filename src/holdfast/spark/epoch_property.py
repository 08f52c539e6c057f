"""The epoch of a task, sent as a property of the job, so that the functions sent to tasks never change.

Spark writes properties of jobs to its event log and shows them on its web page. The log's locations and the writers of
sinks may contain credentials, so they are not in the property: tasks get them from a broadcast, which Spark does not
show.
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark import Broadcast, SparkContext, TaskContext, cloudpickle

from holdfast.log.location import Location
from holdfast.task.stage import EpochSpec

_PROPERTY = "holdfast.epoch"


@dataclass(frozen=True)
class Private:
    """What tasks need and nobody else may see: locations and writers of sinks may hold credentials."""

    copies: tuple[Location, ...] = ()
    """The log's locations."""

    writers: bytes = b""
    """The writers of sinks (`task/sink_parts.py`)."""


NOTHING = Private()

Told: TypeAlias = "Broadcast[Private] | None"
"""A broadcast of it; None where no task needs any of it."""


def tell(context: SparkContext, epoch: EpochSpec) -> None:
    """Set the epoch of the jobs that this thread starts next."""
    told = replace(epoch, copies=(), writers=b""), bool(epoch.copies)
    context.setLocalProperty(_PROPERTY, base64.b64encode(cloudpickle.dumps(told)).decode())


def current_epoch(private: Told = None) -> EpochSpec:
    """In a task: return its epoch, with the log's locations and the writers of sinks if the epoch has any and
    ``private`` is given."""
    task = TaskContext.get()
    told = task.getLocalProperty(_PROPERTY) if task is not None else None
    if told is None:
        raise RuntimeError("this task was not told its epoch")
    epoch: EpochSpec
    epoch, has_copies = pickle.loads(base64.b64decode(told))
    if private is None or not (has_copies or epoch.parts):
        return epoch
    return replace(
        epoch,
        copies=private.value.copies if has_copies else (),
        writers=private.value.writers if epoch.parts else b"",
    )


def current_partition() -> int:
    """In a task: return its partition."""
    task = TaskContext.get()
    return task.partitionId() if task is not None else 0
