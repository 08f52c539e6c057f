"""The driver's side of the task that stays (`task/resident.py`): one for each Spark context, shared by its flows.

It is a Spark job of one task, in a thread of its own. The task connects to a socket in a directory that only this user
can enter. `ask` sends an epoch and waits for the answer. It never fails: whatever goes wrong (there is no task yet, it
died, it is busy with another flow, it takes too long, it met an error), the answer is None, and the caller runs the
epoch as an ordinary job. No guarantee depends on this file, since an epoch that is run twice writes the same layers.

A task that stays holds a slot of the session. So there is one only where a slot is left over for it: in a local session
that Holdfast has made (`session.local_master`), or where ``spark.holdfast.resident`` is ``true``. It ends by itself
when nothing was asked for a while, and is started again, beside the epoch that misses it.
"""

from __future__ import annotations

import atexit
import itertools
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from pyspark import InheritableThread, SparkContext

from holdfast.reporting.redaction import logger
from holdfast.spark import background_slots
from holdfast.task.messages import Message
from holdfast.task.resident import Answer, Closed, Request, receive, send, serve
from holdfast.task.single_task import staying
from holdfast.task.stage import EpochSpec

GROUP = "holdfast-resident"
"""The group of its job."""

SETTING = "spark.holdfast.resident"
"""``true``: a task may stay in any session; ``false``: in none. Not set: where the session has a slot left over."""

_PATIENCE = 10.0
"""Seconds that an epoch may take at the least before it is run as a job instead."""

_SLOWER = 20.0
"""An epoch may take so many times what the last one took."""

_AGAIN = 5.0
"""Seconds between two attempts to have a task."""

_ENDING = 2.0
"""Seconds for which a session that is stopped waits for the task."""

_MISSING = 60.0
"""After so many seconds a job whose task has not connected is given up."""

_LOG = logger("holdfast.resident")
_KEYS = itertools.count()


class TooMany:
    """The answer for an epoch with more rows than one task should work on."""


TOO_MANY = TooMany()


class ResidentTask:
    """The task that stays, of one Spark context."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._threads: int = context.defaultParallelism
        self.limit = staying(self._threads)
        """Rows up to which an epoch is one for this task."""

        self._turn = threading.Lock()
        self._listener: socket.socket | None = None
        self._connection: socket.socket | None = None
        self._directory = ""
        self._sent: set[str] = set()
        self._thread: threading.Thread | None = None
        self._started = -_AGAIN
        self._last = 0.0

    def ask(
        self, key: str, program: Callable[[], bytes], epoch: EpochSpec, items: Sequence[tuple[str, bytes]]
    ) -> list[Message] | TooMany | None:
        """The messages of an epoch, `TOO_MANY`, or None: run it as a job. ``key`` names the program."""
        if not self._turn.acquire(blocking=False):
            return None  # another flow's epoch is being run
        try:
            if not self._ready():
                return None
            return self._asked(key, program, epoch, items)
        except (OSError, Closed) as error:
            _LOG.info("the resident task is gone, the epoch runs as a job: %s", error or "connection closed")
            self._end()
            return None
        except BaseException:
            # An interrupt. The answer that is still to come must not be taken for that of the next epoch.
            self._end()
            raise
        finally:
            self._turn.release()

    def _asked(
        self, key: str, program: Callable[[], bytes], epoch: EpochSpec, items: Sequence[tuple[str, bytes]]
    ) -> list[Message] | TooMany | None:
        assert self._connection is not None
        began = time.perf_counter()
        self._connection.settimeout(max(_PATIENCE, _SLOWER * self._last))
        told = None if key in self._sent else program()
        send(self._connection, Request(key, told, epoch, items, self.limit, self._threads))
        answer = _answer_of(self._connection, epoch)
        if answer.unknown:  # the task has had too many others since
            send(self._connection, Request(key, program(), epoch, items, self.limit, self._threads))
            answer = _answer_of(self._connection, epoch)
        self._sent.add(key)
        self._last = time.perf_counter() - began
        if answer.ends:
            self._end()
        if answer.failed:
            _LOG.info("the resident task met an error, the epoch runs as a job: %s", answer.failed)
            return None
        return TOO_MANY if answer.too_many else list(answer.messages)

    def _ready(self) -> bool:
        """Whether there is a task; if not one is started, for epochs to come."""
        if self._connection is not None:
            return True
        if self._listener is None:
            self._start()
            return False
        try:
            self._connection, _ = self._listener.accept()
        except BlockingIOError:
            if time.monotonic() - self._started > _MISSING:
                self._end()
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until there is a task, for those who warm up; whether there is one."""
        deadline = time.monotonic() + seconds
        with self._turn:
            try:
                while not self._ready():
                    if time.monotonic() > deadline:
                        return False
                    time.sleep(0.01)
            except OSError as error:
                _LOG.warning("there can be no resident task, epochs run as jobs: %s", error)
                self._end()
                return False
            return True

    def _start(self) -> None:
        if time.monotonic() - self._started < _AGAIN:
            return
        self._started = time.monotonic()
        self._directory = tempfile.mkdtemp(prefix="holdfast-")  # for this user alone
        path = os.path.join(self._directory, "task")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(4)
        self._listener.setblocking(False)
        self._thread = InheritableThread(target=lambda: self._run(path), daemon=True, name="holdfast-resident")
        self._thread.start()

    def _run(self, path: str) -> None:
        """The job, in a thread of its own, until its task ends."""
        with suppress(Exception):  # the task was killed, or the session was stopped: epochs are run as jobs then
            self._context.setLocalProperty("spark.scheduler.pool", "epoch")
            self._context.setJobGroup(GROUP, "holdfast: small epochs, told over a socket", interruptOnCancel=True)
            self._context.parallelize([path], 1).mapPartitions(_serve).collect()

    def _end(self) -> None:
        """Let the task go. It ends when it finds that nobody listens."""
        for one in (self._connection, self._listener):
            if one is not None:
                one.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._connection = self._listener = None
        self._sent.clear()

    def end(self) -> None:
        """Let the task go, once the epoch that it runs is done."""
        with self._turn:
            self._end()

    def end_before_stop(self) -> None:
        """Let the task go and wait for its end, for a moment."""
        if self._turn.acquire(timeout=_ENDING):
            try:
                self._end()
            finally:
                self._turn.release()
            if self._thread is not None:
                self._thread.join(_ENDING)


