"""How tasks are told of the epoch: by a property of the job, so that what is sent to them never changes."""

from __future__ import annotations

import base64
import pickle

from pyspark import SparkContext, TaskContext, cloudpickle

from holdfast.operators.stage import Epoch

_PROPERTY = "holdfast.epoch"


def tell(context: SparkContext, epoch: Epoch) -> None:
    """The jobs that this thread starts next are of ``epoch``."""
    context.setLocalProperty(_PROPERTY, base64.b64encode(cloudpickle.dumps(epoch)).decode())


def current_epoch() -> Epoch:
    """In a task: the epoch it belongs to."""
    task = TaskContext.get()
    told = task.getLocalProperty(_PROPERTY) if task is not None else None
    if told is None:
        raise RuntimeError("this task was not told its epoch")
    epoch: Epoch = pickle.loads(base64.b64decode(told))
    return epoch


def current_partition() -> int:
    """In a task: its partition."""
    task = TaskContext.get()
    return task.partitionId() if task is not None else 0
