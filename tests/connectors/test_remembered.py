"""Files that were taken are found again, however many there are, and in few bytes."""

from __future__ import annotations

import os
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.connectors import taken_files
from holdfast.connectors.taken_files import TakenFiles

PATHS = st.sampled_from([f"/in/{name}" for name in "abcdefgh"] + ["/other/a", "/a", "/in/ä", "/in/\udcff"])
ADDED = st.tuples(PATHS, st.integers(0, 2**62), st.integers(-(2**62), 2**62), st.lists(st.integers(-5, 5), max_size=2))


@given(st.lists(ADDED, max_size=40))
@settings(max_examples=200, deadline=None)
def test_what_was_added_is_found_as_a_dict_finds_it(added: list[tuple[str, int, int, list[int]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taken_files, "_RECENT", 3)
        files = TakenFiles()
        last: dict[str, tuple[int, int]] = {}
        alike: dict[int, list[str]] = {}
        for path, size, changed, keys in added:
            files.add(path, size, changed, keys)
            last[path] = (size, changed)
            for key in keys:
                alike.setdefault(key, []).append(path)
            assert {each: files.at(each) for each in last} == last
            assert {key: files.alike(key, 4) for key in range(-5, 6)} == {
                key: alike.get(key, [])[-4:] for key in range(-5, 6)
            }
    assert files.at("/in/never") is None


def test_a_file_costs_few_bytes_for_ever() -> None:
    files = TakenFiles()
    tracemalloc.start()
    for number in range(20_000):
        files.add(os.path.join("/some/directory/of/ours", f"{number:09d}.parquet"), number, number, [number * 7919])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 90 * 20_000
