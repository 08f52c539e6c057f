"""What a sink is. Implement `Sink` to bring your own.

A sink receives a view's changes, one commit per epoch, in order. The commit carries the lineage of every epoch that is
not durable yet (invariant 6, causal): keep the two together, in one atomic write, and what the outside has seen can
always be replayed exactly.

A sink that can say which epoch it has last (``open``) gets each epoch exactly once, also through crashes: after a
restart Holdfast commits what it lacks from the view's own log, and nothing twice. It may record nothing for an epoch
without rows: Holdfast knows when the view changed last. A sink that returns None gets each epoch at least once.

A commit that raised may have succeeded. Before it is made again the sink is asked what it has (`taken`).

A sink that is new to a view is first given the view's contents: its changes from the first on, as far back as the log
tells them apart, else its rows as one change.

When a view is edited, the commit of the next epoch is the difference between its old and its new contents: to a sink it
is an epoch like any other, with many rows. The view's types stay the same then; where they would not, the flow refuses
to start with a sink that has something of the old ones (one that cannot tell is taken to have).

A sink that also refuses an epoch that it has already, of another history (`Fenced`), makes two drivers at once
harmless: the one that was refused stops. Sinks are committed to in the order of their declaration, and a driver that
one of them refused goes to none after it; so the first such sink decides for all.

The order of calls::

    open ─► lineage, lost ─► restore (what was lost) ─► commit (epochs that it lacks)     when the flow is opened
    lost ─► release_lineage ─► commit                                                     for each epoch
                               └─ raised ─► taken ─► commit again, or not                 before the next epoch
    close                                                                                 when the flow is closed

All methods are called on the driver, by the thread that runs the epoch, one at a time; only `maintain` has a thread of
its own, and `target` is called by whoever declares. Two epochs may be run by two threads, one after the other.
An epoch counts before its commit: what a sink raises is reported with ``complete=True``, and delays the next epoch, but
never undoes one.

Only `open` and `commit` must be written; every other method has a default that is right for a sink without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import DeclarationError
from holdfast.guarantees.prediction import SinkKind
from holdfast.plan.nodes import Field


@dataclass(frozen=True)
class LostEpochs:
    """Epochs ``first`` … ``last`` of a sink whose changes it had, and cannot read any more."""

    first: int
    last: int
    start: int
    """The first epoch that the sink was ever given: with that one it got the view's contents."""

    what: str
    """What is damaged, for people: a path."""


