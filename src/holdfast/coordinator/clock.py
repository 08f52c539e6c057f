"""The clock of a flow: the host's, unless that has gone ahead further than time has passed.

The clock of an epoch is in its lineage, and never goes back by itself: what has expired has expired. So a host whose
clock is wrong for a moment, and far ahead, would have everything expire, and for as long as it was ahead nothing
new would last. Therefore a reading is compared with a second clock that nobody sets, the time since the machine was
started: the difference of the two stays the same, whatever the flow does and however long it rests, until somebody sets
the host's clock. If it has grown by more than the bound, the reading is refused. The difference is kept in the working
directory, and so holds for the next process too, until the machine is started again.

On another machine, or after a restart of this one, there is nothing to compare with: the flow may have been down for so
long. Then a reading is taken if it is no more than `LONGEST_REST` behind the last epoch, or than the bound, if
that is more; a flow that was down for longer has to be told that this is right.

``accept`` takes the host's clock as it is, ahead or *behind*: the way back for a flow that was ahead once.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from holdfast.errors import ClockJumped

LONGEST_REST = 30 * 86_400 * 1_000_000


@dataclass(frozen=True)
class Reading:
    """What the host's clocks say, in microseconds."""

    wall: int
    """Since 1970, as far as the host knows."""

    start: str
    """Names the start of the machine that ``uptime`` counts from; "" where nothing does."""

    uptime: int

    @property
    def difference(self) -> int:
        return self.wall - self.uptime


class FlowClock:
    """Judges what the host's clock says."""

    def __init__(self, flow: str, bound: int | None, last: int | None, known: tuple[str, int] | None) -> None:
        """``bound``: microseconds (None: any reading will do). ``last``: the clock of the last epoch. ``known``: the
        start of a machine, and the difference of its clocks then."""
        self._flow = flow
        self._bound = bound
        self._last = last
        self.known = known
        self._accepts = False

    def accept(self) -> None:
        """Take the next reading as it is."""
        self._accepts = True

    @property
    def accepts(self) -> bool:
        """Whether the next epoch's clock may be before that of the last one."""
        return self._accepts

    def read(self, now: Reading) -> int:
        """The clock of an epoch that begins now. Raises `ClockJumped`."""
        comparable = self.known is not None and self.known[0] == now.start != ""
        if not self._accepts and self._bound is not None:
            if comparable:
                assert self.known is not None
                self._check(now, now.difference - self.known[1], self._bound, "time that has passed")
            elif self._last is not None:
                self._check(now, now.wall - self._last, max(self._bound, LONGEST_REST), "last epoch's clock")
        # The greatest difference so far: a clock that was set back and is set right again has not jumped.
        before = self.known[1] if comparable and self.known is not None and not self._accepts else now.difference
        self.known = (now.start, max(before, now.difference))
        return now.wall

    def completed(self, clock: int) -> None:
        """An epoch with that clock is complete."""
        self._last = clock
        self._accepts = False

    def ahead(self, wall: int) -> int:
        """By how much the flow's clock is ahead of the host's; 0 if it is not."""
        return max(0, (self._last or 0) - wall)

    def _check(self, now: Reading, jump: int, bound: int, than: str) -> None:
        if jump <= bound:
            return
        last = "none yet" if self._last is None else shown(self._last)
        raise ClockJumped(
            f"flow '{self._flow}': the host's clock says {shown(now.wall)}, which is {_long(jump)} ahead of the {than} "
            f"(last epoch: {last}; max_clock_jump allows {_long(bound)}). What depends on the time would expire for "
            "good. Set the clock right; or, if it is, say so once: flow.accept_clock(), or holdfast run --accept-clock",
            flow=self._flow,
            clock=self._last,
            host=now.wall,
            jump=jump,
            bound=bound,
        )


def shown(micros: int) -> str:
    """A clock, for people."""
    try:
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros / 1e6:,.0f} seconds after 1970"
    return moment.isoformat(sep=" ", timespec="seconds")


def _long(micros: int) -> str:
    return str(datetime.timedelta(seconds=round(micros / 1e6)))
