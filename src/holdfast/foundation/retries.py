"""Trying again: after errors that may pass, and until something is so.

    retrying      calls a function again after errors that may pass; the last one counts
    relisted      the same for work that lists a directory and then reads what was listed
    attempts      the loop of both, for work whose outcome is no error
    wait_until    asks until the answer is yes, or the time is over

The number of attempts is the number of pauses and one more. A pause of 0 is none: then nobody sleeps. Simulations, in
which time does not pass, give a ``sleep`` of their own.

By default, errors of the operating system are tried again that may pass.

An error says nothing about what a file holds. EMFILE, EIO or ESTALE today is a good file tomorrow; that a file is not
there (FileNotFoundError) is an answer, and so is a refused permission: these are raised at once.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Retried: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Which errors may pass: those of these types, or those of which a function says so."""

PASSING = frozenset(
    {
        errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
        errno.EINTR, errno.EIO, errno.EMFILE, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ENFILE,
        errno.ENOBUFS, errno.ENOMEM, errno.EREMOTEIO, errno.ESTALE, errno.ETIMEDOUT,
    }
)  # fmt: skip

_PAUSES = (0.01, 0.05, 0.2)
"""Seconds between attempts: long enough for a file handle to become free, short enough for an epoch."""

_LISTINGS = 5
"""So often a directory is listed whose files are merged meanwhile."""


def is_passing(error: Exception) -> bool:
    """Whether an error is one of the operating system's that may pass."""
    return isinstance(error, OSError) and error.errno in PASSING


def retrying(
    work: Callable[[], T],
    *,
    on: Retried = is_passing,
    pauses: Sequence[float] = _PAUSES,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what ``work`` returns, trying again after errors that may pass (``on``); any other error, and that of the
    last attempt, is raised. ``work`` must leave nothing behind when it fails."""
    for is_last in attempts(pauses, sleep):
        try:
            return work()
        except Exception as error:
            if is_last or not _may_pass(error, on):
                raise
    raise AssertionError("the last attempt returns or raises")


def relisted(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, which lists a directory and then reads what was listed. A file that is gone was
    merged meanwhile: what it was merged into is in the next listing. FileNotFoundError if that never ends."""
    return retrying(work, on=FileNotFoundError, pauses=LISTING_AGAIN)


LISTING_AGAIN = (0.0,) * (_LISTINGS - 1)
"""The pauses of `relisted`: none, since a merge removes files after it has written the new one."""


def attempts(pauses: Sequence[float], sleep: Callable[[float], None] = time.sleep) -> Iterator[bool]:
    """One item per attempt: whether it is the last. The caller leaves the loop when it has succeeded."""
    for pause in pauses:
        yield False
        if pause > 0:
            sleep(pause)
    yield True


def wait_until(ask: Callable[[], T], seconds: float, pause: float) -> T:
    """Ask every ``pause`` seconds, at least once, until the answer is true or the time is over; the last answer."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()) and time.monotonic() < deadline:
        time.sleep(pause)
    return answer


def _may_pass(error: Exception, on: Retried) -> bool:
    return isinstance(error, on) if isinstance(on, type | tuple) else on(error)
