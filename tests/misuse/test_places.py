"""Places that cannot be written to: a read-only file system, and a disk that is full. Nothing is lost, and with room
the same flow goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import LogError, SinkError


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    place = tmp_path / "mounted"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _made(mounted: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(mounted)], check=True)


def _flow(spark: SparkSession, log: Path) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow("places", log=log, spark=spark, partitions=1)
    pushed = flow.input("t", "id long, v string")
    flow.view("v", "SELECT id, v FROM t")
    return flow, pushed


ROWS = [(number, f"{number * 7919 % 10007:05}" * 20) for number in range(20_000)]


def test_a_log_on_a_read_only_or_full_disk_says_so_and_goes_on_when_there_is_room(
    spark: SparkSession, tmp_path: Path, mounted: Path
) -> None:
    _made(mounted, "ro")
    with pytest.raises(LogError, match="the file system is read-only; choose a directory that can be written to"):
        _flow(spark, mounted / "log")[0].open()
    _made(mounted, "rw,size=200k")
    flow, pushed = _flow(spark, mounted / "log")
    with flow:
        pushed.insert(ROWS)
        for _ in range(2):
            with pytest.raises(
                LogError, match=r"the disk is full; make room and try again\. Nothing of the epoch counts"
            ):
                flow.step()
        _made(mounted, "size=64m")
        flow.step()
        assert flow.read("v").count() == len(ROWS)


def test_a_sink_on_a_read_only_or_full_disk_says_so_and_has_all_of_it_when_there_is_room(
    spark: SparkSession, tmp_path: Path, mounted: Path
) -> None:
    _made(mounted, "rw,size=200k")
    flow, pushed = _flow(spark, tmp_path / "log")
    with flow:
        flow.sink("v", hf.changelog(mounted / "changes")).sink("v", hf.snapshot_table(mounted / "v.parquet"))
        pushed.insert(ROWS)
        with pytest.raises(SinkError, match=r"No space left|the disk is full") as caught:
            flow.step()
        assert str(caught.value).count("is complete") == 1 and "nothing is lost" in str(caught.value)
        _made(mounted, "ro")
        with pytest.raises(SinkError, match="read-only"):
            flow.step()
        _made(mounted, "rw,size=64m")
        flow.step()
    assert pq.read_table(mounted / "v.parquet").num_rows == len(ROWS)
    assert sum(pq.read_table(file).num_rows for file in (mounted / "changes").glob("*.parquet")) == len(ROWS)
