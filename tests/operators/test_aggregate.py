"""Aggregates, kept up to date, against a plain recomputation in Python after every epoch.

A *world* is a sequence of epochs of insertions and deletions. It is run with arbitrary batches, order, partitions and
merges. The oracle tests catch wrong results and wrong retractions; the twin tests run one world in two ways and catch
outputs or state that depend on how it was run; weak hashes make different keys and values meet under one hash.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import EvaluationError, NegativeMultiplicity, Unsupported
from holdfast.operators import aggregate
from holdfast.operators.aggregate import AggregateSpec, CallSpec
from holdfast.operators.step import Context
from holdfast.trace.cover import Chain
from holdfast.trace.hashing import weak_bits
from holdfast.trace.layer import write_layer
from holdfast.trace.rows import Block
from holdfast.trace.trace import Trace
from holdfast.trace.upkeep import keep_in_shape

I64, F64, DEC, STR = pa.int64(), pa.float64(), pa.decimal128(12, 2), pa.string()
NESTED = pa.struct([("a", pa.list_(F64)), ("b", STR)])
ARGUMENTS = (I64, F64, DEC, STR)
"""Columns 1 to 4; column 0 is the key."""

Row = tuple[Any, ...]
Epoch = list[tuple[Row, int]]


def call(function: str, *places: int, result: pa.DataType = I64, distinct: bool = False) -> CallSpec:
    types = (STR, *ARGUMENTS)
    return CallSpec(function, places, tuple(types[place] for place in places), result, distinct)


SUMS = (
    call("count"),
    call("count", 1),
    call("count", 1, 4),
    call("sum", 1),
    call("avg", 1, result=F64),
    call("sum", 2, result=F64),
    call("avg", 2, result=F64),
    call("sum", 3, result=pa.decimal128(22, 2)),
    call("avg", 3, result=pa.decimal128(16, 6)),
    call("var_pop", 2, result=F64),
    call("stddev_samp", 2, result=F64),
    call("var_samp", 1, result=F64),
    call("stddev_pop", 3, result=F64),
)
ENDS = tuple(
    call(function, place, result=kind)
    for function in ("min", "max", "any_value")
    for place, kind in enumerate(ARGUMENTS, start=1)
)
DISTINCTS = (call("count", 4, distinct=True), call("count", 1, 4, distinct=True), call("count", 2, distinct=True))
MIXED = (SUMS[0], SUMS[5], ENDS[0], ENDS[5], DISTINCTS[1], call("max", 0, result=STR), call("sum", 3, result=DEC))


def keyed(*calls: CallSpec) -> AggregateSpec:
    return AggregateSpec(1, calls, (STR,))


def overall(*calls: CallSpec) -> AggregateSpec:
    return AggregateSpec(0, calls, ())


# Running a world


def table(epoch: Epoch, types: tuple[pa.DataType, ...]) -> pa.Table:
    columns = [pa.array([row[place] for row, _ in epoch], kind) for place, kind in enumerate(types)]
    names = [f"c{place}" for place in range(len(types))]
    return pa.table([*columns, pa.array([diff for _, diff in epoch], I64)], names=[*names, "_diff"])


def on_top(tables: list[pa.Table]) -> pa.Table:
    """Tables on top of each other; additive columns that one lacks are zeros."""
    names = list(dict.fromkeys(name for each in tables for name in each.column_names))
    return pa.concat_tables(
        pa.table([each[n] if n in each.column_names else pa.array([0] * each.num_rows, I64) for n in names], names=names)
        for each in tables
    )


class Run:
    """One way of running a world: ``seed`` decides batches, order, partitions and merges."""

    def __init__(self, directory: Path, spec: AggregateSpec, types: tuple[pa.DataType, ...], seed: int) -> None:
        self.directory, self.spec, self.types = directory, spec, types
        self.random = random.Random(seed)
        self.epoch = -1
        self.view: Counter[Row] = Counter()

    def chain(self) -> Chain:
        return Chain(-1, tuple(f"{epoch:016x}" for epoch in range(self.epoch + 1)))

    def ranges(self) -> list[tuple[int, int]]:
        cuts = sorted({0, 2**64, *(self.random.randrange(2**64) for _ in range(self.random.choice([0, 0, 1, 2])))})
        return list(zip(cuts, cuts[1:], strict=False))

    def step(self, epoch: Epoch) -> list[tuple[Row, int]]:
        """Run one epoch; returns the output change."""
        self.epoch += 1
        rows = epoch[:]
        self.random.shuffle(rows)
        cut = self.random.randint(0, len(rows))
        batches = [rows[:cut], rows[cut:]] if self.random.random() < 0.7 else [rows]
        prepared = on_top([aggregate.prepare(self.spec, 0, table(batch, self.types)) for batch in batches])
        order = list(range(prepared.num_rows))
        self.random.shuffle(order)
        prepared = prepared.take(pa.array(order, I64))
        hashes = prepared["_hash"].to_numpy()
        outputs = []
        for low, high in self.ranges():
            mine = (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))
            outputs.append(self.partition(prepared.filter(pa.array(mine)), low, high))
        if self.random.random() < 0.5:
            self.merge()
        change = pa.concat_tables(outputs)
        found = list(zip(*(plain(column) for column in change.columns), strict=True))
        output = [(tuple(row[:-1]), row[-1]) for row in found]
        for row, diff in output:
            self.view[row] += diff
        self.view = +self.view
        return output

    def partition(self, arrived: pa.Table, low: int, high: int) -> pa.Table:
        layouts = aggregate.layouts(self.spec)
        traces = {
            suffix: Trace.open(self.directory / suffix, layout, low, high, self.epoch - 1, self.chain())
            for suffix, layout in layouts.items()
        }
        done = aggregate.step(self.spec, [arrived], traces, Context(self.epoch, low, high, self.epoch == 0))
        for suffix, layout in layouts.items():
            block = done.layers.get(suffix, Block.empty(layout))
            write_layer(
                self.directory / suffix, block, layout, low=low, high=high, first=self.epoch, last=self.epoch,
                digest=f"{self.epoch:016x}",
            )  # fmt: skip
        return done.output

    def merge(self) -> None:
        since = self.random.randint(-1, self.epoch)
        for suffix, layout in aggregate.layouts(self.spec).items():
            for low, high in self.ranges():
                keep_in_shape(self.directory / suffix, layout, low, high, since, self.chain(), self.epoch)

    def state(self) -> dict[str, Any]:
        """Every trace as of now, as plain values."""
        found: dict[str, Any] = {}
        for suffix, layout in aggregate.layouts(self.spec).items():
            block = Trace.open(self.directory / suffix, layout, 0, 2**64, self.epoch, self.chain()).scan()
            adds = {name: column.tolist() for name, column in sorted(block.adds.items()) if column.any()}
            found[suffix] = (block.hash.tolist(), [plain(column) for column in block.columns], adds)
        return found


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values; doubles as their text, so that comparing them is comparing bits."""
    return [_text(value) for value in column.to_pylist()]


