"""What a flow remembers for sinks that cannot tell which epoch they have (``foreach``).

Two questions cannot be answered by such a sink.

**Is it new?** One that is added to an old view is first given the view's contents; one that was there when the flow ran
last is not. So the flow writes down which of these sinks it has.

**May a number be used again?** A consumer may remember the greatest number it has dealt with, and skip what it knows.
When a host is lost with epochs that were not safe, the flow goes on from the safe ones, and runs other epochs under the
same numbers, which that consumer would skip. So a number is

    base · 10^12 + epoch

where ``base`` is 0 until a driver cannot know what the one before it has delivered (it had another working directory,
or its host was started again): then it is that driver's term, which is greater than any before. An epoch keeps the
number under which it was delivered first: the base holds from an epoch on, and the one before it for those before. The
exception are epochs that another driver ran meanwhile: where sinks may have been given others of the same number, which
the history does not have, they are given the history's again, under numbers that are new. That is so where this host's
own record has others; and where the driver that chose the base did not know epochs of drivers before it that the
history has, since it then ran its own, which may be lost with its disk. Until all are given, that is written down too.

It is written to the working directory (``delivered.json``) and to each log location (``sinks.json``). A location that
refuses does no harm: a new base needs no more than the term.
"""

from __future__ import annotations

import json
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
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Numbers:
    """How epochs are numbered for sinks that cannot tell: from epoch ``first`` on with ``base``, before it with
    ``before``."""

    base: int = 0
    first: int = 0
    before: int = 0
    known: int | None = None
    """Where the history ended for the driver that chose the base; a log of old does not say."""

    def of(self, epoch: int) -> int:
        return (self.base if epoch >= self.first else self.before) * STRIDE + epoch

    def epoch_of(self, number: int) -> int:
        """The last epoch whose number is not greater; -1: none."""
        if number >= self.of(self.first):
            return number - self.base * STRIDE
        return max(-1, min(self.first - 1, number - self.before * STRIDE))

    def renewed(self, term: int, last: int, known: int) -> Numbers:
        """The numbers after a loss: epochs up to ``last`` keep theirs. ``known``: where the history ends."""
        return Numbers(term, last + 1, self.of(last) // STRIDE if last >= 0 else 0, known)

    def overtaken(self, history: History) -> int | None:
        """The first epoch of the history that is of a driver before the one that chose the base, and that this one did
        not know; None if there is none. It then ran another epoch of that number."""
        if self.known is None:
            return None
        later = range(max(self.known + 1, history.first + (history.base is not None)), history.last + 1)
        return next((epoch for epoch in later if history[epoch].term < self.base), None)


class DeliveryNumbers:
    """What is remembered of the sinks of an open flow that cannot tell."""

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
        """``sinks``: a name for each; ``term``: this driver's; ``rolled_back``: sinks may have been given epochs after
        the history, which are lost. ``abandoned``: from this epoch on they may have been given others than the
        history's, since two drivers were at work at once. ``former``: of a flow that this process had open, what each
        of ``sinks`` was called then; others are new, whatever they are called."""
        last = history.last
        self._path = directory / LOCAL
        self._replicas = replicas
        self._term = term
        local = _object(self._path) or {}
        # The driver before this one was here, and all that it completed is known here.
        here = local.get("term") == term - 1 and (local.get("boot") == _boot() or local.get("closed") == last)
        said = local if here else self._copy() or local or None
        self._sinks = set(sinks) if said is None and last >= 0 else set((said or {}).get("sinks", []))
        """Those that were given something. A log of old does not say: then all that are there now."""

        self._given = bool(self._sinks) if said is None else bool(said.get("given", True))
        """Whether any such sink was ever given anything, be it one that is gone. A log of old may not say."""

        self.numbers = Numbers(**(said or {}).get("numbers", {}))
        others = [each for each in (abandoned, self.numbers.overtaken(history)) if each is not None]
        owed = (said or {}).get("again")
        self.again: int | None = min([*others, *([] if owed is None else [owed])], default=None)
        """From this epoch on, sinks are given the history's again, since they may have been given others."""

        if (sinks or self._given) and (rolled_back or not here) and term > 1:
            self.numbers = self.numbers.renewed(term, last, last)
        if sinks and others:
            self.numbers = self.numbers.renewed(term, min(others) - 1, last)
        self._sinks = {name for name in sinks if (name if former is None else former.get(name)) in self._sinks}
        # Also without such sinks: a later opening that has one must see that nothing was given in between. If it cannot
        # be written then (a full disk), that one takes greater numbers, as after a loss.
        with nullcontext() if sinks else suppress(LogError, OSError):
            self._write(copies=said is None or self._said() != {key: said.get(key) for key in self._said()})

    def is_new(self, sink: str) -> bool:
        """Whether it was given nothing yet."""
        return sink not in self._sinks

    def given(self, sink: str) -> None:
        """It was given its first epoch."""
        if sink not in self._sinks:
            self._sinks.add(sink)
            self._given = True
            self._write(copies=True)

    def gave_again(self) -> None:
        """All that had to be given again was."""
        if self.again is not None:
            self.again = None
            self._write(copies=True)

    def close(self, last: int) -> None:
        """Nothing was given to anybody that is not in a history up to ``last``."""
        self._write(copies=False, closed=last)

    def _said(self) -> dict[str, Any]:
        owed = {} if self.again is None else {"again": self.again}
        return {"sinks": sorted(self._sinks), "given": self._given, "numbers": asdict(self.numbers), **owed}

    def _write(self, copies: bool, closed: int | None = None) -> None:
        own = {**self._said(), "boot": _boot(), "term": self._term}
        write_whole(self._path, json.dumps(own if closed is None else {**own, "closed": closed}))
        for replica in self._replicas.values() if copies else ():
            with suppress(StoreError):
                replica.location.write(COPY, json.dumps(self._said()).encode())

    def _copy(self) -> dict[str, Any] | None:
        """What the locations say; the one that knows the latest base."""
        found = []
        for replica in self._replicas.values():
            with suppress(StoreError, LogDamaged, FileNotFoundError, ValueError, KeyError, TypeError):
                said = json.loads(replica.location.read(COPY))
                found.append((int(said["numbers"]["base"]), len(said["sinks"]), said))
        return max(found, key=lambda each: each[:2])[2] if found else None


def names(sinks: Sequence[tuple[str, object]]) -> list[str]:
    """A name for each sink: its view, its kind, and which one of that kind it is."""
    found: list[str] = []
    for view, sink in sinks:
        stem = f"{view}/{type(sink).__name__}"
        found.append(f"{stem}/{sum(name.rpartition('/')[0] == stem for name in found)}")
    return found


def former_names(now: Sequence[tuple[str, object]], before: Sequence[tuple[str, object]]) -> dict[str, str]:
    """Name of a sink → what the same one was called among the sinks ``before``."""
    known = {id(sink): name for (_, sink), name in zip(before, names(before), strict=True)}
    return {name: known[id(sink)] for (_, sink), name in zip(now, names(now), strict=True) if id(sink) in known}


def _object(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _boot() -> str:
    """What tells one start of this host from another; the same for all where the system does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
