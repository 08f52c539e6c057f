"""Branches in a simulation: made as of some epoch, fed later epochs by an engine of their own, compared, removed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from holdfast.connectors.recorded import Recorded
from holdfast.errors import EpochUnavailable
from holdfast.foundation import failpoints
from holdfast.log.branch_location import DIRECTORY, BranchLocation
from holdfast.log.branches import branch_flow, directory_of
from holdfast.results.flow_results import BranchInfo
from holdfast.runtime.declaration import ConnectorProgress
from holdfast.runtime.engine import Engine
from holdfast.runtime.prepared_flow import PreparedFlow
from holdfast.testing.simulator.model import EDITIONS, plans
from holdfast.testing.simulator.runner import SimulatedRunner
from holdfast.testing.simulator.world import Broken, World, bag_of, difference
from holdfast.trace.name import ALL


def _forgotten(world: World, engine: Engine) -> int:
    """Return the last epoch with input that the world has released since."""
    gone = [
        record.epoch
        for record in engine.history
        for name, offer in record.offers.items()
        if offer["first"] < world.forgotten[name]
    ]
    return max([engine.history.first, *gone])


def make(world: World, engine: Engine, chance: random.Random) -> None:
    """Make a branch as of a random epoch, or as of the earliest possible one, if that epoch is gone; never before an
    epoch whose input was released."""
    last = engine.history.last
    if last < 0:
        return
    name = f"b{chance.getrandbits(16)}"
    try:
        engine.make_branch(name, chance.randrange(_forgotten(world, engine), last + 1))
    except EpochUnavailable as error:
        earliest = error.fields["earliest"]
        assert isinstance(earliest, int)
        engine.make_branch(name, earliest)


def _listed(engine: Engine) -> list[BranchInfo]:
    """The branches with logs of their own, without the approximate one with which the flow itself continues after a
    loss."""
    return [each for each in engine.branches.listed() if not each.approximate]


def remove(engine: Engine, chance: random.Random) -> None:
    """Remove a branch, if there is one."""
    if there := _listed(engine):
        engine.branches.remove(chance.choice(there).name)


def opened(world: World, engine: Engine, name: str, partitions: int, edition: int | None = None) -> Engine:
    """Open a branch, with the views of the main line, or with another edition of them."""
    declared = engine.declared
    if edition is not None:
        declared = replace(declared, views=plans(world.flow, edition))
    own = replace(
        declared,
        name=branch_flow(declared.name, name),
        local=directory_of(declared.local, name),
        locations=tuple(BranchLocation(location, name) for location in declared.locations),
        sources={each: Recorded(source) for each, source in declared.sources.items()},
        sinks=(),
        branch=engine.branches.find(name, None),
    )
    return Engine(PreparedFlow(own, SimulatedRunner(world, partitions)), ConnectorProgress())


def feed(branch: Engine, engine: Engine, upto: int) -> bool:
    """Feed a branch the main line's epochs, up to ``upto``. Return whether it could be fed. It cannot if it was fed
    epochs that the main line lost later, with a host, before they were safe (`Branch.replay` raises an error then)."""
    if branch.last > engine.history.last:
        return False
    own, there = branch.history[branch.last], engine.history[branch.last]
    if own.digest != there.digest and (own.offers, own.clock, own.seed) != (there.offers, there.clock, there.seed):
        return False
    while branch.last < upto:
        recorded = engine.history[branch.last + 1]
        with engine.recorded_work(recorded, branch.partitions) as work:
            branch.run_recorded(recorded, work)
    return True


def replay_some(world: World, engine: Engine, chance: random.Random) -> None:
    """Open a branch, feed it up to some epoch, and close it or let it die."""
    there = _listed(engine)
    if not there:
        return
    branch = opened(world, engine, chance.choice(there).name, chance.choice((1, 2, 3)))
    last = engine.history.last
    try:
        feed(branch, engine, chance.randrange(min(branch.last, last), last + 1))
        if chance.random() < 0.5:
            branch.upkeep()
        if chance.random() < 0.5:
            branch.close()
    finally:
        branch.abandon()


def promote(world: World, engine: Engine, chance: random.Random) -> bool:
    """Replace the main line by a branch with another edition of the views, and close the main line's engine. Return
    whether there was a branch to promote. The caller then opens the main line with those views, as `Branch.promote`
    does."""
    there = _listed(engine)
    if not there:
        return False
    edition = chance.randrange(EDITIONS)
    engine.make_exact()
    branch = opened(world, engine, chance.choice(there).name, chance.choice((1, 2, 3)), edition)
    try:
        if not feed(branch, engine, engine.last):
            return False
        hand_over = branch.hand_over(engine)
        engine.close()
        hand_over()
        failpoints.reach("promote.linked")
    finally:
        branch.abandon()
    world.edition = edition
    world.edits += 1
    return True


def check(world: World, engine: Engine, compare: Callable[[str, Engine, int], None]) -> int:
    """Check that every branch, fed all epochs, has the rows of the main line, and that nothing is left of it after it
    is removed. Return the number of branches. ``compare``: checks an engine's views as of an epoch."""
    there = _listed(engine)
    for each in there:
        branch = opened(world, engine, each.name, 2)
        fed = feed(branch, engine, engine.last)
        if fed:
            compare(f"branch {each.name}", branch, branch.last)
        for view in world.flow if fed else ():
            kept, at = branch.views.readable(view, None)
            main, _ = engine.views.readable(view, at)
            if (found := bag_of(kept.rows(0, ALL, at))) != (wanted := bag_of(main.rows(0, ALL, at))):
                raise Broken(f"view {view} of branch {each.name} is not the main line's: {difference(found, wanted)}")
        branch.close()
        engine.branches.remove(each.name)
    for _ in range(3):
        engine.upkeep()
    for store in world.stores:
        if left := [path for path in store.snapshot() if path.startswith(DIRECTORY)]:
            raise Broken(f"of branches that were removed there still is {left[:3]}")
    return len(there)
