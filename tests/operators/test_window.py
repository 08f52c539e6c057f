"""Window functions against computing everything, row by row, in plain Python: after every epoch, the change is the
change of the whole."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import EvaluationError
from holdfast.operators import window
from holdfast.operators.window import WindowSpec
from holdfast.operators.window_frames import Frame
from holdfast.operators.window_functions import OverSpec
from holdfast.trace.hashing import weak_bits
from operators.running import Runner, added, bag, compare, exact

STRING, DOUBLE, INT, LONG = pa.string(), pa.float64(), pa.int32(), pa.int64()
DECIMAL = pa.decimal128(12, 2)
TYPES = (STRING, DOUBLE, LONG, DECIMAL)

KEYS = st.sampled_from([None, "a", "b"])
DOUBLES = st.sampled_from([None, math.nan, -math.inf, math.inf, 0.0, -0.0, 1.5, 0.1, 1e10])
LONGS = st.one_of(st.none(), st.integers(-3, 3))
DECIMALS = st.sampled_from([None, Decimal("0.00"), Decimal("-1.10"), Decimal("9999999999.99")])
ROWS = st.tuples(KEYS, DOUBLES, LONGS, DECIMALS)

OFFSETS = st.one_of(st.none(), st.integers(-2, 2))
FRAMES = st.one_of(
    st.builds(Frame, st.just(True), OFFSETS, OFFSETS),
    st.builds(Frame, st.just(False), st.sampled_from([None, 0]), st.sampled_from([None, 0])),
)
RANKINGS = {"row_number": INT, "rank": INT, "dense_rank": INT, "percent_rank": DOUBLE, "cume_dist": DOUBLE}
SUMS = {1: (DOUBLE, DOUBLE), 2: (LONG, DOUBLE), 3: (pa.decimal128(22, 2), pa.decimal128(16, 6))}


@st.composite
def calls(draw: st.DrawFn) -> OverSpec:
    place = draw(st.integers(0, 3))
    kind, frame, nulls = TYPES[place], draw(FRAMES), draw(st.booleans())
    number = draw(st.integers(1, 3))
    match draw(st.sampled_from(["ranking", "ntile", "neighbour", "value", "count", "extreme", "sum"])):
        case "ranking":
            function = draw(st.sampled_from(sorted(RANKINGS)))
            return OverSpec(function, (), (), RANKINGS[function])
        case "ntile":
            return OverSpec("ntile", (), (), INT, number)
        case "neighbour":
            arguments = (place,) * draw(st.integers(1, 2))
            function = draw(st.sampled_from(["lag", "lead"]))
            return OverSpec(function, arguments, (kind,) * len(arguments), kind, number - 2, ignore_nulls=nulls)
        case "value":
            function = draw(st.sampled_from(["first_value", "last_value", "nth_value"]))
            return OverSpec(function, (place,), (kind,), kind, number, frame, nulls)
        case "count":
            arguments = draw(st.sampled_from([(), (place,)]))
            return OverSpec("count", arguments, (kind,) * len(arguments), LONG, frame=frame)
        case "extreme":
            return OverSpec(draw(st.sampled_from(["min", "max"])), (place,), (kind,), kind, frame=frame)
    place = draw(st.integers(1, 3))
    function = draw(st.sampled_from(["sum", "avg"]))
    return OverSpec(function, (place,), (TYPES[place],), SUMS[place][function == "avg"], frame=frame)


# -- the model ----------------------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    return compare(one, other) == 0


def total(values: list[Any], function: str, kind: pa.DataType) -> Any:
    """The sum or the average of values that are not NULL, exact, rounded once."""
    if not values:
        return None
    if isinstance(values[0], float):
        special = {value for value in values if math.isinf(value)}
        if any(map(math.isnan, values)) or len(special) == 2:
            return math.nan
        summed = special.pop() if special else float(sum(map(Fraction, values)))
        return summed / len(values) if function == "avg" else summed
    if function == "sum":
        return sum(values)
    if isinstance(values[0], int):
        return sum(values) / len(values)
    mean = Fraction(sum(values)) / len(values) * 10**kind.scale
    size = math.floor(abs(mean) + Fraction(1, 2))
    return Decimal(size if mean >= 0 else -size).scaleb(-kind.scale)


def value(call: OverSpec, rows: list[Any], at: int, peer: list[int]) -> Any:
    """The function's value for the row at a place of its partition; ``peer``: the run of peers of each row."""
    size = len(rows)
    here = [place for place in range(size) if peer[place] == peer[at]]
    match call.function:
        case "row_number":
            return at + 1
        case "rank":
            return here[0] + 1
        case "dense_rank":
            return peer[at] + 1
        case "percent_rank":
            return here[0] / (size - 1) if size > 1 else 0.0
        case "cume_dist":
            return (here[-1] + 1) / size
        case "ntile":
            sizes = [size // call.number + (bucket < size % call.number) for bucket in range(call.number)]
            return next(bucket + 1 for bucket in range(call.number) if at < sum(sizes[: bucket + 1]))
        case "lag" | "lead":
            step = -call.number if call.function == "lag" else call.number
            places = list(range(size))
            if call.ignore_nulls and step:
                places = [place for place in places if place == at or rows[place][call.arguments[0]] is not None]
            wanted = places.index(at) + step
            if 0 <= wanted < len(places):
                return rows[places[wanted]][call.arguments[0]]
            return rows[at][call.arguments[1]] if len(call.arguments) > 1 else None
    start, end = call.frame.start, call.frame.end
    low = 0 if start is None else max(at + start, 0) if call.frame.rows else here[0]
    high = size if end is None else max(at + end + 1, 0) if call.frame.rows else here[-1] + 1
    frame = rows[low:high]
    if not call.arguments:
        return len(frame)
    values = [row[call.arguments[0]] for row in frame]
    having = [each for each in values if each is not None]
    values = having if call.ignore_nulls else values
    match call.function:
        case "count":
            return len(having)
        case "min" | "max":
            least = sorted(having, key=cmp_to_key(compare))
            if not least:
                return None
            # Of values that compare equal: the first, or the last, in the order of the rows.
            return least[0] if call.function == "min" else least[-1]
        case "first_value":
            return values[0] if values else None
        case "last_value":
            return values[-1] if values else None
        case "nth_value":
            return values[call.number - 1] if len(values) >= call.number else None
    return total(having, call.function, call.result_type)


def in_order(spec: WindowSpec, rows: list[Any]) -> list[Any]:
    """Rows of a partition in the order of the window, ties by the whole row, key first."""
    places = spec.arrangement.places

    def before(one: Any, other: Any) -> int:
        for position, descending, nulls_first in spec.order:
            x, y = one[position], other[position]
            if (x is None) != (y is None):
                return -1 if (x is None) == nulls_first else 1
            if found := compare(x, y):
                return -found if descending else found
        found = next((c for c in (compare(one[place], other[place]) for place in places) if c), 0)
        # 0.0 goes before -0.0: by the content alone.
        return found or (bits(one) > bits(other)) - (bits(one) < bits(other))

    return sorted(rows, key=cmp_to_key(before))


def bits(row: Any) -> list[Any]:
    return [exact(each)[1] for each in row if isinstance(each, float)]


def whole(spec: WindowSpec, rows: Counter[Any], values: dict[Any, Any]) -> Counter[Any]:
    """Every row with its values."""
    partitions: list[list[Any]] = []
    for mark, count in rows.items():
        row = values[mark]
        mine = [each for each in partitions if all(same(each[0][place], row[place]) for place in spec.partition)]
        if not mine:
            partitions.append([])
        (mine[0] if mine else partitions[-1]).extend([row] * count)
    found: list[tuple[Any, int]] = []
    for partition in partitions:
        ordered = in_order(spec, partition)
        peer, run = [], 0
        for place, row in enumerate(ordered):
            if place and not all(same(row[p], ordered[place - 1][p]) for p, _, _ in spec.order):
                run += 1
            peer.append(run)
        found += [
            (row + tuple(value(call, ordered, place, peer) for call in spec.calls), 1)
            for place, row in enumerate(ordered)
        ]
    return bag(found)


# -- the tests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weak", [None, 1], ids=["strong hash", "weak hash"])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_change_is_the_change_of_every_rows_values(weak: int | None, data: st.DataObject) -> None:
    directions = st.tuples(st.integers(0, 3), st.booleans(), st.booleans())
    spec = WindowSpec(
        data.draw(st.sampled_from([(), (0,), (0, 2), (1,)])),
        tuple(data.draw(st.lists(directions, max_size=2))),
        tuple(data.draw(st.lists(calls(), min_size=1, max_size=3))),
        TYPES,
    )
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    rows: Counter[Any] = Counter()
    before: Counter[Any] = Counter()
    values: dict[Any, Any] = {}
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak is not None else nullcontext():
        runner = Runner(spec, [TYPES], Path(directory), dice)
        for _ in range(data.draw(st.integers(1, 4))):
            inserted = data.draw(st.lists(st.tuples(ROWS, st.sampled_from([1, 1, 2])), max_size=8))
            gone = [(values[row], -dice.randint(1, rows[row])) for row in rows if dice.random() < 0.3]
            values |= {tuple(map(exact, row)): row for row, _ in inserted}
            rows = added(rows, bag(inserted + gone))
            after = whole(spec, rows, values)
            assert runner.epoch(inserted + gone) == added(after, before, -1)
            before = after


@pytest.mark.parametrize("weak", [None, 1], ids=["strong hash", "weak hash"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_first_rows_are_the_first_of_all_rows(weak: int | None, data: st.DataObject) -> None:
    directions = st.tuples(st.integers(1, 2), st.booleans(), st.booleans())
    functions = data.draw(st.permutations(["row_number", "rank", "dense_rank"]))
    bounding = functions.index(data.draw(st.sampled_from(["row_number", "rank"])))
    count = data.draw(st.integers(1, 4))
    spec = WindowSpec(
        data.draw(st.sampled_from([(), (0,)])),
        tuple(data.draw(st.lists(directions, min_size=1, max_size=2))),
        tuple(OverSpec(function, (), (), INT) for function in functions),
        TYPES,
        (bounding, count),
    )
    rows_of_few = st.tuples(KEYS, st.sampled_from([None, 0.0, -0.0, 1.5]), LONGS, st.none())
    dice = random.Random(data.draw(st.integers(0, 1 << 30)))
    rows: Counter[Any] = Counter()
    before: Counter[Any] = Counter()
    values: dict[Any, Any] = {}
    with tempfile.TemporaryDirectory() as directory, weak_bits(weak) if weak is not None else nullcontext():
        runner = Runner(spec, [TYPES], Path(directory), dice)
        for _ in range(data.draw(st.integers(1, 5))):
            inserted = data.draw(st.lists(st.tuples(rows_of_few, st.sampled_from([1, 1, 3])), max_size=15))
            gone = [(values[row], -dice.randint(1, rows[row])) for row in rows if dice.random() < 0.4]
            values |= {tuple(map(exact, row)): row for row, _ in inserted}
            rows = added(rows, bag(inserted + gone))
            every = whole(spec, rows, values)
            after = Counter({row: copies for row, copies in every.items() if row[len(TYPES) + bounding] <= count})
            assert runner.epoch(inserted + gone) == added(after, before, -1)
            before = after


REACHING = (STRING, DOUBLE, DOUBLE, DOUBLE)
"""Key, value, and the least and the greatest value in the frame of the row."""


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_frames_by_value_hold_the_rows_in_reach(data: st.DataObject) -> None:
    descending, nulls_first = data.draw(st.booleans()), data.draw(st.booleans())
    low, high = data.draw(st.sampled_from([None, -2.0, -1.0, 0.0, 1.0])), data.draw(st.sampled_from([None, 0.0, 1.5]))
    sign = -1 if descending else 1
    function = OverSpec(
        "count", (), (), LONG, frame=Frame(False, None if low is None else 0, None if high is None else 0),
        reach=(None if low is None else 2, None if high is None else 3),
    )  # fmt: skip
    spec = WindowSpec((0,), ((1, descending, nulls_first),), (function,), REACHING)
    numbers = st.sampled_from([None, -math.inf, math.inf, math.nan, 0.0, -0.0, 1.0, 1.5, 2.0, 3.0])
    drawn = data.draw(st.lists(st.tuples(st.sampled_from("ab"), numbers), max_size=12))

    def ends(value: float | None) -> tuple[float | None, float | None]:
        return None if value is None else value + sign * (low or 0.0), None if value is None else value + sign * (
            high or 0.0
        )

    rows = [(key, number, *ends(number)) for key, number in drawn]

    def before(one: float | None, other: float | None) -> int:
        """Where the one stands in the order, seen from the other."""
        if one is None or other is None:
            return 0 if one is other else -1 if (one is None) == nulls_first else 1
        return sign * compare(one, other)

    found = []
    for row in rows:
        count = 0
        for other in rows:
            after_start = low is None or before(other[1], row[2]) >= 0
            if row[1] is not None and other[1] is None:
                after_start, until_end = low is None and nulls_first, high is None and not nulls_first
                inside = (after_start and nulls_first) or (until_end and not nulls_first)
            else:
                inside = after_start and (high is None or before(other[1], row[3]) <= 0)
            count += other[0] == row[0] and inside
        found.append(((*row, count), 1))
    with tempfile.TemporaryDirectory() as directory:
        runner = Runner(spec, [REACHING], Path(directory), random.Random(1))
        half = len(rows) // 2
        first = runner.epoch([(row, 1) for row in rows[:half]])
        second = runner.epoch([(row, 1) for row in rows[half:]])
        assert added(first, second) == bag(found)


def runner_of(spec: WindowSpec, directory: Path) -> Runner:
    return Runner(spec, [spec.types], directory, random.Random(3))


RUNNING = Frame(False, None, 0)


def test_a_row_that_comes_first_moves_its_own_partition_only(tmp_path: Path) -> None:
    spec = WindowSpec((0,), ((1, False, True),), (OverSpec("row_number", (), (), INT),), (STRING, LONG))
    runner = runner_of(spec, tmp_path)
    runner.epoch([(("a", 2), 1), (("a", 3), 1), (("b", 2), 1)])
    assert runner.epoch([(("a", 1), 1)]) == bag(
        [(("a", 1, 1), 1), (("a", 2, 1), -1), (("a", 2, 2), 1), (("a", 3, 2), -1), (("a", 3, 3), 1)]
    )


def test_first_rows_cost_what_they_are_and_not_the_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = OverSpec("row_number", (), (), INT)
    spec = WindowSpec((0,), ((1, False, True),), (number,), (STRING, LONG), (0, 2))
    runner = runner_of(spec, tmp_path)
    runner.epoch([(("a", n), 1) for n in range(5000)])
    ordered: list[int] = []
    plain = window.sort_rows
    monkeypatch.setattr(window, "sort_rows", lambda *given: ordered.append(len(given[0])) or plain(*given))
    assert runner.epoch([(("a", -1), 1)]) == bag(
        [(("a", -1, 1), 1), (("a", 0, 1), -1), (("a", 0, 2), 1), (("a", 1, 2), -1)]
    )
    assert runner.epoch([(("a", n), -1) for n in range(-1, 4)]) == bag(
        [(("a", -1, 1), -1), (("a", 0, 2), -1), (("a", 4, 1), 1), (("a", 5, 2), 1)]
    )
    assert runner.epoch([(("a", 4999), -1)]) == bag([])
    assert max(ordered) < 20


def test_copies_of_a_row_have_numbers_of_their_own(tmp_path: Path) -> None:
    spec = WindowSpec((), ((0, False, True),), (OverSpec("row_number", (), (), INT),), (LONG,))
    runner = runner_of(spec, tmp_path)
    assert runner.epoch([((7,), 3)]) == bag([((7, 1), 1), ((7, 2), 1), ((7, 3), 1)])
    assert runner.epoch([((7,), -1)]) == bag([((7, 3), -1)])


def test_a_running_sum_is_the_same_bits_whatever_came_and_went(tmp_path: Path) -> None:
    sums = OverSpec("sum", (1,), (DOUBLE,), DOUBLE, frame=RUNNING)
    spec = WindowSpec((), ((0, False, True),), (sums,), (LONG, DOUBLE))
    runner = runner_of(spec, tmp_path)
    runner.epoch([((1, 1e16), 1), ((2, 0.1), 1), ((3, 0.2), 1)])
    change = runner.epoch([((1, 1e16), -1), ((0, 0.3), 1)])
    assert change[tuple(map(exact, (3, 0.2, float(Fraction(0.1) + Fraction(0.2) + Fraction(0.3)))))] == 1


def test_sums_over_a_whole_partition_are_exact_beyond_64_bits(tmp_path: Path) -> None:
    large = pa.decimal128(18, 0)
    calls = (
        OverSpec("sum", (0,), (LONG,), DOUBLE),
        OverSpec("sum", (1,), (DOUBLE,), DOUBLE),
        OverSpec("sum", (2,), (large,), pa.decimal128(28, 0)),
    )
    runner = runner_of(WindowSpec((), (), calls, (LONG, DOUBLE, large)), tmp_path)
    row = (3 * 2**60, 2.0**61, Decimal(9 * 10**17))
    total = (float(60 * 2**60), 40 * 2.0**60, Decimal(20 * 9 * 10**17))
    assert runner.epoch([(row, 20)]) == bag([((*row, *total), 20)])


def test_a_sum_over_a_whole_partition_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    runner = runner_of(WindowSpec((), (), (OverSpec("sum", (0,), (LONG,), LONG),), (LONG,)), tmp_path)
    with pytest.raises(EvaluationError, match="overflow"):
        runner.epoch([((2**61,), 10)])


def test_a_sum_over_a_frame_that_does_not_fit_is_an_error_that_names_the_partition(tmp_path: Path) -> None:
    sums = OverSpec("sum", (1,), (LONG,), LONG, frame=Frame(True, -1, 0))
    spec = WindowSpec((0,), ((1, False, True),), (sums,), (STRING, LONG))
    runner = runner_of(spec, tmp_path)
    runner.epoch([(("a", 2**62), 1), (("b", 2**62), 1)])
    with pytest.raises(EvaluationError, match=r"sum\(column 1\) over \('b'\)"):
        runner.epoch([(("b", 2**62 + 1), 1)])


def test_keys_that_spark_takes_for_equal_are_one_partition(tmp_path: Path) -> None:
    spec = WindowSpec((0,), (), (OverSpec("count", (), (), LONG),), (DOUBLE, LONG))
    runner = runner_of(spec, tmp_path)
    runner.epoch([((0.0, 1), 1)])
    assert runner.epoch([((-0.0, 2), 1)]) == bag([((0.0, 1, 1), -1), ((0.0, 1, 2), 1), ((-0.0, 2, 2), 1)])
