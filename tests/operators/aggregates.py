"""Aggregates under test: worlds of insertions and deletions, ways of running them, and the plain recomputation.

`Run` runs one aggregate without Spark; its seed decides batches, order, partitions and merges. `expected` is the
oracle: Python's fractions, over the bag of rows as it is now.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from operator import and_, or_, xor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from holdfast.operators.aggregate import AggregateSpec, CallSpec
from holdfast.operators.step import Context
from holdfast.trace.cover import Chain
from holdfast.trace.layer import write_layer
from holdfast.trace.rows import Block
from holdfast.trace.trace import Trace
from holdfast.trace.upkeep import keep_in_shape

I64, F64, DEC, STR = pa.int64(), pa.float64(), pa.decimal128(12, 2), pa.string()
NESTED = pa.struct([("a", pa.list_(F64)), ("b", STR)])
ARGUMENTS = (I64, F64, DEC, STR, pa.bool_())
"""Columns 1 to 5; column 0 is the key."""

Row = tuple[Any, ...]
Epoch = list[tuple[Row, int]]


def call(
    function: str, *places: int, result: pa.DataType = I64, distinct: bool = False, parameters: tuple[str, ...] = ()
) -> CallSpec:
    types = (STR, *ARGUMENTS)
    return CallSpec(function, places, tuple(types[place] for place in places), result, distinct, parameters)


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
    for place, kind in enumerate(ARGUMENTS[:4], start=1)
)
TRUTHS = (
    call("count_if", 5),
    call("bool_and", 5, result=pa.bool_()),
    call("bool_or", 5, result=pa.bool_()),
)
SHAPES = (
    call("skewness", 1, result=F64),
    call("kurtosis", 2, result=F64),
    call("skewness", 3, result=F64),
    call("kurtosis", 1, result=F64, distinct=True),
    call("var_pop", 1, result=F64),
    call("covar_pop", 1, 2, result=F64),
    call("covar_samp", 3, 1, result=F64),
    call("covar_pop", 2, 2, result=F64),
)
WHOLES = (
    call("collect_list", 4, result=pa.list_(pa.field("element", STR))),
    call("collect_set", 2, result=pa.list_(pa.field("element", F64))),
    call("mode", 4, result=STR),
    call("mode", 2, result=F64),
    call("percentile", 1, result=F64, parameters=("0.5",)),
    call("percentile", 1, result=F64, parameters=("0.25",), distinct=True),
    call("percentile", 2, result=F64, parameters=("0.9",)),
    call("percentile", 3, result=F64, parameters=("1",)),
    call("bit_and", 1),
    call("bit_or", 1),
    call("bit_xor", 1),
    call("max", 1),
    call("sum", 2, result=F64),
)
DISTINCT_SUMS = (
    call("sum", 1, distinct=True),
    call("avg", 2, result=F64, distinct=True),
    call("sum", 3, result=pa.decimal128(22, 2), distinct=True),
    call("var_samp", 1, result=F64, distinct=True),
    call("stddev_pop", 2, result=F64, distinct=True),
    call("count", 1, distinct=True),
    call("sum", 1),
    call("count_if", 5, distinct=True),
)
DISTINCTS = (call("count", 4, distinct=True), call("count", 1, 4, distinct=True), call("count", 2, distinct=True))
MIXED = (SUMS[0], SUMS[5], ENDS[0], ENDS[5], DISTINCTS[1], call("max", 0, result=STR), call("sum", 3, result=DEC))


def keyed(*calls: CallSpec) -> AggregateSpec:
    return AggregateSpec(1, calls, (STR,))


def overall(*calls: CallSpec) -> AggregateSpec:
    return AggregateSpec(0, calls, ())


# Running a world


def table(epoch: Epoch, types: tuple[pa.DataType, ...]) -> pa.Table:
    """A change as a table; columns that a row leaves out are NULL."""
    rows = [row + (None,) * (len(types) - len(row)) for row, _ in epoch]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    names = [f"c{place}" for place in range(len(types))]
    return pa.table([*columns, pa.array([diff for _, diff in epoch], I64)], names=[*names, "_diff"])


def on_top(tables: list[pa.Table]) -> pa.Table:
    """Tables on top of each other; additive columns that one lacks are zeros."""
    names = list(dict.fromkeys(name for part in tables for name in part.column_names))

    def column(part: pa.Table, name: str) -> pa.Array:
        return part[name] if name in part.column_names else pa.array([0] * part.num_rows, I64)

    return pa.concat_tables(pa.table([column(part, name) for name in names], names=names) for part in tables)


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
        return list(pairwise(cuts))

    def step(self, epoch: Epoch) -> list[tuple[Row, int]]:
        """Run one epoch; returns the output change."""
        self.epoch += 1
        rows = epoch[:]
        self.random.shuffle(rows)
        cut = self.random.randint(0, len(rows))
        batches = [rows[:cut], rows[cut:]] if self.random.random() < 0.7 else [rows]
        prepared = on_top([self.spec.prepare(0, table(batch, self.types)) for batch in batches])
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
        layouts = self.spec.layouts()
        traces = {
            suffix: Trace.open(self.directory / suffix, layout, low, high, self.epoch - 1, self.chain())
            for suffix, layout in layouts.items()
        }
        done = self.spec.step([arrived], traces, Context(self.epoch, low, high, self.epoch == 0))
        for suffix, layout in layouts.items():
            block = done.layers.get(suffix, Block.empty(layout))
            write_layer(
                self.directory / suffix, block, layout, low=low, high=high, first=self.epoch, last=self.epoch,
                digest=f"{self.epoch:016x}",
            )  # fmt: skip
        return done.output

    def merge(self) -> None:
        since = self.random.randint(-1, self.epoch)
        for suffix, layout in self.spec.layouts().items():
            for low, high in self.ranges():
                keep_in_shape(self.directory / suffix, layout, low, high, since, self.chain(), self.epoch)

    def state(self) -> dict[str, Any]:
        """Every trace as of now, as plain values."""
        found: dict[str, Any] = {}
        for suffix, layout in self.spec.layouts().items():
            block = Trace.open(self.directory / suffix, layout, 0, 2**64, self.epoch, self.chain()).scan()
            adds = {name: column.tolist() for name, column in sorted(block.adds.items()) if column.any()}
            found[suffix] = (block.hash.tolist(), [plain(column) for column in block.columns], adds)
        return found


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values; doubles as their text, so that comparing them is comparing bits."""
    return [as_text(value) for value in column.to_pylist()]


