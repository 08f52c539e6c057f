"""The groups that an epoch touches, and how rows of traces find their groups.

Groups are sorted by the hash of their key. The hash finds candidates, the key decides. If no two touched groups share
a hash (practically always), a row is compared with its only candidate; otherwise groups and rows are sorted together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.numbers.digits import Ints, Words
from holdfast.trace import exact, physical
from holdfast.trace.inner_loops import lower_bounds
from holdfast.trace.rows import Block, equal_rows, group_rows


def once(hashes: Words) -> Words:
    """Sorted hashes without repetitions."""
    fresh = hashes[1:] != hashes[:-1]
    return hashes if fresh.all() else hashes[np.concatenate(([True], fresh))]


@dataclass(frozen=True)
class Groups:
    """Distinct keys with their hashes, sorted by hash."""

    hash: Words
    keys: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.hash)

    @cached_property
    def hashes(self) -> Words:
        """The hashes of the groups, without repetitions."""
        return once(self.hash)

    def locate(self, block: Block, candidates: npt.NDArray[np.integer] | None = None) -> Ints:
        """The index of each row's group; -1 for a row of no group. ``candidates``: the index of each row's hash in
        `hashes`, if known."""
        if not len(self) or not block.rows:
            return np.full(block.rows, -1, dtype=np.int64)
        if not self.keys:
            # The empty key: there is one group, and its hash decides.
            return np.where(block.hash == self.hash[0], 0, -1)
        keys = block.columns[: len(self.keys)]
        if len(self.hashes) == len(self.hash):
            if candidates is None:
                candidates = np.minimum(lower_bounds(self.hash, block.hash), len(self) - 1)
            same = (self.hash[candidates] == block.hash) & equal_rows(physical.take_all(self.keys, candidates), keys)
            return np.where(same, candidates, -1)
        arranged, starts = group_rows(
            np.concatenate([self.hash, block.hash]),
            [physical.concat([mine, other]) for mine, other in zip(self.keys, keys, strict=True)],
        )
        label = np.empty(len(arranged), dtype=np.int64)
        label[arranged] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(arranged)))
        owner = np.full(len(starts), -1, dtype=np.int64)
        owner[label[: len(self)]] = np.arange(len(self))
        return owner[label[len(self) :]]

    def sums(self, places: Ints, values: Ints) -> Ints:
        """The sum of the values of each group's rows. ``places`` are the indices of the groups; rows at -1 are
        ignored."""
        return exact.sums_at(places, values, len(self) + 1)[:-1]
