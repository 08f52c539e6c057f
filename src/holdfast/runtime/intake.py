"""The intake: polls sources for offers, and tells them which offers were taken, rejected, or may be forgotten."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.folded import Folded, Taken
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.rewinds import Rewinds
from holdfast.errors import HoldfastError, InputError
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.runner import Work

_SHARE = 0.05
"""The largest part of a flow's time that goes into polling sources that have no input."""


class Intake:
    """The sources of an open flow."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        told: ConnectorProgress,
        history: Iterable[Lineage],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``told``: what the sources were told already, by earlier engines of this process."""
        self._sources = sources
        self._told = told
        self._clock = clock
        self._rested: dict[str, float] = {}
        """Source that had no input → the time, on ``clock``, before which a patient poll does not ask it again."""
        self.taken: dict[str, list[tuple[int, Offer]]] = {}
        """Source → the offers that complete epochs took of it, each with its epoch. Offers that a rewind undid stay in
        the list, and come a second time where they were taken again."""

        self.told: dict[str, list[tuple[int, Offer]]] = {}
        """Source → the offers that the source is told were taken: those of `taken`, without the second takings."""

        self._owed: list[tuple[str, int, Offer]] = []
        """Source, epoch and offer of what sources have still to be told was taken, in order."""

        for lineage in history:
            self.take(lineage)

    def poll(self, names: Collection[str], patient: bool = False) -> dict[str, Offer]:
        """Return the offers of the sources that have input. ``patient``: a source that had no input is not asked again
        for a while, which is longer the longer its poll took, up to its own ``patience``."""
        asked = [name for name in names if not patient or self._rested.get(name, 0.0) <= self._clock()]
        return {name: offer for name in asked if (offer := self._asked(name)) is not None}

    def upcoming(self, names: Collection[str], patient: bool = False) -> dict[str, Offer]:
        """Return the offers that sources expect to make next; only of sources whose offers can be read again.
        ``patient``: as in `poll`."""
        found = {}
        for name in names:
            source = self._sources[name]
            if source.replayable and not (patient and self._rested.get(name, 0.0) > self._clock()):
                offer = source.upcoming()
                if offer is not None:
                    found[name] = offer
        return found

    def _asked(self, name: str) -> Offer | None:
        began = self._clock()
        offer = self._sources[name].poll()
        if offer is None:
            ended = self._clock()
            self._rested[name] = ended + min(self._sources[name].patience, (ended - began) / _SHARE)
        else:
            self._rested.pop(name, None)
        return offer

    def work(self, offers: Mapping[str, Offer]) -> list[Work]:
        return [Work(name, self._sources[name], [offer]) for name, offer in offers.items()]

    def reject(self, offers: Mapping[str, Offer], error: Exception) -> bool:
        """Tell the sources that the epoch with these offers failed. Return whether a source has set bad input aside, so
        that the epoch can be tried without it. Every source is told, even if another one raises; the first error is
        raised at the end."""
        again, failed = False, None
        for name, offer in offers.items():
            try:
                again = self._sources[name].reject(offer, error) or again
            except Exception as better:
                failed = failed or better
        if failed is not None:
            raise failed
        return again

    def blame(self, error: Exception) -> None:
        """Raise the source's own error for a file if ``error``, from Spark, names a file that was taken of a source."""
        for name, offers in self.taken.items():
            if name in self._sources and self._sources[name].origin:
                for _, offer in offers:
                    self._sources[name].reject(offer, error)

    def take(self, lineage: Lineage) -> None:
        """Add the offers of a complete epoch. For a base, a history's folded beginning, replace all offers up to its
        epoch by those that the base lists."""
        if isinstance(lineage, Folded):
            told = lineage.taken if lineage.told is None else lineage.told
            for known, base in ((self.taken, lineage.taken), (self.told, told)):
                for name in {*known, *base}:
                    later = [each for each in known.get(name, ()) if each[0] > lineage.epoch]
                    known[name] = [*base.get(name, ()), *later]
        for name, offer in lineage.offers.items():
            self.taken.setdefault(name, []).append((lineage.epoch, offer))
            if lineage.again is None:
                self.told.setdefault(name, []).append((lineage.epoch, offer))

    def in_effect(self, name: str, at: int, rewinds: Rewinds) -> list[tuple[int, Offer]]:
        """Return the offers that epochs up to ``at`` took of a source and no rewind has undone, each with its epoch."""
        offers = self.taken.get(name, ())
        live = rewinds.live(at)
        return [each for each in offers if any(first <= each[0] <= last for first, last in live)]

    def folded(self, upto: int, rewinds: Rewinds) -> tuple[Taken, Taken | None]:
        """Return the offers that epochs up to ``upto`` took, folded into as few as each source can make of them; and
        the offers that the sources are told of, or None if they are the same."""
        if self.told == self.taken and not rewinds.since(-1):
            return self._fewer(self.taken, upto), None
        taken = self._fewer({name: self.in_effect(name, upto, rewinds) for name in self.taken}, upto)
        told = self._fewer(self.told, upto)
        return taken, None if told == taken else told

    def _fewer(self, some: Mapping[str, Sequence[tuple[int, Offer]]], upto: int) -> Taken:
        found = {}
        for name, offers in some.items():
            old = [each for each in offers if each[0] <= upto]
            source = self._sources.get(name)
            fewer = source.fold([offer for _, offer in old]) if source is not None and old else []
            # A folded offer belongs to no single epoch any more: it counts as taken by the last of them.
            found[name] = tuple(old if len(fewer) in (0, len(old)) else [(old[-1][0], offer) for offer in fewer])
        return {name: offers for name, offers in found.items() if offers}

    def advance(self, epoch: int, offers: Mapping[str, Offer]) -> None:
        """Tell the sources that an epoch took these offers. Every source is told, even if another one raises. A source
        that raised is told again before the next poll (`settle`). (A branch also takes offers of sources that are not
        declared in it: if one is declared later, `catch_up` tells it.)"""
        self._owed += [(name, epoch, offer) for name, offer in offers.items() if name in self._sources]
        self.settle()

    def settle(self) -> None:
        """Tell the sources of taken offers that they have not been told of yet. Every source is told; the first error
        is raised at the end."""
        failed: Exception | None = None
        for name, epoch, offer in list(self._owed):
            try:
                self._sources[name].advance(offer)
            except HoldfastError as error:
                failed = failed or error
            except Exception as error:
                failed = failed or _not_told(name, error)
            else:
                self._owed.remove((name, epoch, offer))
                self._told.advanced[name] = epoch
        if failed is not None:
            raise failed

    def catch_up(self) -> None:
        """Tell each source of the offers that were taken before this object of it was declared."""
        for name, offers in self.told.items():
            told = self._told.advanced.get(name, -1)
            for epoch, offer in offers if name in self._sources else ():
                if epoch > told:
                    self.advance(epoch, {name: offer})

    def release(self, upto: int) -> None:
        """Tell the sources that they may forget the offers that epochs up to ``upto`` took."""
        for name, offers in self.told.items():
            told = self._told.released.get(name, -1)
            for epoch, offer in offers[self._first_after(offers, told) :] if name in self._sources else ():
                if epoch > upto:
                    break
                self._sources[name].release(offer)
                self._told.released[name] = epoch

    @staticmethod
    def _first_after(offers: Sequence[tuple[int, Offer]], epoch: int) -> int:
        return bisect.bisect_right(offers, epoch, key=lambda each: each[0])


def _not_told(name: str, error: Exception) -> InputError:
    told = InputError(
        f"source '{name}': it could not be told what was taken (advance): {type(error).__name__}: {error}", source=name
    )
    told.__cause__ = error
    return told
