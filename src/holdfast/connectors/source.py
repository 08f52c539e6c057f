"""What a source is. Implement `Source` to bring your own.

A source is a collection that changes over time. Before each epoch the driver asks it for an **offer**: a small
JSON-able value that says which part of its input the epoch takes (these files, those offsets). The offer goes into
the epoch's lineage. The rows themselves never pass through the driver: tasks read them, from the offer.

The contract, which is what makes replay exact:

* An offer is a promise: the rows of an offer are the same whenever and wherever it is read.
* ``poll`` gives the same offer again until ``advance`` says that an epoch took it.
* ``advance`` is called once per offer, in order, first for the offers of the past when a flow is opened again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from holdfast.plan.nodes import Field

Offer = dict[str, Any]
"""A JSON-able value."""


class Part(Protocol):
    """A piece of an offer that one task reads. It is pickled and sent to a worker."""

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows, as tables of exactly ``schema`` (plus ``_diff`` int64 where the source retracts).

        May be called several times, on several hosts, and at once: Spark retries and speculates.
        """
        ...


class Source(ABC):
    """A collection that comes from outside."""

    fields: tuple[Field, ...]

    retracts: bool = False
    """Whether rows can be deleted. If so Holdfast keeps the source's rows, to refuse a deletion of a row that is not
    there."""

    trusted: bool = False
    """Whether every row that the source deletes is known to be there, as in a database's own record of its changes.
    Then its rows are not kept for the sake of that check."""

    replayable: bool = True
    """Whether an offer can be read again later. If not, Holdfast keeps the source's rows in the log."""

    patience: float = 0.0
    """While ``flow.run`` finds nothing to do, it asks the source again after twenty times what asking took, but not
    later than after so many seconds. (An explicit ``flow.step`` always asks.)"""

    def in_session(self, zone: str) -> None:  # noqa: B027  # most sources have no times without a zone
        """The time zone of the flow's Spark session. Called on the driver before the first poll, and before any offer
        of the past is told; what of it changes rows belongs into offers."""

    @abstractmethod
    def poll(self) -> Offer | None:
        """What the next epoch should take, or None when nothing waits. Called on the driver, at most once per epoch."""

    @abstractmethod
    def advance(self, offer: Offer) -> None:
        """An epoch took ``offer``. Called on the driver, in order, once per offer."""

    def parts(self, offer: Offer) -> list[Part]:
        """The pieces of ``offer``, for tasks to read. Override this or `frame`."""
        raise NotImplementedError(f"{type(self).__name__} must implement parts() or frame()")

    def frame(self, spark: Any, offer: Offer) -> Any:
        """``offer`` as a Spark DataFrame, for sources that Spark reads best; None (the default) means `parts`."""
        return None

    def reject(self, offer: Offer, error: Exception) -> bool:
        """Reading ``offer`` failed. Return True to have ``poll`` asked again at once (for an offer without what
        failed); False (the default) fails the epoch with ``error``; nothing of it took effect."""
        return False

    def release(self, offer: Offer) -> None:  # noqa: B027  # most sources have nothing to forget
        """The epoch that took ``offer`` is safe: replays will not ask for it again, so the source may forget it.

        Called on the driver, in order, once per offer and process. (A view that is declared later starts from all the
        offers there ever were: a source that really forgets gives that up.)
        """

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        """Fewer offers that stand for these, which are all there were from the first on; by default the same.

        Called on the driver when the epochs that took them are behind what the flow retains, so that what it remembers
        of them does not grow with epochs. `parts` must give the same rows for the result; `advance` and `release` may
        be called with it after some of the offers in it, and must then come to the same.
        """
        return list(offers)

    def waiting(self) -> int | None:
        """How much waits behind the next offer (rows, files, …), where the source knows; for status only."""
        return None
