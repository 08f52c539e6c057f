"""What a source is. Implement `Source` to bring your own.

A source is a collection that changes over time. Before each epoch the driver asks it for an **offer**: a small
JSON-able value that says which part of its input the epoch takes (these files, those offsets). The offer goes into
the epoch's lineage. The rows themselves never pass through the driver: tasks read them, from the offer.

The contract, which is what makes replay exact:

* An offer is a promise: the rows of an offer are the same whenever and wherever it is read.
* ``poll`` gives the same offer again until ``advance`` says that an epoch took it.
* ``advance`` is called once per offer, in order, first for the offers of the past when a flow is opened again.

The order of calls for one epoch::

    in_session ─► advance (once per offer of the past)            when the flow is opened
    poll ─► parts or frame ─► Part.read, in tasks ─► advance      the epoch counts
                                              └────► reject       the epoch failed
    release                                                       later, when the epoch is safe

All methods of a source are called on the driver, by the thread that runs the epoch, one at a time; only `waiting` may
be called by any thread, while another method runs. Another epoch may be run by another thread, so keep nothing in
thread-local variables. A method may push to inputs and read views of the flow; whatever would wait for the epoch itself
raises `FlowBusy`. `Part.read` runs elsewhere: on a worker, on a copy of the part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from holdfast.connectors.bad_lines import Quarantined
from holdfast.connectors.versions import Snapshots, Versions
from holdfast.plan.nodes import Field

Offer = dict[str, Any]
"""A JSON-able value."""


class Part(Protocol):
    """A piece of an offer that one task reads. It is pickled and sent to a worker, so it holds no connections and no
    open files."""

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows, as tables of exactly ``schema`` (plus ``_diff`` int64 where the source retracts). Its columns are
        those of `Source.fields`, in that order, and are called ``c0``, ``c1``, …: make tables by position, as
        ``pa.table([ids, names], schema=schema)`` does.

        When: in a Python worker, in the task of an epoch, a replay, or a read of ``flow.table``.
        How often: at least once for each of these. Spark retries and speculates, so it may be called several times, on
        several hosts, and at once.
        Not guaranteed: that the iterator is read to its end, or that the process lives afterwards. Do nothing here
        that must not be done twice.
        Raising fails the epoch: a `BadFile` or another `InputError` is handed to `Source.reject`; whatever else is
        raised is tried again by Spark first.
        """
        ...


