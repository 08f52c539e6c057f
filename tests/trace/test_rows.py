"""Consolidation against a dictionary, with strong and weak hashes, in any order of arrival."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.trace.hashing import hash_columns, normalise_keys, order_prefix, weak_bits
from holdfast.trace.rows import Block, Layout, consolidate, constant_epoch, group_rows, sub_hash

from .model import KEY_TYPES, TYPES, identity, rows_of, value

WEAK = [0, 2, 64]
SUBS: list[Any] = ["none", "hash", "order"]


def random_block(rng: Random, layout: Layout, kinds: list[pa.DataType], rows: int, epochs: int = 1) -> Block:
    """Rows from a small set of values, so that many are equal."""
    pool = [[value(rng, kind) for _ in range(3)] for kind in kinds]
    columns = [
        pa.array([rng.choice(items) for _ in range(rows)], kind) for items, kind in zip(pool, kinds, strict=True)
    ]
    return block_of(layout, columns, [rng.randrange(epochs) for _ in range(rows)], rng)


def block_of(layout: Layout, columns: list[pa.Array], epochs: list[int], rng: Random) -> Block:
    rows = len(epochs)
    sub = None
    if layout.sub == "hash":
        sub = sub_hash(columns, layout)
    elif layout.sub == "order":
        sub = order_prefix(columns[layout.key], descending=False, nulls_first=True)
    adds = {
        "+diff": np.array([rng.choice((-1, 0, 1, 2)) for _ in range(rows)], np.int64),
        "+0.n": np.array([rng.choice((-1, 0, 0, 1)) for _ in range(rows)], np.int64),
    }
    keys = [normalise_keys(column) for column in columns[: layout.key]]
    return Block(hash_columns(keys, rows=rows), sub, tuple(columns), np.array(epochs, np.int64), adds)


def bag(block: Block) -> dict[Any, tuple[int, ...]]:
    """The oracle: (row, epoch) → sums, without those that are all zero."""
    sums: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    rows = rows_of(block.columns) or [()] * block.rows
    for row, epoch, diff, n in zip(
        rows, block.epoch.tolist(), block.diff.tolist(), block.add("+0.n").tolist(), strict=True
    ):
        sums[row, epoch][0] += diff
        sums[row, epoch][1] += n
    return {key: tuple(total) for key, total in sums.items() if any(total)}


def contents(block: Block) -> list[Any]:
    sub = [0] * block.rows if block.sub is None else block.sub.tolist()
    rows = rows_of(block.columns) or [()] * block.rows
    adds = [block.adds[name].tolist() for name in sorted(block.adds)]
    return list(zip(block.hash.tolist(), sub, rows, block.epoch.tolist(), *adds, strict=True))


@pytest.mark.parametrize("weak", WEAK)
@pytest.mark.parametrize("sub", SUBS)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=30, deadline=None)
def test_consolidating_sums_equal_rows_and_drops_zeros(sub: Any, weak: int, seed: int) -> None:
    rng = Random(seed)
    kinds = [rng.choice(KEY_TYPES if i < 2 else TYPES) for i in range(rng.randrange(2, 4))]
    layout = Layout(len(kinds), rng.randrange(2), sub)
    with weak_bits(weak):
        block = random_block(rng, layout, kinds, rng.randrange(30), epochs=rng.choice((1, 3)))
        found = consolidate(block, layout)
        assert bag(found) == bag(block)
        assert len(bag(found)) == found.rows
        keys = [(h, s) for h, s, *_ in contents(found)]
        assert keys == sorted(keys)
        # Any order and any splitting gives the same sequence, and doing it twice changes nothing.
        order = np.array(rng.sample(range(block.rows), block.rows), np.int64)
        shuffled = block.take(order)
        cut = rng.randrange(block.rows + 1)
        parts = [consolidate(shuffled.slice(0, cut), layout), consolidate(shuffled.slice(cut, block.rows), layout)]
        assert contents(consolidate(shuffled, layout)) == contents(found)
        assert contents(consolidate(Block.concat(parts), layout)) == contents(found)
        assert contents(consolidate(found, layout)) == contents(found)
        # Epochs of one row follow each other.
        for before, after in pairwise(contents(found)):
            if before[:3] == after[:3]:
                assert before[3] < after[3]
        distinct = {(h, s, r) for h, s, r, *_ in contents(found)}
        assert len(distinct) == (found.rows and 1 + sum(a[:3] != b[:3] for a, b in pairwise(contents(found))))


@pytest.mark.parametrize("weak", WEAK)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=30, deadline=None)
def test_grouping_puts_equal_keys_together_in_an_order_of_content_alone(weak: int, seed: int) -> None:
    rng = Random(seed)
    kinds = [rng.choice(KEY_TYPES) for _ in range(rng.randrange(1, 3))]
    layout = Layout(len(kinds), len(kinds), "none")
    with weak_bits(weak):
        block = random_block(rng, layout, kinds, rng.randrange(25))
        order, starts = group_rows(block.hash, block.columns)
        assert sorted(order.tolist()) == list(range(block.rows))
        rows = rows_of(block.columns)
        ends = [*starts.tolist()[1:], block.rows] if block.rows else []
        groups = [{rows[i] for i in order[a:b]} for a, b in zip(starts.tolist(), ends, strict=True)]
        assert all(len(group) == 1 for group in groups)
        assert len(groups) == len(set(rows))
        assert (np.diff(block.hash[order].astype(object)) >= 0).all()
        other = np.array(rng.sample(range(block.rows), block.rows), np.int64)
        again, again_starts = group_rows(block.hash[other], [column.take(pa.array(other)) for column in block.columns])
        assert [rows[i] for i in order[starts]] == [rows[other[i]] for i in again[again_starts]]


def test_many_rows_consolidate_as_few_do() -> None:
    """Enough rows for the sorts' fast paths: sorted runs, one hash, pairs."""
    numbers = np.random.default_rng(5)
    for layout in (Layout(2, 1, "none"), Layout(2, 1, "hash"), Layout(2, 0, "order"), Layout(2, 1, "order")):
        keys, others = numbers.integers(0, 500, 20_000), numbers.integers(0, 20, 20_000)
        block = block_of(layout, [pa.array(keys), pa.array(others)], numbers.integers(0, 3, 20_000).tolist(), Random(1))
        sums: Counter[tuple[int, int, int]] = Counter()
        for key, other, epoch, diff in zip(
            keys.tolist(), others.tolist(), block.epoch.tolist(), block.diff.tolist(), strict=True
        ):
            sums[key, other, epoch] += diff
        for pieces in (1, 7):
            bounds = [block.rows * i // pieces for i in range(pieces + 1)]
            parts = [consolidate(block.slice(a, b), layout) for a, b in pairwise(bounds)]
            found = consolidate(Block.concat(parts), layout)
            pairs = zip(found.columns[0].to_pylist(), found.columns[1].to_pylist(), found.epoch.tolist(), strict=True)
            assert {k: d for k, d in zip(pairs, found.diff.tolist(), strict=True) if d} == {
                k: d for k, d in sums.items() if d
            }


def test_canonical_input_is_returned_untouched() -> None:
    layout = Layout(2, 1, "order")
    for weak in WEAK:
        with weak_bits(weak):
            block = consolidate(random_block(Random(3), layout, [pa.int64(), pa.string()], 20), layout)
            assert consolidate(block, layout) is block


def test_a_row_stays_while_any_additive_column_is_not_zero() -> None:
    layout = Layout(1, 1, "none")
    column = pa.array([7, 7])
    adds = {"+diff": np.array([1, -1]), "+0.s.1": np.array([5, 0])}
    found = consolidate(Block(hash_columns([column]), None, (column,), constant_epoch(4, 2), adds), layout)
    assert found.rows == 1 and found.diff.tolist() == [0] and found.adds["+0.s.1"].tolist() == [5]


def test_zeros_of_either_sign_share_a_key_but_are_different_rows() -> None:
    layout = Layout(1, 1, "hash")
    column = pa.array([0.0, -0.0, 0.0])
    block = Block(hash_columns([column]), None, (column,), constant_epoch(0, 3), {"+diff": np.ones(3, np.int64)})
    found = consolidate(block, layout)
    assert len(set(found.hash.tolist())) == 1
    assert Counter(zip(rows_of(found.columns), found.diff.tolist(), strict=True)) == Counter(
        {((identity(0.0),), 2): 1, ((identity(-0.0),), 1): 1}
    )


def test_concatenation_fills_absent_additive_columns_with_zeros() -> None:
    layout = Layout(1, 1, "none")
    column = pa.array([1, 2])
    one = Block(hash_columns([column]), None, (column,), constant_epoch(0, 2), {"+diff": np.array([1, 1])})
    two = Block(hash_columns([column]), None, (column,), constant_epoch(1, 2), {"+0.n": np.array([3, 4])})
    both = Block.concat([one, two, Block.empty(layout)])
    assert both.diff.tolist() == [1, 1, 0, 0] and both.adds["+0.n"].tolist() == [0, 0, 3, 4]
    assert both.epoch.tolist() == [0, 0, 1, 1]
    assert one.add("+0.n").tolist() == [0, 0]


def test_blocks_without_rows_keep_their_types_where_known() -> None:
    layout = Layout(1, 1, "hash")
    unknown, known = Block.empty(layout), Block.empty(layout, [pa.string()])
    assert Block.concat([unknown, known]).columns[0].type == pa.string()
    assert consolidate(unknown, layout).rows == 0 and unknown.sub is not None


def test_rows_in_order_need_their_prefix() -> None:
    column = pa.array([1])
    block = Block(hash_columns([column]), None, (column,), constant_epoch(0, 1), {"+diff": np.array([1])})
    with pytest.raises(ValueError, match="order prefix"):
        consolidate(block, Layout(1, 0, "order"))
