"""The check of views while a flow continues approximately, with the state that is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import SinkError, StoreError
from holdfast.runtime.engine import Engine
from holdfast.task.program import partition_range
from holdfast.task.view_log import ViewLog
from holdfast.testing.simulator.model import DRAWN, Bag, edition_of, expected
from holdfast.testing.simulator.world import Broken, World, bag_of, difference, in_effect
from holdfast.trace.name import ALL


def check_approximate(engine: Engine, world: World, whole: Callable[[History], Sequence[Lineage]] = list) -> int:
    """Check each view whose operators all have one key: it must have exactly the rows of the partitions that are left.
    Return how many approximate views were read. ``whole``: returns all epochs of a history, folded ones included.
    Raises `Broken`."""
    branch, said = engine._state.branch, engine.approximate
    if branch is None or said is None or not all(branch.homes[number] in world.members for number in branch.left):
        return 0  # the flow is exact, or more was lost since the last epoch
    if said.coverage.partitions != len(branch.left) or set(said.lost) != set(range(engine.partitions)) - branch.left:
        raise Broken(f"it says that it is {said}, and partitions {sorted(branch.left)} are left")
    history = whole(branch.history)
    bags, clock = world.upto(history), in_effect(history)[-1].clock
    checked = 0
    for view in world.flow:
        log = engine._compiled.flow.views[view]
        if view == DRAWN or engine._compiled.flow.operators[log].stage > 1:
            continue  # its draws differ; or other partitions contributed to it, some before the loss only
        try:
            kept, last = engine.views.readable(view, None)
        except (StoreError, SinkError):
            break  # no partition is left to read, and the repair failed
        if engine._state.branch is not branch or branch.lost != set(said.lost):
            break  # a layer was found damaged
        found = bag_of(kept.rows(0, ALL, last))
        edition = edition_of(log) if view == "spend" else 0
        wanted = expected(view, bags["orders"], bags["users"], clock, edition)
        there = in_partitions(wanted, kept, engine.partitions, branch.left)
        if found != there:
            raise Broken(f"approximate view {view} at epoch {last} is wrong: {difference(found, there)}")
        checked += 1
    return checked


def in_partitions(rows: Bag, kept: ViewLog, count: int, partitions: Collection[int]) -> Bag:
    """Return the rows of a collection that belong to these of its partitions."""
    listed = sorted(rows)
    columns = [pa.array([row[place] for row in listed], kind) for place, kind in enumerate(kept.spec.types)]
    ones = pa.array([1] * len(listed), pa.int64())
    change = pa.table([*columns, ones], names=[*(f"c{place}" for place in range(len(columns))), "_diff"])
    hashes = kept.spec.arrangement.prepare(change).column("_hash").to_pylist()
    ranges = [partition_range(number, count) for number in partitions]
    pairs = zip(listed, hashes, strict=True)
    return Counter({row: rows[row] for row, each in pairs if any(low <= each < high for low, high in ranges)})