def as_text(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return tuple((name, as_text(inner)) for name, inner in value.items())
    return tuple(map(as_text, value)) if isinstance(value, list) else value


@contextmanager
def running(spec: AggregateSpec, seed: int = 0, types: tuple[pa.DataType, ...] = (STR, *ARGUMENTS)) -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as directory:
        yield Run(Path(directory), spec, types, seed)


# The oracle


def expected(spec: AggregateSpec, bag: list[Row]) -> Counter[Row]:
    groups: dict[Row, list[Row]] = {} if spec.keys else {(): []}
    for row in bag:
        groups.setdefault(tuple(map(as_text, row[: spec.keys])), []).append(row)
    return Counter((*key, *(as_text(evaluate(c, rows)) for c in spec.calls)) for key, rows in groups.items())


def evaluate(spec: CallSpec, rows: list[Row]) -> Any:
    if not spec.arguments:
        return len(rows)
    tuples = [tuple(as_key(row[place]) for place in spec.arguments) for row in rows]
    tuples = [values for values in tuples if None not in values]
    if spec.function == "count":
        return len({tuple(map(as_text, values)) for values in tuples}) if spec.distinct else len(tuples)
    if spec.function.startswith("covar"):
        return covariance(tuples, sample=spec.function.endswith("_samp"))
    values = [value for (value,) in tuples]
    if spec.distinct:
        values = list({as_text(value): value for value in values}.values())
    if spec.function == "count_if":
        return sum(values)
    if spec.function in ("collect_list", "collect_set"):
        unique = {as_text(value): value for value in values}.values()
        return sorted(values if spec.function == "collect_list" else unique, key=order)
    if not values:
        return None
    if spec.function in ("min", "max", "any_value"):
        return (max if spec.function == "max" else min)(values, key=order)
    if spec.function == "mode":
        times = Counter(map(as_text, values))
        return min(values, key=lambda value: (-times[as_text(value)], order(value)))
    if spec.function == "percentile":
        place = (len(values) - 1) * float(spec.parameters[0])
        low, high = math.floor(place), math.ceil(place)
        one, other = (float(sorted(values, key=order)[index]) for index in (low, high))
        return one if low == high or one == other else one + (other - one) * (place - low)
    if spec.function.startswith("bit_"):
        return reduce({"bit_and": and_, "bit_or": or_, "bit_xor": xor}[spec.function], values)
    if spec.function in ("bool_and", "bool_or"):
        return (all if spec.function == "bool_and" else any)(values)
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
    if spec.function in ("skewness", "kurtosis"):
        if squares == 0:
            return None
        third = sum(((Fraction(x) - mean) ** 3 for x in values), Fraction(0))
        fourth = sum(((Fraction(x) - mean) ** 4 for x in values), Fraction(0))
        if spec.function == "kurtosis":
            return float(len(values) * fourth / squares**2) - 3
        size = math.sqrt(float(len(values) * third**2 / squares**3))
        return size if third > 0 else -size
    exact = squares / (len(values) - spec.function.endswith("_samp"))
    variance = float(exact) if exact < Fraction(2) ** 1023 else math.inf
    return math.sqrt(variance) if spec.function.startswith("stddev") else variance


def covariance(pairs: list[Row], sample: bool) -> float | None:
    if len(pairs) <= sample:
        return None
    if any(isinstance(x, float) and not math.isfinite(x) for pair in pairs for x in pair):
        return math.nan
    one, other = (sum((Fraction(pair[place]) for pair in pairs), Fraction(0)) / len(pairs) for place in (0, 1))
    joint = sum(((Fraction(x) - one) * (Fraction(y) - other) for x, y in pairs), Fraction(0)) / (len(pairs) - sample)
    return float(joint) if abs(joint) < Fraction(2) ** 1023 else math.inf if joint > 0 else -math.inf


def as_key(value: Any) -> Any:
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
numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 2)) | st.integers(-(2**60), 2**60).map(float)
floats = numbers | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 5e-324, 0.1])
cents = st.integers(-(10**6), 10**6).map(lambda x: Decimal(x).scaleb(-2))
large = st.integers(-5, 5) | st.integers(-(2**56), 2**56)
rows = st.tuples(
    st.none() | st.sampled_from(["x", "y", "z"]),
    st.none() | large,
    st.none() | floats,
    st.none() | cents,
    st.none() | texts,
    st.none() | st.booleans(),
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
