"""A real file system that is too small: what does not fit is said, nothing is lost, and with room it goes on."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import HoldfastError

SIZE = 3 << 20
EPOCH = 8_000
"""Rows per epoch, that do not compress well."""


class Disk:
    """A file system in memory, mounted at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def grow(self) -> None:
        subprocess.run(["mount", "-o", f"remount,size={64 << 20}", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield Disk(place)
    subprocess.run(["umount", "-l", str(place)], check=True)


PLACES = {
    "everything": ("local", "a", "b", "out"),
    "the local directory": ("local",),
    "a copy": ("b",),
    "the changelog": ("out",),
}
"""What is on the small disk."""


@pytest.mark.parametrize(
    "what",
    [what if what == "the changelog" else pytest.param(what, marks=pytest.mark.slow) for what in PLACES],
)
def test_a_full_disk_loses_nothing(spark: SparkSession, tmp_path: Path, disk: Disk, what: str) -> None:
    places = {
        name: (disk.path if name in PLACES[what] else tmp_path / "large") / name for name in ("local", "a", "b", "out")
    }
    chance = random.Random(what)
    rows: Counter[tuple[int, int]] = Counter()
    flow, numbers = declare(spark, places)
    said: list[str] = []
    steps = 0
    while not said and steps < 60:
        more = [(chance.getrandbits(62), chance.getrandbits(62)) for _ in range(EPOCH)]
        numbers.insert(more)
        rows.update(more)
        steps += 1
        try:
            flow.step()
            flow.wait_safe(timeout=20)
        except HoldfastError as error:
            said.append(str(error))
    assert said and ("full" in said[0] or "space" in said[0].lower() or "safe" in said[0]), (steps, said)
    for _ in range(3):  # it stays full: it is said again, and nothing is worse for it
        try:
            flow.step()
        except HoldfastError as error:
            said.append(str(error))
    disk.grow()
    try:
        flow.run(until="idle")
    except HoldfastError as error:
        said.append(str(error))  # what had failed in the background is said once
        flow.run(until="idle")
    flow.wait_safe(timeout=60)
    assert held(flow) == rows
    flow.close()
    flow, _ = declare(spark, places)
    with flow:
        assert held(flow) == rows
        assert delivered(places["out"]) == rows
    print(f"{what}: full after {steps} epochs; said {len(said)} times: {said[0][:200]}")


def declare(spark: SparkSession, places: dict[str, Path]) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow(
        "small",
        log=[places["a"], places["b"]],
        local=places["local"],
        min_replicas=2,
        spark=spark,
        partitions=2,
        retain=2,
    )
    numbers = flow.input("numbers", "n long, m long")
    flow.view("doubled", "SELECT n, m FROM numbers")
    flow.sink("doubled", hf.changelog(places["out"]))
    return flow, numbers


def held(flow: hf.Flow) -> Counter[tuple[int, int]]:
    return Counter(map(tuple, flow.read("doubled").collect()))


def delivered(path: Path) -> Counter[tuple[int, int]]:
    total: Counter[tuple[int, int]] = Counter()
    for file in path.glob("*.parquet"):
        columns = pq.read_table(file).to_pydict()
        for n, m, diff in zip(columns["n"], columns["m"], columns["_diff"], strict=True):
            total[n, m] += diff
    return total