def _text(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return tuple((name, _text(inner)) for name, inner in value.items())
    return tuple(map(_text, value)) if isinstance(value, list) else value


@contextmanager
def running(spec: AggregateSpec, seed: int = 0, types: tuple[pa.DataType, ...] = (STR, *ARGUMENTS)) -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as directory:
        yield Run(Path(directory), spec, types, seed)


# The oracle


def expected(spec: AggregateSpec, bag: list[Row]) -> Counter[Row]:
    groups: dict[Row, list[Row]] = {} if spec.keys else {(): []}
    for row in bag:
        groups.setdefault(tuple(map(_text, row[: spec.keys])), []).append(row)
    return Counter((*key, *(_text(evaluate(c, rows)) for c in spec.calls)) for key, rows in groups.items())


def evaluate(spec: CallSpec, rows: list[Row]) -> Any:
    if not spec.arguments:
        return len(rows)
    tuples = [tuple(_normal(row[place]) for place in spec.arguments) for row in rows]
    tuples = [values for values in tuples if None not in values]
    if spec.function == "count":
        return len({tuple(map(_text, values)) for values in tuples}) if spec.distinct else len(tuples)
    values = [value for (value,) in tuples]
    if not values:
        return None
    if spec.function in ("min", "max", "any_value"):
        return (max if spec.function == "max" else min)(values, key=order)
    special = [x for x in values if isinstance(x, float) and not math.isfinite(x)]
    if spec.function in ("sum", "avg"):
        total = sum(special) if special else sum(map(Fraction, values), Fraction(0))
        if pa.types.is_floating(spec.result_type):
            double = float(total)
            return double / len(values) if spec.function == "avg" else double
        exact = Fraction(total) / (len(values) if spec.function == "avg" else 1)
        if not pa.types.is_decimal(spec.result_type):
            return int(exact)
        unit = Fraction(10) ** spec.result_type.scale
        size = (abs(exact) * unit * 2 + 1) // 2
        return Decimal(int(size if exact >= 0 else -size)).scaleb(-spec.result_type.scale)
    if len(values) == 1 and spec.function.endswith("_samp"):
        return None
    if special:
        return math.nan
    mean = sum(map(Fraction, values), Fraction(0)) / len(values)
    squares = sum(((Fraction(x) - mean) ** 2 for x in values), Fraction(0))
    exact = squares / (len(values) - spec.function.endswith("_samp"))
    variance = float(exact) if exact < Fraction(2) ** 1023 else math.inf
    return math.sqrt(variance) if spec.function.startswith("stddev") else variance


def _normal(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def order(value: Any) -> Any:
    """Spark's order: NULL least, NaN greatest."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, dict):
        return (1, tuple(map(order, value.values())))
    return (1, tuple(map(order, value)) if isinstance(value, list) else value)


def close(found: Counter[Row], right: Counter[Row]) -> bool:
    """Equal; results of variances, which Python rounds more often than we do, up to 1e-12."""
    if found == right:
        return True
    pairs = zip(sorted(found.items(), key=repr), sorted(right.items(), key=repr), strict=False)
    return len(found) == len(right) and all(
        n == m and len(a) == len(b) and all(x == y or _near(x, y) for x, y in zip(a, b, strict=True))
        for (a, n), (b, m) in pairs
    )


def _near(one: Any, other: Any) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-12)
    except (TypeError, ValueError):
        return False


# Worlds


texts = st.sampled_from(["", "a", "aaaaaaaa", "aaaaaaaab", "aaaaaaaa\x00", "é", "zzzzzzzzzzz", "b"])
numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 2))
floats = numbers | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 5e-324, 0.1])
cents = st.integers(-(10**6), 10**6).map(lambda x: Decimal(x).scaleb(-2))
large = st.integers(-5, 5) | st.integers(-(2**56), 2**56)
rows = st.tuples(
    st.none() | st.sampled_from(["x", "y", "z"]),
    st.none() | large,
    st.none() | floats,
    st.none() | cents,
    st.none() | texts,
)


@st.composite
def worlds(draw: st.DrawFn, rows: st.SearchStrategy[Row] = rows, epochs: int = 4) -> list[Epoch]:
    """Epochs of insertions and of deletions of rows that are there; what an epoch inserts it may also delete."""
    bag: list[Row] = []
    world = []
    for _ in range(draw(st.integers(1, epochs))):
        epoch: Epoch = []
        for row, copies in draw(st.lists(st.tuples(rows, st.sampled_from([1, 1, 1, 3])), max_size=6)):
            epoch.append((row, copies))
            bag += [row] * copies
        for place in draw(st.lists(st.integers(0, 1000), max_size=6)):
            if bag:
                epoch.append((bag.pop(place % len(bag)), -1))
        world.append(epoch)
    return world


def check(spec: AggregateSpec, world: list[Epoch], seed: int, types: tuple[pa.DataType, ...] = (STR, *ARGUMENTS)) -> None:
    bag: Counter[str] = Counter()
    known: dict[str, Row] = {}
    with running(spec, seed, types) as run:
        for epoch in world:
            for row, diff in epoch:
                known[repr(row)] = row
                bag[repr(row)] += diff
            output = run.step(epoch)
            right = expected(spec, [known[text] for text in bag.elements()])
            assert close(run.view, right), (dict(run.view), dict(right))
            assert max(Counter(row for row, _ in output).values(), default=1) == 1, "a row came twice"


quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32)
weakness = st.sampled_from([64, 64, 2, 0])


@contextmanager
def hashes_of(bits: int) -> Iterator[None]:
    with weak_bits(bits) if bits < 64 else nullcontext():
        yield


@quick
@given(worlds(), seeds, weakness)
def test_sums_follow_insertions_and_deletions(world: list[Epoch], seed: int, bits: int) -> None:
    with hashes_of(bits):
        check(keyed(*SUMS), world, seed)


@quick
@given(worlds(), seeds, weakness)
def test_least_and_greatest_values_follow_insertions_and_deletions(world: list[Epoch], seed: int, bits: int) -> None:
    with hashes_of(bits):
        check(keyed(*ENDS), world, seed)


@quick
@given(worlds(), seeds, weakness)
def test_distinct_counts_follow_insertions_and_deletions(world: list[Epoch], seed: int, bits: int) -> None:
    with hashes_of(bits):
        check(keyed(*DISTINCTS), world, seed)


@quick
@given(worlds(), seeds, weakness)
def test_calls_of_all_kinds_work_side_by_side(world: list[Epoch], seed: int, bits: int) -> None:
    with hashes_of(bits):
        check(keyed(*MIXED), world, seed)


@quick
@given(worlds(), seeds)
def test_a_global_aggregate_always_has_exactly_one_row(world: list[Epoch], seed: int) -> None:
    check(overall(*SUMS[:5], *MIXED[1:5]), world, seed)


@quick
@given(worlds(st.tuples(st.none() | floats, st.none() | texts)), seeds, weakness)
def test_no_calls_is_distinct_with_zeros_and_nans_equal(world: list[Epoch], seed: int, bits: int) -> None:
    normal = [[((_normal(row[0]), row[1]), diff) for row, diff in epoch] for epoch in world]
    spec = AggregateSpec(2, (), (F64, STR))
    with hashes_of(bits), running(spec, seed, (F64, STR)) as run:
        bag: Counter[Row] = Counter()
        for epoch, same in zip(world, normal, strict=True):
            run.step(epoch)
            for row, diff in same:
                bag[tuple(map(_text, row))] += diff
            assert run.view == Counter(dict.fromkeys(+bag, 1))


nested = st.fixed_dictionaries({"a": st.none() | st.lists(st.none() | floats, max_size=3), "b": st.none() | texts})


@quick
@given(worlds(st.tuples(st.sampled_from(["x", "y"]), st.none() | nested)), seeds)
def test_structs_and_lists_have_least_and_greatest_values_in_sparks_order(world: list[Epoch], seed: int) -> None:
    normal = [
        [((row[0], row[1] and {"a": row[1]["a"] and [_normal(x) for x in row[1]["a"]], "b": row[1]["b"]}), diff)
         for row, diff in epoch]
        for epoch in world
    ]  # fmt: skip
    calls = [CallSpec(function, (1,), (NESTED,), NESTED) for function in ("min", "max")]
    bag: Counter[str] = Counter()
    known: dict[str, Any] = {}
    with running(keyed(*calls), seed, (STR, NESTED)) as run:
        for epoch, same in zip(world, normal, strict=True):
            run.step(epoch)
            for row, diff in same:
                known[repr(row)] = row
                bag[repr(row)] += diff
            groups: dict[str, list[Any]] = {}
            for text in bag.elements():
                groups.setdefault(known[text][0], []).append(known[text][1])
            right = Counter()
            for key, values in groups.items():
                there = [value for value in values if value is not None]
                ends = [pick(there, key=order) if there else None for pick in (min, max)]
                right[(key, *map(_text, ends))] += 1
            assert run.view == right


# How it was run does not matter


@settings(max_examples=20, deadline=None)
@given(worlds(epochs=5), seeds, seeds, st.sampled_from([keyed(*SUMS), keyed(*MIXED), overall(*MIXED)]))
def test_output_and_state_do_not_depend_on_batches_partitions_or_merges(
    world: list[Epoch], one: int, other: int, spec: AggregateSpec
) -> None:
    with running(spec, one) as left, running(spec, other) as right:
        for epoch in world:
            assert sorted(left.step(epoch), key=repr) == sorted(right.step(epoch), key=repr)
            assert left.state() == right.state()


@settings(max_examples=10, deadline=None)
@given(worlds(epochs=3), seeds)
def test_deleting_everything_leaves_no_state(world: list[Epoch], seed: int) -> None:
    with running(keyed(*SUMS, *MIXED), seed) as run:
        bag: Counter[str] = Counter()
        known: dict[str, Row] = {}
        for epoch in world:
            run.step(epoch)
            for row, diff in epoch:
                known[repr(row)] = row
                bag[repr(row)] += diff
        run.step([(known[text], -count) for text, count in bag.items() if count])
        assert not run.view
        assert all(not hashes for hashes, _, _ in run.state().values())


# Cases


def test_a_change_that_leaves_the_results_alone_emits_nothing() -> None:
    with running(keyed(call("sum", 1), call("max", 1))) as run:
        run.step([(("x", 1, None, None, None), 1), (("x", 4, None, None, None), 1)])
        swapped = [(("x", 1, None, None, None), -1), (("x", 4, None, None, None), 1), (("x", 4, None, None, None), -1)]
        assert run.step([*swapped, (("x", 1, None, None, None), 1)]) == []
        assert run.step([]) == []


def test_a_retraction_cancels_what_was_emitted_bit_by_bit() -> None:
    with running(keyed(call("sum", 2, result=F64))) as run:
        values = [0.1, 0.2, 0.3, 1e16, -1e16, 1e-9]
        emitted = [run.step([(("x", None, value, None, None), 1)]) for value in values]
        for earlier, later in zip(emitted, emitted[1:], strict=False):
            assert [row for row, diff in later if diff < 0] == [row for row, diff in earlier if diff > 0]
        assert run.view == {("x", repr(math.fsum(values))): 1}


def test_a_global_aggregate_of_nothing_is_zero_and_null_from_the_first_epoch_on() -> None:
    with running(overall(call("count"), call("sum", 1), call("min", 2, result=F64), DISTINCTS[0]), seed=3) as run:
        assert run.step([]) == [((0, None, None, 0), 1)]
        assert run.step([]) == []
        run.step([(("x", 7, 1.5, None, "a"), 1)])
        assert run.view == {(1, 7, "1.5", 1): 1}
        run.step([(("x", 7, 1.5, None, "a"), -1)])
        assert run.view == {(0, None, None, 0): 1}


def test_a_sum_beyond_bigint_is_an_error_that_names_the_group() -> None:
    with running(keyed(call("sum", 1))) as run:
        run.step([(("x", 2**62, None, None, None), 1)])
        with pytest.raises(EvaluationError, match=rf"sum\(column 1\) of \('x'\): {2**63} .*int64"):
            run.step([(("x", 2**62, None, None, None), 1)])


def test_a_sum_may_pass_beyond_bigint_inside_an_epoch() -> None:
    with running(keyed(call("sum", 1))) as run:
        run.step([(("x", 2**62, None, None, None), 3), (("x", -(2**62), None, None, None), 2)])
        assert run.view == {("x", 2**62): 1}


def test_a_row_with_a_huge_multiplicity_is_summed_exactly() -> None:
    with running(keyed(call("count"), call("sum", 2, result=F64), call("avg", 3, result=pa.decimal128(16, 6)))) as run:
        many = 2**40 + 1
        run.step([(("x", None, 0.1, Decimal("0.05"), None), many), (("x", None, -2.5, Decimal("9.99"), None), 3)])
        total = float(Fraction(0.1) * many + Fraction(-2.5) * 3)
        average = (Decimal("0.05") * many + Decimal("29.97")) / (many + 3)
        half_up = average.quantize(Decimal("0.000001"), ROUND_HALF_UP)
        assert run.view == {("x", many + 3, repr(total), half_up): 1}


def test_sums_of_many_epochs_stay_in_few_columns() -> None:
    with running(keyed(call("sum", 1), call("sum", 2, result=F64))) as run:
        for value in range(12):
            run.step([(("x", value * 2**40, value / 4, None, None), 1)])
        _, _, adds = run.state()["acc"]
        assert sorted(adds) == ["+1.s.0", "+2.s.-1", "+2.s.0", "+diff"]


def test_deleting_more_than_was_inserted_is_an_error_that_names_the_group() -> None:
    with running(keyed(call("count"))) as run:
        run.step([(("x", None, None, None, None), 1)])
        with pytest.raises(NegativeMultiplicity, match=r"-1 rows after epoch 1: \('x'\)") as caught:
            run.step([(("x", None, None, None, None), -2)])
        assert caught.value.fields == {"epoch": 1, "rows": [("x",)]}


def test_the_least_value_survives_the_deletion_of_many_before_it() -> None:
    with running(keyed(call("min", 1), call("max", 1))) as run:
        run.step([(("x", value, None, None, None), 1) for value in range(300)])
        run.step([(("x", value, None, None, None), -1) for value in range(300) if value not in (120, 130)])
        assert run.view == {("x", 120, 130): 1}


def test_intervals_are_summed_averaged_and_compared() -> None:
    kind = pa.duration("us")
    calls = [CallSpec(function, (1,), (kind,), kind) for function in ("sum", "avg", "min")]
    with running(keyed(*calls), types=(STR, kind)) as run:
        run.step([(("x", 3), 1), (("x", 4), 1), (("y", None), 1)])
        microseconds = {key: [None if v is None else v.microseconds for v in values] for key, *values in run.view}
        assert microseconds == {"x": [7, 4, 3], "y": [None, None, None]}


def test_equal_keys_of_zero_and_nan_are_one_group() -> None:
    spec = AggregateSpec(1, (CallSpec("count", (), (), I64),), (F64,))
    with running(spec, types=(F64,)) as run:
        run.step([((0.0,), 1), ((-0.0,), 1), ((math.nan,), 2), ((None,), 1)])
        assert run.view == {("0.0", 2): 1, ("nan", 2): 1, (None, 1): 1}


def test_an_unknown_function_or_a_distinct_sum_is_refused() -> None:
    with pytest.raises(Unsupported, match="median"):
        call("median", 1)
    with pytest.raises(Unsupported, match="distinct sum"):
        call("sum", 1, distinct=True)


def test_prepared_rows_are_combined_and_sorted_by_hash() -> None:
    epoch = [((f"k{i % 5}", 1, None, None, None), 1) for i in range(100)]
    prepared = aggregate.prepare(keyed(call("sum", 1)), 0, table(epoch, (STR, *ARGUMENTS)))
    assert prepared.column_names[0] == "_hash" and prepared.num_rows == 5
    assert prepared["_hash"].to_pylist() == sorted(prepared["_hash"].to_pylist())
    cancelled = [(epoch[0][0], 1), (epoch[0][0], -1)]
    for spec in (keyed(call("sum", 1)), keyed(call("min", 1))):
        assert aggregate.prepare(spec, 0, table(cancelled, (STR, *ARGUMENTS))).num_rows == 0
