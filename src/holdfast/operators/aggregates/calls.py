"""The calls of an aggregate, and the state that each call needs.

Calls on the same arguments share their state: ``avg(x)``, ``sum(x)`` and ``count(x)`` use one accumulator. The name of
a piece of state begins with the input columns it belongs to (here 3, or 3 and 5):

- ``+3.null`` counts rows whose column 3 is NULL; ``+3.nan``, ``+3.pinf``, ``+3.ninf`` count special doubles;
- ``+3.s.q``, ``+3.x.q``, ``+3.y.q``, ``+3.z.q`` are the digits of the sums of first, second, third and fourth powers;
- ``+3-5.a.q``, ``+3-5.b.q`` and ``+3-5.p.q`` are the digits of the two sums and of the sum of products of a pair;
- ``+3-5.d`` counts distinct pairs, ``+3.d.s.q`` are the digits of the sum of distinct values;
- the trace ``order.3`` keeps the values of column 3 in order, ``distinct.3-5`` the pairs with their multiplicities.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import Unsupported

SUMS = frozenset({"sum", "avg"})
MOMENTS = frozenset({"var_pop", "var_samp", "stddev_pop", "stddev_samp"})
HIGHER = frozenset({"skewness", "kurtosis"})
PAIRS = frozenset({"covar_pop", "covar_samp"})
EXTREMES = frozenset({"min", "max", "any_value"})
VALUES = frozenset(
    {"collect_list", "collect_set", "mode", "percentile", "percentile_disc", "bit_and", "bit_or", "bit_xor"}
)
"""Functions that need all values of a group."""

TRUTHS = frozenset({"bool_and", "bool_or", "count_if"})
"""Functions that need the number of true values: the sum, with true as 1."""


@dataclass(frozen=True)
class CallSpec:
    """One aggregate call: its function, the positions of its arguments in the input change (none for ``count(*)``).

    Raises Unsupported for an unknown function or a type that it does not take."""

    function: str
    arguments: tuple[int, ...]
    argument_types: tuple[pa.DataType, ...]
    result_type: pa.DataType
    distinct: bool = False
    parameters: tuple[str, ...] = ()
    """Constants that the function takes (see `operators.aggregate.Call`)."""

    def __post_init__(self) -> None:
        known = self.function in SUMS | MOMENTS | HIGHER | PAIRS | TRUTHS | EXTREMES | VALUES | {"count"}
        if not known or (self.distinct and self.function in EXTREMES | PAIRS):
            raise Unsupported(f"aggregate {'distinct ' * self.distinct}{self.function}", function=self.function)
        if self.function == "percentile" and not _is_number(self.argument_types[0]):
            kind = str(self.argument_types[0])
            raise Unsupported(f"a percentile of values of type {kind}; expected numbers", type=kind)

    @property
    def state(self) -> str:
        """The name of the call's arguments in the state: ``3``, or ``3-5`` for several."""
        return "-".join(map(str, self.arguments))

    @property
    def text(self) -> str:
        """The call, for messages."""
        arguments = ", ".join(f"column {index}" for index in self.arguments) or "*"
        return f"{self.function}({'distinct ' * self.distinct}{arguments})"


@dataclass(frozen=True)
class Grouping:
    """Grouping by the first ``keys`` columns of the input change. Without calls it is DISTINCT; without keys there is
    always one row."""

    keys: int
    calls: tuple[CallSpec, ...]
    key_types: tuple[pa.DataType, ...]


@dataclass(frozen=True)
class Accumulator:
    """The additive state of all calls on the same arguments. With ``distinct``, each combination of values counts
    once."""

    arguments: tuple[int, ...]
    state: str
    sums: bool
    squares: bool
    distinct: bool = False
    higher: bool = False
    """Whether it also sums third and fourth powers."""

    pair: bool = False
    """Whether it sums two columns and their products."""

    @property
    def nulls(self) -> str:
        """The name of the column that counts rows with a NULL among the arguments. Usually all counts are zero, and
        then the column is not stored."""
        return f"+{self.state}.null"

    @property
    def digits(self) -> tuple[str, ...]:
        """The prefixes of its digit columns: of the sums of powers, or of a pair's sums."""
        marks = "s" * self.sums + "x" * self.squares + "yz" * self.higher + "abp" * self.pair
        return tuple(f"+{self.state}.{mark}." for mark in marks)


def accumulators(spec: Grouping) -> tuple[Accumulator, ...]:
    """The accumulators of a spec, without ``+diff`` (the number of rows of a group)."""
    found: dict[tuple[tuple[int, ...], bool], set[str]] = {}
    for call in spec.calls:
        if call.arguments:
            # A function that reads all values of a group needs no state of distinct values.
            once = call.distinct and call.function not in VALUES
            found.setdefault((call.arguments, once), set()).add(call.function)
    return tuple(
        Accumulator(
            arguments,
            "-".join(map(str, arguments)) + ".d" * distinct,
            sums=bool(functions & (SUMS | MOMENTS | HIGHER | TRUTHS)),
            squares=bool(functions & (MOMENTS | HIGHER)),
            distinct=distinct,
            higher=bool(functions & HIGHER),
            pair=bool(functions & PAIRS),
        )
        for (arguments, distinct), functions in found.items()
    )


def ordered(spec: Grouping) -> dict[int, list[CallSpec]]:
    """Column whose values must be kept in order → the calls that need it."""
    found: dict[int, list[CallSpec]] = {}
    for call in spec.calls:
        if call.function in EXTREMES | VALUES:
            found.setdefault(call.arguments[0], []).append(call)
    return found


def distinct(spec: Grouping) -> dict[str, Accumulator]:
    """Name of the arguments in the state → the accumulator of their distinct values."""
    return {each.state.removesuffix(".d"): each for each in accumulators(spec) if each.distinct}


def is_additive(spec: Grouping) -> bool:
    """Whether all calls need only sums, so that rows can be combined before the exchange."""
    return not ordered(spec) and not distinct(spec)


def inputs(spec: Grouping) -> dict[int, pa.DataType]:
    """Column of the input that the calls need, without the keys → its type."""
    used = {p: kind for call in spec.calls for p, kind in zip(call.arguments, call.argument_types, strict=True)}
    return {index: used[index] for index in sorted(used) if index >= spec.keys}


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
