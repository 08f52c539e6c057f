"""Spark is the oracle of what is computed inside loops: each expression over every value of each type next to each
other one, bit for bit, and failing where Spark fails.

Spark reads the texts as it reads the body of a loop. Where its optimiser would fail earlier or later than the text
says, the expressions here are such that it does not.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.planned import plan_sql

from holdfast.errors import EvaluationError
from holdfast.operators.expressions.native_stretch import NativeStretch, compile_stretch
from holdfast.operators.expressions.terms import Constant
from holdfast.operators.loops.body import LoopLeaf
from holdfast.plan.nodes import Linear
from operators.test_expressions_in_spark import bits, compiling_session, everything_in_spark, select
from operators.texts import EVERYTHING, as_change, compiled, everything, q

__all__ = ["compiling_session", "everything_in_spark"]  # fixtures

NUMBERS = [
    "abs(t.f64)", "abs(t.f32)", "greatest(t.i32, u.i32)", "least(t.i32, u.i32, 5)", "greatest(t.f64, u.f64)",
    "least(t.f64, u.f64)", "greatest(t.f32, u.f32, t.f32)", "least(t.s, u.s)", "greatest(t.d, u.d)",
    "least(t.ts, u.ts)", "greatest(t.m, u.m)", "greatest(t.i64, u.i32, t.i8)", "least(t.p, u.p)",
    "greatest(0.0D, t.f64)", "t.i32 & u.i32", "t.i64 | u.i64", "t.i8 ^ u.i8", "~t.i16", "~t.i64",
    "shiftleft(t.i32, u.i32)", "shiftright(t.i64, u.i8)", "t.i64 << 3", "t.i32 >> 33",
    "floor(t.i64)", "sqrt(t.f64)", "date_add(t.d, u.i8)", "date_sub(t.d, 3)", "datediff(t.d, u.d)",
    "date_add(t.d, u.i16)", "t.i64 % 7 + u.i8 % 3", "t.i32 IN (u.i32, 1)", "t.s NOT IN (u.s, 'a', NULL)",
    "t.i32 + u.f64 > 2 AND t.p", "IF(t.i64 > t.f64, t.i64, -1L)", "t.i64 = 9007199254740992e0",
    "CASE WHEN t.i32 < 1000000 AND t.i32 > -1000000 THEN t.i32 + 1 END",
    "CASE WHEN u.i64 % 2 = 0 AND u.i64 > 0 AND u.i64 < 1000 THEN u.i64 DIV 2 ELSE 1L END",
    "coalesce(t.i8, t.i8 + 1Y, 3Y)", "t.p OR t.p IS NULL OR abs(t.i8) = 128", "nullif(abs(t.f64), 0)",
    "if(u.i64 <> 0 AND u.i64 < 100000, t.i64 % u.i64, 0)", "1 + t.i8 + u.i8", "t.i16 + 2 + 3 - u.i8",
]  # fmt: skip
TEXTS = [
    "t.s || u.s", "concat(t.s, '->', u.s, t.s)", "concat(t.i32, ',', t.p)", "t.s || t.i64", "CAST(t.i8 AS STRING)",
    "CAST(t.p AS STRING)", "length(t.s)", "length(t.s || u.s) > 3", "substring(t.s, u.i8, 2)", "substring(t.s, -2)",
    "substring(t.s, 0, 2)", "substring(t.s, u.i32, t.i32)", "left(t.s, 2)", "right(t.s, 2)", "instr(t.s, u.s)",
    "locate(u.s, t.s)", "locate(u.s, t.s, 2)", "locate(u.s, t.s, t.i32)",
    "position('b' IN t.s)", "contains(t.s, u.s)", "startswith(t.s, u.s)",
    "endswith(t.s, 'b')", "replace(t.s, u.s, '-')", "replace(t.s, 'a')", "repeat(t.s, 3)", "repeat(t.s, t.i8 % 3)",
    "lpad(t.s, 4, u.s)", "rpad(t.s, 5, 'xy')", "lpad(t.s, t.i8, '0')", "trim(' ' || t.s || '  ')", "t.s LIKE u.s",
    "t.s NOT LIKE '%' || u.s || '%'", "t.s LIKE concat(u.s, '_')", "t.s LIKE 'a\\\\%%'",
    "',' || t.s || ',' LIKE '%,' || u.i8 || ',%'", "concat_ws(',', t.s, u.s)",
    "concat_ws(t.s, 'a', u.s, u.i8)", "left(t.s, u.i8)", "right(t.s, u.i8)",
]  # fmt: skip
ARRAYS = [
    "array(t.i32, u.i32)", "array(t.s)", "array(t.i32, 7, NULL)", "array_append(array(t.i64), u.i64)",
    "array(t.f64) || array(u.f64, t.f64)", "concat(array(t.s), array('x', u.s))", "array_prepend(array(t.i8), u.i8)",
    "array_contains(array(t.i32, 3), u.i32)", "array_contains(array(t.f64, 1), u.f64)", 
    "array_contains(array(t.s, u.s), 'a')", "size(array(t.i32, u.i32))",
    "NOT array_contains(array_append(array(t.d), u.d), DATE'2024-02-29')", "array(t.m, u.m)", "array(t.ts)",
    "array(array(t.i32), array(u.i32))", "IF(t.p, array(t.i32), CAST(NULL AS array<int>))",
    "array_append(IF(t.p, array(t.i32), NULL), u.i32)", "size(IF(t.p, array(t.i32), NULL))",
    "struct(t.i32, u.s)", "named_struct('a', t.i32, 'b', named_struct('c', u.f64))", "named_struct('x', t.s).x",
    "IF(t.p, struct(t.i32 AS n), NULL).n", "array(struct(t.i32 AS n), struct(u.i32 AS n))",
]  # fmt: skip
CONSTANTS = [
    "array(7)", "array(1, 2)", "named_struct('a', 1)", "array_contains(array(7, 8), t.i32)",
    "array_append(array(7), t.i32)", "element_at(array(1, 2), 2)", "array_contains(array(1), 1)",
    "IF(array_contains(array(1), 1), t.i32, 5)",
    "size(array(1, 2)) + t.i8 % 3", "t.f64 < sqrt(-1D)", "t.f64 = sqrt(-1D)", "sqrt(-1D) <= t.f64",
    "t.f64 <=> sqrt(-1D)",
    "substring('abc', 2) || t.s", "concat_ws(',', 'a', 'b')", "pmod(7, 3) + t.i8 % 3", "shiftleft(1, 3) + t.i8 % 3",
    "CASE WHEN array_contains(array(1), 2) THEN t.i32 ELSE 7 END", "coalesce(CAST(NULL AS INT), t.i32)",
    "array(array(1), array(t.i32))", "named_struct('a', 1).a & t.i64", "repeat('ab', 2)", "greatest(1, 2)", "abs(-5)",
    "date_add(DATE'2024-01-01', 3)", "array(1) || array(2)", "IF(t.p, array(1), array(2, 3))",
    "element_at(array('a', 'b'), 1) || t.s", "array_contains(array(sqrt(-1D)), t.f64)", "greatest(t.f64, sqrt(-1D))",
]  # fmt: skip
FAILING = [
    "abs(t.i8)", "abs(t.i32)", "abs(t.i64)", "t.i32 DIV u.i32", "t.i64 DIV u.i64", "t.i8 % u.i8", "t.i64 % u.i64",
    "t.f64 % u.f64", "pmod(t.i32, u.i32)", "pmod(t.i8, u.i8)", "pmod(t.i16, u.i16)", "pmod(t.i64, u.i64)",
    "CAST(t.i64 AS INT)", "CAST(t.i32 AS TINYINT)", "CAST(t.f64 AS BIGINT)",
    "CAST(t.f64 AS INT)", "t.s LIKE u.s || '\\\\'", "u.p AND t.i32 + 1 > 2", "t.p OR u.i64 * 2 > 3",
    "floor(t.f64)", "ceil(t.f64)",
    "array(t.i32, 2)[u.i8 ]", "element_at(array(t.s, u.s), t.i8)",
    "coalesce(t.i32, u.i32 + 1)", "CASE WHEN t.p THEN t.i32 + 1 WHEN u.p THEN u.i32 * 2 ELSE 0 END",
    "array_append(array(t.i32 + 1), u.i32)", "concat('n', t.i8 + 1Y)", "greatest(t.i32, u.i32 + 1)", "t.i32 + 1 + 2",
]  # fmt: skip
CONDITIONS = (
    "ARITHMETIC_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "CAST_OVERFLOW",
    "INVALID_FORMAT",
    "INVALID_ARRAY_INDEX",
    "INVALID_INDEX_OF_ZERO",
)


def in_loop(text: str) -> NativeStretch | None:
    """What the body of a loop makes of an expression."""
    rows = LoopLeaf("rows", EVERYTHING.fields)
    plan = plan_sql("v", f"SELECT {q(text)} AS x FROM rows", {"rows": rows})
    assert isinstance(plan, Linear) and plan.input == rows
    return compile_stretch(plan, as_written=True)


def same(found: Any, meant: Any) -> bool:
    if pa.types.is_date(found.type):
        found, meant = found.cast(pa.int32()), meant.cast(pa.int32())  # some are beyond the year 9999
    kinds = [str(each.type).replace("not null", "").replace(" ", "") for each in (found, meant)]
    return repr(bits(found)) == repr(bits(meant)) and kinds[0].replace("tz=UTC", "") == kinds[1].replace("tz=UTC", "")


@pytest.mark.parametrize("group", [NUMBERS, TEXTS, ARRAYS, CONSTANTS], ids=["numbers", "texts", "arrays", "constants"])
def test_what_is_computed_in_loops_has_sparks_bits(group: list[str], everything_in_spark: Any) -> None:
    change, wrong = as_change(everything()), []
    for text in group:
        stretch = in_loop(text)
        assert stretch is not None, f"not computed in loops: {text}"
        found, meant = stretch.run(change)["c0"], select(everything_in_spark, [q(text)]).column(0)
        if not same(found, meant):
            wrong.append((text, found.type, meant.type, [*zip(bits(found), bits(meant), strict=True)]))
    assert not wrong


@pytest.mark.parametrize(
    "group", [NUMBERS, TEXTS, ARRAYS, CONSTANTS, FAILING], ids=["numbers", "texts", "arrays", "constants", "failing"]
)
def test_what_is_computed_of_no_rows_is_no_rows(group: list[str]) -> None:
    """A condition may leave nothing of a batch."""
    change, never = as_change(everything()), Constant(pa.bool_(), False)
    for text in group:
        stretch = in_loop(text)
        assert stretch is not None
        found = replace(stretch, predicate=never).run(change)
        assert (found.num_rows, found.schema) == (0, stretch.run(change.slice(0, 0)).schema), text


@pytest.mark.parametrize("text", FAILING)
def test_what_fails_in_loops_fails_on_sparks_rows(text: str, everything_in_spark: Any) -> None:
    table, stretch = everything(), in_loop(text)
    assert stretch is not None, f"not computed in loops: {text}"
    bad = []
    for row in range(table.num_rows):
        try:
            stretch.run(as_change(table.slice(row, 1)))
        except EvaluationError as error:
            assert error.fields["condition"] in CONDITIONS
            bad.append(row)
    good = [row for row in range(table.num_rows) if row not in bad]
    assert bad and good
    found = stretch.run(as_change(table.take(good)))["c0"]
    assert same(found, select(everything_in_spark, [q(text)], good).column(0))
    for row in random.Random(text).sample(bad, min(3, len(bad))):
        with pytest.raises(Exception, match="|".join(CONDITIONS)):
            select(everything_in_spark, [q(text)], [row])


@pytest.mark.parametrize("text", ["t.s || u.s", "abs(t.i32)", "array(t.i32)", "t.i32 + 1 + 2", "CAST(t.i8 AS STRING)"])
def test_outside_of_loops_spark_computes_them_as_before(text: str) -> None:
    assert compiled(q(text)) is None


@pytest.mark.parametrize("text", ["upper(t.s)", "round(t.f64, 1)", "t.f64 || ''", "pow(t.f64, 2)", "CAST(t.s AS INT)"])
def test_what_is_not_certain_is_not_computed_in_loops_either(text: str) -> None:
    assert in_loop(text) is None
