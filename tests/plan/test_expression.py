"""Expressions of a plan: what they read, how they are changed, and texts that Spark reads as the same expression."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.plan.expression import (
    DAY,
    FALSE,
    MONTHS,
    SPAN,
    TRUE,
    Column,
    Lambda,
    Literal,
    Operation,
    SparkExpression,
    Tree,
    Variable,
    cast,
    choice,
    condition,
    conjunction,
    conjuncts,
    field,
    foreign_name,
    interval_text,
    is_known,
    is_null,
    negated,
    null,
    number,
    plain,
    plus,
    readable,
    references,
    renamed,
    sql,
    struct,
    substitute,
    text,
)

from ..session import shared_session
from .interpreter import evaluate

A, B, C = (Column(name, "int") for name in "abc")
P, Q = (Column(name, "boolean") for name in "pq")


def added(left: Tree, right: Tree) -> Tree:
    return Operation("+", (left, right), "int")


def times(left: Tree, right: Tree) -> Tree:
    return Operation("*", (left, right), "int")


@pytest.mark.parametrize(
    ("tree", "shown"),
    [
        (times(added(A, B), C), "(`a` + `b`) * `c`"),
        (added(times(A, B), C), "`a` * `b` + `c`"),
        (added(added(A, B), C), "`a` + `b` + `c`"),
        (added(A, added(B, C)), "`a` + (`b` + `c`)"),
        (Operation("-", (Operation("-", (A, B), "int"), number(-1)), "int"), "(`a` - `b`) - -1"),
        (Operation("negative", (number(-1),), "int"), "-(-1)"),
        (condition("and", P, condition("or", P, Q)), "`p` AND (`p` OR `q`)"),
        (negated(condition("=", A, number(1))), "NOT `a` = 1"),
        (negated(condition("and", P, Q)), "NOT (`p` AND `q`)"),
        (is_known(added(A, B)), "`a` + `b` IS NOT NULL"),
        (condition("=", is_null(A), P), "(`a` IS NULL) = `p`"),
        (condition("in", A, number(1), number(2)), "`a` IN (1, 2)"),
        (cast(A, "bigint"), "CAST(`a` AS bigint)"),
        (cast(A, "int"), "`a`"),
        (choice(P, A), "CASE WHEN `p` THEN `a` END"),
        (choice(P, A, B), "if(`p`, `a`, `b`)"),
        (choice(P, A, Q, B, C), "CASE WHEN `p` THEN `a` WHEN `q` THEN `b` ELSE `c` END"),
        (field(struct(x=A), "x", "int"), "named_struct('x', `a`).`x`"),
        (plus(Column("t", "timestamp"), -90 * 60_000_000), "`t` - INTERVAL '90' MINUTE"),
        (SparkExpression(foreign_name("UPPER x", "0123456789abcdef"), (A,), "string"), "upper_x(`a`)"),
        (Column("a`b", "int"), "`a``b`"),
        (text("it's"), "'it''s'"),
        (null("int"), "NULL"),
    ],
)
def test_people_read_as_few_parentheses_as_are_needed(tree: Tree, shown: str) -> None:
    assert readable(tree) == shown


def test_references_are_columns_and_not_variables() -> None:
    element = Variable("e", "int")
    listed = Operation("transform", (Column("l", "array<int>"), Lambda((element,), added(element, A))), "array<int>")
    assert references(field(Column("s", "struct<f:int>"), "f", "int"), None, listed) == ("s", "l", "a")


def test_a_plain_column_is_recognised() -> None:
    assert plain(Column("o.amount", "int")) == "o.amount"
    assert plain(added(A, B)) is None


def test_columns_are_replaced_all_at_once() -> None:
    assert substitute(Operation("-", (A, B), "int"), {"a": B, "b": A}) == Operation("-", (B, A), "int")
    assert renamed(added(A, B), {"a": "b"}) == added(B, B)
    whole = added(A, B)
    assert substitute(whole, {"c": A}) is whole


def test_and_is_taken_apart_and_put_together() -> None:
    parts = conjuncts(condition("and", condition("and", P, condition("or", P, Q)), condition("and", Q, P)))
    assert parts == [P, condition("or", P, Q), Q, P]
    whole = conjunction(parts)
    assert whole is not None and readable(whole) == "`p` AND (`p` OR `q`) AND `q` AND `p`"
    assert conjunction([]) is None and conjuncts(None) == []


DAYS = (date(2024, 2, 29) - date(1970, 1, 1)).days
LITERALS: list[tuple[Literal, Any]] = [
    (Literal(-128, "tinyint"), -128),
    (Literal(-(2**63), "bigint"), -(2**63)),
    (Literal(0.1, "double"), 0.1),
    (Literal(1e300, "double"), 1e300),
    (Literal(0.5, "float"), 0.5),
    (Literal(Decimal("1.50"), "decimal(10,2)"), Decimal("1.50")),
    (Literal(Decimal("-7"), "decimal(38,0)"), Decimal("-7")),
    (Literal("it's", "string"), "it's"),
    (Literal("a\\n${x}\n", "string"), "a\\n${x}\n"),
    (Literal(b"\x00\xff", "binary"), b"\x00\xff"),
    (Literal(True, "boolean"), True),
    (Literal(DAYS, "date"), date(2024, 2, 29)),
    (Literal(None, "struct<a b:int>"), None),
]


def test_spark_reads_literals_as_they_are_meant() -> None:
    frame = shared_session().sql(
        f"SELECT {', '.join(f'{sql(each)} AS `{at}`' for at, (each, _) in enumerate(LITERALS))}"
    )
    assert [each.dataType.simpleString() for each in frame.schema.fields] == [each.type for each, _ in LITERALS]
    (row,) = frame.collect()
    assert [bytes(each) if isinstance(each, bytearray) else each for each in row] == [value for _, value in LITERALS]


def test_spark_reads_moments_and_intervals_as_they_are_meant() -> None:
    moment = Literal(DAYS * DAY + 5, "timestamp")
    moved = [plus(moment, amount) for amount in (3 * DAY, -DAY - 1, 7_200_000_000, -1, 1_500_000)]
    moved.append(plus(moment, -12, MONTHS))
    found = (
        shared_session().sql(f"SELECT {', '.join(f'unix_micros({sql(each)})' for each in [moment, *moved])}").first()
    )
    assert found is not None
    # The year before a February 29 ends on February 28.
    assert [each - DAYS * DAY - 5 for each in found] == [0, 3 * DAY, -DAY - 1, 7_200_000_000, -1, 1_500_000, -366 * DAY]


@pytest.mark.parametrize(
    ("amount", "kind", "shown"),
    [
        (3, MONTHS, "INTERVAL '3' MONTH"),
        (2 * DAY, SPAN, "INTERVAL '2' DAY"),
        (-3_600_000_000, SPAN, "INTERVAL '-1' HOUR"),
        (1, SPAN, "INTERVAL '0.000001' SECOND"),
        (-DAY - 1, SPAN, "INTERVAL '-1 00:00:00.000001' DAY TO SECOND"),
    ],
)
def test_an_interval_is_shown_in_its_largest_unit(amount: int, kind: str, shown: str) -> None:
    assert interval_text(amount, kind) == shown


NUMBERS = st.sampled_from([A, B, C]) | st.integers(-3, 3).map(number)


def _deeper(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    logic = st.tuples(st.sampled_from(["and", "or", "=", "<=>"]), inner, inner)
    compared = st.tuples(st.sampled_from(["=", "<", ">="]), _SUMS, _SUMS)
    return st.one_of(
        logic.map(lambda made: condition(*made)),
        compared.map(lambda made: condition(*made)),
        inner.map(negated),
        inner.map(is_null),
        st.tuples(inner, inner, inner).map(lambda made: choice(*made)),
        st.tuples(_SUMS, _SUMS).map(lambda made: condition("in", *made)),
    )


_SUMS: st.SearchStrategy[Tree] = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*"), inner, inner).map(lambda made: Operation(made[0], made[1:], "int")),
        inner.map(lambda tree: Operation("negative", (tree,), "int")),
    ),
    max_leaves=5,
)
TREES: st.SearchStrategy[Tree] = st.recursive(st.sampled_from([P, Q, TRUE, FALSE]), _deeper, max_leaves=6)


@settings(max_examples=3, deadline=None)
@given(st.lists(TREES, min_size=40, max_size=40))
def test_spark_reads_a_text_as_the_expression_that_was_written(trees: list[Tree]) -> None:
    rows = [(a, b, c, p, q) for a in (0, 2) for b in (-1, 3) for c in (1, None) for p in (True, None) for q in (False,)]
    frame = shared_session().createDataFrame(rows, "a int, b int, c int, p boolean, q boolean")
    found = frame.selectExpr(*(f"{sql(tree)} AS x{at}" for at, tree in enumerate(trees))).collect()
    for row, values in zip(rows, found, strict=True):
        known = dict(zip("abcpq", row, strict=True))
        assert [evaluate(tree, known) for tree in trees] == list(values)