class Sink(ABC):
    """A place to which a view's changes go."""

    keeps_lineage: bool = False
    """Whether `lineage` gives back all lineage since what `release_lineage` was told, not only the last commit's. Then
    a commit carries only the lineage that this sink was not given before."""

    deduplicates: bool = False
    """Whether the receiver drops rows whose id it has (see ``_id`` in ``hf.foreach``): then a row that is given twice
    counts once, although the sink cannot say what it has."""

    @property
    def kind(self) -> SinkKind:
        """What the sink does for exactness, for ``guarantee`` and ``flow.explain``: transactional if it gives lineage
        back, else de-duplicating or plain. A sink that says what it has without lineage may say so here."""
        if type(self).lineage is not Sink.lineage:
            return SinkKind.TRANSACTIONAL
        return SinkKind.DEDUPLICATING if self.deduplicates else SinkKind.APPEND

    retries: int = 0
    retry_pause: float = 1.0
    """How often a commit that raised is made again at once, and after how many seconds first; each time twice as long.
    Set by ``flow.sink(…, retries=…, pause=…)``."""

    ids: bool = False
    """Whether each row comes with a stable id. Then a change has the view's columns, ``_id`` (text) and ``_diff``; a
    row that is there *n* times is *n* rows with ``_diff`` 1 or -1 (`connectors/row_ids.py`). The ids of an epoch, and
    the order of its rows, are the same whenever it is committed or restored again: a receiver that only drops ids that
    it has seen is exact. The view must have no column ``_id`` of its own."""

    @abstractmethod
    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        """The last epoch the sink has; -1 if none; None if it cannot tell. (Then the epochs that `commit` is given may
        jump by multiples of 10^12 after a host was lost, so that none is ever used for two things: see ``hf.foreach``.)

        When: before every other call, each time the flow opens its log; ``fields`` are the view's columns.
        How often: once per opening. A flow is opened again, in the same process, after each declaration.
        Not guaranteed: that `close` was called before, by this process or another.
        A sink with columns of its own raises `SinkError` here if they are not ``fields``: then the flow does not open.
        """

    @abstractmethod
    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        """Take the change of ``epoch``: the view's columns and ``_diff`` (int64), no row twice, maybe none at all.

        When: right after the epoch counts, and for epochs that the sink lacks before the next one is run.
        How often: once per epoch, in order, if `open` and `taken` can tell what the sink has; else at least once. An
        epoch in which the view did not change may be left out.
        Not guaranteed: that ``epoch`` follows the one before it by 1, or that the epoch is durable: ``lineage`` is what
        makes it so. Keep it, in the same atomic write as the rows.
        To raise is to refuse: the epoch is complete all the same, and the same commit is made again before the next
        one, unless `taken` says that the sink has it.
        """

    def taken(self) -> int | None:
        """The last epoch the sink has, after a commit raised; None (the default) if it cannot tell.

        When: before that commit is made again. How often: once per commit that raised, or more.
        A sink that cannot tell is given the epoch again.
        """
        return None

    def lineage(self) -> bytes:
        """The lineage that came with the last commit, as it was given; empty (the default) if it was not kept.

        When: after `open`, when a flow is opened again: from it the flow knows how to compute again, exactly, what
        this sink has seen, even if the log lost it. How often: once per opening, if the sink has any epoch.
        """
        return b""

    def release_lineage(self, upto: int) -> None:  # noqa: B027  # optional for a sink
        """The lineage up to epoch ``upto`` is durable elsewhere: `lineage` need not give it back any more.

        When: before a commit, and only if the sink `keeps_lineage`. How often: at most once per commit; ``upto`` never
        goes down while the flow is open."""

    def lost(self) -> Sequence[LostEpochs]:
        """Epochs up to the last that the sink has whose changes are damaged; none by default.

        When: after `open` and before each epoch. How often: several times per epoch: it must be quick, and look at
        nothing that `maintain` can look at. They are given again, by `restore`, before anything else is committed."""
        return ()

    def restore(self, lost: LostEpochs, change: pa.Table, lineage: bytes) -> None:
        """Take again what was lost: the view's columns, ``_epoch`` and ``_diff``, and the lineage of the last epoch.

        When: before the next commit. How often: once for each that `lost` tells, and again if it raised or `lost` goes
        on telling it."""
        raise NotImplementedError(f"{type(self).__name__} says that it lost epochs and cannot restore them")

    def maintain(self) -> None:  # noqa: B027  # optional for a sink
        """Look after what the sink holds: a little at a time, since it is called again. What is found damaged is for
        `lost` to tell.

        When: in the background, in another thread than all other methods, maybe while one of them is at work; never
        twice at once. How often: at most every 30 seconds, while epochs are run.
        Not guaranteed: that it is ever called. What it raises is logged as a warning, and it is called again."""

    def target(self) -> str | None:
        """The place that the sink writes to, however it was spelled; None (the default) if several may share it.

        When: when a sink is declared, before `open`. How often: any number of times; the answer is always the same.
        Two sinks of a flow with the same target are refused."""
        return None

    def close(self) -> None:  # noqa: B027  # closing is optional for a sink
        """Let go of what `open` took.

        When: when the flow is closed, or lets go of its log because something was declared; also if opening failed,
        maybe before `open` was called. How often: once per opening, or more; twice must do no harm.
        Not guaranteed: that it is called: the process may die."""


def check_target(sinks: Sequence[tuple[str, Sink]], view: str, sink: Sink) -> None:
    """Raise `DeclarationError` if one of these sinks of a flow has what ``sink``, of ``view``, would write to."""
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
