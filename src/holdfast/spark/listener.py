"""Spark's events in Python: a ``SparkListenerInterface`` behind py4j's callback server.

Spark calls the listener in a thread of its own, after the event; a slow listener delays only itself. One listener per
Spark context hands events, as plain values, to the parts of Holdfast that registered.

Each call from the JVM costs processor time there and here, and an epoch on a cluster has dozens of events: of stages,
of tasks, of blocks of broadcasts. So the JVM itself passes over what nobody wants (`_Attached`): without a watched
query, all but the events of members.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from holdfast.coordinator.membership import Member
from holdfast.reporting.redaction import logger

_LOG = logger("holdfast.membership")


@dataclass(frozen=True)
class ExecutorJoined:
    member: Member


@dataclass(frozen=True)
class ExecutorLost:
    id: str
    reason: str


@dataclass(frozen=True)
class JobStarted:
    job: int
    group: str
    stages: tuple[int, ...]


@dataclass(frozen=True)
class StageSubmitted:
    stage: int
    attempt: int
    name: str
    tasks: int


@dataclass(frozen=True)
class TaskEnded:
    stage: int
    stage_attempt: int
    partition: int
    attempt: int
    executor: str
    host: str
    reason: str
    """``Success``, ``ExecutorLostFailure``, ``FetchFailed``, ``Resubmitted``, ``ExceptionFailure``, …"""

    text: str
    """The text of the failure; empty for a success."""


Event = ExecutorJoined | ExecutorLost | JobStarted | StageSubmitted | TaskEnded
Hear = Callable[[Event], None]


_OF_MEMBERS = ("onExecutorAdded", "onExecutorRemoved")
_OF_TASKS = ("onJobStart", "onStageSubmitted", "onTaskEnd")
_INTERFACE = "org.apache.spark.scheduler.SparkListenerInterface"


class _Attached:
    """Some methods of a listener, attached to a Spark context. Calls of other methods do not leave the JVM."""

    def __init__(self, context: SparkContext, listener: Listener, methods: Sequence[str]) -> None:
        jvm: Any = context._jvm
        self._bus = context._jsc.sc()
        interface = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_INTERFACE)
        # Java's own filter: a listener that hands one kind of event to a method, and ignores all others.
        create = jvm.java.beans.EventHandler.create
        self._listeners = [create(interface, listener, method, "", method) for method in methods]
        for each in self._listeners:
            self._bus.addSparkListener(each)

    def detach(self) -> None:
        for each in self._listeners:
            self._bus.removeSparkListener(each)


class Listener:
    """Receives Spark's events, and passes them on, in order, one at a time."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._all: list[Hear] = []
        self._tasks: list[Hear] = []
        self._members_attached = _Attached(context, self, _OF_MEMBERS)
        self._tasks_attached: _Attached | None = None

    def add(self, hear: Hear, *, tasks: bool = False) -> None:
        """Register ``hear`` for members' events; with ``tasks`` also for events of jobs, stages and tasks, which are
        many."""
        with self._lock:
            (self._tasks if tasks else self._all).append(hear)
            if tasks and self._tasks_attached is None:
                self._tasks_attached = _Attached(self._context, self, _OF_TASKS)

    def remove(self, hear: Hear) -> None:
        with self._lock:
            for some in (self._tasks, self._all):
                if hear in some:
                    some.remove(hear)
            if not self._tasks and self._tasks_attached is not None:
                attached, self._tasks_attached = self._tasks_attached, None
                with suppress(Py4JError, OSError):  # the session has stopped
                    attached.detach()

    def _tell(self, event: Event) -> None:
        with self._lock:
            hearing = (
                [*self._all, *self._tasks] if isinstance(event, ExecutorJoined | ExecutorLost) else list(self._tasks)
            )
        for hear in hearing:
            try:
                hear(event)
            except Exception as error:
                # Spark would only log the error, and the listeners after this one would miss the event.
                said = f"{type(error).__name__}: {error}"
                _LOG.warning("a listener failed: %s", said, extra={"error": said})

    # The names of these methods are Spark's.

    def onExecutorAdded(self, event: Any) -> None:
        info = event.executorInfo()
        member, host = event.executorId(), info.executorHost()
        _LOG.info("executor %s joined on %s", member, host, extra={"member": member, "host": host})
        self._tell(ExecutorJoined(Member(event.executorId(), info.executorHost(), info.totalCores())))

    def onExecutorRemoved(self, event: Any) -> None:
        if self._all:  # no warning at the end of a program, when all executors go
            member, reason = event.executorId(), event.reason()
            _LOG.warning("executor %s was lost: %s", member, reason, extra={"member": member, "reason": reason})
        self._tell(ExecutorLost(event.executorId(), event.reason()))

    def onJobStart(self, event: Any) -> None:
        if self._tasks:
            properties = event.properties()
            group = properties.getProperty("spark.jobGroup.id") if properties is not None else None
            stages = event.stageIds()
            ids = tuple(stages.apply(place) for place in range(stages.size()))
            self._tell(JobStarted(event.jobId(), group or "", ids))

    def onStageSubmitted(self, event: Any) -> None:
        if self._tasks:
            info = event.stageInfo()
            self._tell(StageSubmitted(info.stageId(), info.attemptNumber(), info.name(), info.numTasks()))

    def onTaskEnd(self, event: Any) -> None:
        if self._tasks:
            info, reason = event.taskInfo(), event.reason()
            # The class name of a Scala case class is its name; that of a Scala object ends with a dollar.
            kind = reason.getClass().getSimpleName().rstrip("$")
            self._tell(
                TaskEnded(
                    event.stageId(), event.stageAttemptId(), info.index(), info.attemptNumber(), info.executorId(),
                    info.host(), kind, "" if kind == "Success" else reason.toErrorString(),
                )
            )  # fmt: skip

    def toString(self) -> str:
        return "holdfast"

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def equals(self, other: Any) -> bool:
        return other is self

    class Java:
        implements = ("org.apache.spark.scheduler.SparkListenerInterface",)


_LISTENERS: dict[str, Listener] = {}
_ATTACHING = threading.Lock()


def listener_of(context: SparkContext) -> Listener:
    """Return the listener of a Spark context, which is attached at the first call."""
    with _ATTACHING:
        if context.applicationId not in _LISTENERS:
            ensure_callback_server_started(context._gateway)
            _LISTENERS[context.applicationId] = Listener(context)
        return _LISTENERS[context.applicationId]
