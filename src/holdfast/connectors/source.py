"""What a source is. Implement `Source` to bring your own.

A source is a collection that changes over time. Before each epoch the driver asks it for an **offer**: a small
JSON-able value that says which part of its input the epoch takes (these files, those offsets). The offer goes into
the epoch's lineage. The rows themselves never pass through the driver: tasks read them, from the offer.

The contract, which is what makes replay exact:

* An offer is a promise: its rows are the same whenever and wherever the offer is read.
* ``poll`` returns the same offer again until ``advance`` says that an epoch took it.
* ``advance`` is called once per offer, in order. When a flow is opened again, it is first called for all offers that
  past epochs took.

The order of calls for one epoch::

    in_session ─► advance (once per offer that past epochs took)  when the flow is opened
    poll ─► parts or frame ─► Part.read, in tasks ─► advance      the epoch counts
                                              └────► reject       the epoch failed
    release                                                       later, when the epoch is safe
    advance ─► upcoming ─► parts ─► Part.read, in a task          maybe: what the next epoch will read, read ahead

All methods of a source are called on the driver, one at a time, by the thread that runs the epoch. Only `waiting` may
be called by any thread, also while another method runs. The next epoch may be run by another thread, so keep nothing in
thread-local variables. A method may push to inputs and read views of the flow; a call that would wait for the running
epoch raises `FlowBusy`. `Part.read` runs on a worker, on a copy of the part.
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
"""A JSON-able value: the part of a source's input that one epoch takes."""


