"""Left, full, semi and anti joins against a brute-force oracle: after every epoch the output change is the difference
of the full results. Rows come and go, so that keys become present and absent on either side."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.operators.join import KERNELS
from holdfast.operators.join_sides import JoinSpec
from holdfast.operators.outer_join import OuterJoin
from holdfast.operators.semi_join import SemiJoin
from holdfast.trace.hashing import weak_bits
from operators.running import Rows, Runner, added, bag
from operators.test_join import INT, SHAPES, STRING, normal

How = Literal["inner", "left", "full", "semi", "anti"]


def present(rows: Rows) -> list[tuple[tuple[Any, ...], int]]:
    """Rows with their multiplicity, each once."""
    counted: Counter[Any] = Counter()
    first: dict[Any, tuple[Any, ...]] = {}
    for row, diff in rows:
        (key,) = bag([(row, 1)])
        first.setdefault(key, row)
        counted[key] += diff
    return [(first[key], diff) for key, diff in counted.items() if diff]


def expected(left: Rows, right: Rows, spec: JoinSpec) -> Counter[Any]:
    flags = spec.null_safe or (False,) * len(spec.left_keys)

    def key(row: tuple[Any, ...], places: tuple[int, ...]) -> Any:
        values = [row[place] for place in places]
        if any(value is None and not safe for value, safe in zip(values, flags, strict=True)):
            return None
        return tuple(map(normal, values))

    ours = [(row, diff, key(row, spec.left_keys)) for row, diff in present(left)]
    theirs = [(row, diff, key(row, spec.right_keys)) for row, diff in present(right)]
    counts = [Counter[Any](), Counter[Any]()]
    for count, rows in zip(counts, (ours, theirs), strict=True):
        for _, diff, mine in rows:
            if mine is not None:
                count[mine] += diff
    nothing_left, nothing_right = (None,) * len(spec.left_types), (None,) * len(spec.right_types)
    found: list[tuple[tuple[Any, ...], int]] = []
    if spec.how in ("semi", "anti"):
        found += [(row, diff) for row, diff, mine in ours if (counts[1][mine] > 0) == (spec.how == "semi")]
        return bag(found)
    found += [
        ((*row, *other), diff * times)
        for row, diff, mine in ours
        for other, times, its in theirs
        if mine is not None and mine == its
    ]
    if spec.how in ("left", "full"):
        found += [((*row, *nothing_right), diff) for row, diff, mine in ours if counts[1][mine] <= 0]
    if spec.how == "full":
        found += [((*nothing_left, *row), diff) for row, diff, its in theirs if counts[0][its] <= 0]
    return bag(found)


@pytest.mark.parametrize("weak", [None, 2], ids=["strong hash", "weak hash"])
@pytest.mark.parametrize("how", get_args(How))
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_change_is_the_difference_of_the_full_results(
    shape: str, how: How, weak: int | None, data: st.DataObject
) -> None:
    left, right, left_keys, right_keys = SHAPES[shape]
    types = [[kind for kind, _ in side] for side in (left, right)]
    flags = data.draw(st.sampled_from([(), (True,) * len(left_keys), (True, False)[: len(left_keys)]]))
    spec = KERNELS[how](left_keys, right_keys, tuple(types[0]), tuple(types[1]), how, flags if any(flags) else ())
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    changes = [st.lists(st.tuples(*(s for _, s in side)), max_size=6) for side in (left, right)]
    epochs = data.draw(st.lists(st.tuples(*changes), min_size=1, max_size=6))
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak is not None else nullcontext():
        runner = Runner(spec, types, Path(directory), dice)
        rows: list[list[Any]] = [[], []]
        before: Counter[Any] = Counter()
        for new in epochs:
            change = []
            for side, came in enumerate(new):
                there = [row for row, diff in present(rows[side]) for _ in range(diff)]
                gone = dice.sample(there, dice.randrange(len(there) + 1))
                change.append([(row, 1) for row in came] + [(row, -1) for row in gone])
                rows[side] += change[-1]
            after = expected(rows[0], rows[1], spec)
            assert runner.epoch(*change) == added(after, before, -1)
            before = after


def test_padded_row_goes_with_the_first_match_and_comes_back_with_the_last(tmp_path: Path) -> None:
    spec = OuterJoin((0,), (0,), (INT,), (INT, STRING), "left")
    runner = Runner(spec, [(INT,), (INT, STRING)], tmp_path, random.Random(0))
    assert runner.epoch([((1,), 2)], []) == bag([((1, None, None), 2)])
    assert runner.epoch([], [((1, "a"), 1)]) == bag([((1, None, None), -2), ((1, 1, "a"), 2)])
    assert runner.epoch([], [((1, "b"), 1)]) == bag([((1, 1, "b"), 2)])
    assert runner.epoch([], [((1, "a"), -1)]) == bag([((1, 1, "a"), -2)])
    assert runner.epoch([], [((1, "b"), -1)]) == bag([((1, 1, "b"), -2), ((1, None, None), 2)])


def test_match_that_moves_to_another_row_of_its_key_leaves_an_anti_join_alone(tmp_path: Path) -> None:
    spec = SemiJoin((0,), (0,), (INT,), (INT, STRING), "anti")
    runner = Runner(spec, [(INT,), (INT, STRING)], tmp_path, random.Random(0))
    assert not runner.epoch([((1,), 1)], [((1, "a"), 1)])
    assert not runner.epoch([], [((1, "a"), -1), ((1, "b"), 1)])
    assert runner.epoch([], [((1, "b"), -1)]) == bag([((1,), 1)])


def test_null_key_is_padded_on_arrival_and_kept_in_no_trace(tmp_path: Path) -> None:
    spec = OuterJoin((0,), (0,), (INT, STRING), (INT,), "full")
    runner = Runner(spec, [(INT, STRING), (INT,)], tmp_path, random.Random(0))
    assert runner.epoch([((None, "a"), 1)], [((None,), 1)]) == bag([((None, "a", None), 1), ((None, None, None), 1)])
    assert not any(runner.state(suffix) for suffix in spec.layouts())
    assert runner.epoch([((None, "a"), -1)], []) == bag([((None, "a", None), -1)])


def test_null_safe_key_matches_null(tmp_path: Path) -> None:
    spec = OuterJoin((0,), (0,), (INT,), (INT,), "left", (True,))
    runner = Runner(spec, [(INT,), (INT,)], tmp_path, random.Random(0))
    assert runner.epoch([((None,), 1)], []) == bag([((None, None), 1)])
    # The padded row goes and the pair comes, and they are the same row.
    assert not runner.epoch([], [((None,), 1)])
    assert runner.epoch([], [((None,), 1)]) == bag([((None, None), 1)])
    assert runner.epoch([], [((None,), -2)]) == bag([((None, None), -1)])


def test_semi_join_keeps_of_the_right_side_keys_and_their_number_alone(tmp_path: Path) -> None:
    spec = SemiJoin((0,), (0,), (INT,), (INT, STRING), "semi")
    runner = Runner(spec, [(INT,), (INT, STRING)], tmp_path, random.Random(0))
    assert runner.epoch([((1,), 1)], [((1, "a"), 1), ((1, "b"), 2)]) == bag([((1,), 1)])
    assert runner.state("right.count") == bag([((1,), 3)])
