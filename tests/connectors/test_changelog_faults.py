"""A changelog over a file system that fails: whatever failed, every row is there once afterwards, and no file that was
whole is gone."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connectors.changelog import Changelog
from holdfast.connectors.changelog_files import data_files
from holdfast.errors import SinkError
from holdfast.plan.nodes import Field
from holdfast.testing.faulty.layer import faults
from holdfast.testing.faulty.plan import Fault, Plan

FIELDS = (Field("user", "string"), Field("total", "double"))
EPOCHS = 12
SEEDS = int(os.environ.get("HOLDFAST_CHANGELOG_SEEDS", "40"))
CALLS = {
    "open": ("EACCES", "EIO", "EMFILE", "ESTALE"), "create": ("EACCES", "EMFILE", "ENOSPC"), "read": ("EIO", "short"),
    "write": ("EIO", "ENOSPC", "short"), "sync": ("EIO", "EINVAL"), "stat": ("EACCES", "EIO"), "mkdir": ("EACCES",),
    "list": ("EACCES", "EMFILE"), "remove": ("EACCES", "EIO"), "rename": ("EACCES", "EIO"), "link": ("EIO", "ENOSPC"),
}  # fmt: skip


def change(epoch: int) -> pa.Table:
    """Every third epoch changes nothing."""
    rows = (
        {"user": ["ada"], "total": [float(epoch)], "_diff": [1]}
        if epoch % 3
        else {"user": [], "total": [], "_diff": []}
    )
    return pa.table(rows, schema=pa.schema({"user": pa.string(), "total": pa.float64(), "_diff": pa.int64()}))


def drawn(chance: random.Random) -> Plan:
    found = []
    for _ in range(chance.randint(1, 8)):
        kind = chance.choice(sorted(CALLS))
        after = kind in ("rename", "link", "remove") and chance.random() < 0.5
        number, times = int(120 ** chance.random()), chance.choice((1, 1, 2, 5))
        found.append(Fault(kind, number, chance.choice(CALLS[kind]), times, after))
    return Plan(tuple(found))


class Driver:
    """It delivers epochs one by one, as a flow does, and is killed now and then."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path, self._chance = path, chance
        self._compact = chance.choice((None, 2))
        self._sink: Changelog | None = None
        self.has = -1

    def deliver(self, kills: bool) -> None:
        """One call of a flow: it opens the sink if it must, asks it if it must, and commits one epoch."""
        if kills and self._chance.random() < 0.2:
            self._sink = None
        if self._sink is None:
            sink = Changelog(self._path, compact=self._compact)
            has = sink.open("top", FIELDS)
            assert has is not None and has >= self.has, f"epoch {self.has} was delivered, and the changelog has {has}"
            assert not sink.lost(), "nothing is torn: no power was cut"
            self._sink, self.has = sink, has
        else:
            taken = self._sink.taken()
            self.has = self.has if taken is None else taken
        epoch = self.has + 1
        self._sink.release_lineage(epoch - 2)
        self._sink.commit(epoch, change(epoch), b'{"epoch": %d}\n' % epoch)
        self.has = epoch


@pytest.mark.parametrize("start", range(0, SEEDS, 10))
def test_a_changelog_over_failing_files_ends_exact(tmp_path: Path, start: int) -> None:
    for seed in range(start, start + 10):
        chance = random.Random(f"changelog {seed}")
        path = tmp_path / str(seed)
        driver = Driver(path, chance)
        with faults(drawn(chance), under=[path]):
            for _ in range(2 * EPOCHS):
                try:
                    if driver.has < EPOCHS - 4:
                        driver.deliver(kills=True)
                except SinkError:
                    continue
        driver = Driver(path, chance)
        while driver.has < EPOCHS - 1:
            driver.deliver(kills=False)
        rows = pa.concat_tables([pq.read_table(file) for file in data_files(path)]).sort_by("_epoch")
        wanted = [epoch for epoch in range(EPOCHS) if epoch % 3]
        assert rows.column("_epoch").to_pylist() == wanted, f"seed {seed}"
        assert rows.column("total").to_pylist() == [float(epoch) for epoch in wanted], f"seed {seed}"
        assert not (path / "_damaged").exists(), f"seed {seed}: an error was taken for damage"
