"""What a crash would cost now: seconds until the first output after it, epochs computed again, bytes fetched.

The time after a loss has five parts, each computed from rates that were measured in this flow, now or in an earlier
process:

    detection   until the loss is noticed: the timeout of a lease, or Spark's report of an executor that died
    start       a new process: Python, Spark, reading the declaration, opening the log, and its first, cold epoch
    fetch       layers that are nowhere else, from the log's locations: a time for each layer, and for each byte
    replay      epochs that no copy has, computed again, one after the other
    epoch       the first new epoch, whose output is waited for, if no process is started

The kind of loss decides which parts count. A driver that dies leaves its layers on its disk. With the driver's host all
local layers are lost. With a member the layers of its partitions are lost. A location holds copies: nothing waits for
them.

Pure: holdings and rates in, forecasts out. Cost: a cover for each trace and location.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from holdfast.coordinator.copy_plan import Holding, trusting
from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.foundation.counted import counted
from holdfast.trace.cover import cover, covered
from holdfast.trace.name import ALL, LayerName

EXECUTOR_DEATH = 1.0
"""Seconds in which Spark reports an executor that died."""


@dataclass(frozen=True)
class Rates:
    """The measured rates of a flow. A rate that was not measured yet is None."""

    start: float | None = None
    """Seconds from the start of a process until the flow's first epoch was complete, without recovery."""

    epoch: float | None = None
    """Seconds of an epoch: the median of the last epochs."""

    replay: float | None = None
    """Seconds of an epoch that was computed again."""

    layer: float | None = None
    """Seconds for each fetched layer."""

    byte: float | None = None
    """Seconds for each fetched byte."""

    def known(self, others: Rates) -> Rates:
        """These rates; a rate that was not measured is taken from ``others``."""
        pairs = ((each.name, getattr(self, each.name), getattr(others, each.name)) for each in fields(Rates))
        return Rates(**{name: other if own is None else own for name, own, other in pairs})

    def differs(self, others: Rates) -> bool:
        """Whether any of these rates differs from that of ``others`` by more than a quarter."""
        for each in fields(Rates):
            mine, other = getattr(self, each.name), getattr(others, each.name)
            if mine is not None and (other is None or not 0.8 * other <= mine <= 1.25 * other):
                return True
        return False

    def to_json(self) -> dict[str, float]:
        return {each.name: value for each in fields(Rates) if (value := getattr(self, each.name)) is not None}

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Rates:
        names = {each.name for each in fields(Rates)}
        return Rates(**{name: float(value) for name, value in said.items() if name in names})


@dataclass(frozen=True)
class Circumstances:
    """The facts that decide how much is lost, as the driver knows them."""

    stays: bool = True
    """Whether the layers of a driver that dies are still there."""

    detection: float = 0.0
    """Seconds until the loss of a driver is noticed."""

    grace: float = 0.0
    """Seconds for which the flow waits for a lost member to come back."""

    members: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Member → the ranges of key hashes whose layers it keeps; empty if all layers are on the driver's host."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Circumstances:
        members = {name: [(int(low), int(high)) for low, high in ranges] for name, ranges in said["members"].items()}
        return Circumstances(bool(said["stays"]), float(said["detection"]), float(said["grace"]), members)


@dataclass(frozen=True)
class Forecast:
    """What one loss would cost now, computed from measured rates (``flow.status().crash_now``)."""

    what: str
    """``driver`` (its process dies), ``driver's host`` (with its disk), ``member …`` or ``location …``."""

    seconds: float | None
    """Seconds until the first output after the loss: the sum of the parts. None: no copy would be left to recover
    from."""

    parts: dict[str, float]
    """Seconds of ``detection``, ``start``, ``fetch``, ``replay`` and of the first ``epoch``."""

    epochs: int
    """The number of epochs that would be computed again."""

    bytes: int
    """The bytes that would be fetched from the log's locations."""

    def __str__(self) -> str:
        if self.seconds is None:
            return "never: no log location is elsewhere, so there would be no copy"
        known = [f"{name} {_duration(spent)}" for name, spent in self.parts.items() if spent >= 0.0005]
        done = f"{counted(self.epochs, 'epoch')} again, {self.bytes / 1e6:,.1f} MB fetched"
        return f"{_duration(self.seconds)} ({', '.join(known) or 'nothing to wait for'}; {done})"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:,.0f} ms"
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.1f} min"


