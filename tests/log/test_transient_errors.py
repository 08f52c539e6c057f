"""An error of the operating system is not damage: a file is damaged only if its bytes say so, at a second look too."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.coordinator.copy_plan import Copied
from holdfast.errors import LogDamaged, LogError
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.durable_layer import durable_name, encode_layer
from holdfast.log.layer_sync import Unsynced, sync_all
from holdfast.log.location import LocalLocation
from holdfast.log.replica import Replica
from holdfast.log.stash import read_stash
from holdfast.runtime.recovery.fetch_layers import look_again, set_aside
from holdfast.testing import Fault, Plan, faults
from holdfast.testing.faulty.plan import FOREVER
from holdfast.testing.memory import MemoryLocation
from holdfast.testing.simulator.run import SimulatedDriver
from holdfast.testing.simulator.world import World
from holdfast.trace.hashing import hash_columns
from holdfast.trace.layer import forget_all, open_layer, write_layer
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.rows import Block, Layout, constant_epoch

LAYOUT = Layout(1, 1, "none")


def block(rows: int = 3) -> Block:
    column = pa.array(range(rows), pa.int64())
    return Block(hash_columns([column]), None, (column,), constant_epoch(0, rows), {"+diff": np.ones(rows, np.int64)})


def layer(directory: Path) -> LayerName:
    return write_layer(directory, block(), LAYOUT, low=0, high=ALL, first=0, last=0, digest="00112233aabbccdd")


class Failing:
    """Fails so many times with an errno, then does what it stands for."""

    def __init__(self, real: Callable[..., Any], code: int, times: int = 1 << 30) -> None:
        self.real, self.code, self.left = real, code, times

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            raise OSError(self.code, os.strerror(self.code))
        return self.real(*args, **named)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOMEM])
def test_a_layer_that_cannot_be_opened_now_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    name = layer(tmp_path)
    monkeypatch.setattr(pa, "memory_map", Failing(pa.memory_map, code))
    with pytest.raises(LogError, match="cannot be read now") as caught:
        open_layer(tmp_path / name.text())
    assert not isinstance(caught.value, LogDamaged)
    assert caught.value.fields["errno"] == code


def test_a_layer_that_cannot_be_mapped_now_is_not_damaged(tmp_path: Path) -> None:
    name = layer(tmp_path)
    with faults(Plan((Fault("map", 1, "ENOMEM", FOREVER),)), under=[tmp_path]), pytest.raises(LogError) as caught:
        open_layer(tmp_path / name.text())
    assert not isinstance(caught.value, LogDamaged)
    assert "Cannot allocate memory" in str(caught.value)


def test_an_error_that_passes_is_not_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = layer(tmp_path)
    monkeypatch.setattr(pa, "memory_map", Failing(pa.memory_map, errno.EMFILE, times=2))
    assert open_layer(tmp_path / name.text()).rows == 3


def test_a_layer_that_is_good_at_a_second_look_is_not_set_aside(tmp_path: Path) -> None:
    name = layer(tmp_path / "traces" / "t")
    assert set_aside(tmp_path / "traces" / "t" / name.text(), tmp_path)
    assert (tmp_path / "traces" / "t" / name.text()).exists()


def test_a_damaged_layer_is_set_aside_and_a_good_one_is_put_back(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    good, bad = layer(traces / "good"), layer(traces / "bad")
    (traces / "bad" / bad.text()).write_bytes(b"nothing")
    for trace, name in (("good", good), ("bad", bad)):
        set_aside(traces / trace / name.text(), tmp_path)
    (tmp_path / "damaged" / "good").mkdir()
    os.replace(traces / "good" / good.text(), tmp_path / "damaged" / "good" / good.text())  # as a version before did
    assert look_again(traces) == 1
    assert open_layer(traces / "good" / good.text()).rows == 3
    assert os.listdir(tmp_path / "damaged" / "bad") == [bad.text()]


def test_a_stash_that_cannot_be_read_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.jsonl").write_text("")
    monkeypatch.setattr("builtins.open", Failing(open, errno.EACCES))
    with pytest.raises(LogError, match="cannot be read now: permission denied"):
        read_stash(tmp_path / "log.jsonl")


class CutOff(MemoryLocation):
    """A connection that breaks off in the first read of a layer."""

    times = 1

    def read(self, path: str) -> bytes:
        data = super().read(path)
        if path.startswith("layers/") and self.times:
            self.times -= 1
            return data[: len(data) // 2]
        return data


def test_a_read_that_breaks_off_is_not_damage_of_a_copy(tmp_path: Path) -> None:
    place = CutOff()
    data = encode_layer(block(), LAYOUT, metadata={})
    name = durable_name(0, ALL, 0, 0, "00112233aabbccdd", -1, data)
    Replica(place).write_layer("t", name, data)
    results = fetch_all([Fetch("t", name, str(tmp_path), (0,))], [place])
    assert [type(result) for result in results] == [Copied]


def test_a_copy_that_was_set_aside_and_is_good_counts_again() -> None:
    place = MemoryLocation()
    replica = Replica(place)
    data = encode_layer(block(), LAYOUT, metadata={})
    name = durable_name(0, ALL, 0, 0, "00112233aabbccdd", -1, data)
    replica.write_layer("t", name, data)
    replica.set_aside("t", name)
    place.write("damaged/t/" + LayerName(0, ALL, 1, 1, "0" * 16, -1, "1" * 16).durable(), b"nothing")
    assert [replica.put_back(*one) for one in replica.aside()].count(True) == 1
    assert list(replica.layers("t")) == [name]
    assert len(replica.aside()) == 1


def test_a_location_is_read_whole_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalLocation(tmp_path)
    place.write("blob", b"0123456789")
    real, sizes = os.fstat, [4096, 4096]

    class Larger:
        def __init__(self, handle: int) -> None:
            self.st_size = sizes.pop() if sizes else real(handle).st_size

    monkeypatch.setattr("holdfast.foundation.atomic_files.os.fstat", Larger)
    assert place.read("blob") == b"0123456789", "two short reads, then a whole one"


# -- a flow -----------------------------------------------------------------------------------------------------------


def driver(tmp_path: Path) -> SimulatedDriver:
    return SimulatedDriver(World(0, tmp_path), 0, lambda: None)


def feed(world: World, first: int) -> None:
    world.feed("orders", [((first, first % 5, 10), 1)])
    world.feed("users", [((first % 5, 1), 1)])


def test_too_many_open_files_set_no_layer_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = driver(tmp_path)
    for epoch in range(3):
        feed(one.world, epoch)
        one.open().step()
    forget_all()
    feed(one.world, 3)
    with monkeypatch.context() as patched:
        patched.setattr(pa, "memory_map", Failing(pa.memory_map, errno.EMFILE))
        with pytest.raises(LogError, match="Too many open files"):
            one.open().step()
    assert not list(tmp_path.glob("**/damaged"))
    assert one.open().step().epoch == 3
    assert one.open().recovery.damaged == []
    one.die()


@pytest.mark.parametrize(("code", "about"), [(errno.EINVAL, "directory"), (errno.EIO, "all")])
def test_layers_are_copied_although_the_local_disk_cannot_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, about: str
) -> None:
    one = driver(tmp_path)
    engine = one.open()
    real = os.fsync

    def fsync(handle: int) -> None:
        if about == "all" or os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(code, os.strerror(code))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    feed(one.world, 0)
    engine.step()
    engine.upkeep()
    assert engine.safe == engine.last == 0, "the copies are in memory, and need no sync"
    status = engine.status().durability
    if about == "directory":
        assert status.unsynced == {} and status.failure is None
    else:
        assert status.unsynced and all("Input/output error" in why for why in status.unsynced.values())
    one.die()


def test_a_layer_whose_sync_failed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = layer(tmp_path / "t")
    before = (tmp_path / "t" / name.text()).stat().st_ino
    monkeypatch.setattr(os, "fsync", Failing(os.fsync, errno.EIO, times=1))
    assert sync_all([str(tmp_path / "t")], -1) == []
    assert (tmp_path / "t" / name.text()).stat().st_ino != before, "pages whose sync failed cannot be trusted again"
    monkeypatch.setattr(os, "fsync", Failing(os.fsync, errno.EIO))
    assert [type(each) for each in sync_all([str(tmp_path / "t")], -1)] == [Unsynced]
