"""The seven strategies: what each keeps, and its answers to the questions of `guarantees/strategy.py`.

| strategy | what it keeps | after a crash the flow |
|---|---|---|
| `nosync` | layers and lineage copied in the background, lineage forwarded with output | goes on where it was |
| `synchronous_log` | the same, copied before output leaves | goes on where it was |
| `aligned_snapshot` | all changes, every k epochs, while the flow waits; else nothing | goes back to the snapshot |
| `passive_standby` | layers every k epochs, without waiting; lineage | computes the epochs since the copy again |
| `upstream_backup` | lineage and input; no state | computes all state again from the kept input |
| `active_standby` | a second driver runs the same epochs, without output | goes on with the second driver |
| `gap` | nothing | goes on with the state that is there, and skips the input of the running epoch |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from holdfast.errors import DeclarationError
from holdfast.foundation import arguments
from holdfast.guarantees.strategy import AfterEpoch, Copies, OnLoss, Strategy, Survives

StrategyName: TypeAlias = Literal[
    "nosync",
    "synchronous_log",
    "synchronous-log",
    "aligned_snapshot",
    "passive_standby",
    "upstream_backup",
    "active_standby",
    "gap",
    "volatile",
]
"""Names of strategies with their default settings. ``"synchronous-log"`` and ``"volatile"`` (which is ``"gap"``) are
names from earlier versions."""

EVERY = 16
"""The default number of epochs between two snapshots, checkpoints or acknowledgements."""


def _boundary(last: int, every: int) -> int:
    """The last epoch, at most ``last``, that ends a group of ``every`` epochs; -1 if there is none."""
    return (last + 1) // every * every - 1


@dataclass(frozen=True)
class NoSync(Strategy):
    """Layers and lineage are copied in the background; lineage that is not durable yet goes out with output."""

    name: ClassVar[str] = "nosync"


@dataclass(frozen=True)
class SynchronousLog(Strategy):
    """Each epoch is safe before its output leaves."""

    name: ClassVar[str] = "synchronous_log"

    @property
    def waits(self) -> bool:
        return True

    def after_epoch(self, epoch: int) -> AfterEpoch:
        return AfterEpoch(copy=True, wait=True)

    def deliverable(self, last: int, safe: int) -> int:
        return min(last, safe)


@dataclass(frozen=True)
class AlignedSnapshot(Strategy):
    """Every ``every`` epochs the flow waits until all changes since the last snapshot are safe. Between snapshots
    nothing is copied. After a crash the flow goes back to the last snapshot. Output is ``"held"`` until the snapshot
    that includes it, or leaves ``"early"``: then it leaves again after a crash."""

    every: int = EVERY
    output: Literal["held", "early"] = "held"

    name: ClassVar[str] = "aligned_snapshot"
    survives: ClassVar[Survives] = Survives.NOTHING

    @property
    def forwards(self) -> bool:
        return False

    @property
    def waits(self) -> bool:
        return True

    def after_epoch(self, epoch: int) -> AfterEpoch:
        ends = _boundary(epoch, self.every) == epoch
        return AfterEpoch(copy=ends, wait=ends)

    def copied_upto(self, last: int) -> int:
        return _boundary(last, self.every)

    def deliverable(self, last: int, safe: int) -> int:
        return min(last, safe) if self.output == "held" else last

    def surely_has(self, last: int) -> int:
        # Held output of several epochs leaves together: the driver may have died after any of these epochs.
        return _boundary(last - 1, self.every) if self.output == "held" else super().surely_has(last)


@dataclass(frozen=True)
class PassiveStandby(Strategy):
    """Every ``every`` epochs state, lineage and held input are copied to the log's locations (the secondary), without
    waiting. After a crash state comes from the last complete copy, and later epochs are computed again."""

    every: int = EVERY

    name: ClassVar[str] = "passive_standby"
    survives: ClassVar[Survives] = Survives.LINEAGE

    def after_epoch(self, epoch: int) -> AfterEpoch:
        return AfterEpoch(copy=_boundary(epoch, self.every) == epoch)

    def copied_upto(self, last: int) -> int:
        return _boundary(last, self.every)


@dataclass(frozen=True)
class UpstreamBackup(Strategy):
    """Lineage is copied, and input that only the log has, but no state. Sources keep their input until every sink has
    its output (a level-0 acknowledgement) and no state depends on it any more (level-1: all rows are gone, by deletion
    or by time). Both are checked every ``every`` epochs; if they hold, the log's locations note that there is no state
    as of that epoch, and replays begin after it. After a crash all state is computed again from the kept input."""

    every: int = EVERY

    name: ClassVar[str] = "upstream_backup"
    copies: ClassVar[Copies] = Copies.INPUT
    survives: ClassVar[Survives] = Survives.LINEAGE

    def releasable(self, cleared: int, state: int) -> int:
        return min(cleared, state)

    def acknowledges(self, epoch: int) -> bool:
        return _boundary(epoch, self.every) == epoch


@dataclass(frozen=True)
class ActiveStandby(Strategy):
    """A standby driver runs the epochs of the leader, from the same offers, and gives nothing to sinks. When the leader
    dies, the standby driver has the state already."""

    name: ClassVar[str] = "active_standby"

    @property
    def pause(self) -> float:
        return 0.5  # a standby driver on another host reads the lineage from the log's locations

    @property
    def follows(self) -> bool:
        return True


@dataclass(frozen=True)
class Gap(Strategy):
    """Nothing is copied. After a crash the flow goes on with the state that is there: the input of the running epoch is
    skipped, lost state is empty, and `last_recovery.missing` says which epochs are missing."""

    name: ClassVar[str] = "gap"
    copies: ClassVar[Copies] = Copies.NOTHING
    on_loss: ClassVar[OnLoss] = OnLoss.LEAVE_OUT

    @property
    def forwards(self) -> bool:
        return False

    @property
    def skips_begun(self) -> bool:
        return True

    def after_epoch(self, epoch: int) -> AfterEpoch:
        return AfterEpoch(copy=False)

    def surely_has(self, last: int) -> int:
        return last


def nosync() -> Strategy:
    """The default: layers and lineage are copied in the background, and no epoch waits for that. Lineage that is not
    durable yet goes out with output, so everything that sinks have seen can be computed again exactly."""
    return NoSync()


def synchronous_log() -> Strategy:
    """Like `nosync`, but each epoch is safe before its output leaves: each step waits for storage."""
    return SynchronousLog()


def aligned_snapshot(every: int = EVERY, output: Literal["held", "early"] = "held") -> Strategy:
    """Stop the flow every ``every`` epochs until all changes are safe. Nothing is copied in between. After a crash the
    flow goes back to the last snapshot. With ``output="held"`` output leaves with the snapshot that includes it; with
    ``"early"`` it leaves at once, and again after a crash."""
    every = arguments.whole("aligned_snapshot", "every", every, 1)
    arguments.one_of("aligned_snapshot", "output", output, ("held", "early"))
    return AlignedSnapshot(every, output)


def passive_standby(every: int = EVERY) -> Strategy:
    """Copy state and queues to the log's locations every ``every`` epochs, without waiting. After a crash state comes
    from the last copy, and later epochs are computed again."""
    return PassiveStandby(arguments.whole("passive_standby", "every", every, 1))


def upstream_backup(every: int = EVERY) -> Strategy:
    """Copy no state, and keep lineage and input until they are acknowledged, which is checked every ``every`` epochs:
    then no sink and no state needs them. After a crash all state is computed again."""
    return UpstreamBackup(arguments.whole("upstream_backup", "every", every, 1))


def active_standby() -> Strategy:
    """Let a second driver (``flow.run(lease=…)`` in another process) run the same epochs, with its output suppressed;
    it takes over at once when the first one dies."""
    return ActiveStandby()


def gap() -> Strategy:
    """Keep nothing: after a crash go on with the state that is there, and report which epochs are missing."""
    return Gap()


_NAMED: dict[str, Strategy] = {
    each.name: each
    for each in (
        NoSync(),
        SynchronousLog(),
        AlignedSnapshot(),
        PassiveStandby(),
        UpstreamBackup(),
        ActiveStandby(),
        Gap(),
    )
}
_NAMED |= {"synchronous-log": _NAMED["synchronous_log"], "volatile": _NAMED["gap"]}
assert set(_NAMED) == set(get_args(StrategyName))


def parse_strategy(subject: str, value: object) -> Strategy:
    """The strategy that the user gave by its name or as a value. Raises `DeclarationError` for anything else."""
    if isinstance(value, Strategy):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    names = ", ".join(repr(name) for name in _NAMED)
    raise DeclarationError(
        f"{subject}: strategy must be one of {names}, or one made by hf.nosync(), hf.aligned_snapshot(…) and so on, "
        f"not {value!r}"
    )
