"""Crashes on purpose: a driver dies at a failpoint of the code (`foundation/failpoints.py`) that a test chooses.

`crash_at` kills no process: it raises `Crash` where the mark is reached, in whichever thread of this process. Holdfast
does not catch it, since it is no `Exception`, so the rest of the work there does not happen, as in a process that dies;
but ``finally`` blocks and ``with`` statements still run, and other threads continue. A process of its own, started with
``HOLDFAST_CRASH_AT=mark``, really dies.

Tasks run in other processes, in which the context manager has no effect. A mark in a task (``merge``, ``loop.round``)
works with the environment variable only, and kills the task's process, not the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.foundation import failpoints

if TYPE_CHECKING:
    from holdfast.flow import Flow

MARKS = (
    "epoch.ran",
    "epoch.complete",
    "sink.before_commit",
    "sink.after_commit",
    "round.before_lineage",
    "round.before_layers",
    "round.before_look",
    "round.before_removal",
    "round.before_compaction",
    "round.before_forgetting",
    "recovery.found_history",
    "recovery.before_fetch",
    "recovery.before_replay",
    "branch.begun",
    "branch.ran",
    "branch.complete",
    "repair.recovered",
    "repair.before_epoch",
    "repair.done",
    "snapshot.taken",
    "snapshot.written",
    "snapshot.removed",
    "snapshot.copied_layers",
    "branches.linked",
    "branches.written",
    "branches.unnaming",
    "branches.unnamed",
    "branches.removing",
    "branches.removed",
    "promote.linked",
    "rewind.undone",
    "drain.brought_over",
    "merge",
    "loop.round",
)
"""All marks, in the order in which a flow reaches them; the marks in tasks are last."""


class Crash(BaseException):
    """The process dies here. Only the test that asked for it may catch it."""


def abandon(flow: Flow) -> None:
    """Drop a flow as a dying process does: nothing is finished, sinks are told nothing, and the log is free for another
    driver. The flow object is closed."""
    engine = flow._engine
    if engine is not None:
        engine._maintenance.close()
        engine._durability.abandon()
        engine.abandon()
    flow._engine = None
    flow._closed = True


@contextmanager
def crash_at(mark: str, times: int = 1) -> Iterator[None]:
    """Raise `Crash` the ``times``-th time that this process reaches ``mark`` within the ``with`` block, and only then.

    An error of the block reaches the caller: wrap it in ``pytest.raises(Crash)``. Raises `ValueError` for an unknown
    mark.
    """
    if mark not in MARKS:
        raise ValueError(f"mark {mark!r} not found; expected one of {', '.join(MARKS)}")
    if times < 1:
        raise ValueError(f"times must be at least 1, not {times}")
    before = failpoints.hook
    left = times

    def reached(name: str) -> None:
        nonlocal left
        if before is not None:
            before(name)
        if name == mark:
            left -= 1
            if left == 0:
                raise Crash(mark)

    failpoints.hook = reached
    try:
        yield
    finally:
        failpoints.hook = before
