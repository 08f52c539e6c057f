"""From the state of groups to the results of calls, as defined by Spark in ANSI mode.

A group without non-null values gives NULL (``count`` and ``count_if``: 0). A total that does not fit its type raises an
error that names the group, or gives NULL (``try_sum``). ``var_samp`` and ``stddev_samp`` of one value are NULL. Decimal
averages are rounded half up, at the scale of the result type. Results are functions of exact totals, so two equal
states have bitwise equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.errors import Unsupported
from holdfast.operators.aggregates.accumulators import Totals, count_of, counted, digits_of, specials_of
from holdfast.operators.aggregates.calls import (
    HIGHER,
    MOMENTS,
    PAIRS,
    TRUTHS,
    Accumulator,
    CallSpec,
    Grouping,
    accumulators,
)
from holdfast.operators.numbers import central_moments, sums
from holdfast.operators.numbers.digits import Bools, Digits, Floats, Ints, from_int64, rounded, scaled


def results(
    spec: Grouping, totals: Totals, picked: dict[CallSpec, pa.Array], keys: Sequence[pa.Array]
) -> list[pa.Array]:
    """One array per call. ``picked`` has the arrays of the calls that need values in order."""
    states = {(accumulator.arguments, accumulator.distinct): accumulator for accumulator in accumulators(spec)}
    found = []
    for call in spec.calls:
        if call.function == "count":
            state = states.get((call.arguments, call.distinct))
            counts = count_of(totals, "") if state is None else counted(totals, state)
            found.append(pa.array(counts).cast(call.result_type))
        elif call in picked:
            found.append(picked[call].cast(call.result_type))
        else:
            found.append(_summed(call, states[call.arguments, call.distinct], totals, keys))
    return found


def describe(keys: Sequence[pa.Array], index: int) -> str:
    """The key of a group, for messages."""
    return f"({', '.join(repr(column[index].as_py()) for column in keys)})" if keys else "all rows"


def _summed(call: CallSpec, state: Accumulator, totals: Totals, keys: Sequence[pa.Array]) -> pa.Array:
    if call.function in HIGHER | PAIRS:
        return _shape(call, state, totals)
    squared = digits_of(totals, state.digits[1]) if state.squares else {}
    found = Sums(digits_of(totals, state.digits[0]), squared, specials_of(totals, state), counted(totals, state))
    return summed(call, found, lambda index: f"{call.text} of {describe(keys, index)}")


@dataclass(frozen=True)
class Sums:
    """The inputs of sums, averages and variances: Σx, Σx², the counts of special doubles, and the count of values."""

    total: Digits
    squared: Digits
    specials: dict[str, Ints]
    counts: Ints


def summed(call: CallSpec, found: Sums, explain: sums.Explain) -> pa.Array:
    """The result of a call that is computed from sums. ``explain`` gives the text of the group at an index, for errors.

    Raises EvaluationError if a total does not fit the result type."""
    kind, argument = call.result_type, call.argument_types[0]
    scale = argument.scale if pa.types.is_decimal(argument) else 0
    total, counts, specials = found.total, found.counts, found.specials
    refused = None if "try" in call.parameters else explain
    if call.function in TRUTHS:
        true = sums.to_integers(total, np.ones(len(counts), dtype=np.bool_), pa.int64(), explain)
        if call.function == "count_if":
            return true.cast(kind)
        truth = true.to_numpy() == counts if call.function == "bool_and" else true.to_numpy() > 0
        return pa.array(truth, kind, mask=counts == 0)
    if call.function in MOMENTS:
        sample = call.function.endswith("_samp")
        variance = sums.variances(total, found.squared, specials, counts, sample=sample, scale=scale)
        spread = np.sqrt(np.maximum(variance, 0.0)) if call.function.startswith("stddev") else variance
        return _nullable(spread, counts > int(sample), kind)
    if pa.types.is_floating(kind):
        doubles = sums.to_doubles(total, specials, len(counts)) / float(10**scale)
        return _nullable(doubles / np.maximum(counts, 1) if call.function == "avg" else doubles, counts > 0, kind)
    if call.function == "avg":
        return sums.to_average(total, counts, scale, kind, refused)
    if not pa.types.is_decimal(kind):
        return sums.to_integers(total, counts > 0, kind, refused)
    if kind.scale < scale:
        raise Unsupported(f"{call.text}: a sum at scale {kind.scale} of numbers at scale {scale}", type=str(kind))
    return sums.to_decimals(scaled(total, 10 ** (kind.scale - scale)), counts > 0, kind, refused)


def _shape(call: CallSpec, state: Accumulator, totals: Totals) -> pa.Array:
    """The result of a call that needs sums of higher powers or of products."""
    counts, terms = counted(totals, state), [digits_of(totals, prefix) for prefix in state.digits]
    special = sums.special(specials_of(totals, state), len(counts))
    if call.function in HIGHER:
        shape = (central_moments.skewness if call.function == "skewness" else central_moments.kurtosis)(terms, counts)
        present = (counts > 0) & (special | _spread(terms, counts))
    else:
        sample = call.function.endswith("_samp")
        left, right, products = terms
        scale = sum(each.scale for each in call.argument_types if pa.types.is_decimal(each))
        shape = central_moments.covariance((left, right), products, counts, sample=sample, scale=scale)
        present = counts > int(sample)
    return _nullable(np.where(special, np.nan, shape), present, call.result_type)


def _spread(powers: list[Digits], counts: Ints) -> Bools:
    """Whether each group has at least two different values."""
    moment = central_moments.second_moment(from_int64(counts), powers[0], powers[1])
    spread: Bools = rounded(moment, len(counts))[0] > 0
    return spread


def _nullable(values: Floats, present: Bools, kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.float64(), mask=None if present.all() else ~present).cast(kind)