@dataclass(frozen=True)
class Lost:
    """The work after a loss: layers and bytes that must be fetched, and epochs that must be computed again."""

    layers: int = 0
    bytes: int = 0
    epochs: int = 0


def lost_range(holdings: Sequence[Holding], traces: Collection[str], last: int, low: int = 0, high: int = ALL) -> Lost:
    """The work that brings a range of key hashes, whose local layers are lost, back to epoch ``last``, if the locations
    have these holdings."""
    layers, size, reach = 0, 0.0, last
    for trace in traces:
        sizes = {name: size for holding in holdings for name, size in holding.layers.get(trace, {}).items()}
        upto = covered(sizes, low, high, trusting(last))
        reach = min(reach, upto)
        for name in needed(sizes, low, high, last):
            layers += 1
            size += sizes[name] * min(1.0, (high - low) / (name.high - name.low))
    return Lost(layers, int(size), last - reach)


def needed(names: Collection[LayerName], low: int, high: int, last: int) -> set[LayerName]:
    """The layers among ``names`` that cover a range up to the latest epoch that they can cover."""
    upto = covered(names, low, high, trusting(last))
    if upto < 0:
        return set()
    try:
        return {piece.name for piece in cover(names, low, high, upto, trusting(last))}
    except (EpochUnavailable, LogDamaged):
        return set()


def forecasts(
    rates: Rates,
    holdings: Mapping[str, Holding],
    traces: Collection[str],
    last: int,
    known: Circumstances,
    beside: Collection[str] = (),
) -> tuple[Forecast, ...]:
    """What each loss would cost now. ``holdings``: location → what it holds; ``beside``: the locations that are in the
    working directory, and would be lost with it."""
    copies, members = list(holdings.values()), known.members
    elsewhere = [holding for uri, holding in holdings.items() if uri not in beside]
    gone = Lost() if members else lost_range(elsewhere, traces, last)
    found = [
        _forecast("driver", rates, Lost() if known.stays else gone, known.detection, starts=True),
        _forecast("driver's host", rates, gone, known.detection, starts=True)
        if elsewhere or members
        else Forecast("driver's host", None, {}, last + 1, 0),
    ]
    for member, ranges in members.items():
        parts = [lost_range(copies, traces, last, low, high) for low, high in ranges]
        lost = Lost(
            sum(each.layers for each in parts),
            sum(each.bytes for each in parts),
            max((each.epochs for each in parts), default=0),
        )
        found.append(_forecast(f"member {member}", rates, lost, EXECUTOR_DEATH + known.grace, starts=False))
    # The other locations serve, and the lost one is filled again in the background.
    found += [_forecast(f"location {uri}", rates, Lost(), 0.0, starts=False) for uri in holdings]
    return tuple(found)


def most_telling(found: Sequence[Forecast], locations: bool = True) -> list[tuple[str, Forecast]]:
    """The forecasts that a person wants to see, each with the name of the loss: of all members the one whose loss costs
    most, and one location, since the loss of any of them costs the same."""
    kinds: dict[str, list[Forecast]] = {}
    for each in found:
        kinds.setdefault(
            each.what.partition(" ")[0] if each.what.startswith(("member", "location")) else "", []
        ).append(each)
    told = [(f"the {each.what}", each) for each in kinds.get("", ())]
    if members := kinds.get("member"):
        worst = max(members, key=lambda each: each.seconds or 0.0)
        told.append((worst.what + (f", the costliest of {len(members)}," if len(members) > 1 else ""), worst))
    if locations and "location" in kinds:
        told.append(("a log location", kinds["location"][0]))
    return told


def _forecast(what: str, rates: Rates, lost: Lost, detection: float, *, starts: bool) -> Forecast:
    parts = seconds(rates, lost, detection=detection, starts=starts)
    return Forecast(what, sum(parts.values()), parts, lost.epochs, lost.bytes)


def seconds(rates: Rates, lost: Lost, *, detection: float, starts: bool) -> dict[str, float]:
    """The parts of the time until the first output, in seconds; ``starts``: a process must be started."""
    epoch = rates.epoch or 0.0
    return {
        "detection": detection,
        "start": (rates.start or 0.0) if starts else 0.0,
        "fetch": lost.layers * (rates.layer or 0.0) + lost.bytes * (rates.byte or 0.0),
        "replay": lost.epochs * (epoch if rates.replay is None else rates.replay),
        "epoch": 0.0 if starts and rates.start is not None else epoch,  # a start is measured to the first epoch's end
    }
