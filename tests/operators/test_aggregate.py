"""Aggregates, kept up to date, against a plain recomputation in Python after every epoch.

A *world* is a sequence of epochs of insertions and deletions. It is run with arbitrary batches, order, partitions and
merges. The oracle tests catch wrong results and wrong retractions; the twin tests run one world in two ways and catch
outputs or state that depend on how it was run; weak hashes make different keys and values meet under one hash.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import EvaluationError, NegativeMultiplicity, Unsupported
from holdfast.operators.aggregate import AggregateSpec, CallSpec
from holdfast.trace.hashing import weak_bits
from operators.aggregates import (
    ARGUMENTS,
    DISTINCT_SUMS,
    DISTINCTS,
    ENDS,
    F64,
    I64,
    MIXED,
    NESTED,
    SHAPES,
    STR,
    SUMS,
    TRUTHS,
    WHOLES,
    Epoch,
    Row,
    as_key,
    as_text,
    call,
    close,
    expected,
    floats,
    keyed,
    on_top,
    order,
    overall,
    running,
    table,
    texts,
    worlds,
)


def check(spec: AggregateSpec, world: list[Epoch], seed: int) -> None:
    bag: Counter[str] = Counter()
    known: dict[str, Row] = {}
    with running(spec, seed) as run:
        for epoch in world:
            for row, diff in epoch:
                known[repr(row)] = row
                bag[repr(row)] += diff
            output = run.step(epoch)
            right = expected(spec, [known[text] for text in bag.elements()])
            assert close(run.view, right), (dict(run.view), dict(right))
            assert max(Counter(row for row, _ in output).values(), default=1) == 1, "a row came twice"


quick = settings(max_examples=20, deadline=None)
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
def test_sums_of_distinct_values_follow_insertions_and_deletions(world: list[Epoch], seed: int, bits: int) -> None:
    with hashes_of(bits):
        check(keyed(*DISTINCT_SUMS), world, seed)
        check(overall(*DISTINCT_SUMS), world, seed)


@quick
@given(worlds(), seeds, weakness)
def test_lists_modes_percentiles_and_bits_follow_insertions_and_deletions(
    world: list[Epoch], seed: int, bits: int
) -> None:
    with hashes_of(bits):
        check(keyed(*WHOLES), world, seed)
        check(overall(*WHOLES), world, seed)


@quick
@given(worlds(), seeds, weakness)
def test_skewness_kurtosis_and_covariance_are_exact_up_to_rounding(world: list[Epoch], seed: int, bits: int) -> None:
    with hashes_of(bits):
        check(keyed(*SHAPES), world, seed)


@quick
@given(worlds(), seeds, weakness)
def test_truths_are_counted(world: list[Epoch], seed: int, bits: int) -> None:
    with hashes_of(bits):
        check(keyed(*TRUTHS), world, seed)


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
    normal = [[((as_key(row[0]), row[1]), diff) for row, diff in epoch] for epoch in world]
    spec = AggregateSpec(2, (), (F64, STR))
    with hashes_of(bits), running(spec, seed, (F64, STR)) as run:
        bag: Counter[Row] = Counter()
        for epoch, same in zip(world, normal, strict=True):
            run.step(epoch)
            for row, diff in same:
                bag[tuple(map(as_text, row))] += diff
            assert run.view == Counter(dict.fromkeys(+bag, 1))


nested = st.fixed_dictionaries({"a": st.none() | st.lists(st.none() | floats, max_size=3), "b": st.none() | texts})


@quick
@given(worlds(st.tuples(st.sampled_from(["x", "y"]), st.none() | nested)), seeds)
def test_structs_and_lists_have_least_and_greatest_values_in_sparks_order(world: list[Epoch], seed: int) -> None:
    normal = [
        [((row[0], row[1] and {"a": row[1]["a"] and [as_key(x) for x in row[1]["a"]], "b": row[1]["b"]}), diff)
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
                right[(key, *map(as_text, ends))] += 1
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


def test_batches_that_need_other_digits_make_the_same_state() -> None:
    spec = keyed(call("sum", 1), call("var_pop", 2, result=F64))
    whole, fraction = ("x", 2**61 + 5, 2.0**40, None, None), ("x", -(2**61), 2.0**-40, None, None)
    states = []
    for batches in ([[(whole, 3), (fraction, 3)]], [[(whole, 3)], [(fraction, 3)]], [[(whole, 1), (fraction, 1)]] * 3):
        arrived = on_top([spec.prepare(0, table(batch, (STR, *ARGUMENTS))) for batch in batches])
        with running(spec) as run:
            run.epoch = 0
            run.partition(arrived, 0, 2**64)
            states.append(run.state())
    assert states[0] == states[1] == states[2]


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
        for earlier, later in pairwise(emitted):
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
        with pytest.raises(EvaluationError, match=rf"sum\(column 1\) of \('x'\): overflow: {2**63} .*int64"):
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


def test_maps_of_doubles_are_counted_collected_and_picked() -> None:
    kind = pa.map_(pa.string(), F64)
    calls = (
        CallSpec("count", (1,), (kind,), I64),
        CallSpec("any_value", (1,), (kind,), kind),
        CallSpec("collect_list", (1,), (kind,), pa.list_(kind)),
    )
    with running(AggregateSpec(1, calls, (STR,)), types=(STR, kind)) as run:
        run.step([(("x", [("a", -0.0)]), 1), (("x", [("a", 0.0)]), 1), (("x", None), 1)])
        ((key, count, any_value, collected),) = run.view
        assert (key, count) == ("x", 2)
        assert (any_value, collected) == ((("a", 0.0),), ((("a", 0.0),), (("a", 0.0),)))


def test_an_unknown_function_or_a_distinct_minimum_is_refused() -> None:
    with pytest.raises(Unsupported, match="midpoint"):
        call("midpoint", 1)
    with pytest.raises(Unsupported, match="distinct min"):
        call("min", 1, distinct=True)


def test_prepared_rows_are_combined_and_sorted_by_hash() -> None:
    epoch = [((f"k{i % 5}", 1, None, None, None), 1) for i in range(100)]
    prepared = keyed(call("sum", 1)).prepare(0, table(epoch, (STR, *ARGUMENTS)))
    assert prepared.column_names[0] == "_hash" and prepared.num_rows == 5
    assert prepared["_hash"].to_pylist() == sorted(prepared["_hash"].to_pylist())
    cancelled = [(epoch[0][0], 1), (epoch[0][0], -1)]
    for spec in (keyed(call("sum", 1)), keyed(call("min", 1))):
        assert spec.prepare(0, table(cancelled, (STR, *ARGUMENTS))).num_rows == 0
