"""What a sink is. Implement `Sink` to bring your own.

A sink receives a view's changes, one commit per epoch, in order. The commit carries the lineage of every epoch that is
not durable yet (invariant 6, causal): keep the two together, in one atomic write, and what the outside has seen can
always be replayed exactly.

A sink that can say which epoch it has last (``open``) gets each epoch exactly once, also through crashes: after a
restart Holdfast commits what it lacks from the view's own log, and nothing twice. One that returns None gets each epoch
at least once.

When a view is edited, the commit of the next epoch is the difference between its old and its new contents: to a sink it
is an epoch like any other, with many rows. The view's types stay the same then; where they would not, the flow refuses
to start with a sink that has something of the old ones (one that cannot tell is taken to have).

A sink that also refuses an epoch that it has already, of another history (`Fenced`), makes two drivers at once
harmless: the one that was refused stops. Sinks are committed to in the order of their declaration, and a driver that
one of them refused goes to none after it; so the first such sink decides for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from holdfast.plan.nodes import Field


class Sink(ABC):
    """A place to which a view's changes go."""

    @abstractmethod
    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        """Called once, before the first commit. The last epoch the sink has; -1 if none; None if it cannot tell.

        A sink with columns of its own raises `SinkError` here if they are not ``fields``.
        """

    @abstractmethod
    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        """Take the change of ``epoch``: the view's columns and ``_diff`` (int64), no row twice, maybe none at all.

        Called on the driver, once per epoch, in order. To raise is to refuse: the epoch is complete all the same, and
        the same commit is made again before the next one.
        """

    def lineage(self) -> bytes:
        """The lineage that came with the last commit, as it was given; empty (the default) if it was not kept.

        Called after `open`, when a flow is opened again: from it the flow knows how to compute again, exactly, what
        this sink has seen, even if the log lost it.
        """
        return b""

    def close(self) -> None:  # noqa: B027  # closing is optional for a sink
        """Called when the flow is closed."""
