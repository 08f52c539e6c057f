"""Compiled inner loops give the numbers that the NumPy lines beside them give."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.trace import inner_loops

needs_compiled = pytest.mark.skipif(inner_loops.compiled is None, reason="the package was installed without a compiler")

words = st.one_of(
    st.lists(st.integers(0, 2**64 - 1), max_size=200),
    st.lists(st.integers(0, 3), max_size=200),
    st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1, 2**32, 2**32 + 1]), max_size=200),
)


@contextmanager
def in_numpy() -> Iterator[None]:
    compiled, inner_loops.compiled = inner_loops.compiled, None
    try:
        yield
    finally:
        inner_loops.compiled = compiled


def both(function: Any, *arguments: Any) -> tuple[Any, Any]:
    ours = function(*arguments)
    with in_numpy():
        return ours, function(*arguments)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


def test_the_loops_are_compiled_where_there_is_a_compiler() -> None:
    if shutil.which("cc") is None or os.environ.get("HOLDFAST_COMPILED") == "0":
        pytest.skip("no compiler, or not wanted")
    assert inner_loops.compiled is not None


@needs_compiled
@given(words)
def test_words_are_sorted_and_equal_ones_stay_in_their_order(values: list[int]) -> None:
    ours, numpy = both(inner_loops.argsort, array(values))
    assert ours.tolist() == numpy.tolist()


@needs_compiled
@pytest.mark.parametrize("bits", [0, 1, 7, 12, 33, 64])
@pytest.mark.parametrize("shift", [0, 20, 40])
def test_many_words_are_sorted_whatever_bits_differ(bits: int, shift: int) -> None:
    random = np.random.default_rng(bits)
    values = random.integers(0, 2**bits, 50_000, np.uint64, endpoint=bits == 0) << np.uint64(shift)
    values[::7] |= np.uint64(1)
    ours, numpy = both(inner_loops.argsort, values)
    assert (ours == numpy).all()


@needs_compiled
@given(words, words)
def test_bounds_and_runs_are_found_where_numpy_finds_them(column: list[int], wanted: list[int]) -> None:
    sorted_column, keys = array(sorted(column)), array(sorted(set(wanted)))
    ours, numpy = both(inner_loops.lower_bounds, sorted_column, keys)
    assert ours.tolist() == numpy.tolist()
    ours, numpy = both(inner_loops.lower_bounds, sorted_column, array(wanted))  # not sorted
    assert ours.tolist() == numpy.tolist()
    for one, other in zip(*both(inner_loops.spans, sorted_column, array(wanted)), strict=True):
        assert one.tolist() == other.tolist()
    for one, other in zip(*both(inner_loops.runs_of, sorted_column, keys), strict=True):
        assert one.tolist() == other.tolist()


@needs_compiled
@pytest.mark.parametrize("seed", range(40))
def test_runs_are_found_in_long_columns_however_their_words_are_spread(seed: int) -> None:
    """Searches that take turns and begin at guesses, which even words have; other words make every guess wrong."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(5_000, 60_000))
    even = random.integers(0, 2**64, rows, np.uint64)
    column = np.sort(
        [
            lambda: even,
            lambda: even >> np.uint64(random.integers(0, 56)),
            lambda: (2.0 ** random.uniform(0, 63, rows)).astype(np.uint64),
            lambda: np.repeat(even[: rows // 50 + 1], 50)[:rows],
            lambda: np.concatenate([np.zeros(rows, np.uint64), even[:100], np.full(50, 2**64 - 1, np.uint64)]),
        ][seed % 5]()
    )
    some = int(random.integers(64, rows // 32))
    ends = np.array([0, 1, 2**64 - 2, 2**64 - 1], np.uint64)
    keys = np.unique(np.concatenate([random.choice(column, some // 2), even[: some // 3], ends]))
    for one, other in zip(*both(inner_loops.runs_of, column, keys), strict=True):
        assert (one == other).all()


@needs_compiled
@given(words)
def test_words_are_mixed_alike(values: list[int]) -> None:
    ours, numpy = array(values), array(values)
    inner_loops.mix(ours)
    with in_numpy():
        inner_loops.mix(numpy)
    assert ours.tolist() == numpy.tolist()


@needs_compiled
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=100), st.data())
def test_values_are_gathered_and_summed_alike_and_wrap_alike(values: list[int], data: st.DataObject) -> None:
    numbers = np.array(values, np.int64)
    indices = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=100)), np.int64)
    ours, numpy = both(inner_loops.gather, numbers, indices)
    assert ours.tolist() == numpy.tolist() and ours.dtype == numpy.dtype
    starts = np.array(sorted({0, *data.draw(st.sets(st.integers(0, len(values) - 1)))}), np.int64)
    ours, numpy = both(inner_loops.run_sums, numbers, starts)
    assert ours.tolist() == numpy.tolist()


def test_arrays_that_are_not_plain_take_the_numpy_lines() -> None:
    column = np.arange(10, dtype=np.uint64)[::2]
    assert inner_loops.argsort(column).tolist() == [0, 1, 2, 3, 4]
    assert inner_loops.gather(np.broadcast_to(np.int64(7), 3), np.array([0, 2])).tolist() == [7, 7]
    assert inner_loops.gather(np.array([True, False]), np.array([1])).tolist() == [False]
    assert inner_loops.run_sums(np.arange(6)[::2], np.array([0, 2])).tolist() == [2, 4]


@needs_compiled
def test_an_index_out_of_range_is_an_error_and_not_a_word_of_memory() -> None:
    for wrong in (3, -1, 2**62):
        with pytest.raises(IndexError):
            inner_loops.gather(np.arange(3), np.array([0, wrong]))
    with pytest.raises(ValueError, match="grow"):
        inner_loops.run_sums(np.arange(3), np.array([0, 5]))


def test_the_environment_leaves_the_compiled_loops_out() -> None:
    code = "from holdfast.trace import inner_loops; print(inner_loops.compiled)"
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HOLDFAST_COMPILED": "0"}, capture_output=True, text=True
    )
    assert said.stdout.strip() == "None"
