"""The location that fails on purpose: each way to fail does what it says, and a seed repeats it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LogDamaged, StoreError
from holdfast.log.durable_layer import decode_layer, durable_name, encode_layer
from holdfast.log.location import Entry, LocalLocation, Location
from holdfast.testing.memory import MemoryLocation
from holdfast.testing.unreliable import OPERATIONS, Unreliable
from holdfast.trace.name import ALL
from holdfast.trace.rows import Block, Layout


def attempts(location: Location, count: int = 200) -> list[bool]:
    """Whether each of so many writes was said to succeed."""
    said = []
    for number in range(count):
        try:
            location.write(f"blobs/{number:04d}", b"0123456789")
            said.append(True)
        except StoreError:
            said.append(False)
    return said


def test_a_failure_before_leaves_nothing() -> None:
    memory = MemoryLocation()
    said = attempts(Unreliable(memory, 1, fail_before=0.3))
    assert 30 < said.count(False) < 100
    assert [f"blobs/{i:04d}" in memory.snapshot() for i in range(200)] == said


def test_a_failure_after_happened_although_it_was_denied() -> None:
    memory = MemoryLocation()
    said = attempts(Unreliable(memory, 1, fail_after=0.3))
    assert 30 < said.count(False) < 100
    assert len(memory.list("blobs")) == 200


def test_a_lost_write_was_said_to_succeed() -> None:
    memory = MemoryLocation()
    assert all(attempts(Unreliable(memory, 1, lose=0.3)))
    assert 100 < len(memory.list("blobs")) < 170


def test_a_torn_write_leaves_a_beginning_and_an_error() -> None:
    memory = MemoryLocation()
    said = attempts(Unreliable(memory, 1, truncate=0.3))
    sizes = [entry.size for entry in memory.list("blobs")]
    assert [size == 10 for size in sizes] == said and 30 < said.count(False) < 100
    assert len(set(sizes)) > 5 and all(b"0123456789".startswith(data) for data in memory.snapshot().values())


def test_a_torn_layer_is_found_by_its_checksum() -> None:
    memory = MemoryLocation()
    layout = Layout(1, 1, "none")
    data = encode_layer(Block.empty(layout), layout, metadata={})
    name = durable_name(0, ALL, 0, 0, "0" * 16, -1, data)
    with pytest.raises(StoreError):
        Unreliable(memory, truncate=1.0).write(name.durable(), data)
    with pytest.raises(LogDamaged, match="is damaged"):
        decode_layer(memory.read(name.durable()), name, memory.uri)


def test_a_seed_repeats_its_failures_and_another_has_others() -> None:
    rates = {"fail_before": 0.2, "fail_after": 0.2, "truncate": 0.1}
    same = [attempts(Unreliable(MemoryLocation(), 7, **rates)) for _ in range(2)]
    assert same[0] == same[1] != attempts(Unreliable(MemoryLocation(), 8, **rates))


def test_one_way_to_fail_does_not_shift_another() -> None:
    before = attempts(Unreliable(MemoryLocation(), 7, fail_before=0.2))
    both = attempts(Unreliable(MemoryLocation(), 7, fail_before=0.2, fail_after=0.2))
    assert all(not one for one, other in zip(both, before, strict=True) if not other)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_only_the_chosen_operations_fail(operation: str) -> None:
    memory = MemoryLocation()
    memory.write("a/one", b"1")
    location = Unreliable(memory, fail_before=1.0, only=operation)
    calls: dict[str, Callable[[], Any]] = {
        "read": lambda: location.read("a/one"),
        "list": lambda: (location.list("a"), location.directories("")),
        "write": lambda: location.write("a/two", b"2"),
        "move": lambda: location.move("a/one", "b/one"),
        "remove": lambda: location.remove("a/one"),
    }
    location.check()
    for name, call in calls.items():
        if name == operation:
            with pytest.raises(StoreError, match=f"cannot {name} a") as caught:
                call()
            assert caught.value.fields["operation"] == name
        else:
            call()


def test_an_operation_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"only=\['wriet'\]: expected operations among write, read"):
        Unreliable(MemoryLocation(), only=["wriet", "read"])


def test_a_blob_that_is_not_there_is_still_file_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        Unreliable(MemoryLocation(), fail_after=1.0).read("nothing")


def test_a_slow_location_is_slow() -> None:
    location = Unreliable(MemoryLocation(), delay=0.02, jitter=0.01)
    start = time.monotonic()
    for _ in range(3):
        location.list("")
    assert time.monotonic() - start >= 0.06


def test_it_travels_to_a_task_and_goes_on_from_there(tmp_path: Path) -> None:
    location = Unreliable(LocalLocation(tmp_path), 3, fail_before=0.5)
    attempts(location, 10)
    copy = pickle.loads(pickle.dumps(location))
    assert copy.operations == 10 and copy.uri == str(tmp_path)
    assert attempts(copy, 20) == attempts(location, 20)


def test_memory_can_be_looked_at_lost_and_restored() -> None:
    memory = MemoryLocation("first")
    memory.write("a/b/one", b"1")
    memory.write("two", b"2")
    held = memory.snapshot()
    assert held == {"a/b/one": b"1", "two": b"2"} and memory.uri == "memory:first"
    memory.lose("two")
    assert memory.list("") == [] and memory.directories("") == ["a"]
    memory.lose()
    assert memory.snapshot() == {} and memory.directories("") == []
    memory.restore(held)
    assert memory.snapshot() == held and memory.list("a/b") == [Entry("one", 1)]
