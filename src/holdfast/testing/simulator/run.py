"""Simulations: carry out the actions, check the results, and shrink a failing run.

The file is long because these three share the state of one simulation.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.coordinator.durability_settings import DurabilitySettings
from holdfast.coordinator.folded import Folded
from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.retention import Bound, Retention
from holdfast.errors import (
    DeclarationError,
    EpochUnavailable,
    Fenced,
    HoldfastError,
    LogDamaged,
    SinkError,
    StoreError,
    UnknownName,
)
from holdfast.foundation import failpoints
from holdfast.guarantees.strategies import NoSync
from holdfast.guarantees.strategy import Strategy
from holdfast.log.replica import Replica
from holdfast.runtime.declaration import ConnectorProgress, Declaration
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.memory import MemoryLocation
from holdfast.testing.quiet_logs import quiet_logs
from holdfast.testing.simulator import actions as act
from holdfast.testing.simulator import branching, looked_up
from holdfast.testing.simulator.actions import Action, actions_of, with_branches, with_drains, with_rewinds
from holdfast.testing.simulator.approximate import check_approximate
from holdfast.testing.simulator.model import (
    DRAWN,
    SOURCES,
    VIEWS,
    Bag,
    edition_of,
    expected,
    left,
    plans,
    without_draws,
)
from holdfast.testing.simulator.runner import SimulatedRunner, TaskDied
from holdfast.testing.simulator.world import (
    MIN_REPLICAS,
    Broken,
    Commit,
    Forgotten,
    SimulatedFunction,
    SimulatedSink,
    SimulatedSource,
    World,
    bag_of,
    difference,
    in_effect,
    view_after,
)
from holdfast.trace.layer import check_bytes, forget_all
from holdfast.trace.name import ALL

LENGTH = 36
_EXPECTED = (StoreError, SinkError)
"""Errors that a flow may raise when locations and sinks fail; its results must be right all the same."""


class Crash(BaseException):
    """The process dies here. Nothing may catch it."""


@dataclass(frozen=True)
class SimulationFailure:
    """An error of a simulation, and the action at which it occurred."""

    what: str
    place: int
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        done = "\n".join(f"  {action}" for action in self.actions[: self.place + 1])
        return f"{self.what}\nafter\n{done}"


class SimulatedDriver:
    """A driver on a host: an engine, and the mark at which it is to die."""

    def __init__(self, world: World, host: int, opened: Callable[[], None]) -> None:
        """``opened``: called when the driver takes over the log."""
        self.world = world
        self.host = host
        self.opened = opened
        self.engine: Engine | None = None
        self.safe = -1
        self.filled = -1
        """The epoch as of which state was filled when the driver was opened."""

        self.dying: tuple[str, int] | None = None
        self.partitions: int | None = None
        """The number of partitions. None: the seed decides."""

    def open(self) -> Engine:
        if self.engine is None:
            world = self.world
            # The first sink is a function: an epoch that only it has seen may be lost with a host.
            sinks: list[tuple[str, SimulatedSink | SimulatedFunction]] = [
                (view, SimulatedFunction(world, view)) for view in world.flow[:1]
            ]
            sinks += [(view, SimulatedSink(world, view)) for view in world.flow]
            for _, sink in sinks:
                sink.failing = world.sink_failing
            declared = Declaration(
                name="simulated",
                local=world.local(self.host),
                locations=tuple(world.locations()),
                sources={name: SimulatedSource(world, name) for name in SOURCES},
                views=plans(world.flow, world.edition),
                texts={view: VIEWS[view] for view in world.flow},
                sinks=sinks,
                settings=DurabilitySettings(world.strategy, MIN_REPLICAS, Bound(), Retention(epochs=6), fold=1),
                expiring=left(world.flow),
                on_loss=world.on_loss,
            )
            partitions = world.random.choice((2, 3, 4) if world.members else (1, 2, 2, 3))
            runner = SimulatedRunner(world, self.partitions or partitions)
            self.opened()
            self.engine = Engine(PreparedFlow(declared, runner), ConnectorProgress())
            self.filled = max(self.filled, self.engine.filled)
            self.safe = -1
        return self.engine

    def reached(self, mark: str) -> None:
        if self.dying is not None and self.dying[0] == mark:
            self.dying = None if self.dying[1] == 1 else (mark, self.dying[1] - 1)
            if self.dying is None:
                raise Crash(mark)

    def die(self) -> None:
        """End the process: its memory and its locks are gone."""
        if self.engine is not None:
            self.engine.abandon()
            forget_all()
        self.engine = None
        self.dying = None


class Simulation:
    """One run of a simulation."""

    def __init__(
        self,
        seed: int,
        root: Path,
        scattered: bool = False,
        on_loss: str = "replay",
        strategy: Strategy | None = None,
    ) -> None:
        self.world = World(seed, root)
        self.world.on_loss = on_loss
        self.world.strategy = strategy or NoSync()
        if scattered:
            self.world.scatter(1 + seed % 4)
        self.losing: tuple[int, str, int] | None = None
        """A member is lost at a mark: (seed, mark, how often the mark must be reached)."""

        self.killing: tuple[str, int] | None = None
        """A task dies at a mark: (mark, how often it must be reached)."""

        self.drivers = [SimulatedDriver(self.world, host, partial(self._opened, host)) for host in range(act.HOSTS)]
        self.latest: SimulatedDriver | None = None
        """The driver that opened the log last. Any other running driver is stale."""

        self.hurt: set[int] = set()
        """Locations that lost data which was not yet copied there again."""

        self.filled = -1
        """The epoch as of which state was filled: views cannot be read as of earlier epochs."""

        self._lineages: dict[str, Lineage] = {}
        """Digest → lineage of every epoch that any driver called complete. Used to look up folded epochs."""

        self.bases: set[int] = set()
        """The epochs up to which drivers have folded lineage."""

        self.branches = 0
        """The number of branches at the end."""

        self.drained = 0
        """The number of members that were drained."""

        self.rewinds = 0
        """The number of rewinds."""

        self.approximate = 0
        """How many approximate views were read."""

    def _opened(self, host: int) -> None:
        self.latest = self.drivers[host]

    def do(self, action: Action) -> None:
        match action:
            case act.Feed(seed):
                self._feed(random.Random(seed))
            case act.Step(host):
                self._drive(host, lambda driver: driver.open().step())
            case act.Upkeep(host):
                if self.drivers[host].engine is not None:
                    self._drive(host, lambda driver: driver.open().upkeep())
            case act.CrashAt(host, mark, times):
                self.drivers[host].dying = (mark, times)
            case act.Repair(host):
                if self.drivers[host].engine is not None:
                    self._drive(host, lambda driver: driver.open().repair())
            case act.Kill(host):
                self.drivers[host].die()
            case act.Close(host):
                if self.drivers[host].engine is not None:
                    self._drive(host, lambda driver: driver.open().close())
                    self.drivers[host].die()
            case act.LoseDisk(host):
                self.drivers[host].die()
                shutil.rmtree(self.world.local(host), ignore_errors=True)
            case act.LoseLayers(host, seed, share):
                chance = random.Random(seed)
                for path in self._layers(host):
                    if chance.random() < share:
                        path.unlink()
            case act.Damage(host, seed, cut):
                self._damage(host, random.Random(seed), cut)
            case act.LoseCopy(location):
                if self._may_hurt(location):
                    self.world.stores[location].lose()
            case act.DamageCopy(location, seed, cut):
                if self._may_hurt(location):
                    self._damage_copy(location, random.Random(seed), cut)
            case act.Weather(location, fail_before, fail_after, truncate):
                if truncate and not self._may_hurt(location):
                    truncate = 0.0  # torn writes are damage, too
                self.world.faults[location] = {
                    "fail_before": fail_before, "fail_after": fail_after, "truncate": truncate,
                }  # fmt: skip
            case act.Edit(host, edition):
                self.drivers[host].die()
                self.world.edition = edition
                self.world.edits += 1
            case act.LoseMembers(seed, lost, joined):
                self._change_members(random.Random(seed), lost, joined)
            case act.LoseMemberAt(seed, mark, times):
                self.losing = (seed, mark, times)
            case act.KillTaskAt(mark, times):
                self.killing = (mark, times)
            case act.MakeBranch(host, seed):
                self._drive(host, lambda driver: branching.make(self.world, driver.open(), random.Random(seed)))
            case act.ReplayBranch(host, seed):
                self._drive(host, lambda driver: branching.replay_some(self.world, driver.open(), random.Random(seed)))
            case act.PromoteBranch(host, seed):
                self._drive(host, partial(self._promote, random.Random(seed)))
            case act.RemoveBranch(host, seed):
                self._drive(host, lambda driver: branching.remove(driver.open(), random.Random(seed)))
            case act.Drain(host, seed):
                self._drive(host, lambda driver: self._drain(driver.open(), random.Random(seed)))
            case act.Rewind(host, seed):
                self._drive(host, lambda driver: self._rewind(driver.open(), random.Random(seed)))
            case act.SinkWeather(failing):
                self.world.sink_failing = failing

    def _drain(self, engine: Engine, chance: random.Random) -> None:
        """Drain a member: no epoch may be computed again, unless other members were lost meanwhile."""
        members = sorted(self.world.members)
        if len(members) < 2 or engine.last < 0:
            return
        engine.step()
        leaving = chance.choice(sorted(self.world.members))
        before = set(self.world.members)
        with suppress(UnknownName, DeclarationError):  # the member is gone, or all others are leaving, too
            engine.moves.bring_ahead(engine.moves.heirs(leaving))
            done = engine.drain(leaving)
            if done.epochs and before == set(self.world.members) and not done.damaged:
                raise Broken(f"member {leaving} left, and epochs {done.epochs} were computed again")
            self.drained += 1
            if leaving in self.world.members and len(self.world.members) > 1:  # the others may have been lost meanwhile
                self.world.lose_member(leaving)

    def _rewind(self, engine: Engine, chance: random.Random) -> None:
        """Rewind to some epoch; to the earliest possible one, if that one is not."""
        if engine.last < 1:
            return
        try:
            engine.rewind(max(0, engine.last - chance.choice((1, 1, 2, 3, 5, 9))), "simulated", {})
        except EpochUnavailable as error:
            earliest = error.fields["earliest"]
            if earliest is not None:
                assert isinstance(earliest, int)
                engine.rewind(earliest, "simulated", {})
        self.rewinds += 1

    def _promote(self, chance: random.Random, driver: SimulatedDriver) -> None:
        engine = driver.open()
        if branching.promote(self.world, engine, chance):
            self.filled = max(self.filled, engine.last)  # like an edited view, it cannot be read as of earlier epochs
            driver.die()
            driver.open().step()

    def _drive(self, host: int, work: object) -> None:
        driver = self.drivers[host]
        failpoints.hook = partial(self._reached, driver)
        try:
            try:
                work(driver)  # type: ignore[operator]
            finally:
                if driver.engine is not None:
                    self._remember(driver.engine)
        except Crash:
            driver.die()
        except Fenced:
            driver.die()
        except Forgotten:
            if self.latest is driver:
                raise
            driver.die()
        except _EXPECTED as error:
            if "query as it was" in str(error):
                # The rows from before an edit were lost with a disk: the edit is taken back, as the error advises.
                driver.die()
                self.world.edition = self.world.seen_edition()
        finally:
            failpoints.hook = None
        self._check_safe(driver)
        self._healed(driver)
        if self.latest is driver and driver.engine is not None and not driver.engine.closed:
            looked_up.check_beside(driver.engine)
            self.approximate += check_approximate(driver.engine, self.world, self.whole)
        if driver.engine is not None:
            self.filled = max(self.filled, driver.filled, driver.engine.filled)

    def _remember(self, engine: Engine) -> None:
        for record in engine.history:
            if isinstance(record, Folded):
                self.bases.add(record.epoch)
            else:
                self._lineages[record.digest] = record

    def whole(self, history: History) -> list[Lineage]:
        """Return the lineage of a history from epoch 0 on, folded epochs included."""
        found = [record for record in history if not isinstance(record, Folded)]
        if history.base is not None:
            found.insert(0, self._lineages[history.base.digest])
        while found and found[0].epoch:
            found.insert(0, self._lineages[found[0].parent])
        return found

    def _reached(self, driver: SimulatedDriver, mark: str) -> None:
        if self.losing is not None and self.losing[1] == mark:
            seed, _, times = self.losing
            self.losing = None if times == 1 else (seed, mark, times - 1)
            if self.losing is None:
                self._change_members(random.Random(seed), 1, 0)
        if self.killing is not None and self.killing[0] == mark:
            self.killing = None if self.killing[1] == 1 else (mark, self.killing[1] - 1)
            if self.killing is None:
                raise TaskDied(mark)
        driver.reached(mark)

    def _change_members(self, chance: random.Random, lost: int, joined: int) -> None:
        world = self.world
        if not world.members:
            return
        for _ in range(joined):
            world.add_member()
        for name in chance.sample(sorted(world.members), min(lost, len(world.members) - 1)):
            world.lose_member(name)

    def _feed(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            self.world.feed("users", [((chance.randrange(12), chance.randrange(4)), 1) for _ in range(3)])
            return
        change = [
            ((chance.randrange(1000), chance.randrange(12), chance.randrange(-50, 100)), 1)
            for _ in range(chance.randrange(1, 8))
        ]
        there = sorted(self.world.rows["orders"])
        gone = chance.sample(there, min(len(there), chance.randrange(0, 4)))
        self.world.feed("orders", [*change, *((row, -1) for row in gone)])

    def _layers(self, host: int) -> list[Path]:
        if self.world.members:
            return sorted(path for place in self.world.members.values() for path in place.glob("*/traces-*/*/*.arrow"))
        return sorted(self.world.local(host).glob("traces/*/*.arrow"))

    def _damage(self, host: int, chance: random.Random, cut: bool) -> None:
        layers = [path for path in self._layers(host) if path.stat().st_size]
        if not layers:
            return
        path = max(chance.sample(layers, min(3, len(layers))), key=lambda path: path.stat().st_size)
        # Write a new file: a process that has mapped the old one keeps it, like the content of its memory.
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes(_damaged(whole, chance, cut))

    def _may_hurt(self, location: int) -> bool:
        """Whether a location may be damaged: the flow promises to survive the loss of one copy fewer than
        ``MIN_REPLICAS``. Damage not yet repaired counts. Notes the location if True."""
        if len(self.hurt | {location}) >= MIN_REPLICAS:
            return False
        self.hurt.add(location)
        return True

    def _damage_copy(self, location: int, chance: random.Random, cut: bool) -> None:
        store = self.world.stores[location]
        paths = [
            path for path, data in sorted(store.snapshot().items()) if path.startswith(("layers/", "lineage/")) and data
        ]
        if paths:
            path = chance.choice(paths)
            store.write(path, _damaged(store.read(path), chance, cut))

    def _healed(self, driver: SimulatedDriver) -> None:
        """Note locations that are whole again: a driver that saw the loss has copied everything."""
        for location in sorted(self.hurt):
            store = self.world.stores[location]
            if self.world.faults[location].get("truncate"):
                continue
            held = driver.engine is not None and driver.engine.is_held(location)  # as of its last listing
            if held and Replica(store).identify() and _is_intact(store):
                self.hurt.discard(location)

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _check_safe(self, driver: SimulatedDriver) -> None:
        if driver.engine is None:
            return
        safe = driver.engine.safe
        if safe < driver.safe:
            raise Broken(f"the safe point went back from {driver.safe} to {safe}")
        if safe > driver.engine.last:
            raise Broken(f"epoch {safe} is said to be safe, and the last is {driver.engine.last}")
        driver.safe = safe

    def check_sinks(self, true: Sequence[Lineage]) -> None:
        """Check that each sink's commits, after every epoch, add up to what the view held then. ``true``: the
        history."""
        for view, commits in self.world.commits.items():
            started = self.world.started.get(view, 0)
            history = [*true[:started], *(commit.lineage for commit in commits[started:])]
            if view == DRAWN:
                _check_drawn(commits, started)
            for upto in range(started, len(commits)):
                if upto < len(commits) - 1 and upto % 3:
                    continue
                bags = self.world.upto(history[: upto + 1])
                edition = edition_as_of(history, upto)
                found, clock = view_after(commits[: upto + 1]), in_effect(history[: upto + 1])[-1].clock
                self._compare(f"sink of {view} after epoch {upto}", view, found, bags, clock, edition)

    def finish(self) -> None:
        """Stop all failures, take the remaining input, and compare everything with the model."""
        self.world.faults = [{} for _ in self.world.faults]
        self.world.sink_failing = 0.0
        for driver in self.drivers:
            driver.die()
        driver = self.drivers[0]
        # The last planned crash may happen in the first step; the second step recovers from it.
        for _ in range(2):
            self._drive(0, lambda driver: driver.open().step())
        engine = driver.open()
        self.world.stopped = True
        while not engine.step().idle or engine.repair() is not None:
            pass
        for _ in range(6):
            engine.upkeep()
            engine.step()  # repairs the layers that the upkeep found damaged
            engine.repair()
        if self.world.strategy != NoSync():
            engine.make_safe()  # other strategies make results safe later
            engine.step()
        self._remember(engine)
        history = self.whole(engine.history)
        bags = self.world.upto(history)
        for name, bag in bags.items():
            if name in engine.sources and bag != self.world.rows[name]:
                raise Broken(f"input of {name} was lost or taken twice: {difference(bag, self.world.rows[name])}")
        for view in self.world.flow:
            kept, last = engine.views.readable(view, None)
            found, edition = bag_of(kept.rows(0, ALL, last)), self.world.edition
            self._compare(f"view {view}", view, found, bags, in_effect(history)[-1].clock, edition)
            self._compare_draws(f"view {view}", view, found, last)
        looked_up.check_in_turn(engine)
        looked_up.check_beside(engine)
        self.filled = max(self.filled, engine.filled)
        for back in range(max(0, engine.last - 5), engine.last):
            bags = self.world.upto(history[: back + 1])
            edition = edition_as_of(history, back)
            for view in self.world.flow:
                try:
                    kept, at = engine.views.readable(view, back)
                except EpochUnavailable:
                    if back >= self.filled:
                        raise
                    continue
                found, clock = bag_of(kept.rows(0, ALL, at)), in_effect(history[: at + 1])[-1].clock
                self._compare(f"view {view} as of epoch {back}", view, found, bags, clock, edition)
                self._compare_draws(f"view {view} as of epoch {back}", view, found, at)
        self.branches = branching.check(self.world, engine, self._check_views)
        self.check_sinks(history)
        for view in self.world.flow:
            if len(self.world.commits[view]) != engine.last + 1:
                raise Broken(f"sink of {view} has {len(self.world.commits[view])} of {engine.last + 1} epochs")
        for view, function in self.world.functions.items():
            skipped = [each.epoch for each in history if each.digest not in function.took]
            if skipped and not self.world.edits:
                raise Broken(f"the function of {view} was not given epochs {skipped}, or skipped them as seen")
        if engine.safe != engine.last:
            raise Broken(f"nothing fails, and epoch {engine.last} is not safe: {engine.safe}")
        engine.close()
        driver.engine = None

    def _check_views(self, subject: str, engine: Engine, at: int) -> None:
        """Check that the views of an engine hold what its history implies."""
        whole = self.whole(engine.history)[: at + 1]
        bags, clock = self.world.upto(whole), in_effect(whole)[-1].clock
        for view in self.world.flow:
            found = bag_of(engine.views.readable(view, at)[0].rows(0, ALL, at))
            self._compare(f"{subject}: view {view}", view, found, bags, clock, self.world.edition)

    @staticmethod
    def _compare(subject: str, view: str, found: Bag, bags: dict[str, Bag], clock: int, edition: int) -> None:
        wanted, found = expected(view, bags["orders"], bags["users"], clock, edition), without_draws(view, found)
        if found != wanted:
            raise Broken(f"{subject} is wrong: {difference(found, wanted)}")

    def _compare_draws(self, subject: str, view: str, found: Bag, epoch: int) -> None:
        """Check that the values drawn for a view are those that its sink was given."""
        if view == DRAWN and found != (given := view_after(self.world.commits[view][: epoch + 1])):
            raise Broken(f"{subject} was drawn otherwise than its sink has it: {difference(found, given)}")


def edition_as_of(history: Sequence[Lineage], epoch: int) -> int:
    """Return the edition of the views in an epoch."""
    said = [each.views["spend"] for each in history[: epoch + 1] if each.views and "spend" in each.views]
    return edition_of(said[-1]["log"]) if said else 0


def _check_drawn(commits: Sequence[Commit], started: int) -> None:
    """Check a sink of drawn rows: each row has one draw and one answer, and is retracted as it was emitted."""
    forward = [commit for commit in commits[started:] if commit.lineage.rewind is None]
    answers = [row[-1] for commit in forward for row, diff in commit.change for _ in range(diff)]
    if len(answers) != len(set(answers)):
        raise Broken(f"answers were given to two rows: {[each for each, n in Counter(answers).items() if n > 1][:5]}")
    for epoch, commit in enumerate(commits[started + 1 :], started + 1):
        if commit.lineage.rewind is not None:
            continue  # a row that a rewind brings back has its former values
        changed: Bag = Counter()
        for row, diff in commit.change:
            changed[row] += diff
        if sum(map(abs, changed.values())) != sum(map(abs, without_draws(DRAWN, changed).values())):
            raise Broken(f"in epoch {epoch} rows that stay were drawn again: {commit.change[:5]}")


def _is_intact(store: MemoryLocation) -> bool:
    """Whether every layer and segment of a location is intact and holds what its name says."""
    replica = Replica(store)
    try:
        for segment in replica.segments():
            replica.read_segment(segment)
        for trace in replica.traces():
            for name in replica.layers(trace):
                check_bytes(replica.read_layer(trace, name), name, str(store))
    except LogDamaged:
        return False
    return True


def _damaged(whole: bytes, chance: random.Random, cut: bool) -> bytes:
    if cut:
        return whole[: chance.randrange(len(whole))]
    # Not in a zero byte: most of them are padding.
    place = chance.choice([place for place, byte in enumerate(whole) if byte])
    return whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]


def run(
    seed: int,
    actions: Sequence[Action],
    scattered: bool = False,
    on_loss: str = "replay",
    strategy: Strategy | None = None,
) -> SimulationFailure | None:
    """Carry out the actions in the world of a seed. Return the failure, or None. ``scattered``: members keep the
    layers, each in a directory of its own. ``on_loss``: the flow's policy when a member is lost. ``strategy``: how
    results are protected."""
    # In memory, where possible: a sync there takes no time.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix="holdfast-simulation-", dir=memory))
    simulation = Simulation(seed, root, scattered, on_loss, strategy)
    place = -1
    try:
        with quiet_logs():
            for action in actions:
                place += 1
                simulation.do(action)
            simulation.finish()
    except (Broken, HoldfastError, OSError, AssertionError, LookupError, ValueError) as error:
        return SimulationFailure(f"{type(error).__name__}: {error}", place, tuple(actions))
    finally:
        failpoints.hook = None
        for driver in simulation.drivers:
            driver.die()
        shutil.rmtree(root, ignore_errors=True)
    return None


def simulate(
    seed: int,
    length: int = LENGTH,
    *,
    scattered: bool = False,
    on_loss: str = "replay",
    strategy: Strategy | None = None,
    branches: bool = False,
    rewinds: bool = False,
    drains: bool = False,
) -> SimulationFailure | None:
    """Run the simulation of a seed. Return the failure, or None.

    ``length``: the number of drawn actions. ``scattered``: members keep the layers, and come and go.
    ``on_loss="continue"``: the flow continues without lost layers, until it is repaired. ``strategy``: one under which
    recovery is precise; by default ``hf.nosync()``. ``branches``: branches are made, fed and removed. ``rewinds``: the
    flow is rewound. ``drains``: members leave on purpose.
    """
    actions = actions_of(seed, length, scattered, on_loss)
    actions = with_branches(seed, actions) if branches else actions
    actions = with_drains(seed, actions) if drains else actions
    return run(seed, with_rewinds(seed, actions) if rewinds else actions, scattered, on_loss, strategy)


def shrink(
    seed: int,
    failure: SimulationFailure,
    attempts: int = 200,
    *,
    scattered: bool = False,
    on_loss: str = "replay",
    strategy: Strategy | None = None,
) -> SimulationFailure:
    """Return a failing run with fewer actions: parts are left out, larger ones first, as long as it still fails."""
    size = max(1, len(failure.actions) // 2)
    while size and attempts:
        start = 0
        while start < len(failure.actions) and attempts:
            attempts -= 1
            fewer = failure.actions[:start] + failure.actions[start + size :]
            again = run(seed, fewer, scattered, on_loss, strategy)
            if again is None:
                start += size
            else:
                failure = again
        size //= 2
    return failure
