"""The driver's side of the resident task (`task/resident.py`): one for each Spark context, shared by its flows.

It is a Spark job of one task, started from a thread of its own. The task connects to a socket in a directory that only
this user can enter. `ask` sends an epoch and waits for the answer. It never fails: if there is no task yet, or the task
died, is busy with another flow, takes too long or meets an error, `ask` returns None, and the caller runs the epoch as
an ordinary job. No guarantee depends on this file, since an epoch that runs twice writes the same layers.

A resident task holds a slot of the session. So there is one only where a slot is left over for it: in a local session
that Holdfast made (`session.local_master`), or where ``spark.holdfast.resident`` is ``true``. The task ends when no
epoch came for a while. The next epoch then runs as a job, and starts the task again.
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
from holdfast.task.parts_read_ahead import ReadAhead
from holdfast.task.resident import Answer, Closed, Request, receive, send, serve
from holdfast.task.single_task import staying
from holdfast.task.stage import EpochSpec

GROUP = "holdfast-resident"
"""The group of the resident task's job."""

SETTING = "spark.holdfast.resident"
"""A Spark setting. ``true``: any local session may have a resident task; ``false``: none has. Not set: a session with a
slot left over."""

_PATIENCE = 10.0
"""The least time limit, in seconds, of an epoch in the resident task. When its limit is over, an epoch runs as a
job."""

_SLOWER = 20.0
"""An epoch's time limit is this many times the time that the last epoch took, but at least `_PATIENCE`."""

_AGAIN = 5.0
"""Seconds between two attempts to start a task."""

_ENDING = 2.0
"""Seconds that stopping a session waits for the task to end."""

_ALONE = 1.0
"""Seconds that one flow must have had the task for itself before its input is read ahead: an epoch of another flow
should not wait behind that."""

_MISSING = 60.0
"""Seconds after which a job is given up if its task has not connected."""

_LOG = logger("holdfast.resident")
_KEYS = itertools.count()


class TooMany:
    """The answer for an epoch with more rows than one task should work on."""


TOO_MANY = TooMany()


class ResidentTask:
    """The resident task of one Spark context."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._threads: int = context.defaultParallelism
        self.limit = staying(self._threads)
        """Rows up to which an epoch may run in this task."""

        self._turn = threading.Lock()
        self._listener: socket.socket | None = None
        self._connection: socket.socket | None = None
        self._directory = ""
        self._sent: set[str] = set()
        self._thread: threading.Thread | None = None
        self._started = -_AGAIN
        self._last = 0.0
        self._asked_by, self._alone_since = "", 0.0
        """The program that was run last, and since when no other one was."""

        self._reads_ahead = ""
        """The program for which parts may have been read ahead; empty if there are none."""

        self.ready = 0
        """The number of parts, so far, that had been read ahead when their epoch came."""

    def is_alone(self, key: str) -> bool:
        """Whether a task is there, knows the program, and was asked for no other program lately."""
        alone = self._asked_by == key and time.monotonic() - self._alone_since >= _ALONE
        return alone and key in self._sent and self._connection is not None

    def read_ahead(self, key: str, partitions: int, items: Sequence[tuple[str, bytes]]) -> None:
        """Tell the task parts that the next epoch will probably read (`task/parts_read_ahead.py`). It waits for
        nothing and never fails. Nothing happens if the task is busy or gone. Without items: the task drops the parts
        that it has read for this program."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            wanted = self.is_alone(key) if items else self._reads_ahead == key
            if self._connection is not None and wanted:
                self._reads_ahead = key if items else ""
                threads = max(1, self._threads - 1)  # sinks get the epoch before meanwhile
                send(self._connection, ReadAhead(key, partitions, items, self.limit, threads))
        except OSError as error:
            _LOG.info("the resident task is gone: %s", error)
            self._end()
        except BaseException:
            self._end()  # an interrupt may have left half a request in the socket
            raise
        finally:
            self._turn.release()

    def ask(
        self, key: str, program: Callable[[], bytes], epoch: EpochSpec, items: Sequence[tuple[str, bytes]]
    ) -> list[Message] | TooMany | None:
        """Return the messages of an epoch; `TOO_MANY`; or None: run it as a job. ``key`` names the program."""
        if not self._turn.acquire(blocking=False):
            return None  # it runs an epoch of another flow
        try:
            if not self._ready():
                return None
            return self._asked(key, program, epoch, items)
        except (OSError, Closed) as error:
            _LOG.info("the resident task is gone, the epoch runs as a job: %s", error or "connection closed")
            self._end()
            return None
        except BaseException:
            # After an interrupt, the answer to this request is still to come, and must not be taken for the next
            # epoch's.
            self._end()
            raise
        finally:
            self._turn.release()

    def _asked(
        self, key: str, program: Callable[[], bytes], epoch: EpochSpec, items: Sequence[tuple[str, bytes]]
    ) -> list[Message] | TooMany | None:
        assert self._connection is not None
        began = time.perf_counter()
        if key != self._asked_by:
            self._asked_by, self._alone_since = key, time.monotonic()
        self._reads_ahead = ""
        self._connection.settimeout(max(_PATIENCE, _SLOWER * self._last))
        told = None if key in self._sent else program()
        send(self._connection, Request(key, told, epoch, items, self.limit, self._threads))
        answer = _answer_of(self._connection, epoch)
        if answer.unknown:  # the task has dropped the program, having had too many others
            send(self._connection, Request(key, program(), epoch, items, self.limit, self._threads))
            answer = _answer_of(self._connection, epoch)
        self._sent.add(key)
        self.ready += answer.ready
        self._last = time.perf_counter() - began
        if answer.ends:
            self._end()
        if answer.failed:
            _LOG.info("the resident task met an error, the epoch runs as a job: %s", answer.failed)
            return None
        return TOO_MANY if answer.too_many else list(answer.messages)

    def _ready(self) -> bool:
        """Whether a task is connected. If not, start one, for later epochs."""
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
        """Wait until a task is connected, for a warm-up. Return whether one is."""
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
        """Run the job, in a thread of its own, until its task ends."""
        with suppress(Exception):  # the task was killed, or the session stopped: epochs run as jobs then
            self._context.setLocalProperty("spark.scheduler.pool", "epoch")
            self._context.setJobGroup(GROUP, "holdfast: small epochs, told over a socket", interruptOnCancel=True)
            self._context.parallelize([path], 1).mapPartitions(_serve).collect()

    def _end(self) -> None:
        """Close the sockets. The task ends when it finds the connection closed."""
        for one in (self._connection, self._listener):
            if one is not None:
                one.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._connection = self._listener = None
        self._reads_ahead = ""
        self._sent.clear()

    def end(self) -> None:
        """Let the task end, after the epoch that it runs."""
        with self._turn:
            self._end()

    def end_before_stop(self) -> None:
        """Let the task end, and wait up to `_ENDING` seconds for it."""
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
    """Return a name for a program, unique in this process."""
    return f"{os.getpid()}-{next(_KEYS)}"


_TASKS: dict[str, ResidentTask] = {}
_MAKING = threading.Lock()


def resident_of(context: SparkContext) -> ResidentTask | None:
    """Return the resident task of a context; None if the session has no slot for one."""
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
    """Wrap ``context.stop``, so that the resident task and the tasks of background work end before the context is
    stopped. Otherwise Spark has to kill their workers and reports a crash, or reports an error for a result that
    arrives then."""
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
