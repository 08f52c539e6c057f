"""What a sink is. Implement `Sink` to bring your own.

A sink receives a view's changes, one commit per epoch, in order. The commit carries the lineage of every epoch that is
not durable yet (invariant 6, causal): keep the two together, in one atomic write, and what the outside has seen can
always be replayed exactly.

A sink that can say which epoch it has last (``open``) gets each epoch exactly once, also through crashes: after a
restart Holdfast commits the epochs that the sink lacks, from the view's own log, and no epoch twice. The sink may
record nothing for an epoch without rows: Holdfast knows when the view changed last. A sink whose ``open`` returns None
gets each epoch at least once.

A commit that raised may have succeeded. Before the commit is made again, Holdfast asks the sink which epoch it has last
(`taken`).

A new sink of a view is first given the view's contents: every change since epoch 0 if the log still has them all; else
the rows as of the earliest epoch that can be read, as one change, and every change after it.

When a view is edited, the commit of the next epoch is the difference between its old and its new contents: to a sink it
is an epoch like any other, with many rows. If the edit changes the view's types, the flow refuses to start with a sink
that has rows of the old types (a sink that cannot tell what it has is assumed to have such rows).

A sink may also raise `Fenced` for an epoch that it already has from another history. Then two drivers at once do no
harm: the driver that was refused stops. Sinks are committed to in the order of their declaration, and a driver that
one sink refused commits to no later sink; so the first such sink decides for all.

The order of calls::

    open ─► lineage, lost ─► restore (what was lost) ─► commit (epochs that it lacks)     when the flow is opened
    lost ─► release_lineage ─► commit                                                     for each epoch
                               └─ raised ─► taken ─► commit again, or not                 before the next epoch
    close                                                                                 when the flow is closed

A sink may have tasks write large changes (`part_writer`, with `connectors/part_writer.py`): then such an epoch comes as
`commit_parts` instead of `commit`, and `drop_parts` follows.

All methods are called on the driver, one at a time, by the thread that runs the epoch. Only `maintain` has a thread of
its own, and `target` is called by the thread that declares the sink. The next epoch may be run by another thread.
An epoch counts before its commit: an error of a sink is reported with ``complete=True``, and delays the next epoch, but
never undoes an epoch.

Only `open` and `commit` must be written; every other method has a default that fits a sink without that feature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.connectors.part_writer import PartWriter
from holdfast.errors import DeclarationError
from holdfast.guarantees.prediction import SinkKind
from holdfast.plan.nodes import Field


@dataclass(frozen=True)
class LostEpochs:
    """Epochs ``first`` … ``last``, whose changes the sink once had and can no longer read."""

    first: int
    last: int
    start: int
    """The first epoch that the sink was ever given; its commit held the view's contents at that epoch."""

    what: str
    """What is damaged, for people to read: a path."""


