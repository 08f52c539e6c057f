"""Delivery numbers: what a flow remembers for sinks that cannot tell which epoch they have (``foreach``).

Such a sink cannot answer two questions.

**Is the sink new?** A sink that is added to an old view is first given the view's contents; a sink that was there when
the flow ran last is not. So the flow writes down which of these sinks it has.

**May a number be used again?** A consumer may remember the greatest number that it has handled, and skip smaller ones.
When a host is lost with epochs that were not safe, the flow goes on after the safe epochs and runs other epochs under
the same epoch numbers; that consumer would skip them. So a sink is given the number

    base · 10^12 + epoch

``base`` is 0 at first. A driver that cannot know what the driver before it has delivered (it has another working
directory, or its host was restarted) sets the base to its own term, which is greater than any earlier one. An epoch
keeps the number under which it was first delivered: a base holds from its first epoch on, and the base before it for
earlier epochs.

There is one exception. If two drivers ran at once, sinks may have been given epochs that the history does not have.
They are then given the history's epochs of the same numbers again, under new numbers. This is the case if the stash of
this host has such epochs. It is also the case if the driver that chose the base did not know epochs of an earlier
driver that the history has: it then ran its own epochs under these numbers, and their record may be lost with its disk.
Until all these epochs are given again, that is written down, too.

The numbers are written to the working directory (``delivered.json``) and to each log location (``sinks.json``). A
location that cannot be written to gets them later. It does no harm to the numbers, since the term is enough to choose a
new base; but if the host were lost meanwhile, its sinks would count as new.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.coordinator.history import History
from holdfast.errors import LogDamaged, LogError, StoreError
from holdfast.log.replica import Replica
from holdfast.log.working_directory import write_whole

STRIDE = 10**12
LOCAL, COPY = "delivered.json", "sinks.json"
_AGAIN = 30.0
"""Seconds until a location that could not be written to is tried again."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Numbers:
    """The numbering of epochs for sinks that cannot tell what they have: with ``base`` from epoch ``first`` on, with
    the base ``before`` for earlier epochs."""

    base: int = 0
    first: int = 0
    before: int = 0
    known: int | None = None
    """The last epoch of the history when the base was chosen; None: an older log, which does not say."""

    def of(self, epoch: int) -> int:
        return (self.base if epoch >= self.first else self.before) * STRIDE + epoch

    def epoch_of(self, number: int) -> int:
        """Return the last epoch whose number is not greater than ``number``; -1: none."""
        if number >= self.of(self.first):
            return number - self.base * STRIDE
        return max(-1, min(self.first - 1, number - self.before * STRIDE))

    def renewed(self, term: int, last: int, known: int) -> Numbers:
        """Return the numbering after a loss, with the base ``term``; epochs up to ``last`` keep their numbers.
        ``known``: the last epoch of the history."""
        return Numbers(term, last + 1, self.of(last) // STRIDE if last >= 0 else 0, known)

    def overtaken(self, history: History) -> int | None:
        """Return the first epoch of the history that an earlier driver ran and that the driver which chose the base did
        not know; None if there is none. That driver then ran another epoch of the same number."""
        if self.known is None:
            return None
        later = range(max(self.known + 1, history.first + (history.base is not None)), history.last + 1)
        return next((epoch for epoch in later if history[epoch].term < self.base), None)


class DeliveryNumbers:
    """The delivery numbers of an open flow, and its sinks that get them."""

    def __init__(
        self,
        directory: Path,
        replicas: Mapping[str, Replica],
        sinks: Sequence[str],
        history: History,
        term: int,
        rolled_back: bool = False,
        abandoned: int | None = None,
        former: Mapping[str, str] | None = None,
    ) -> None:
        """``sinks``: the names of the sinks. ``term``: this driver's term. ``rolled_back``: sinks may have been given
        lost epochs after the end of the history. ``abandoned``: the first epoch that sinks may have been given from
        another driver at work at the same time; None: no such epoch. ``former``: if this process had the flow open
        before, sink's name → its name then; sinks that are not in it are new, whatever their names."""
        last = history.last
        self._path = directory / LOCAL
        self._replicas = replicas
        self._term = term
        local = _object(self._path) or {}
        # Whether the driver before this one used this directory, and everything that it delivered is known here.
        here = local.get("term") == term - 1 and (local.get("boot") == _boot() or local.get("closed") == last)
        said = local if here else self._copy() or local or None
        self._sinks = set(sinks) if said is None and last >= 0 else set((said or {}).get("sinks", []))
        """The sinks that were given an epoch. An older log does not say: then all present sinks."""

        self._given = bool(self._sinks) if said is None else bool(said.get("given", True))
        """Whether any such sink was ever given an epoch, even a sink that is gone now; True if an older log does not
        say."""

        self.numbers = Numbers(**(said or {}).get("numbers", {}))
        others = [each for each in (abandoned, self.numbers.overtaken(history)) if each is not None]
        owed = (said or {}).get("again")
        self.again: int | None = min([*others, *([] if owed is None else [owed])], default=None)
        """The epoch from which on sinks are given the history's epochs again; None: nothing is given again."""

        if (sinks or self._given) and (rolled_back or not here) and term > 1:
            self.numbers = self.numbers.renewed(term, last, last)
        if sinks and others:
            self.numbers = self.numbers.renewed(term, min(others) - 1, last)
        self._sinks = {name for name in sinks if (name if former is None else former.get(name)) in self._sinks}
        # Written even without such sinks: a later opening that has one must see that nothing was given in between. If
        # it cannot be written then (the disk is full), that opening chooses a new base, as after a loss.
        self._lacking: set[str] = set()
        """The locations that could not be written to, and lack what was written since."""

        self._tried = 0.0
        same = said is not None and self._said() == {key: said.get(key) for key in self._said()}
        with nullcontext() if sinks else suppress(LogError, OSError):
            self._write(copies=not same or not local.get("copied", True))

    def is_new(self, sink: str) -> bool:
        """Whether a sink was given no epoch yet."""
        return sink not in self._sinks

    def given(self, sink: str) -> None:
        """Note that a sink was given an epoch; only the first time writes, unless a location could not be written
        to."""
        if sink not in self._sinks:
            self._sinks.add(sink)
            self._given = True
            self._write(copies=True)
        elif self._lacking and time.monotonic() - self._tried >= _AGAIN:
            self._write(copies=False)

    def gave_again(self) -> None:
        """Note that all epochs that had to be given again were given."""
        if self.again is not None:
            self.again = None
            self._write(copies=True)

    def close(self, last: int) -> None:
        """Note that sinks were given no epoch after ``last``, the end of the history."""
        self._write(copies=False, closed=last)

    def _said(self) -> dict[str, Any]:
        owed = {} if self.again is None else {"again": self.again}
        return {"sinks": sorted(self._sinks), "given": self._given, "numbers": asdict(self.numbers), **owed}

    def _write(self, copies: bool, closed: int | None = None) -> None:
        """Write the numbers to the working directory; and, with ``copies``, to all locations, else to those that lack
        them."""
        self._lacking = set(self._replicas) if copies else self._lacking
        # Before the locations are written to: if the driver dies in the middle, the next one writes to them again.
        self._write_here(closed)
        if self._lacking:
            self._tried = time.monotonic()
            for name in sorted(self._lacking):
                with suppress(StoreError):
                    self._replicas[name].location.write(COPY, json.dumps(self._said()).encode())
                    self._lacking.discard(name)
            if not self._lacking:
                self._write_here(closed)

    def _write_here(self, closed: int | None) -> None:
        own = {**self._said(), "boot": _boot(), "term": self._term}
        own |= {} if not self._lacking else {"copied": False}
        write_whole(self._path, json.dumps(own if closed is None else {**own, "closed": closed}))

    def _copy(self) -> dict[str, Any] | None:
        """Return what the location with the greatest base says; None if no location can be read."""
        found = []
        for replica in self._replicas.values():
            with suppress(StoreError, LogDamaged, FileNotFoundError, ValueError, KeyError, TypeError):
                said = json.loads(replica.location.read(COPY))
                found.append((int(said["numbers"]["base"]), len(said["sinks"]), said))
        return max(found, key=lambda each: each[:2])[2] if found else None


def names(sinks: Sequence[tuple[str, object]]) -> list[str]:
    """Return a name for each sink: its view, its kind, and its number among the view's sinks of that kind."""
    found: list[str] = []
    for view, sink in sinks:
        stem = f"{view}/{type(sink).__name__}"
        found.append(f"{stem}/{sum(name.rpartition('/')[0] == stem for name in found)}")
    return found


def former_names(now: Sequence[tuple[str, object]], before: Sequence[tuple[str, object]]) -> dict[str, str]:
    """Return, for each sink that was already among ``before``, its present name → its name then."""
    known = {id(sink): name for (_, sink), name in zip(before, names(before), strict=True)}
    return {name: known[id(sink)] for (_, sink), name in zip(now, names(now), strict=True) if id(sink) in known}


def _object(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _boot() -> str:
    """Return the id of this start of the host; empty if the system does not tell."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
