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


NAMES = st.sampled_from(["a", "b", "deep/a", "deep/er/a", "ä", "\udcff"])
COLUMNS = st.lists(st.tuples(NAMES, st.integers(0, 9), st.integers(-9, 9), st.integers(-5, 5)), max_size=8)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["/in", "/", "/in/deep"]), COLUMNS), max_size=8))
@settings(max_examples=200, deadline=None)
def test_files_that_come_at_once_are_found_like_those_that_come_one_by_one(
    added: list[tuple[bool, str, list[tuple[str, int, int, int]]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taken_files, "_RECENT", 3)
        single, many = TakenFiles(), TakenFiles()
        for asks, under, files in added:
            for name, size, changed, key in files:
                single.add(os.path.join(under, name), size, changed, [key, key + 1])
            names, sizes, times, keys = [[each[place] for each in files] for place in range(4)]
            many.add_all(under, names, sizes, times, [keys, [key + 1 for key in keys]])
            if asks:  # between two that come they may be asked, or not
                assert many.at("/in/a") == single.at("/in/a")
        for path in ("/in/a", "/in/deep/a", "/in/deep/er/a", "/a", "/deep/a", "/in/ä", "/in/\udcff", "/in/never"):
            assert many.at(path) == single.at(path)
        for key in range(-5, 7):
            assert many.alike(key, 4) == single.alike(key, 4)


def test_a_file_costs_few_bytes_for_ever() -> None:
    files = TakenFiles()
    tracemalloc.start()
    for number in range(20_000):
        files.add(os.path.join("/some/directory/of/ours", f"{number:09d}.parquet"), number, number, [number * 7919])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 90 * 20_000