class Sink(ABC):
    """A place to which a view's changes go."""

    keeps_lineage: bool = False
    """Whether `lineage` returns the lineage of all epochs after the one that `release_lineage` was told last, not only
    the lineage of the last commit. Then a commit carries only the lineage that this sink was not given before."""

    deduplicates: bool = False
    """Whether the receiver drops rows whose id it has already (see ``_id`` in ``hf.foreach``). Then a row that is given
    twice counts once, although the sink cannot say which epochs it has."""

    @property
    def kind(self) -> SinkKind:
        """What the sink does for exactness, for ``guarantee`` and ``flow.explain``: transactional if it overrides
        `lineage`, else de-duplicating or append-only. Override this in a sink that knows its last epoch but keeps no
        lineage."""
        if type(self).lineage is not Sink.lineage:
            return SinkKind.TRANSACTIONAL
        return SinkKind.DEDUPLICATING if self.deduplicates else SinkKind.APPEND

    retries: int = 0
    retry_pause: float = 1.0
    """How often a commit that raised is tried again at once (``retries``), and the seconds before the first retry
    (``retry_pause``), which double with each retry. Set by ``flow.sink(…, retries=…, pause=…)``."""

    ids: bool = False
    """Whether each row comes with a stable id. Then a change has the view's columns, ``_id`` (text) and ``_diff``; *n*
    copies of a row are *n* rows with ``_diff`` 1 or -1 (`connectors/row_ids.py`). The ids of an epoch, and the order of
    its rows, are the same whenever the epoch is committed or restored again; so a receiver need only drop ids that it
    has seen to be exact. The view must have no column ``_id`` of its own."""

    @abstractmethod
    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        """Return the last epoch that the sink has; -1 if it has none; None if it cannot tell. (For a sink that cannot
        tell, the epochs that `commit` is given may jump by multiples of 10^12 after a host was lost, so that no number
        is ever used for two different epochs: see ``hf.foreach``.)

        When: before every other call, each time the flow opens its log; ``fields`` are the view's columns.
        How often: once per opening. A flow is opened again, in the same process, after each declaration.
        Not guaranteed: that `close` was called before, by this process or another.
        A sink with columns of its own raises `SinkError` here if they are not ``fields``: then the flow does not open.
        """

    @abstractmethod
    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        """Write the change of ``epoch``: the view's columns and ``_diff`` (int64). No row occurs twice; there may be no
        rows at all.

        When: right after the epoch counts; for epochs that the sink lacks, before the next epoch is run.
        How often: once per epoch, in order, if `open` and `taken` can tell what the sink has; else at least once. An
        epoch in which the view did not change may be left out.
        Not guaranteed: that ``epoch`` is the epoch of the last commit plus 1, or that the epoch is durable: it is
        ``lineage`` that lets the epoch be replayed. Keep it, in the same atomic write as the rows.
        To raise is to refuse: the epoch is complete all the same, and the same commit is made again before the next
        epoch, unless `taken` says that the sink has it.
        """

    def part_writer(self, view: str, fields: tuple[Field, ...]) -> PartWriter | None:
        """Return an object that writes parts of large changes in tasks, so that these rows do not pass through the
        driver; None (the default) if there is none. ``fields`` are the view's columns. A sink with ``ids`` is not
        asked.

        When: before `open`, when a flow is prepared, and maybe by a driver that only stands by. Its parts are written
        after `open`. How often: any number of times."""
        return None

    def commit_parts(self, epoch: int, parts: Sequence[Any], change: pa.Table, lineage: bytes) -> None:
        """Write the change of ``epoch`` as `commit` does, in one atomic write: the rows of ``parts``, which are what
        `PartWriter.write` returned, and the rows of ``change``, which did not go into a part and may be none.

        When: in place of `commit`, if tasks wrote parts. How often: as `commit`. If it raises, the epoch may come again
        as `commit` with all rows; parts of it that are still there are then to be left alone."""
        raise NotImplementedError(f"{type(self).__name__} has a part writer and does not say how to commit parts")

    def drop_parts(self, attempt: str) -> None:  # noqa: B027  # optional for a sink
        """Remove what is left of the parts of an attempt: none of them is committed later.

        When: after the epoch was committed, or had no effect. How often: at least once per attempt of this driver that
        wrote parts. Not guaranteed: that it is called (the process may die before), or that no task writes another part
        of the attempt afterwards. So a sink should also remove parts that are old, when it is opened."""

    def taken(self) -> int | None:
        """Return the last epoch that the sink has, after a commit raised; None (the default) if it cannot tell.

        When: before that commit is made again. How often: at least once per commit that raised.
        A sink that cannot tell is given the epoch again.
        """
        return None

    def lineage(self) -> bytes:
        """Return the lineage that came with the last commit, as it was given; empty (the default) if it was not kept.

        When: after `open`, when a flow is opened again. With it the flow can compute exactly the same epochs again that
        this sink has seen, even if the log lost them. How often: once per opening, if the sink has any epoch.
        """
        return b""

    def release_lineage(self, upto: int) -> None:  # noqa: B027  # optional for a sink
        """Note that the lineage up to epoch ``upto`` is durable elsewhere: `lineage` need not return it any more.

        When: before a commit, and only if the sink `keeps_lineage`. How often: at most once per commit; ``upto`` never
        goes down while the flow is open."""

    def lost(self) -> Sequence[LostEpochs]:
        """Return the epochs, up to the last one that the sink has, whose changes are damaged; none by default. Holdfast
        gives them to `restore` before it commits anything else.

        When: after `open` and before each epoch. How often: several times per epoch, so it must be quick: leave reading
        and checking to `maintain`."""
        return ()

    def restore(self, lost: LostEpochs, change: pa.Table, lineage: bytes) -> None:
        """Write changes again that were lost. ``change`` has the view's columns, ``_epoch`` and ``_diff``; ``lineage``
        is that of the last of these epochs.

        When: before the next commit. How often: once for each item that `lost` returns, and again if it raised or if
        `lost` still returns the item."""
        raise NotImplementedError(f"{type(self).__name__} says that it lost epochs and cannot restore them")

    def maintain(self) -> None:  # noqa: B027  # optional for a sink
        """Check what the sink holds: a little per call, since it is called again. Damage that it finds is reported by
        `lost`.

        When: in the background, in another thread than all other methods, maybe while one of them runs; never twice at
        once. How often: at most every 30 seconds, while epochs are run.
        Not guaranteed: that it is ever called. An error that it raises is logged as a warning, and it is called
        again."""

    def target(self) -> str | None:
        """Return the place that the sink writes to, in one form for all spellings of it; None (the default) if several
        sinks may share the place. Two sinks of a flow with the same target are refused.

        When: when a sink is declared, before `open`. How often: any number of times; the answer is always the same."""
        return None

    def close(self) -> None:  # noqa: B027  # closing is optional for a sink
        """Release what `open` acquired.

        When: when the flow is closed, or closes its log because something was declared; also if opening failed, maybe
        before `open` was called. How often: at least once per opening; a second call must do no harm.
        Not guaranteed: that it is called. The process may die before."""


def check_target(sinks: Sequence[tuple[str, Sink]], view: str, sink: Sink) -> None:
    """Raise `DeclarationError` if ``sink``, of ``view``, is one of ``sinks`` or writes to the place of one of them."""
    place = sink.target()
    for other, taken in sinks:
        if taken is sink:
            raise DeclarationError(
                f"sink of view '{view}': the same sink takes the changes of view '{other}' already; "
                "make a new one for each view",
                view=view,
                taken=other,
            )
        if place is not None and taken.target() == place:
            raise DeclarationError(
                f"sink of view '{view}': {place} takes the changes of view '{other}' already; give each sink its own "
                "place",
                view=view,
                taken=other,
                path=place,
            )
