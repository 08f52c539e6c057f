"""Retries: trying again after errors that may pass, and waiting until a condition holds.

    retrying      calls a function again after errors that may pass, and raises the last one
    relisted      the same for work that lists a directory and then reads the listed files
    attempts      the loop of both, for work whose failure is not an exception
    wait_until    asks until the answer is true, or the time is over

The number of attempts is the number of pauses plus one. A pause of 0 does not sleep. Simulations, in which time does
not pass, give a ``sleep`` function of their own.

By default, errors of the operating system that may pass are tried again.

An error says nothing about the content of a file: a file that cannot be read now (EMFILE, EIO, ESTALE) may be good
later. A file that is not there (FileNotFoundError) is an answer, and so is a refused permission: these are raised at
once.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Retried: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""The errors that may pass: a type, several types, or a function that says whether an error may pass."""

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
"""How often a directory is listed if its files are merged meanwhile."""


def is_passing(error: Exception) -> bool:
    """Whether an error comes from the operating system and may pass."""
    return isinstance(error, OSError) and error.errno in PASSING


def retrying(
    work: Callable[[], T],
    *,
    on: Retried = is_passing,
    pauses: Sequence[float] = _PAUSES,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call ``work`` and return its result, with retries after errors that may pass (``on``). Raise any other error, and
    the error of the last attempt. ``work`` must leave nothing behind when it fails."""
    for is_last in attempts(pauses, sleep):
        try:
            return work()
        except Exception as error:
            if is_last or not _may_pass(error, on):
                raise
    raise AssertionError("the last attempt returns or raises")


def relisted(work: Callable[[], T]) -> T:
    """Call ``work``, which lists a directory and then reads the listed files, and return its result. If a file is gone,
    it was merged meanwhile, and the merged file is in the next listing: ``work`` is called again. Raise
    FileNotFoundError if files are still gone in the last attempt."""
    return retrying(work, on=FileNotFoundError, pauses=LISTING_AGAIN)


LISTING_AGAIN = (0.0,) * (_LISTINGS - 1)
"""The pauses of `relisted`: none, since a merge removes files after it has written the new one."""


def attempts(pauses: Sequence[float], sleep: Callable[[float], None] = time.sleep) -> Iterator[bool]:
    """Yield one item per attempt: whether it is the last one. The caller leaves the loop when it has succeeded."""
    for pause in pauses:
        yield False
        if pause > 0:
            sleep(pause)
    yield True


def wait_until(ask: Callable[[], T], seconds: float, pause: float) -> T:
    """Ask every ``pause`` seconds, at least once, until the answer is true or the time is over. Return the last
    answer."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()) and time.monotonic() < deadline:
        time.sleep(pause)
    return answer


def _may_pass(error: Exception, on: Retried) -> bool:
    return isinstance(error, on) if isinstance(on, type | tuple) else on(error)
