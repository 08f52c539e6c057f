"""The live status of a running flow: counts and rates over a sliding window, drawn at most four times a second."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import deque
from contextlib import ExitStack
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.foundation.counted import counted
from holdfast.reporting import activity
from holdfast.reporting.redaction import redacted
from holdfast.results.flow_results import Epoch, Status
from holdfast.standby.events import LeaseEvent

_WINDOW = 30.0
"""Seconds over which rates are taken."""

_KEPT = 1000
"""Epochs over which latencies are taken."""

_LINE_EVERY = 1.0
"""Seconds between two lines when the output is not a terminal."""


class Progress:
    """Collects what epochs did. No output here: `Screen`, `Lines` and `Jsonl` show it."""

    def __init__(self) -> None:
        self.epochs = 0
        self.rows = 0
        self.last: Epoch | None = None
        self.waiting: dict[str, int | None] = {}
        self.safe = self.at_risk = self.sinks = ""
        self._recent: deque[tuple[float, int]] = deque()
        self._seconds: deque[float] = deque(maxlen=_KEPT)
        self._started = time.monotonic()

    def add(self, epoch: Epoch, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        self.epochs += 1
        self.rows += epoch.rows_in
        self.last = epoch
        self._seconds.append(epoch.seconds)
        self._recent.append((now, epoch.rows_in))
        while self._recent[0][0] < now - _WINDOW:
            self._recent.popleft()

    def stands(self, status: Status) -> None:
        """How the flow stands, asked now and then."""
        self.waiting = {name: source.waiting for name, source in status.sources.items()}
        durability = status.durability
        self.safe = f"epoch {durability.safe:,}" if durability.safe >= 0 else "-"
        self.at_risk = str(durability.unsafe)
        self.sinks = ", ".join(f"{sink.view} (epoch {sink.epoch})" for sink in status.sinks)

    @property
    def uptime(self) -> str:
        seconds = int(time.monotonic() - self._started)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def rates(self, now: float | None = None) -> tuple[float, float]:
        """Epochs and rows per second, of late."""
        now = time.monotonic() if now is None else now
        span = max(1e-9, min(_WINDOW, now - self._started))
        recent = [rows for at, rows in self._recent if at >= now - _WINDOW]
        return len(recent) / span, sum(recent) / span

    def latency(self) -> tuple[float, float]:
        """Median and 99th percentile of the seconds per epoch."""
        ordered = sorted(self._seconds)
        if not ordered:
            return 0.0, 0.0
        return statistics.median(ordered), ordered[math.ceil(0.99 * (len(ordered) - 1))]

    def lag(self) -> str:
        """What waits behind the epoch at hand, where sources know."""
        known = [f"{name} {count:,}" for name, count in self.waiting.items() if count]
        return ", ".join(known) or "nothing"

    def summary(self) -> str:
        median, high = (_milliseconds(one) for one in self.latency())
        return f"{counted(self.epochs, 'epoch')}, {counted(self.rows, 'row')} in; median {median}, p99 {high} per epoch"


class Screen:
    """Draws a table in place on a terminal."""

    def __init__(self, console: Console, flow: str, progress: Progress) -> None:
        self._flow, self._progress = flow, progress
        self._lease: LeaseEvent | None = None
        self._showing = ExitStack()
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._showing.enter_context(activity.shown_elsewhere())
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._showing.close()

    def shown(self, epoch: Epoch) -> None:
        """The screen draws itself."""

    def told(self, event: LeaseEvent) -> None:
        """How it stands with the lease."""
        self._lease = event

    def _table(self) -> Table:
        progress = self._progress
        per_second, rows = progress.rates()
        median, high = progress.latency()
        table = Table(
            title=Text(f"flow {self._flow}", "bold"),
            title_justify="left",
            show_header=False,
            box=None,
            padding=(0, 2, 0, 0),
        )
        table.add_column(style="cyan")
        table.add_column()
        if self._lease is not None:
            table.add_row("lease", Text(str(self._lease)))
        table.add_row("epoch", "-" if progress.last is None else f"{progress.last.epoch:,}")
        if progress.last is not None and progress.last.approximate is not None:
            table.add_row("exact", Text(f"no: {progress.last.approximate}", "yellow"))
        if (busy := activity.now(activity.QUIET)) is not None:
            table.add_row("now", Text(f"{busy.what}, {busy.seconds:.0f} s"))
        table.add_row("epochs/s", f"{per_second:,.1f}")
        table.add_row("rows/s", f"{rows:,.0f}")
        table.add_row("latency", f"median {_milliseconds(median)}   p99 {_milliseconds(high)}")
        table.add_row("waiting", Text(progress.lag()))
        for name, what in (("safe", progress.safe), ("at risk", progress.at_risk), ("sinks", progress.sinks)):
            if what:
                table.add_row(name, Text(what))
        table.add_row("uptime", progress.uptime)
        for view, count in progress.last.changed.items() if progress.last else ():
            table.add_row(Text(f"view {view}"), f"{count:,} rows changed")
        return table


class Lines:
    """A line now and then, for logs."""

    def __init__(self, console: Console, flow: str, progress: Progress) -> None:
        self._console, self._flow, self._progress = console, flow, progress
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def shown(self, epoch: Epoch) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_EVERY
            per_second, rows = self._progress.rates()
            self._console.print(
                f"{self._flow}: epoch {epoch.epoch}, {per_second:,.1f} epochs/s, {rows:,.0f} rows/s, "
                f"last {_milliseconds(epoch.seconds)}, waiting {self._progress.lag()}"
                f"{f', {epoch.approximate}' if epoch.approximate is not None else ''}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def told(self, event: LeaseEvent) -> None:
        """How it stands with the lease."""
        self._console.print(f"{self._flow}: {event}", markup=False, highlight=False, soft_wrap=True)


class Jsonl:
    """One JSON object per epoch."""

    def __init__(self, console: Console, flow: str, progress: Progress) -> None:
        self._flow, self._progress = flow, progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def shown(self, epoch: Epoch) -> None:
        per_second, rows = self._progress.rates()
        line: dict[str, Any] = {
            "flow": self._flow,
            **epoch.to_dict(),
            "epochs_per_second": round(per_second, 3),
            "rows_per_second": round(rows, 1),
            "waiting": self._progress.waiting,
        }
        print(json.dumps(redacted(line)), flush=True)

    def told(self, event: LeaseEvent) -> None:
        """How it stands with the lease: an object with ``event``."""
        print(json.dumps({"flow": self._flow, "at": time.time(), **redacted(event.to_dict())}), flush=True)


def beginning(flow: str, last: int) -> str:
    """Where a run begins; ``last`` is the last epoch of the log, -1 if there is none."""
    return f"{flow}: begins" if last < 0 else f"{flow}: goes on after epoch {last:,}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