class Source(ABC):
    """A collection that comes from outside. Only `poll`, `advance`, and one of `parts` and `frame` must be written."""

    fields: tuple[Field, ...]
    """The columns. They must be known when the source is declared, and may not change."""

    retracts: bool = False
    """Whether rows can be deleted. If so Holdfast keeps the source's rows, to refuse a deletion of a row that is not
    there."""

    trusted: bool = False
    """Whether every row that the source deletes is known to be there, as in a database's own record of its changes.
    Then its rows are not kept for the sake of that check."""

    replayable: bool = True
    """Whether an offer can be read again later. If not, Holdfast keeps the source's rows in the log."""

    in_order: bool = False
    """Whether the parts of an offer, and the rows of a part, come in the order in which they happened. It matters with
    a key: if not, rows that an offer takes back go before all that it adds."""

    versions: Versions | Snapshots | Quarantined | None = None
    """Set by Holdfast for a source that was declared with a key: its rows are versions, of which a later one takes the
    place of an earlier one, and ``fields`` has more than the collection's columns."""

    keeps_rows: bool = False
    """Whether the log keeps the source's rows although an offer can be read again: then a view that is declared later
    is filled from the log, and the input may be gone by then."""

    origin: str = ""
    """Which of Holdfast's own sources it is, in words. What was taken of one kind cannot be read by another, so a flow
    remembers it; ``""``: a source of the user's own."""

    patience: float = 0.0
    """While ``flow.run`` finds nothing to do, it asks the source again after twenty times what asking took, but not
    later than after so many seconds. (An explicit ``flow.step`` always asks.)"""

    def in_session(self, zone: str) -> None:  # noqa: B027  # most sources have no times without a zone
        """The time zone of the flow's Spark session. What of it changes rows belongs into offers.

        When: before the first `poll`, and before any offer of the past is told by `advance`.
        How often: at least once per process; again, with the same or another zone, after the flow is declared anew.
        """

    @abstractmethod
    def poll(self) -> Offer | None:
        """What the next epoch should take, or None when nothing waits.

        When: before each epoch of a flow with a view that reads the source. It should return quickly: all other
        sources, and the epoch, wait for it.
        How often: at most once per epoch, and once more after `reject` returned True. An offer that was given and not
        taken is asked for again: it must be given again, the same, unless `reject` was called in between.
        Not guaranteed: that what was offered is taken. The process may die before any epoch took it.
        The offer is written to the log: keep it small, and keep secrets out of it.
        """

    @abstractmethod
    def advance(self, offer: Offer) -> None:
        """An epoch took ``offer``; the next `poll` begins after it.

        When: right after the epoch counts; and, when a flow is opened, for every offer that past epochs took, before
        the first `poll`. Offers of the past may come from another process, and in the form that `fold` gave them.
        How often: once per offer and process, in order. If it raises, the same offer is told again before the next
        `poll`; the epoch counts all the same.
        Not guaranteed: that the epoch is durable yet: see `release`.
        """

    def parts(self, offer: Offer) -> list[Part]:
        """The pieces of ``offer``, for tasks to read. Override this or `frame`.

        When: for an epoch that takes the offer, and whenever it must be read again: after a failure, in a replay, to
        fill a view that was declared later, for a read of ``flow.table``.
        How often: any number of times, also for offers of long ago. The rows must be the same each time; the cut into
        parts may be another.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement parts() or frame()")

    def size(self, offer: Offer) -> int | None:
        """The bytes that are read if ``offer`` is read again; None (the default): it is not known. For ``flow.plan``.

        When and how often: whenever somebody asks what a change of the flow would cost, for each offer of the past.
        """
        return None

    def frame(self, spark: Any, offer: Offer) -> Any:
        """``offer`` as a Spark DataFrame, for sources that Spark reads best; None (the default) means `parts`.

        When and how often: as `parts`, and before it. Spark may run the frame several times.
        """
        return None

    def with_key(self, key: Sequence[str]) -> Source:
        """The source, of which rows replace each other by these columns; by default the same."""
        return self

    def placed_frame(self, spark: Any, offer: Offer) -> Any:
        """`frame`, for a source with a key: if it is ``in_order``, with the columns ``_offer``, ``_block`` and
        ``_row``, bigints by which its rows come in that order. By default without them: then rows of one key are
        decided by content, and a later offer beats an earlier one."""
        return self.frame(spark, offer)

    def reject(self, offer: Offer, error: Exception) -> bool:
        """The epoch that was to take ``offer`` failed, and nothing of it took effect. Return True to have ``poll``
        asked again at once (for an offer without what failed); False (the default) fails the step with ``error``.

        When: after an epoch failed, for every source that had offered something: the error may be about another one.
        How often: at most once per attempt. It is not called if the process dies.
        """
        return False

    def release(self, offer: Offer) -> None:  # noqa: B027  # most sources have nothing to forget
        """The epoch that took ``offer`` is safe: recovery will not ask for it again, so the source may forget it.

        When: some time after the epoch: before a later one, or when the flow is closed.
        How often: once per offer and process, in order; again for offers of the past after a restart.
        Not guaranteed: that nobody ever asks for it again. A view that is declared later starts from all the offers
        there ever were: a source that really forgets gives that up.
        """

    @property
    def forgets(self) -> bool:
        """Whether `release` makes the source forget something; by default, whether it is written at all."""
        return type(self).release is not Source.release

    def names(self, offer: Offer) -> Collection[str]:
        """The names of what ``offer`` consists of, such as paths of files, by which ``flow.rewind(skip=…)`` can leave
        them out; by default there are none. Not of a source that `forgets` and whose rows the log keeps: they are taken
        again from there, where names are not known."""
        return ()

    def without(self, offer: Offer, names: Collection[str]) -> Offer | None:
        """``offer`` without what has one of these names; None if nothing is left.

        When: for an epoch that takes again what a rewind has undone. `parts` must give the rows of what is left.
        """
        return offer

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        """Fewer offers that stand for these, which are all there were from the first on; by default the same.

        When: after an epoch, when the epochs that took them are behind what the flow retains, so that what it remembers
        of them does not grow with epochs.
        How often: now and then; each time from the first offer on, with what was folded before among them.
        `parts` must give the same rows for the result; `advance` and `release` may be called with it after some of the
        offers in it, and must then come to the same.
        """
        return list(offers)

    def waiting(self) -> int | None:
        """How much waits behind the next offer (rows, files, …), where the source knows; for status only.

        When and how often: by ``flow.status()``, from any thread, also while another method runs.
        """
        return None