class Part(Protocol):
    """A piece of an offer that one task reads. It is pickled and sent to a worker, so it holds no connections and no
    open files."""

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows, as tables of exactly ``schema`` (plus ``_diff`` int64 if the source retracts). The columns of
        ``schema`` are those of `Source.fields`, in that order, and are called ``c0``, ``c1``, …: make tables by
        position, as ``pa.table([ids, names], schema=schema)`` does.

        When: in a Python worker, in the task of an epoch, a replay, or a read of ``flow.table``.
        How often: at least once per epoch, replay or read. Spark retries and speculates, so it may be called several
        times, on several hosts, and on all of them at once.
        Not guaranteed: that the iterator is read to its end, or that the process lives afterwards. Do nothing here
        that must not be done twice.
        Raising fails the epoch: a `BadFile` or another `InputError` is handed to `Source.reject`; after any other
        error Spark first tries the task again.
        """
        ...


class Source(ABC):
    """A collection that comes from outside. Only `poll`, `advance`, and one of `parts` and `frame` must be written."""

    fields: tuple[Field, ...]
    """The columns. They must be known when the source is declared, and must not change."""

    retracts: bool = False
    """Whether the source can delete rows. If it can, Holdfast keeps the source's rows, in order to refuse the deletion
    of a row that is not there."""

    trusted: bool = False
    """Whether every row that the source deletes is known to be there, as in a database's own record of its changes.
    Then Holdfast does not keep the source's rows to check deletions."""

    replayable: bool = True
    """Whether an offer can be read again later. If not, Holdfast keeps the source's rows in the log."""

    in_order: bool = False
    """Whether the parts of an offer, and the rows of a part, come in the order in which they happened. It matters for a
    source with a key: without that order, all deletions of an offer are applied before its insertions."""

    versions: Versions | Snapshots | Quarantined | None = None
    """How the source's rows become a collection; set by Holdfast, for example if the source was declared with a key.
    With a key, rows are versions: a later version replaces an earlier version of the same key. ``fields`` then has more
    columns than the collection."""

    keeps_rows: bool = False
    """Whether the log keeps the source's rows although offers can be read again. Then a view that is declared later is
    filled from the log, so the input may be gone by then."""

    origin: str = ""
    """The kind of the source, in words; ``""`` for a source that a user wrote. A flow remembers the kind, since no kind
    of source can read the offers of another kind."""

    patience: float = 0.0
    """Seconds: the longest pause between two polls while ``flow.run`` finds nothing to do. The pause is twenty times as
    long as the last poll took, up to this bound. (An explicit ``flow.step`` always polls.)"""

    def in_session(self, zone: str) -> None:  # noqa: B027  # most sources have no times without a zone
        """Tell the source the time zone of the flow's Spark session. If the zone changes what the rows are, put it into
        the offers.

        When: before the first `poll`, and before `advance` is called for offers of past epochs.
        How often: at least once per process; again, with the same or another zone, after the flow is declared again.
        """

    @abstractmethod
    def poll(self) -> Offer | None:
        """Return what the next epoch should take, or None when nothing waits.

        When: before each epoch of a flow with a view that reads the source. It should return quickly: all other
        sources, and the epoch, wait for it.
        How often: at most once per epoch, and once more after `reject` returned True. As long as no epoch took an
        offer, `poll` must return the same offer again, unless `reject` was called in between.
        Not guaranteed: that an epoch takes the offer. The process may die before.
        The offer is written to the log: keep it small, and keep secrets out of it.
        """

    def upcoming(self) -> Offer | None:
        """Return the offer that `poll` would return now, without offering it; None (the default) to have nothing read
        ahead. With an offer, its `parts` may be read while the epoch before it is committed to its sinks.

        When: in ``flow.run``, after `advance` and before the sinks are given the epoch, whose latency includes this
        call: return None if it would take long.
        How often: at most once per epoch, and only if the source is ``replayable``.
        Not guaranteed: that the parts are read, or that an epoch takes the offer. `poll` is called as always and may
        return another offer; the epoch then reads what it offers. So `upcoming` must have no effect that `poll` or its
        callers could notice.
        A part that was read ahead is used if the epoch has a part whose pickle is the same, byte for byte: parts of
        equal pickles must have the same rows. If this raises, or a part does, nothing is read ahead.
        """
        return None

    @abstractmethod
    def advance(self, offer: Offer) -> None:
        """Note that an epoch took ``offer``: the next `poll` begins after it.

        When: right after the epoch counts; and, when a flow is opened, for every offer that past epochs took, before
        the first `poll`. Offers of past epochs may come from another process, and in the form that `fold` gave them.
        How often: once per offer and process, in order. If it raises, it is called with the same offer again before the
        next `poll`; the epoch counts all the same.
        Not guaranteed: that the epoch is durable yet (see `release`).
        """

    def parts(self, offer: Offer) -> list[Part]:
        """Return the pieces of ``offer``, for tasks to read. Override this method or `frame`.

        When: for an epoch that takes the offer, and whenever the offer must be read again: after a failure, in a
        replay, to fill a view that was declared later, for a read of ``flow.table``.
        How often: any number of times, also for old offers. The rows must be the same each time; they may be cut into
        other parts.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement parts() or frame()")

    def size(self, offer: Offer) -> int | None:
        """Return how many bytes it takes to read ``offer`` again; None (the default) if that is not known. It is for
        ``flow.plan``.

        When and how often: whenever a user asks what a change of the flow would cost, for each offer of past epochs.
        """
        return None

    def frame(self, spark: Any, offer: Offer) -> Any:
        """Return ``offer`` as a Spark DataFrame, for sources that Spark reads best; None (the default) if tasks are to
        read `parts`.

        When and how often: as `parts`, and before it. Spark may run the frame several times.
        """
        return None

    def with_key(self, key: Sequence[str]) -> Source:
        """Return the source in the form in which rows replace each other by these columns; by default the source
        itself."""
        return self

    def placed_frame(self, spark: Any, offer: Offer) -> Any:
        """Return what `frame` returns, for a source with a key. If the source is ``in_order``, the frame also has the
        columns ``_offer``, ``_block`` and ``_row``: bigints that give the order of its rows. By default it lacks them:
        then a row of a later offer replaces a row of an earlier one, and among rows of one offer and key the content
        decides."""
        return self.frame(spark, offer)

    def reject(self, offer: Offer, error: Exception) -> bool:
        """Handle the failure of the epoch that was to take ``offer``; nothing of that epoch took effect. Return True to
        have `poll` called again at once, for an offer without the part that failed; False (the default) fails the step
        with ``error``.

        When: after an epoch failed, for every source that had offered something: the error may be about another source.
        How often: at most once per attempt of an epoch. It is not called if the process dies.
        """
        return False

    def release(self, offer: Offer) -> None:  # noqa: B027  # most sources have nothing to forget
        """Note that the epoch that took ``offer`` is safe: recovery will not read the offer again, so the source may
        forget it.

        When: some time after the epoch: before a later epoch, or when the flow is closed.
        How often: once per offer and process, in order; after a restart again for offers of past epochs.
        Not guaranteed: that the offer is never read again. A view that is declared later is filled from all offers
        since the first; a source that forgets offers cannot fill it.
        """

    @property
    def forgets(self) -> bool:
        """Whether `release` makes the source forget something; by default, whether the class overrides `release`."""
        return type(self).release is not Source.release

    def names(self, offer: Offer) -> Collection[str]:
        """Return the names of the items of ``offer``, such as paths of files, by which ``flow.rewind(skip=…)`` leaves
        items out; by default there are none. Not for a source that `forgets` and whose rows the log keeps: a rewind
        takes those rows from the log, which does not know the names."""
        return ()

    def without(self, offer: Offer, names: Collection[str]) -> Offer | None:
        """Return ``offer`` without the items that have one of these names; None if no item is left.

        When: for an epoch that takes an offer again after a rewind has undone it. `parts` must return the rows of the
        items that are left.
        """
        return offer

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        """Return fewer offers that stand for ``offers``, which are all offers since the first; by default ``offers``
        themselves. So what the flow remembers of offers does not grow with the number of epochs.

        When: after an epoch, when the epochs that took these offers are older than what the flow retains.
        How often: now and then; each time from the first offer on, with results of earlier calls among them.
        `parts` must return the same rows for the result. `advance` and `release` may be called with the result after
        they were called with some of the offers in it, and must then have the same effect.
        """
        return list(offers)

    def waiting(self) -> int | None:
        """Return how much waits behind the next offer (rows, files, …); None if the source does not know. For status
        only.

        When and how often: by ``flow.status()``, from any thread, also while another method runs.
        """
        return None
