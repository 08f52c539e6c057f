"""What sources offer an engine, and what they are told: that it was taken, refused, or may be forgotten."""

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
"""So much of its time a flow spends at most on asking sources that have nothing."""


class Intake:
    """The sources of an open flow."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        told: ConnectorProgress,
        history: Iterable[Lineage],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``told`` is what the sources know already, from an engine before this one."""
        self._sources = sources
        self._told = told
        self._clock = clock
        self._rested: dict[str, float] = {}
        """Source → when it is asked again by those who are patient, if it had nothing."""
        self.taken: dict[str, list[tuple[int, Offer]]] = {}
        """Source → what complete epochs took of it, each with its epoch; what was undone, and taken again, too."""

        self.told: dict[str, list[tuple[int, Offer]]] = {}
        """Source → what it is told was taken: all of that, once."""

        self._owed: list[tuple[str, int, Offer]] = []
        """What sources are still to be told was taken, in order."""

        for lineage in history:
            self.take(lineage)

    def poll(self, names: Collection[str], patient: bool = False) -> dict[str, Offer]:
        """What waits, of these sources. ``patient``: one that had nothing, and for which looking takes long, is left
        alone for a while, as far as it allows."""
        asked = [name for name in names if not patient or self._rested.get(name, 0.0) <= self._clock()]
        return {name: offer for name in asked if (offer := self._asked(name)) is not None}

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
        """An epoch failed; whether a source has set something aside, so that it can be tried without."""
        # Every source is told, whatever the others say.
        return any([self._sources[name].reject(offer, error) for name, offer in offers.items()])

    def blame(self, error: Exception) -> None:
        """Raise the error of the file that ``error``, of Spark's, names, if what was taken of a source has it."""
        for name, offers in self.taken.items():
            if name in self._sources and self._sources[name].origin:
                for _, offer in offers:
                    self._sources[name].reject(offer, error)

    def take(self, lineage: Lineage) -> None:
        """An epoch is complete, or a history begins with a base: then all that its epochs took is as it says."""
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
        """What epochs up to ``at`` took of a source and no rewind has undone, each with its epoch."""
        offers = self.taken.get(name, ())
        live = rewinds.live(at)
        return [each for each in offers if any(first <= each[0] <= last for first, last in live)]

    def folded(self, upto: int, rewinds: Rewinds) -> tuple[Taken, Taken | None]:
        """What epochs up to this one took, as few offers as each source can make of them; and what sources are told of
        it, if that is something else."""
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
            # Where they became fewer, it is not known any more which of them an epoch took: the last one took all.
            found[name] = tuple(old if len(fewer) in (0, len(old)) else [(old[-1][0], offer) for offer in fewer])
        return {name: offers for name, offers in found.items() if offers}

    def advance(self, epoch: int, offers: Mapping[str, Offer]) -> None:
        """Tell the sources that an epoch took these: every one, whatever the others say. One that raises is told again
        before it is asked for more (`settle`). (A branch takes what its main line took, also of a source that it was
        not told of: a declaration of it is told then, by `catch_up`.)"""
        self._owed += [(name, epoch, offer) for name, offer in offers.items() if name in self._sources]
        self.settle()

    def settle(self) -> None:
        """Tell the sources what they were not told because they raised."""
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
        """Tell the sources what was taken before they were there."""
        for name, offers in self.told.items():
            told = self._told.advanced.get(name, -1)
            for epoch, offer in offers if name in self._sources else ():
                if epoch > told:
                    self.advance(epoch, {name: offer})

    def release(self, upto: int) -> None:
        """Tell the sources that they may forget what epochs up to this one took."""
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
