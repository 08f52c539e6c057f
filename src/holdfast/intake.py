"""What sources offer an engine, and what they are told: that it was taken, refused, or may be forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from holdfast.connectors.source import Offer, Source
from holdfast.coordinator.lineage import Lineage
from holdfast.declared import Told
from holdfast.errors import HoldfastError, InputError
from holdfast.runner import Work

_SHARE = 0.05
"""So much of its time a flow spends at most on asking sources that have nothing."""


class Intake:
    """The sources of an open flow."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        told: Told,
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
        """Source → what complete epochs took of it, each with its epoch."""

        self._owed: list[tuple[str, Offer]] = []
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

    def take(self, lineage: Lineage) -> None:
        """An epoch is complete."""
        for name, offer in lineage.offers.items():
            self.taken.setdefault(name, []).append((lineage.epoch, offer))

    def advance(self, offers: Mapping[str, Offer]) -> None:
        """Tell the sources that these were taken: every one, whatever the others say. One that raises is told again
        before it is asked for more (`settle`)."""
        self._owed += offers.items()
        self.settle()

    def settle(self) -> None:
        """Tell the sources what they were not told because they raised."""
        failed: Exception | None = None
        for name, offer in list(self._owed):
            try:
                self._sources[name].advance(offer)
            except HoldfastError as error:
                failed = failed or error
            except Exception as error:
                failed = failed or _not_told(name, error)
            else:
                self._owed.remove((name, offer))
                self._told.advanced[name] = self._told.advanced.get(name, 0) + 1
        if failed is not None:
            raise failed

    def catch_up(self) -> None:
        """Tell the sources what was taken before they were there."""
        for name, offers in self.taken.items():
            if name in self._sources:
                for _, offer in offers[self._told.advanced.get(name, 0) :]:
                    self.advance({name: offer})

    def release(self, upto: int) -> None:
        """Tell the sources that they may forget what epochs up to this one took."""
        for name, offers in self.taken.items():
            done = self._told.released.get(name, 0)
            while name in self._sources and done < len(offers) and offers[done][0] <= upto:
                self._sources[name].release(offers[done][1])
                done += 1
                self._told.released[name] = done


def _not_told(name: str, error: Exception) -> InputError:
    told = InputError(
        f"source '{name}': it could not be told what was taken (advance): {type(error).__name__}: {error}", source=name
    )
    told.__cause__ = error
    return told
