"""Shortest paths in a road network whose roads close and open again.

The network is a grid of streets of various lengths. The view has, for each crossing, the distance from the station. It
is a recursive view with an aggregate: the shortest of all ways that lead there. A road that closes only costs the
crossings whose distance it changes.
"""

from __future__ import annotations

import heapq
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import holdfast as hf

SIDE = 12
STATION = 0
Road = tuple[int, int, int]

NEAREST = f"""
WITH RECURSIVE ways(crossing, metres) AS (
  SELECT {STATION}L, 0L
  UNION
  SELECT r.b, min(w.metres + r.metres) FROM ways w JOIN roads r ON r.a = w.crossing GROUP BY r.b
) SELECT crossing, min(metres) AS metres FROM ways GROUP BY crossing
"""


def network(seed: int = 1, side: int = SIDE) -> list[Road]:
    """Streets between neighbouring crossings of a grid, both ways: from, to, length."""
    dice = random.Random(seed)
    roads: list[Road] = []
    for here in range(side * side):
        for there in ([here + 1] if (here + 1) % side else []) + ([here + side] if here + side < side * side else []):
            metres = dice.randrange(50, 400)
            roads += [(here, there, metres), (there, here, metres)]
    return roads


def expected(roads: Iterable[Road]) -> dict[int, int]:
    """The same by Dijkstra's algorithm."""
    out: dict[int, list[tuple[int, int]]] = {}
    for a, b, metres in roads:
        out.setdefault(a, []).append((b, metres))
    found: dict[int, int] = {}
    waiting = [(0, STATION)]
    while waiting:
        far, here = heapq.heappop(waiting)
        if here not in found:
            found[here] = far
            for there, metres in out.get(here, []):
                heapq.heappush(waiting, (far + metres, there))
    return found


def declare(flow: hf.Flow) -> hf.Input:
    """Declare roads and the distances from the station."""
    roads = flow.input("roads", schema="a long, b long, metres long")
    flow.view("nearest", NEAREST, max_rounds=1000)
    return roads


def distances(flow: hf.Flow) -> dict[int, int]:
    return {row.crossing: row.metres for row in flow.read("nearest").collect()}


def main(**options: Any) -> None:
    dice, all_roads = random.Random(2), network()
    table = Table("what happens", "crossings that got farther", "nearer", "farthest (m)", "epoch (ms)", title="Roads")
    with tempfile.TemporaryDirectory() as root, hf.Flow("roads", log=Path(root) / "log", **options) as flow:
        roads = declare(flow)
        roads.insert(all_roads)
        epoch = flow.step()
        before = distances(flow)
        table.add_row("the network", "–", "–", str(max(before.values())), f"{1000 * epoch.seconds:.0f}")
        closed: list[Road] = []
        for _ in range(6):
            if closed and dice.random() < 0.4:
                road, what = closed.pop(0), "opens"
                roads.insert([road])
            else:
                used = [road for road in all_roads if before.get(road[1]) == before.get(road[0], 0) + road[2]]
                road, what = dice.choice(used), "closes"
                closed.append(road)
                roads.delete([road])
            epoch = flow.step()
            now = distances(flow)
            farther = sum(now.get(each, 1 << 60) > metres for each, metres in before.items())
            nearer = sum(now.get(each, 1 << 60) < metres for each, metres in before.items())
            said = f"{road[0]} → {road[1]} {what}"
            table.add_row(said, str(farther), str(nearer), str(max(now.values())), f"{1000 * epoch.seconds:.0f}")
            before = now
    Console().print(table)


if __name__ == "__main__":
    main()
