"""The actions of a simulation, as values: a run is a list of them, so a failing run can be shrunk.

An action that makes no sense where it comes (a step of a dead driver) does nothing, so any part of a list of actions is
a valid list of actions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from holdfast.testing.simulator.model import LOOP, flow_of
from holdfast.testing.simulator.world import LOCATIONS

HOSTS = 2

MARKS = (
    "epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit", "task: epoch", "task: merging layers",
    "task: making layers durable", "task: compacting copies", "task: bringing layers back", "merge",
    "round.before_lineage", "round.before_layers", "round.before_look", "round.before_removal",
    "round.before_compaction", "round.before_forgetting", "recovery.found_history",
    "recovery.before_fetch", "recovery.before_replay",
)  # fmt: skip

CONTINUING = (
    "branch.begun", "branch.ran", "branch.complete", "repair.recovered", "repair.before_epoch", "repair.done",
    "epoch.complete", "sink.before_commit", "sink.after_commit", "task: epoch", "recovery.before_replay",
)  # fmt: skip
"""Marks of a flow that continues approximately after a loss, and repairs itself."""

ROUND = "loop.round"
"""The mark that a loop reaches in every round."""


@dataclass(frozen=True)
class Feed:
    """Rows arrive."""

    seed: int


@dataclass(frozen=True)
class Step:
    """The driver on a host runs an epoch; it is started if it is not running."""

    host: int


@dataclass(frozen=True)
class Upkeep:
    """The driver on a host does its background work."""

    host: int


@dataclass(frozen=True)
class CrashAt:
    """The driver on a host dies when it reaches a mark for the n-th time from now."""

    host: int
    mark: str
    times: int


@dataclass(frozen=True)
class Kill:
    """The driver on a host dies between two steps."""

    host: int


@dataclass(frozen=True)
class Close:
    """The driver on a host is stopped properly."""

    host: int


@dataclass(frozen=True)
class LoseDisk:
    """A host is lost with its disk; its driver dies."""

    host: int


@dataclass(frozen=True)
class LoseLayers:
    """Some local layers of a host vanish."""

    host: int
    seed: int
    share: float


@dataclass(frozen=True)
class Damage:
    """A local layer of a host is damaged: a bit flips, or the end is cut off."""

    host: int
    seed: int
    cut: bool


@dataclass(frozen=True)
class LoseCopy:
    """A log location loses all its content."""

    location: int


@dataclass(frozen=True)
class DamageCopy:
    """A layer in a log location is damaged."""

    location: int
    seed: int
    cut: bool


@dataclass(frozen=True)
class Weather:
    """From now on a log location fails at these rates."""

    location: int
    fail_before: float
    fail_after: float
    truncate: float


@dataclass(frozen=True)
class SinkWeather:
    """From now on sinks fail at this rate."""

    failing: float


@dataclass(frozen=True)
class Edit:
    """The driver on a host dies, and every driver started from now on has another edition of the views."""

    host: int
    edition: int


@dataclass(frozen=True)
class LoseMembers:
    """Members are lost with their layers, and new ones join. Does nothing if layers are not scattered."""

    seed: int
    lost: int
    joined: int


@dataclass(frozen=True)
class LoseMemberAt:
    """A member is lost with its layers when some driver reaches a mark for the n-th time from now."""

    seed: int
    mark: str
    times: int


@dataclass(frozen=True)
class KillTaskAt:
    """A task dies when it reaches a mark for the n-th time from now, and runs again."""

    mark: str
    times: int


@dataclass(frozen=True)
class Repair:
    """The driver on a host repairs its approximate state."""

    host: int


@dataclass(frozen=True)
class MakeBranch:
    """The driver on a host makes a branch as of some epoch."""

    host: int
    seed: int


@dataclass(frozen=True)
class ReplayBranch:
    """A branch is opened and fed some of the later epochs; then it is closed, or dies."""

    host: int
    seed: int


@dataclass(frozen=True)
class RemoveBranch:
    """The driver on a host removes a branch."""

    host: int
    seed: int


@dataclass(frozen=True)
class PromoteBranch:
    """A branch gets another edition of the views, is fed all later epochs, and replaces the main line."""

    host: int
    seed: int


@dataclass(frozen=True)
class Drain:
    """A member leaves on purpose: the driver on a host makes it hand over its layers, and it goes."""

    host: int
    seed: int


@dataclass(frozen=True)
class Rewind:
    """The driver on a host undoes the last epochs, and takes their input again."""

    host: int
    seed: int


Action = (
    Feed | Step | Upkeep | CrashAt | Kill | Close | LoseDisk | LoseLayers | Damage | LoseCopy | DamageCopy | Weather
    | SinkWeather | Edit | LoseMembers | LoseMemberAt | KillTaskAt | Repair | MakeBranch | ReplayBranch | RemoveBranch
    | PromoteBranch | Rewind | Drain
)  # fmt: skip

_CHANCES: dict[type[Action], float] = {
    Feed: 6.0,
    Step: 8.0,
    Upkeep: 4.0,
    CrashAt: 1.5,
    Kill: 0.7,
    Close: 0.3,
    LoseDisk: 0.5,
    LoseLayers: 0.4,
    Damage: 1.0,
    LoseCopy: 0.3,
    DamageCopy: 0.6,
    Weather: 0.6,
    SinkWeather: 0.3,
}


BRANCHING = (
    "branches.linked", "branches.written", "branches.unnaming", "branches.unnamed", "branches.removing",
    "branches.removed", "promote.linked", "round.before_removal", "epoch.ran",
)  # fmt: skip
"""Marks of a flow with branches."""


def with_branches(seed: int, actions: list[Action]) -> list[Action]:
    """Return the actions with branches that are made, fed and removed, and crashes at each step. No copies are lost,
    because copies of a branch that is not open are not made again."""
    chance = random.Random(f"{seed} branches")
    found: list[Action] = [each for each in actions if not isinstance(each, LoseCopy | DamageCopy)]
    found = [replace(each, truncate=0.0) if isinstance(each, Weather) else each for each in found]
    for kind in (MakeBranch, MakeBranch, MakeBranch, ReplayBranch, ReplayBranch, RemoveBranch):
        found.insert(chance.randrange(len(found) + 1), kind(0, chance.getrandbits(32)))
    if chance.random() < 0.5:
        found.insert(chance.randrange(len(found) + 1), PromoteBranch(0, chance.getrandbits(32)))
    for _ in range(chance.randrange(3)):
        crash = CrashAt(0, chance.choice(BRANCHING), chance.choice((1, 1, 2)))
        found.insert(chance.randrange(len(found) + 1), crash)
    return found


DRAINING = (
    "drain.brought_over", "task: handing layers over", "task: taking layers", "task: bringing layers back",
    "task: bringing layers ahead",
)  # fmt: skip
"""Marks of a flow whose members leave on purpose."""


def with_drains(seed: int, actions: list[Action]) -> list[Action]:
    """Return the actions with members that leave on purpose, some with crashes and losses while they do."""
    chance = random.Random(f"{seed} drains")
    found = list(actions)
    for _ in range(chance.randrange(1, 4)):
        some: list[Action] = [LoseMembers(chance.getrandbits(32), 0, 1), Step(0), Drain(0, chance.getrandbits(32))]
        if chance.random() < 0.4:
            some.insert(2, CrashAt(0, chance.choice(DRAINING), chance.choice((1, 1, 2))))
        if chance.random() < 0.3:
            some.insert(2, LoseMemberAt(chance.getrandbits(32), "task: handing layers over", 1))
        place = chance.randrange(len(found) + 1)
        found[place:place] = [*some, Step(0)]
    return found


REWINDING = (
    "rewind.undone", "epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit", "task: epoch",
    "recovery.before_replay", "round.before_layers",
)  # fmt: skip
"""Marks of a flow that is rewound."""


def with_rewinds(seed: int, actions: list[Action]) -> list[Action]:
    """Return the actions with rewinds among them, some with crashes."""
    chance = random.Random(f"{seed} rewinds")
    found = list(actions)
    for _ in range(chance.randrange(1, 5)):
        some: list[Action] = [Rewind(0, chance.getrandbits(32))]
        if chance.random() < 0.6:
            some.insert(0, CrashAt(0, chance.choice(REWINDING), chance.choice((1, 1, 2, 3))))
        if chance.random() < 0.5:
            some += [Step(0)] * chance.randrange(1, 4)
        place = chance.randrange(len(found) + 1)
        found[place:place] = some
    return found


def actions_of(seed: int, length: int, scattered: bool = False, on_loss: str = "replay") -> list[Action]:
    """Return the actions of a seed. In most runs one host drives; in some both do, at once or in turns. ``scattered``:
    members come and go. ``on_loss="continue"``: repairs, and failures during them."""
    chance = random.Random(seed)
    rival = chance.choice((0.0, 0.0, 0.05, 0.3))
    kinds, weights = list(_CHANCES), list(_CHANCES.values())
    calm = chance.random() < 0.3
    found: list[Action] = []
    for _ in range(length):
        kind = chance.choices(kinds, weights)[0]
        host = 1 if chance.random() < rival else 0
        if kind is Feed:
            found.append(Feed(chance.getrandbits(32)))
        elif kind in (Step, Upkeep, Kill, Close, LoseDisk):
            found.append(kind(host))
        elif kind is CrashAt:
            found.append(CrashAt(host, chance.choice(MARKS), chance.choice((1, 1, 1, 2, 3, 5))))
        elif kind is LoseLayers:
            found.append(LoseLayers(host, chance.getrandbits(32), chance.choice((0.1, 0.5, 1.0))))
        elif kind is Damage:
            found.append(Damage(host, chance.getrandbits(32), chance.random() < 0.5))
        elif kind is LoseCopy:
            found.append(LoseCopy(chance.randrange(LOCATIONS)))
        elif kind is DamageCopy:
            found.append(DamageCopy(chance.randrange(LOCATIONS), chance.getrandbits(32), chance.random() < 0.5))
        elif kind is Weather and not calm:
            rates = [chance.choice((0.0, 0.0, 0.1, 0.5)) for _ in range(2)]
            found.append(Weather(chance.randrange(LOCATIONS), rates[0], rates[1], chance.choice((0.0, 0.0, 0.2))))
        elif kind is SinkWeather and not calm:
            found.append(SinkWeather(chance.choice((0.0, 0.2))))
    if scattered:
        chance = random.Random(f"{seed} members")
        for _ in range(chance.randrange(1, 7)):
            came: Action = LoseMembers(chance.getrandbits(32), chance.choice((0, 1, 1, 2)), chance.choice((0, 1, 1, 2)))
            if chance.random() < 0.5:
                came = LoseMemberAt(chance.getrandbits(32), chance.choice(MARKS), chance.choice((1, 2, 3, 5, 8)))
            found.insert(chance.randrange(len(found) + 1), came)
    if on_loss == "continue":
        chance = random.Random(f"{seed} repairs")
        for _ in range(chance.randrange(1, 5)):
            some: list[Action] = [
                Repair(0),
                LoseMembers(chance.getrandbits(32), 1, chance.choice((0, 1))),
                LoseMemberAt(chance.getrandbits(32), chance.choice(CONTINUING), chance.choice((1, 1, 2, 3))),
                CrashAt(0, chance.choice(CONTINUING), chance.choice((1, 1, 2, 3))),
            ]
            for each in chance.sample(some, chance.randrange(1, 4)):
                found.insert(chance.randrange(len(found) + 1), each)
    if LOOP in flow_of(seed):
        chance = random.Random(f"{seed} rounds")
        for _ in range(chance.randrange(3, 9)):
            times = chance.randrange(1, 9)
            dying: Action = chance.choice((CrashAt(0, ROUND, times), KillTaskAt(ROUND, times)))
            if scattered and chance.random() < 0.3:
                dying = LoseMemberAt(chance.getrandbits(32), ROUND, times)
            found.insert(chance.randrange(len(found) + 1), dying)
    # Edits have a random generator of their own, so that adding them did not change the rest of each seed's run.
    chance = random.Random(f"{seed} edits")
    for _ in range(chance.choice((0, 0, 1, 2, 4))):
        found.insert(chance.randrange(len(found) + 1), Edit(0, chance.randrange(3)))
    return found
