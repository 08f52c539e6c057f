"""Strategies: the questions that a flow asks about how its results are protected.

The state of a flow (`coordinator/flow_state.py`) and the driver (`runtime/`) ask these questions, and do not know any
strategy by its name. They ask at six moments:

| moment | question |
|---|---|
| an epoch completes | `after_epoch`: is it copied now, and does the step wait until it is safe? |
| a round of copying begins | `copied_upto`, `copies`: which epochs, and what of them, go to the log's locations? |
| before an output leaves | `deliverable`: up to which epoch? `forwards`: with which lineage? |
| a flow opens after its driver died | `survives`: what of the working directory is used? `skips_begun`, `surely_has` |
| something is lost | `on_loss`: is it computed again, or left out? |
| input may be forgotten | `releasable` |

The answers of `Strategy` are those of `NoSync`; each other strategy (`guarantees/strategies.py`) overrides only the
answers in which it differs. Strategies are plain values: frozen, without state, equal if they mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

PAUSE = 5.0
"""Seconds between two rounds of copying. The pause keeps copying from taking too much of the machine from epochs."""


class Copies(Enum):
    """What is copied to the log's locations."""

    NOTHING = "nothing"
    INPUT = "lineage, and the input that only the log has"
    EVERYTHING = "lineage and all state"


class Survives(Enum):
    """What a flow uses of its working directory after its last driver died. (If the last driver closed the flow,
    everything is used, whatever the strategy.)"""

    EVERYTHING = "lineage and state"
    LINEAGE = "lineage"
    NOTHING = "nothing"


class OnLoss(Enum):
    """What to do about epochs and state that no place holds."""

    REPLAY = "computed again"
    LEAVE_OUT = "left out"


@dataclass(frozen=True)
class AfterEpoch:
    """What to do when an epoch is complete. ``copy``: ask for rounds of copying; ``wait``: the step waits until the
    epoch is safe, and only then sinks get output."""

    copy: bool
    wait: bool = False


@dataclass(frozen=True)
class Strategy:
    """How the results of a flow are protected. Make a strategy with ``hf.nosync()``, ``hf.synchronous_log()``,
    ``hf.aligned_snapshot(…)``, ``hf.passive_standby(…)``, ``hf.upstream_backup(…)``, ``hf.active_standby()`` or
    ``hf.gap()``."""

    name: ClassVar[str] = ""
    copies: ClassVar[Copies] = Copies.EVERYTHING
    survives: ClassVar[Survives] = Survives.EVERYTHING
    on_loss: ClassVar[OnLoss] = OnLoss.REPLAY

    @property
    def forwards(self) -> bool:
        """Whether output carries the lineage that is not durable yet (invariant 6, causal). If not, a commit carries
        only the record of its own epoch."""
        return True

    @property
    def waits(self) -> bool:
        """Whether steps wait for storage, always or now and then."""
        return False

    @property
    def pause(self) -> float:
        """Seconds between two rounds of copying, unless a caller waits for a round."""
        return 0.0 if self.waits else PAUSE

    @property
    def follows(self) -> bool:
        """Whether a standby driver runs the leader's epochs."""
        return False

    @property
    def rolls_back(self) -> bool:
        """Whether output may leave before its lineage survives the driver: then, after a crash, epochs differ from
        those that sinks have under the same numbers."""
        return self.survives is Survives.NOTHING and self.deliverable(1, 0) == 1

    @property
    def skips_begun(self) -> bool:
        """Whether the input of an epoch that did not complete is skipped, and not taken again (at most once)."""
        return False

    @property
    def durable(self) -> bool:
        """Whether anything is copied."""
        return self.copies is not Copies.NOTHING

    def after_epoch(self, epoch: int) -> AfterEpoch:
        """What to do now that ``epoch`` is complete."""
        return AfterEpoch(copy=True)

    def copied_upto(self, last: int) -> int:
        """The epoch up to which a round of copying copies, if ``last`` is the last complete epoch. (A round copies
        further if a caller waits for a later epoch to be safe.)"""
        return last

    def deliverable(self, last: int, safe: int) -> int:
        """The epoch up to which output may leave, if ``last`` is complete and ``safe`` is the safe point."""
        return last

    def surely_has(self, last: int) -> int:
        """The epoch up to which a sink that cannot tell what it has was certainly given everything, if the history of a
        driver that died ends with ``last``. The epochs after it are given again."""
        return max(-1, last - 1)

    def releasable(self, cleared: int, state: int) -> int:
        """The epoch up to which input may be forgotten. ``cleared``: the epoch up to which everything that this
        strategy copies is safe; ``state``: the epoch as of which the log's locations have all state, or note that there
        is none."""
        return cleared

    def acknowledges(self, epoch: int) -> bool:
        """Whether to check, after this epoch, if any state is left (a level-1 acknowledgement)."""
        return False

    def __str__(self) -> str:
        chosen = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"{self.name}({chosen})" if chosen else self.name
