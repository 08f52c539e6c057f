"""Turns the operating system's errors about a flow's own files into `LogError`.

If an error has a meaning of its own (a damaged layer, a location that does not answer), the code that meets it raises
an error that says so. Every other OSError about the log (too many open files, a stale handle, a failing disk) becomes a
`LogError` here, when it leaves the engine: it names the file and the likely fix, and carries the error number. An
OSError of a user's source or sink about other files is raised unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from holdfast.errors import LogError
from holdfast.foundation.os_errors import fix
from holdfast.runtime.declaration import Declaration

P = ParamSpec("P")
R = TypeVar("R")


class _Declared(Protocol):
    declared: Declaration


S = TypeVar("S", bound=_Declared)


def speaking(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method of an engine: it raises a `LogError` in place of an OSError about the log."""

    @wraps(method)
    def told(self: S, /, *args: P.args, **named: P.kwargs) -> R:
        try:
            return method(self, *args, **named)
        except OSError as error:
            refused = refusal_of(self.declared, error)
            if refused is None:
                raise
            raise refused from error

    return told


def refusal_of(declared: Declaration, error: OSError) -> LogError | None:
    """Return the `LogError` for an OSError; None if the error is not about the log."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    places = [declared.local, *filter(None, (location.local() for location in declared.locations))]
    roots = [Path(os.path.abspath(place)) for place in places]
    if names and not any(Path(os.path.abspath(name)).is_relative_to(root) for name in names for root in roots):
        return None
    where = names[-1] if names else str(declared.local)
    return LogError(
        f"flow '{declared.name}': log {where}: {fix(error)}", flow=declared.name, path=where, errno=error.errno
    )