def _answer_of(connection: socket.socket, epoch: EpochSpec) -> Answer:
    answer = receive(connection)
    assert isinstance(answer, Answer)
    if answer.digest != epoch.digest:
        raise Closed("the answer is that of another epoch")
    return answer


def _serve(paths: Iterable[str]) -> Iterator[int]:
    return iter([serve(path) for path in paths])


def program_key() -> str:
    """A name for a program that no other one of this process has."""
    return f"{os.getpid()}-{next(_KEYS)}"


_TASKS: dict[str, ResidentTask] = {}
_MAKING = threading.Lock()


def resident_of(context: SparkContext) -> ResidentTask | None:
    """The task that stays of a context; None if it has no slot for one."""
    if not _has_room(context):
        return None
    with _MAKING:
        for gone in [key for key, one in _TASKS.items() if _stopped(one._context)]:
            _TASKS.pop(gone)._end()
        if context.applicationId not in _TASKS:
            task = _TASKS[context.applicationId] = ResidentTask(context)
            _ended_first(context, task)
        return _TASKS[context.applicationId]


def _ended_first(context: SparkContext, task: ResidentTask) -> None:
    """Have the task, and those of work beside epochs, end before the context is stopped, by whomever: Spark says of a
    worker that it has to kill when a session is stopped that it crashed, and of a result that comes then that it met an
    error."""
    stop = context.stop

    def stopped() -> None:
        task.end_before_stop()
        with background_slots.quiet(context, _ENDING):
            stop()

    context.stop = stopped


def _stopped(context: Any) -> bool:
    return getattr(context, "_jsc", None) is None


def _has_room(context: SparkContext) -> bool:
    told = context.getConf().get(SETTING, "")
    master: str = context.master
    if told in ("true", "false"):
        return told == "true" and master.startswith("local")
    found = re.fullmatch(r"local\[(\d+)\]", master)
    cores: int = context.defaultParallelism
    return found is not None and int(found[1]) > cores + background_slots.spare(cores)


@atexit.register
def _end_all() -> None:
    for one in _TASKS.values():
        one._end()
