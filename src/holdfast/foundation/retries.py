"""Errors of the operating system that may pass, and trying again for a short time before they count.

An error says nothing about what a file holds. EMFILE, EIO or ESTALE today is a good file tomorrow; that a file is not
there (FileNotFoundError) is an answer, and so is a refused permission: these are raised at once.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PASSING = frozenset(
    {
        errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
        errno.EINTR, errno.EIO, errno.EMFILE, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ENFILE,
        errno.ENOBUFS, errno.ENOMEM, errno.EREMOTEIO, errno.ESTALE, errno.ETIMEDOUT,
    }
)  # fmt: skip

_PAUSES = (0.01, 0.05, 0.2)
"""Seconds between attempts: long enough for a file handle to become free, short enough for an epoch."""


def retrying(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, trying again while it fails for a reason that may pass; then raise its error.
    ``work`` must leave nothing behind when it fails."""
    for pause in _PAUSES:
        try:
            return work()
        except OSError as error:
            if error.errno not in PASSING:
                raise
        time.sleep(pause)
    return work()
