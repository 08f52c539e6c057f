"""Exact sums against Python's own integers, fractions and decimals.

The encoding tests catch a value that is not represented exactly; the form tests catch totals that depend on batches or
order; the decoding tests catch wrong rounding; the weight tests catch overflow inside the vectors.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import EvaluationError, Unsupported
from holdfast.operators.numbers import digits as dg
from holdfast.operators.numbers import sums

quick = settings(max_examples=100, deadline=None)

doubles = st.floats(allow_nan=False, allow_infinity=False)
ordinary = st.floats(-1e9, 1e9).map(lambda x: round(x, 2))
int64s = st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000)
decimals = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-(10**12), 10**12)
wide = st.dictionaries(
    st.integers(-6, 6), st.lists(st.integers(-(2**62), 2**62), min_size=4, max_size=4), max_size=5
).map(lambda columns: {q: np.array(column, dtype=np.int64) for q, column in columns.items()})


def numbers(digits: dg.Digits, count: int) -> list[Fraction]:
    """What the digits stand for."""
    parts = [[Fraction(int(digit)) * Fraction(2) ** (32 * q) for digit in column] for q, column in digits.items()]
    return [sum((part[place] for part in parts), Fraction(0)) for place in range(count)]


def decimal_array(values: list[int | None], precision: int = 38, scale: int = 6) -> pa.Array:
    wide_enough = Context(prec=76)
    exact = [None if v is None else Decimal(v).scaleb(-scale, context=wide_enough) for v in values]
    return pa.array(exact, pa.decimal128(precision, scale))


def somewhere(place: int) -> str:
    return f"sum(x) of group {place}"


# Encoding


@quick
@given(st.lists(doubles | ordinary, max_size=8))
def test_every_finite_double_is_encoded_exactly(values: list[float]) -> None:
    encoded = sums.encode(pa.array(values, pa.float64()))
    assert numbers(encoded.digits, len(values)) == [Fraction(v) for v in values]
    assert all(dg.largest(column) <= 2**62 for column in encoded.digits.values())


@pytest.mark.parametrize("value", [5e-324, -5e-324, 1.7976931348623157e308, 2.0**-1022, 2.0**-992, 2.0**992, 2.0**1023])
def test_the_ends_of_the_double_range_are_encoded_exactly(value: float) -> None:
    values = [value, 1.0, -0.1, value * 0.75]
    encoded = sums.encode(pa.array(values))
    assert numbers(encoded.digits, 4) == [Fraction(v) for v in values]


@quick
@given(st.lists(st.none() | int64s, max_size=8))
def test_every_integer_is_encoded_exactly_and_null_is_zero(values: list[int | None]) -> None:
    encoded = sums.encode(pa.array(values, pa.int64()))
    assert numbers(encoded.digits, len(values)) == [Fraction(v or 0) for v in values]
    valid = [True] * len(values) if encoded.valid is None else encoded.valid.tolist()
    assert valid == [v is not None for v in values]


@quick
@given(st.lists(st.none() | decimals, max_size=8), st.integers(0, 3))
def test_every_decimal_is_encoded_exactly_also_in_a_slice(values: list[int | None], offset: int) -> None:
    array = decimal_array(values)[offset:]
    kept = values[offset:]
    assert numbers(sums.encode(array).digits, len(kept)) == [Fraction(v or 0) for v in kept]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.duration("us")])
def test_all_integer_types_and_intervals_are_encoded(kind: pa.DataType) -> None:
    array = pa.array([1, None, -128, 127], pa.int64()).cast(kind)
    assert numbers(sums.encode(array).digits, 4) == [1, 0, -128, 127]


def test_special_doubles_are_counted_and_have_no_digits() -> None:
    encoded = sums.encode(pa.array([math.nan, math.inf, -math.inf, 2.5, None]))
    assert {name: mask.tolist() for name, mask in encoded.specials.items()} == {
        "nan": [True, False, False, False, False],
        "pinf": [False, True, False, False, False],
        "ninf": [False, False, True, False, False],
    }
    assert numbers(encoded.digits, 5) == [0, 0, 0, Fraction(5, 2), 0]


def test_small_numbers_need_one_column() -> None:
    assert list(sums.encode(pa.array([1, -2, 3])).digits) == [0]
    assert list(sums.encode(pa.array([1.0, -2.0, 3.0])).digits) == [0]
    assert list(sums.encode(decimal_array([1, -2, 10**12], 18, 2)).digits) == [0]


def test_an_all_null_column_of_no_type_is_encoded() -> None:
    encoded = sums.encode(pa.nulls(3))
    assert encoded.digits == {} and encoded.valid is not None and not encoded.valid.any()


def test_a_column_that_cannot_be_summed_is_refused() -> None:
    with pytest.raises(Unsupported, match="string"):
        sums.encode(pa.array(["a"]))


@quick
@given(st.lists(doubles | ordinary | int64s.map(float), max_size=6))
def test_squares_of_doubles_are_exact(values: list[float]) -> None:
    squared = sums.squares(sums.encode(pa.array(values, pa.float64())))
    assert numbers(squared, len(values)) == [Fraction(v) ** 2 for v in values]


@quick
@given(st.lists(decimals, max_size=6))
def test_squares_of_decimals_are_exact(values: list[int]) -> None:
    assert numbers(sums.squares(sums.encode(decimal_array(values))), len(values)) == [Fraction(v) ** 2 for v in values]


# Forms


@quick
@given(wide)
def test_balanced_digits_keep_the_number_and_its_sign(digits: dg.Digits) -> None:
    balanced = dg.balance(digits)
    assert numbers(balanced, 4) == numbers(digits, 4)
    assert all(((c >= -(2**31)) & (c < 2**31)).all() and c.any() for c in balanced.values())
    if balanced:
        assert dg.signs(balanced).tolist() == [(x > 0) - (x < 0) for x in numbers(digits, 4)]


@quick
@given(wide, wide)
def test_equal_numbers_have_one_canonical_form(digits: dg.Digits, detour: dg.Digits) -> None:
    halves = ({q: c // 4 for q, c in digits.items()}, {q: c - c // 4 for q, c in digits.items()})
    away = {q: c // 4 for q, c in detour.items()}
    there = dg.canonical(dg.add(dg.canonical(halves[0]), away))
    back = dg.canonical(dg.add(dg.canonical(dg.subtract(there, away)), halves[1]))
    direct = dg.canonical(digits)
    assert numbers(direct, 4) == numbers(digits, 4)
    assert {q: c.tolist() for q, c in back.items()} == {q: c.tolist() for q, c in direct.items()}
    assert all(dg.largest(c) < 2**60 for c in direct.values())


@quick
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5))
def test_the_canonical_form_of_a_number_does_not_depend_on_its_neighbours(values: list[int]) -> None:
    together = dg.canonical({0: np.array(values)})
    for place, value in enumerate(values):
        alone = dg.canonical({0: np.array([value])})
        assert {q: int(c[0]) for q, c in alone.items()} == {q: int(c[place]) for q, c in together.items() if c[place]}


def test_totals_below_two_to_the_59_stay_in_one_column() -> None:
    total = dg.canonical({0: np.array([2**58, -(2**58)]), 1: np.array([1, 2**26])})
    assert list(total) == [0]


@quick
@given(wide, wide)
def test_products_are_exact(left: dg.Digits, right: dg.Digits) -> None:
    expected = [a * b for a, b in zip(numbers(left, 4), numbers(right, 4), strict=True)]
    assert numbers(dg.multiply(left, right), 4) == expected


# Weighted sums of groups


@quick
@given(
    st.lists(st.tuples(doubles | ordinary | int64s.map(float), int64s, st.booleans()), min_size=1, max_size=12),
)
def test_weighted_group_sums_are_exact_whatever_the_weights(rows: list[tuple[float, int, bool]]) -> None:
    starts = [0, *(i for i in range(1, len(rows)) if rows[i][2])]
    encoded = sums.encode(pa.array([x for x, _, _ in rows]))
    weights = np.array([w for _, w, _ in rows], dtype=np.int64)
    total = dg.sum_groups(encoded.digits, np.array(starts), weights)
    expected = [
        sum((Fraction(x) * w for x, w, _ in rows[start:stop]), Fraction(0))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True)
    ]
    assert numbers(total, len(starts)) == expected
    assert all(dg.largest(column) <= 2**62 for column in total.values())


def test_many_large_integers_do_not_overflow_a_digit() -> None:
    values = np.full(1000, -(2**63), dtype=np.int64)
    total = dg.sum_groups(dg.from_int64(values), np.array([0]))
    assert numbers(total, 1) == [-1000 * 2**63]


# Decoding


@quick
@given(st.lists(st.lists(doubles | ordinary, min_size=1, max_size=6), min_size=1, max_size=5))
def test_sums_of_doubles_are_the_nearest_doubles_to_the_exact_sums(groups: list[list[float]]) -> None:
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    encoded = sums.encode(pa.array([x for group in groups for x in group]))
    total = dg.canonical(dg.sum_groups(encoded.digits, starts))
    found = sums.to_doubles(total, {}, len(groups))
    for group, value in zip(groups, found.tolist(), strict=True):
        try:
            assert value == math.fsum(group)
        except OverflowError:
            assert math.isinf(value) or abs(sum(map(Fraction, group))) < Fraction(2) ** 1024


@quick
@given(wide)
def test_any_number_is_rounded_to_nearest_even(digits: dg.Digits) -> None:
    for value, exact in zip(dg.to_float(digits, 4).tolist(), numbers(digits, 4), strict=True):
        assert value == (exact.numerator / exact.denominator)


@pytest.mark.parametrize("low", [-(2**31), -1, 0, 1])
def test_ties_are_decided_by_the_last_bit_however_far_below(low: int) -> None:
    half = {3: np.array([2**21 + 1]), 1: np.array([2**31]), -30: np.array([low])}
    (exact,) = numbers(half, 1)
    assert dg.to_float(half, 1)[0] == exact.numerator / exact.denominator


def test_specials_decide_the_sum_as_in_ieee_arithmetic() -> None:
    counts = {"nan": np.array([1, 0, 0, 0, 0]), "pinf": np.array([0, 2, 0, 1, 0]), "ninf": np.array([0, 0, 1, 1, 0])}
    found = sums.to_doubles({0: np.arange(5)}, counts, 5)
    assert repr(found.tolist()) == "[nan, inf, -inf, nan, 4.0]"


@quick
@given(st.lists(int64s, min_size=1, max_size=6))
def test_integer_totals_come_back_or_overflow_is_an_error(values: list[int]) -> None:
    total = dg.canonical(dg.sum_groups(sums.encode(pa.array(values)).digits, np.array([0])))
    present = np.array([True])
    if -(2**63) <= sum(values) < 2**63:
        assert sums.to_integers(total, present, pa.int64(), somewhere).to_pylist() == [sum(values)]
    else:
        with pytest.raises(EvaluationError, match=rf"sum\(x\) of group 0.*{sum(values)}") as caught:
            sums.to_integers(total, present, pa.int64(), somewhere)
        assert caught.value.fields["total"] == sum(values)


def test_a_group_that_is_not_present_is_null_and_never_an_error() -> None:
    total = {0: np.array([2**62, 1]), 1: np.array([2**31, 0])}
    present = np.array([False, True])
    assert sums.to_integers(total, present, pa.int64(), somewhere).to_pylist() == [None, 1]
    assert sums.to_decimals(total, present, pa.decimal128(5, 0), somewhere).to_pylist() == [None, Decimal(1)]


@quick
@given(st.lists(decimals, min_size=1, max_size=6), st.integers(1, 38))
def test_decimal_totals_come_back_or_overflow_is_an_error(values: list[int], precision: int) -> None:
    total = dg.canonical(dg.sum_groups(sums.encode(decimal_array(values)).digits, np.array([0])))
    kind = pa.decimal128(precision, 0)
    if abs(sum(values)) < 10**precision:
        assert sums.to_decimals(total, np.array([True]), kind, somewhere).to_pylist() == [Decimal(sum(values))]
    else:
        with pytest.raises(EvaluationError):
            sums.to_decimals(total, np.array([True]), kind, somewhere)


@pytest.mark.parametrize("precision", [1, 18, 19, 37, 38])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_decimal_fits_up_to_its_last_number(precision: int, sign: int) -> None:
    kind = pa.decimal128(precision, 0)
    values = [sign * (10**precision - 1)]
    digits = {q: np.array([v]) for q, v in _split(values[0]).items()}
    assert sums.to_decimals(digits, np.array([True]), kind, somewhere).to_pylist() == [Decimal(values[0])]
    one_more = dg.add(digits, {0: np.array([sign])})
    with pytest.raises(EvaluationError):
        sums.to_decimals(one_more, np.array([True]), kind, somewhere)


def _split(value: int) -> dict[int, int]:
    return {q: (value >> 32 * q) & (2**32 - 1) if q < 4 else value >> 128 for q in range(5)}


@quick
@given(
    st.lists(st.tuples(decimals, st.integers(1, 10**6) | st.integers(2**31, 2**62)), min_size=1, max_size=5),
    st.integers(0, 4),
)
def test_decimal_averages_are_rounded_half_up(groups: list[tuple[int, int]], more: int) -> None:
    digits = sums.encode(decimal_array([total for total, _ in groups], 38, 2)).digits
    counts = np.array([count for _, count in groups])
    exact = [Fraction(total, 100) / count for total, count in groups]
    kind = pa.decimal128(38, 2 + more)
    expected = [_half_up(x * 10 ** (2 + more)) for x in exact]
    if any(abs(x) >= 10**38 for x in expected):
        with pytest.raises(EvaluationError):
            sums.to_average(digits, counts, 2, kind, somewhere)
        return
    found = sums.to_average(digits, counts, 2, kind, somewhere).to_pylist()
    assert [int(x.scaleb(2 + more, context=Context(prec=76))) for x in found] == expected


def _half_up(exact: Fraction) -> int:
    size = (abs(exact) * 2 + 1) // 2
    return int(size if exact > 0 else -size)


def test_halves_of_decimal_averages_go_away_from_zero() -> None:
    found = sums.to_average({0: np.array([5, -5, 15])}, np.array([2, 2, 2]), 0, pa.decimal128(10, 0), somewhere)
    expected = [(Decimal(x) / 2).quantize(Decimal(1), ROUND_HALF_UP) for x in (5, -5, 15)]
    assert found.to_pylist() == expected


def test_averages_of_intervals_are_intervals() -> None:
    found = sums.to_average({0: np.array([5, 7])}, np.array([2, 0]), 0, pa.duration("us"), somewhere)
    assert found.cast(pa.int64()).to_pylist() == [3, None]


# Variances


def _variance(values: list[Fraction], sample: bool) -> Fraction:
    mean = sum(values, Fraction(0)) / len(values)
    return sum(((x - mean) ** 2 for x in values), Fraction(0)) / (len(values) - sample)


@quick
@given(st.lists(ordinary | st.floats(1e15, 1e15 + 10) | doubles, min_size=2, max_size=6), st.booleans())
def test_variances_are_right_to_the_last_bits_even_when_the_mean_is_huge(values: list[float], sample: bool) -> None:
    encoded = sums.encode(pa.array(values))
    start = np.array([0])
    total = dg.canonical(dg.sum_groups(encoded.digits, start))
    squared = dg.canonical(dg.sum_groups(sums.squares(encoded), start))
    (found,) = sums.variances(total, squared, {}, np.array([len(values)]), sample=sample, scale=0).tolist()
    exact = _variance([Fraction(v) for v in values], sample)
    if exact >= Fraction(2) ** 1024:
        assert found == math.inf
    elif exact < Fraction(2) ** -1020:
        assert abs(Fraction(found) - exact) <= Fraction(2) ** -1070
    else:
        assert found == math.inf or abs(Fraction(found) - exact) <= exact * Fraction(3, 2**53)


@quick
@given(st.lists(decimals, min_size=2, max_size=5))
def test_variances_of_decimals_are_exact_before_the_last_division(values: list[int]) -> None:
    encoded = sums.encode(decimal_array(values, 38, 6))
    start = np.array([0])
    squared = dg.sum_groups(sums.squares(encoded), start)
    total = dg.sum_groups(encoded.digits, start)
    (found,) = sums.variances(total, squared, {}, np.array([len(values)]), sample=True, scale=6).tolist()
    exact = _variance([Fraction(v, 10**6) for v in values], True)
    assert abs(Fraction(found) - exact) <= exact * Fraction(4, 2**53)


def test_the_variance_of_equal_values_is_exactly_zero() -> None:
    encoded = sums.encode(pa.array([0.1] * 7))
    start = np.array([0])
    total, squared = dg.sum_groups(encoded.digits, start), dg.sum_groups(sums.squares(encoded), start)
    assert sums.variances(total, squared, {}, np.array([7]), sample=True, scale=0).tolist() == [0.0]


def test_a_special_value_makes_the_variance_nan() -> None:
    total, squared, infinite = {0: np.array([1, 2])}, {0: np.array([1, 4])}, {"pinf": np.array([1, 0])}
    found = sums.variances(total, squared, infinite, np.array([2, 1]), sample=False, scale=0)
    assert repr(found.tolist()) == "[nan, 0.0]"
