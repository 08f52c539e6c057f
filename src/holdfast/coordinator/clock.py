"""The clock of a flow: the host's clock, unless that has jumped ahead.

The clock of an epoch is in its lineage, and never goes back by itself: rows that have expired stay expired. If the
host's clock were wrong for a moment, and far ahead, all rows with a time to live would expire, and new rows would have
no time to live until real time had caught up. Therefore a reading is compared with a second clock that cannot be set:
the time since the machine was started. The difference of the two clocks stays the same, whatever the flow does and
however long it is down, until the host's clock is set. If the difference has grown by more than the bound, the reading
is refused. The difference is kept in the working directory, so the next process compares with it, too, until the
machine is started again.

On another machine, or after a restart of this one, there is no difference to compare with: the flow may really have
been down for that long. Then a reading is accepted if it is at most `LONGEST_REST` (or the bound, if that is more)
after the last epoch; a user must accept the clock of a flow that was down for longer.

``accept`` takes the host's clock as it is, ahead of the flow's or *behind* it: so a flow whose clock was ahead by
mistake can go back.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from holdfast.errors import ClockJumped

LONGEST_REST = 30 * 86_400 * 1_000_000


@dataclass(frozen=True)
class Reading:
    """A reading of the host's two clocks, in microseconds."""

    wall: int
    """Since 1970, by the host's clock."""

    start: str
    """The id of the machine's start from which ``uptime`` counts; "" if there is none."""

    uptime: int

    @property
    def difference(self) -> int:
        return self.wall - self.uptime


class FlowClock:
    """Decides whether a reading of the host's clock is accepted."""

    def __init__(self, flow: str, bound: int | None, last: int | None, known: tuple[str, int] | None) -> None:
        """``bound``: microseconds by which the clock may jump ahead (None: any). ``last``: the clock of the last epoch.
        ``known``: a start of a machine, and the difference of its two clocks since then."""
        self._flow = flow
        self._bound = bound
        self._last = last
        self.known = known
        self._accepts = False

    def accept(self) -> None:
        """Accept the next reading as it is."""
        self._accepts = True

    @property
    def accepts(self) -> bool:
        """Whether the next epoch's clock may be before that of the last one."""
        return self._accepts

    def read(self, now: Reading) -> int:
        """The clock of an epoch that begins now. Raises `ClockJumped` if the host's clock has jumped ahead."""
        comparable = self.known is not None and self.known[0] == now.start != ""
        if not self._accepts and self._bound is not None:
            if comparable:
                assert self.known is not None
                self._check(now, now.difference - self.known[1], self._bound, "time that has passed")
            elif self._last is not None:
                self._check(now, now.wall - self._last, max(self._bound, LONGEST_REST), "last epoch's clock")
        # Keep the greatest difference: a clock that was set back, and is then corrected, has not jumped ahead.
        before = self.known[1] if comparable and self.known is not None and not self._accepts else now.difference
        self.known = (now.start, max(before, now.difference))
        return now.wall

    def completed(self, clock: int) -> None:
        """Note that an epoch with this clock is complete."""
        self._last = clock
        self._accepts = False

    def ahead(self, wall: int) -> int:
        """Microseconds by which the flow's clock is ahead of the host's; 0 if it is not."""
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
    """A clock as text, for messages."""
    try:
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros / 1e6:,.0f} seconds after 1970"
    return moment.isoformat(sep=" ", timespec="seconds")


def _long(micros: int) -> str:
    return str(datetime.timedelta(seconds=round(micros / 1e6)))
