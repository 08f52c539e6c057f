"""What a strategy is: the questions that a flow asks whoever protects its results.

The state of a flow (`coordinator/flow_state.py`) and the driver (`runtime/`) ask these questions and know no strategy
by its name. They are asked at six moments:

| moment | question |
|---|---|
| an epoch completes | `after_epoch`: is it copied now, and does the step wait until it is safe? |
| a round of copying begins | `copied_upto`, `copies`: which epochs, and what of them, go to the log's locations? |
| before an output leaves | `deliverable`: up to which epoch? `forwards`: with which lineage? |
| a flow opens after its driver died | `survives`: what of the working directory is used? `skips_begun`, `surely_has` |
| something is lost | `on_loss`: is it computed again, or left out? |
| input may be forgotten | `releasable` |

`NoSync` is the answer to all of them that `Strategy` gives; the others (`guarantees/strategies.py`) differ from it in
what makes them what they are. Strategies are plain values: frozen, without state, equal if they mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

PAUSE = 5.0
"""Seconds between two rounds of copying: it takes what epochs leave of the machine, not half of it."""


class Copies(Enum):
    """What goes to the log's locations."""

    NOTHING = "nothing"
    INPUT = "lineage, and the input that only the log has"
    EVERYTHING = "lineage and all state"


class Survives(Enum):
    """What a flow takes from its working directory when the driver before it died. (After a driver that closed the
    flow, everything is taken, whatever the strategy.)"""

    EVERYTHING = "lineage and state"
    LINEAGE = "lineage"
    NOTHING = "nothing"


class OnLoss(Enum):
    """What is done about epochs and state that no place holds."""

    REPLAY = "computed again"
    LEAVE_OUT = "left out"


@dataclass(frozen=True)
class AfterEpoch:
    """What follows when an epoch is complete. ``copy``: rounds of copying are asked for; ``wait``: the step waits until
    the epoch is safe, and only then sinks get output."""

    copy: bool
    wait: bool = False


@dataclass(frozen=True)
class Strategy:
    """How the results of a flow are protected. Make one with ``hf.nosync()``, ``hf.synchronous_log()``,
    ``hf.aligned_snapshot(…)``, ``hf.passive_standby(…)``, ``hf.upstream_backup(…)``, ``hf.active_standby()`` or
    ``hf.gap()``."""

    name: ClassVar[str] = ""
    copies: ClassVar[Copies] = Copies.EVERYTHING
    survives: ClassVar[Survives] = Survives.EVERYTHING
    on_loss: ClassVar[OnLoss] = OnLoss.REPLAY

    @property
    def forwards(self) -> bool:
        """Whether output carries the lineage that is not durable yet (invariant 6, causal). If not, a commit carries
        the record of its own epoch alone."""
        return True

    @property
    def waits(self) -> bool:
        """Whether steps wait for storage, always or now and then."""
        return False

    @property
    def pause(self) -> float:
        """Seconds between two rounds of copying, unless somebody waits for one."""
        return 0.0 if self.waits else PAUSE

    @property
    def follows(self) -> bool:
        """Whether a driver that stands by runs the leader's epochs."""
        return False

    @property
    def rolls_back(self) -> bool:
        """Whether output leaves whose lineage a driver that dies takes with it: then the epochs after a crash are
        others than those that sinks have under the same numbers."""
        return self.survives is Survives.NOTHING and self.deliverable(1, 0) == 1

    @property
    def skips_begun(self) -> bool:
        """Whether input of an epoch that did not complete is skipped rather than taken again (at most once)."""
        return False

    @property
    def durable(self) -> bool:
        """Whether anything is ever copied."""
        return self.copies is not Copies.NOTHING

    def after_epoch(self, epoch: int) -> AfterEpoch:
        """An epoch is complete."""
        return AfterEpoch(copy=True)

    def copied_upto(self, last: int) -> int:
        """A round of copying begins when epoch ``last`` is the last complete one: up to which epoch it copies, unless
        somebody waits for a later one to be safe."""
        return last

    def deliverable(self, last: int, safe: int) -> int:
        """Up to this epoch output may leave, when ``last`` is complete and ``safe`` is the safe point."""
        return last

    def surely_has(self, last: int) -> int:
        """The epoch up to which a sink that cannot tell was certainly given everything, if the history of a driver that
        died ends with ``last``. The epochs after it are given again."""
        return max(-1, last - 1)

    def releasable(self, cleared: int, state: int) -> int:
        """Input up to this epoch may be forgotten. ``cleared``: up to here everything that this strategy copies is
        safe; ``state``: as of this epoch the log's locations have all state, or know that there is none."""
        return cleared

    def acknowledges(self, epoch: int) -> bool:
        """Whether, after this epoch, it is looked whether any state is left (a level-1 acknowledgement)."""
        return False

    def __str__(self) -> str:
        chosen = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"{self.name}({chosen})" if chosen else self.name
