"""Inner loops over 64-bit words, compiled where possible: sorting, searching, mixing, gathering, summing.

Each function is a few lines of NumPy that define its result, and has a compiled form that gives the same numbers
(`_inner_loops.c`; the tests compare both). The compiled form is used if it was built when the package was installed and
the arguments are plain arrays of 8-byte numbers; any other call runs the NumPy lines. ``HOLDFAST_COMPILED=0`` in the
environment turns the compiled form off.

Gain of the compiled form (1,000,000 random words, one core): sorting 90 → 23 ms, searching 24 → 8 ms, mixing 9 → 1 ms,
gathering 6 → 3 ms, summing short runs 5 → 3 ms. It also releases the interpreter's lock, so that several threads can
compute the partitions of an epoch.
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
"""The C library's own limit, in bytes: it keeps no larger block after it was freed."""


def _built() -> ModuleType | None:
    if os.environ.get("HOLDFAST_COMPILED") == "0":
        return None
    try:
        from holdfast.trace import _inner_loops
    except ImportError:
        return None  # there was no compiler when the package was installed, or it was built for another machine
    found: ModuleType = _inner_loops
    return found


compiled = _built()
"""The compiled module; None if all functions use NumPy."""


def _plain(*arrays: np.ndarray) -> bool:
    """Whether the compiled loops can read the arrays: contiguous 8-byte numbers in one dimension."""
    return all(array.ndim == 1 and array.itemsize == 8 and array.flags.c_contiguous for array in arrays)


def argsort(words: Words) -> Ints:
    """The stable permutation that sorts the words."""
    if compiled is not None and _plain(words):
        order = np.empty(len(words), np.int64)
        compiled.argsort(words, order)
        return order
    return np.argsort(words, kind="stable")


def lower_bounds(column: Words, wanted: Words) -> Ints:
    """For each wanted word, the number of words in the sorted column below it. Faster if ``wanted`` is sorted."""
    if compiled is not None and _plain(column, wanted):
        found = np.empty(len(wanted), np.int64)
        compiled.lower_bounds(column, wanted, found)
        return found
    return np.searchsorted(column, wanted)


def runs_of(column: Words, wanted: Words) -> tuple[Ints, Ints, Ints]:
    """Of the wanted words (sorted, unique) that are in the sorted column: their indices in ``wanted``, and the rows
    [left, right) of the column with each."""
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
    """For each wanted word, the first row of the sorted column with it (or where it would be inserted), and the number
    of rows with it. Faster if ``wanted`` is sorted."""
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
    """The values at these indices, which must not be negative."""
    if compiled is not None and _plain(values, indices):
        found = np.empty(len(indices), values.dtype)
        compiled.gather(values, indices, found)
        return found
    taken: npt.NDArray[_Number] = values[indices]
    return taken


def run_sums(values: Ints, starts: npt.NDArray[np.integer]) -> Ints:
    """The sum of each run of values, modulo 2^64. Runs begin at ``starts``, which are strictly ascending."""
    if compiled is not None and _plain(values, starts):
        found = np.empty(len(starts), np.int64)
        compiled.run_sums(values, starts, found)
        return found
    sums: Ints = np.add.reduceat(values, starts)
    return sums


def keep_memory(most: int) -> None:
    """Let this process keep up to ``most`` bytes of freed memory.

    Every epoch allocates memory for its columns, some of 10 MB each. The system provides new memory page by page, which
    takes a fifth of a large epoch's time."""
    if compiled is not None:
        compiled.keep_memory(most)


@contextmanager
def memory_kept(most: int) -> Iterator[None]:
    """`keep_memory` inside a with-block, for a process that other code uses afterwards."""
    keep_memory(most)
    try:
        yield
    finally:
        keep_memory(_USUAL)
        give_back_memory()


def give_back_memory() -> None:
    """Return all freed memory to the system."""
    if compiled is not None:
        compiled.give_back_memory()
