"""A source of a branch: it reads offers that the main line took, and makes no offers itself.

A branch replays the offers that the main line took (`Branch.replay`), so its sources must not poll for more input: a
poll would change the main line's source. An offer holds all that is needed to read it again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.connectors.input import Input, KeyedInput
from holdfast.connectors.source import Offer, Part, Source


class Recorded(Source):
    """Reads the recorded offers of ``source``, a source of the main line."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.fields = source.fields
        self.retracts = source.retracts
        self.trusted = source.trusted
        self.replayable = source.replayable
        self.in_order = source.in_order
        self.versions = source.versions
        self.keeps_rows = source.keeps_rows
        self.origin = source.origin

    def in_session(self, zone: str) -> None:
        self.source.in_session(zone)

    def poll(self) -> Offer | None:
        return None

    def advance(self, offer: Offer) -> None:
        pass

    def parts(self, offer: Offer) -> list[Part]:
        return self.source.parts(offer)

    def size(self, offer: Offer) -> int | None:
        return self.source.size(offer)

    def frame(self, spark: Any, offer: Offer) -> Any:
        return self.source.frame(spark, offer)

    def placed_frame(self, spark: Any, offer: Offer) -> Any:
        return self.source.placed_frame(spark, offer)

    @property
    def forgets(self) -> bool:
        return self.source.forgets

    def names(self, offer: Offer) -> Collection[str]:
        return self.source.names(offer)

    def without(self, offer: Offer, names: Collection[str]) -> Offer | None:
        return self.source.without(offer, names)

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return self.source.fold(offers)


def for_branch(source: Source) -> Source:
    """The source of a branch that replaces a source of the main line: for an input of pushed rows, a new input of the
    branch; for any other source, one that reads recorded offers."""
    if isinstance(source, Input | KeyedInput):
        return source.apart()
    return source if isinstance(source, Recorded) else Recorded(source)
