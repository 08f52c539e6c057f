"""The measured rates of an open flow: the time to start, to run an epoch, to fetch a layer.

They serve the forecast of what a crash would cost (`coordinator/forecast.py`). The forecast is also made by readers of
the log without an open flow, or after the driver died; so the rates are written beside the log, in one small file that
is replaced when a rate has changed by more than a quarter. A rate that this process has not measured yet is taken from
what an earlier process has written.

The time to fetch layers is measured in recoveries. Before the first recovery, a few layers are fetched into a temporary
directory after a round of copying, once in a process, and removed. The time to compute an epoch again is also measured
in recoveries; before the first one it is estimated as an epoch plus an empty job.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.coordinator.copy_plan import Holding
from holdfast.coordinator.forecast import Circumstances, Rates
from holdfast.errors import HoldfastError, LogDamaged, StoreError
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.location import Location
from holdfast.log.replica import Replica
from holdfast.log.working_directory import LogDirectory
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.trace.name import LayerName

_SOON = 120.0
"""Seconds. If a flow is opened later than this after its process began, the age of the process does not count as the
time of a start."""

_processes_with_flows: set[int] = set()
"""The id of this process once it has opened a flow: a second flow in it does not show how long a start takes."""

_MOST = 16_000_000
"""The greatest layer, in bytes, that is fetched for a measurement."""

_FEW = 8

_Copy = tuple[int, str, LayerName, int]
"""Bytes, trace, name and location of a layer."""


class MeasuredRates:
    """The rates of one open flow."""

    def __init__(self, directory: LogDirectory, replicas: Mapping[str, Replica]) -> None:
        self._directory = directory
        self._replicas = replicas
        self._own = Rates()
        self._written = self._read()
        self._known: Circumstances | None = None
        self._opened: float | None = None
        self._probed = False

    @property
    def rates(self) -> Rates:
        """The rates, as measured by this process or by an earlier one."""
        return self._own.known(self._written)

    def opened(self, began: float, recovery: RecoveryRecord) -> None:
        """Note that the flow is open; its opening began at ``began`` (`time.perf_counter`)."""
        recovered = sum(recovery.seconds.get(phase, 0.0) for phase in ("fetch", "replay", "hand"))
        age = None if os.getpid() in _processes_with_flows else process_age()
        _processes_with_flows.add(os.getpid())
        # The time of opening alone is less than a start takes; a process that was started for the flow measured that.
        opening = max(time.perf_counter() - began, self._written.start or 0.0)
        took = age if age is not None and age < _SOON else opening
        self._opened = max(0.0, took - recovered)
        self.recovered(recovery)

    def recovered(self, recovery: RecoveryRecord) -> None:
        """Take the rates from a recovery that is over."""
        if recovery.epochs and recovery.filled is None and recovery.seconds.get("replay"):
            self._own = replace(self._own, replay=recovery.seconds["replay"] / len(recovery.epochs))
        if recovery.layers_fetched >= _FEW and recovery.seconds.get("fetch"):
            self._split(recovery.seconds["fetch"], recovery.layers_fetched, recovery.bytes_fetched)

    def _split(self, took: float, layers: int, size: int) -> None:
        """Set the seconds per layer from the seconds that a fetch took, without the share of its bytes."""
        byte = self.rates.byte or 0.0
        self._own = replace(self._own, layer=max(took - size * byte, 0.1 * took) / layers, byte=byte)

    def ran(self, latencies: Sequence[float]) -> None:
        """Note that an epoch is complete; ``latencies`` are the seconds of the last epochs."""
        if self._opened is not None:
            # The first epoch runs in a cold process, as the first one after a crash will.
            self._own, self._opened = replace(self._own, start=self._opened + latencies[-1]), None
        elif latencies:
            self._own = replace(self._own, epoch=statistics.median(latencies))

    def jobs(self, took: float) -> None:
        """Note the seconds of an empty job with the stages of an epoch. A replay always runs as a job, even if epochs
        run in other ways; until a replay was measured, an epoch plus an empty job is the estimate."""
        if self.rates.replay is None:
            self._own = replace(self._own, replay=took + (self.rates.epoch or 0.0))

    def look(
        self, locations: Sequence[Location], holdings: Mapping[int, Holding], target: Path, known: Circumstances
    ) -> None:
        """Fetch a few layers if that was not done yet, and write the rates and the circumstances that decide what a
        loss costs, if they have changed. Called in the background; a failure changes nothing."""
        with suppress(HoldfastError, OSError):
            if not self._probed and self._own.layer is None:
                self._probe(locations, holdings, target)
            if self._own.differs(self._written) or known != self._known:
                self._known = known
                self._write(self.rates)

    def keep(self) -> None:
        """Write rates that no round of copying has written yet to the working directory. A failure changes nothing."""
        with suppress(HoldfastError, OSError):
            if self.rates.start is None and self._opened is not None:
                # No epoch ever ran: the time of opening is all that is known of a start.
                self._own = replace(self._own, start=self._opened)
            if self._own.differs(self._written):
                self._directory.write_rates(self._said(self.rates))

    def _probe(self, locations: Sequence[Location], holdings: Mapping[int, Holding], target: Path) -> None:
        layers = sorted(
            (size, trace, name, number)
            for number, holding in holdings.items()
            for trace, names in holding.layers.items()
            for name, size in names.items()
            if size <= _MOST
        )
        if len(layers) < _FEW:
            return
        self._probed = True
        large = layers[-1]
        small = [each for each in layers if each[0] <= large[0]][:_FEW]
        try:
            few = self._fetched(small, locations, target)
            one = self._fetched([large], locations, target)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        layer = few / len(small)
        self._own = replace(self._own, layer=layer, byte=max(0.0, one - layer) / max(1, large[0]))

    @staticmethod
    def _fetched(layers: Sequence[_Copy], locations: Sequence[Location], target: Path) -> float:
        began = time.perf_counter()
        fetch_all(
            [Fetch(trace, name, str(target / trace), (number,), 0) for _, trace, name, number in layers], locations
        )
        return time.perf_counter() - began

    def _read(self) -> Rates:
        with suppress(HoldfastError, OSError, ValueError, TypeError):
            if said := self._directory.read_rates():
                return Rates.from_json(said)
        for replica in self._replicas.values():
            with suppress(StoreError, LogDamaged, ValueError, TypeError):
                if said := replica.read_rates():
                    return Rates.from_json(said)
        return Rates()

    def _write(self, rates: Rates) -> None:
        said = self._said(rates)
        self._directory.write_rates(said)
        for replica in self._replicas.values():
            with suppress(StoreError):
                replica.write_rates(said)
        self._written = rates

    def _said(self, rates: Rates) -> dict[str, Any]:
        return {**rates.to_json(), **({} if self._known is None else {"known": self._known.to_json()})}


def process_age() -> float | None:
    """Return the seconds since this process began; None if the system does not tell."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            began = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            return float(uptime.read().split()[0]) - began
    except (OSError, ValueError, IndexError):
        return None
