"""Inner loops over 64-bit words, compiled where that is possible: sorting, searching, mixing, gathering, summing.

Each function is a few lines of NumPy that say what it computes, and has a compiled form that gives the same numbers
(`_inner_loops.c`; the tests compare them). The compiled one is used if it was built when the package was installed, and
its arguments are plain arrays of 8-byte numbers; any other call takes the NumPy lines. ``HOLDFAST_COMPILED=0`` in the
environment leaves it out everywhere.

What it is worth (1,000,000 random words, one core): sorting 90 → 23 ms, searching 24 → 8 ms, mixing 9 → 1 ms, gathering
6 → 3 ms, summing short runs 5 → 3 ms. It also lets go of the interpreter's lock, so that partitions of an epoch can be
worked on by two threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.trace.physical import Ints, Words

_Number = TypeVar("_Number", np.int64, np.uint64)

_G = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_CHUNK = 16384

_USUAL = 32 << 20
"""The largest block that the C library keeps by itself."""


def _built() -> ModuleType | None:
    if os.environ.get("HOLDFAST_COMPILED") == "0":
        return None
    try:
        from holdfast.trace import _inner_loops
    except ImportError:
        return None  # no compiler when the package was installed, or built for another machine
    found: ModuleType = _inner_loops
    return found


compiled = _built()
"""The compiled module; None if everything is done in NumPy."""


def _plain(*arrays: np.ndarray) -> bool:
    """Whether the compiled loops can read the arrays: 8-byte numbers, one behind the other."""
    return all(array.ndim == 1 and array.itemsize == 8 and array.flags.c_contiguous for array in arrays)


def argsort(words: Words) -> Ints:
    """The stable permutation that sorts the words."""
    if compiled is not None and _plain(words):
        order = np.empty(len(words), np.int64)
        compiled.argsort(words, order)
        return order
    return np.argsort(words, kind="stable")


def lower_bounds(column: Words, wanted: Words) -> Ints:
    """For each wanted word, how many of the sorted column are below it. Sorted words are found sooner."""
    if compiled is not None and _plain(column, wanted):
        found = np.empty(len(wanted), np.int64)
        compiled.lower_bounds(column, wanted, found)
        return found
    return np.searchsorted(column, wanted)


def runs_of(column: Words, wanted: Words) -> tuple[Ints, Ints, Ints]:
    """For those of the wanted words (sorted, unique) that are in the sorted column: which they are, and the rows [left,
    right) of the column that have them."""
    if not len(column) or not len(wanted):
        none = np.zeros(0, np.int64)
        return none, none, none
    if compiled is not None and _plain(column, wanted):
        found = np.empty((3, len(wanted)), np.int64)
        count = compiled.runs_of(column, wanted, found)
        return found[0, :count], found[1, :count], found[2, :count]
    left = np.searchsorted(column, wanted)
    which = np.flatnonzero(column[np.minimum(left, len(column) - 1)] == wanted)
    which = which[left[which] < len(column)]
    left = left[which]
    right = left + 1
    longer = np.flatnonzero(column[np.minimum(right, len(column) - 1)] == wanted[which])
    longer = longer[right[longer] < len(column)]
    if len(longer):
        right[longer] = np.searchsorted(column, wanted[which[longer]], side="right")
    return which, left, right


def spans(column: Words, wanted: Words) -> tuple[Ints, Ints]:
    """For each wanted word the first row of the sorted column that has it, or would have it, and how many rows do.
    Sorted words are found sooner."""
    if compiled is not None and _plain(column, wanted):
        found = np.empty((2, len(wanted)), np.int64)
        compiled.spans(column, wanted, found)
        return found[0], found[1]
    starts = np.searchsorted(column, wanted)
    return starts, np.searchsorted(column, wanted, side="right") - starts


def mix(words: Words) -> None:
    """Splitmix64's finaliser, in place."""
    if compiled is not None and _plain(words):
        compiled.mix(words)
        return
    scratch = np.empty(min(_CHUNK, len(words)), np.uint64)
    for start in range(0, len(words), _CHUNK):
        part = words[start : start + _CHUNK]
        shifted = scratch[: len(part)]
        part += _G
        np.right_shift(part, _S30, out=shifted)
        part ^= shifted
        part *= _M1
        np.right_shift(part, _S27, out=shifted)
        part ^= shifted
        part *= _M2
        np.right_shift(part, _S31, out=shifted)
        part ^= shifted


def gather(values: npt.NDArray[_Number], indices: npt.NDArray[np.integer]) -> npt.NDArray[_Number]:
    """The values at these indices, none of which is below 0."""
    if compiled is not None and _plain(values, indices):
        found = np.empty(len(indices), values.dtype)
        compiled.gather(values, indices, found)
        return found
    taken: npt.NDArray[_Number] = values[indices]
    return taken


def run_sums(values: Ints, starts: npt.NDArray[np.integer]) -> Ints:
    """The sum, modulo 2^64, of each run of values; runs begin at ``starts``, which grow."""
    if compiled is not None and _plain(values, starts):
        found = np.empty(len(starts), np.int64)
        compiled.run_sums(values, starts, found)
        return found
    sums: Ints = np.add.reduceat(values, starts)
    return sums


def keep_memory(most: int) -> None:
    """Let this process keep up to so many bytes that it has freed. It gets memory for an epoch's columns, some of 10 MB
    each, over and over; from the system it comes page by page, and takes a fifth of a large epoch's time."""
    if compiled is not None:
        compiled.keep_memory(most)


@contextmanager
def memory_kept(most: int) -> Iterator[None]:
    """`keep_memory` for a while, in a process that is others' afterwards."""
    keep_memory(most)
    try:
        yield
    finally:
        keep_memory(_USUAL)
        give_back_memory()


def give_back_memory() -> None:
    """Give all memory that is free back to the system."""
    if compiled is not None:
        compiled.give_back_memory()
