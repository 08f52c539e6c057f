"""The resident task: it stays, gets one epoch after the other over a local socket, and runs each as `task.single_task`
does.

A Spark job that does nothing costs tens of milliseconds, however little changes. A task that stays pays that once. It
runs the same operators over the same messages as a job would, and the layers that it writes are the same, byte for byte
and by name. So nothing depends on it: the driver's side (`spark/resident_task.py`) may stop waiting at any moment and
run the epoch as a job instead, at the same time or afterwards.

A frame on the socket is a length of eight bytes and a pickle. A request is the key of a program, the program itself the
first time, an epoch and the parts to read. An answer is the messages of the last stage, or the reason why there are
none. The socket lies in a directory that only its user can open, and both ends are processes of that user on one host.

Between two requests the task may be told parts to read ahead (`parts_read_ahead`), which has no answer.

The task ends when the other side closes the connection, when no request came for `IDLE` seconds, or when it holds more
memory than `MEMORY`: the process is Spark's, and starting another task costs one job.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from holdfast.connectors.source import Part
from holdfast.errors import HoldfastError, LogUnreadable
from holdfast.task.messages import Message, failure
from holdfast.task.parts_read_ahead import PartsReadAhead, ReadAhead
from holdfast.task.program import Program
from holdfast.task.single_task import TooManyRows, run_single_task
from holdfast.task.stage import EpochSpec
from holdfast.trace.inner_loops import give_back_memory, memory_kept

IDLE = 60.0
"""Seconds without an epoch after which the task ends."""

_LEAST_MEMORY, _MOST_MEMORY, _SHARE = 1 << 30, 4 << 30, 6


def _allowed_memory() -> int:
    """A sixth of the memory of the machine or its container, but at least 1 GB and at most 4 GB."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            there = min(there, int(file.read()))  # a container has less; "max" is no number
    except (OSError, ValueError):
        there = 0
    return min(max(there // _SHARE, _LEAST_MEMORY), _MOST_MEMORY)


MEMORY = _allowed_memory()
"""Bytes of private memory (mapped layers do not count) above which the task ends after its answer."""

_PROGRAMS = 16
"""Programs that the task keeps. There is usually one for each flow of the session."""

_LENGTH = 8


@dataclass(frozen=True)
class Request:
    """An epoch to run. ``items``: (the name of a source, a pickled part to read). ``program`` is None if it was sent
    before on this connection, under the same ``key``. ``limit`` is in rows, as in `run_single_task`."""

    key: str
    program: bytes | None
    epoch: EpochSpec
    items: Sequence[tuple[str, bytes]]
    limit: int
    threads: int = 1


@dataclass(frozen=True)
class Answer:
    """The outcome of the epoch with this digest: its messages; or none, because one task should not do that much work
    (``too_many``), or because something went wrong that a job will report better (``failed``)."""

    digest: str
    messages: tuple[Message, ...] = ()
    too_many: bool = False
    failed: str = ""
    unknown: bool = False
    """The task no longer has the program; the request must be sent again with it."""

    ends: bool = False
    """The task ends after this answer."""

    ready: int = 0
    """The number of parts that had been read ahead."""


class Closed(Exception):
    """The other side has closed the connection."""


def send(connection: socket.socket, value: object) -> None:
    """Send one frame."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    connection.sendall(len(body).to_bytes(_LENGTH, "little") + body)


def receive(connection: socket.socket) -> object:
    """Wait for one frame. Raises `Closed` at the end of the stream, `TimeoutError` if the socket has a time limit."""
    size = int.from_bytes(_exactly(connection, _LENGTH), "little")
    return pickle.loads(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    view, done = memoryview(found), 0
    while done < size:
        count = connection.recv_into(view[done:])
        if count == 0:
            raise Closed
        done += count
    return found


def serve(path: str) -> int:
    """Run the epochs requested at the socket ``path`` until the task has to end. Return how many it ran."""
    programs: OrderedDict[str, Program] = OrderedDict()
    ahead = PartsReadAhead(MEMORY // 4)
    count = 0
    with memory_kept(MEMORY // 4), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path)
            connection.settimeout(IDLE)
            ends = False
            while not ends:
                request = receive(connection)
                if isinstance(request, ReadAhead):
                    ahead.read(request, programs.get(request.key), partial(_has_request, connection))
                    if len(ahead) and _holds_too_much():
                        ahead.drop()
                    continue
                assert isinstance(request, Request)
                answer = _answered(request, programs, ahead)
                ends = bool(answer.failed) or _holds_too_much()
                send(connection, replace(answer, ends=ends))
                count += 1
        except (Closed, TimeoutError, ConnectionError, FileNotFoundError):
            pass  # no more requests will come
    return count


def _has_request(connection: socket.socket) -> bool:
    ready = select.poll()  # select.select fails for large file descriptors
    ready.register(connection, select.POLLIN)
    return bool(ready.poll(0))


def _answered(request: Request, programs: OrderedDict[str, Program], ahead: PartsReadAhead) -> Answer:
    digest = request.epoch.digest
    ready, left = ahead.take(request.key, request.epoch.partitions, request.items)
    try:
        if request.program is not None:
            programs[request.key] = pickle.loads(request.program)
        if request.key not in programs:
            return Answer(digest, unknown=True)
        program = programs[request.key]
        programs.move_to_end(request.key)
        while len(programs) > _PROGRAMS:
            programs.popitem(last=False)
        items = ((name, _part(part)) for name, part in left)
        messages = run_single_task(
            program, request.epoch, items, limit=request.limit, threads=request.threads, ready=ready
        )
        return Answer(digest, tuple(messages), ready=len(ready))
    except TooManyRows:
        return Answer(digest, too_many=True)
    except HoldfastError as error:
        if isinstance(error, LogUnreadable) or "errno" in error.fields:
            return Answer(digest, failed=str(error))  # the cause may be this process, not the data
        return Answer(digest, tuple(failure(error, request.epoch.partitions)))
    except Exception as error:  # whatever it is, the job that runs the epoch next meets it too, and reports it
        return Answer(digest, failed=f"{type(error).__name__}: {error}")


def _part(packed: bytes) -> Part:
    part: Part = pickle.loads(packed)
    return part


def _holds_too_much() -> bool:
    if _memory() <= MEMORY:
        return False
    give_back_memory()
    return _memory() > MEMORY


def _memory() -> int:
    """Bytes of this process that are not shared with files; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
