"""Rescaling on a real cluster whose workers keep layers of their own: under load, only the ranges of key hashes that
change hands move, most of them beside epochs, and nothing is computed again. (On one host no file changes at all:
``flow/test_rescaling.py``.)"""

from __future__ import annotations

import statistics

import pytest

from cluster import rescale_scenes as scenes
from holdfast.testing.cluster import MARK, Cluster
from holdfast.testing.processes import marked

pytestmark = pytest.mark.slow

STEPS = [2, 8, 3, 5]


def test_only_ranges_that_change_hands_move_when_a_flow_under_load_is_rescaled() -> None:
    with Cluster(workers=2, cores=2, memory=512) as cluster:
        driver = cluster.driver(scenes.rescaled, 2, STEPS)
        seen = driver.result(300.0)
    assert marked(MARK, cluster.mark) == []
    for move in seen["moves"]:
        _check_move(move)
    assert seen["right"] == dict.fromkeys(scenes.VIEWS, True), "what sinks were given is Spark's batch result"
    median, longest = statistics.median(seen["gaps"]), max(seen["gaps"])
    print(f"{len(seen['gaps'])} epochs, median {median:.2f} s, longest gap {longest:.2f} s")
    assert longest < 2 * median + 1.0


def _check_move(move: scenes.Move) -> None:
    moved = sum(high - low for some in move.gained.values() for low, high in some) / 2**64
    new = {
        worker: [name for name in names if (name.low, name.high) not in move.kept[worker]]
        for worker, names in move.files.items()
    }
    recovery = move.recovery
    print(
        f"to {move.partitions} partitions in {move.seconds:.2f} s: {moved:.0%} of all keys change hands; "
        f"{sum(map(len, new.values()))} layers for them, {recovery.layers_ahead} fetched beside epochs, "
        f"{recovery.layers_fetched} fetched and {recovery.layers_handed} handed over in between: {recovery.seconds}"
    )
    assert recovery.epochs_replayed == 0 and recovery.filled is None, "nothing is computed again"
    assert move.changed == [], "a layer of a range that stays is the file that it was"
    assert recovery.layers_ahead > 0 and 0 < moved < 1
    assert any(new.values())
    for worker, names in new.items():
        beyond = [name for name in names if scenes.without([(name.low, name.high)], move.gained[worker])]
        assert beyond == [], "a layer came for keys that did not change hands"
