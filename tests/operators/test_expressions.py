"""The native evaluator of linear stretches. Spark reads the texts, and computes nothing.

A hand-written table says what the semantics are. A second table says what is left to Spark.
"""

from __future__ import annotations

import contextlib
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import EvaluationError
from operators.texts import (
    BIGINT,
    BOOL,
    DOUBLE,
    INF,
    INT,
    LMAX,
    MAX,
    NAN,
    STRING,
    TS,
    as_change,
    compiled,
    everything,
    prepare,
    q,
    random_texts,
    stretch_of,
)

LIST = pa.list_(pa.field("element", INT))

# Text, the values of `a` (and `b`), what comes out. Errors are given by a part of their text.
MEANING: list[tuple[str, pa.DataType, list[Any], list[Any], Any]] = [
    ("`a` = `b`", INT, [1, 1, None, None], [1, 2, 1, None], [True, False, None, None]),
    ("`a` <=> `b`", INT, [1, 1, None, None], [1, 2, 1, None], [True, False, False, True]),
    ("`a` IS DISTINCT FROM `b`", INT, [1, 1, None, None], [1, 2, 1, None], [False, True, True, False]),
    ("`a` = `b`", DOUBLE, [NAN, NAN, -0.0], [NAN, 1.0, 0.0], [True, False, True]),
    ("`a` <=> `b`", DOUBLE, [NAN, NAN, -0.0], [NAN, None, 0.0], [True, False, True]),
    ("`a` < `b`", DOUBLE, [1.0, NAN, NAN, INF, -0.0], [NAN, 1.0, NAN, NAN, 0.0], [True, False, False, True, False]),
    ("`a` >= `b`", DOUBLE, [1.0, NAN, NAN, INF, -0.0], [NAN, 1.0, NAN, NAN, 0.0], [False, True, True, False, True]),
    ("`a` > 1e300", DOUBLE, [NAN, INF, 1.0, None], [0.0] * 4, [True, True, False, None]),
    ("`a` <= 0", DOUBLE, [NAN, -INF, 0.0], [0.0] * 3, [False, True, True]),
    ("`a` < `b`", STRING, ["a", "Z", "é", ""], ["B", "a", "z", "\x00"], [False, True, False, True]),
    ("`a` AND `b`", BOOL, [True, True, False, None, None], [True, None, None, False, None],
     [True, None, False, False, None]),
    ("`a` OR `b`", BOOL, [False, True, False, None, None], [False, None, None, True, None],
     [False, True, None, True, None]),
    ("NOT `a`", BOOL, [True, False, None], [None] * 3, [False, True, None]),
    ("`a` IS NULL", INT, [1, None], [1, 1], [False, True]),
    ("`a` IS NOT TRUE", BOOL, [True, False, None], [None] * 3, [False, True, True]),
    ("isnan(`a`)", DOUBLE, [NAN, 1.0, None], [0.0] * 3, [True, False, False]),
    ("`a` IN (1, 2)", INT, [1, 3, None], [0] * 3, [True, False, None]),
    ("`a` IN (1, NULL)", INT, [1, 3, None], [0] * 3, [True, None, None]),
    ("`a` NOT IN (1, NULL)", INT, [1, 3, None], [0] * 3, [False, None, None]),
    ("`a` IN (0.0, 1)", DOUBLE, [-0.0, 1.0, NAN], [0.0] * 3, [True, True, False]),
    ("`a` BETWEEN 1 AND `b`", INT, [1, 0, 5, 0], [2, 2, 2, None], [True, False, False, False]),
    ("`a` + `b`", INT, [1, None, MAX], [2, MAX, None], [3, None, None]),
    ("`a` + `b`", INT, [MAX], [1], "NULL instead. (`a` + `b`, on 1 row(s))"),
    ("`a` * 2", BIGINT, [LMAX], [0], "long overflow. Use 'try_multiply' to"),
    ("-`a`", INT, [-MAX - 1], [0], "integer overflow. (-`a`, on 1 row(s))"),
    ("-`a`", INT, [MAX, None], [0, 0], [-MAX, None]),
    ("`b` + `a` * `a`", INT, [MAX, 1], [None, 1], [None, 2]),
    ("`a` / `b`", DOUBLE, [1.0, None, 1.0], [4.0, 0.0, None], [0.25, None, None]),
    ("`a` / `b`", DOUBLE, [1.0], [-0.0], "Division by zero. Use `try_divide` to"),
    ("`a` / 2", INT, [3, None], [0, 0], [1.5, None]),
    ("`a` % 3", INT, [-7, 7, None], [0, 0, 0], [-1, 1, None]),
    ("`a` * 1.5", DOUBLE, [2.0, -0.0], [0.0, 0.0], [3.0, -0.0]),
    ("CASE WHEN `a` > 1 THEN 'x' WHEN `a` IS NULL THEN 'y' END", INT, [2, 1, None], [0] * 3, ["x", None, "y"]),
    ("CASE `a` WHEN 1 THEN 'x' ELSE 'z' END", INT, [1, 2, None], [0] * 3, ["x", "z", "z"]),
    ("IF(`a` > 1, `a`, `b`)", INT, [2, 1, None], [7, 8, 9], [2, 8, 9]),
    ("COALESCE(`a`, `b`, 0)", INT, [1, None, None], [2, 2, None], [1, 2, 0]),
    ("nvl(`a`, 0.5)", DOUBLE, [NAN, None], [0.0] * 2, [NAN, 0.5]),
    ("CAST(`a` AS DOUBLE)", BIGINT, [2**53 + 1, None], [0, 0], [float(2**53), None]),
    ("`a` LIKE 'a%'", STRING, ["abc", "ba", "", None], [None] * 4, [True, False, False, None]),
    ("`a` NOT LIKE '%c'", STRING, ["abc", "ba", "", None], [None] * 4, [False, True, True, None]),
    ("`a` LIKE '%b%'", STRING, ["a\nb\n", "c", "", None], [None] * 4, [True, False, False, None]),
    ("`a` LIKE '%'", STRING, ["a", "", None], [None] * 3, [True, True, None]),
    ("`a` > DATE'1970-01-02'", pa.date32(), [date(1970, 1, 3), None], [None] * 2, [True, None]),
    ("`a` > '1970-01-02'", pa.date32(), [date(1970, 1, 2), None], [None] * 2, [False, None]),
    ("`a` = TIMESTAMP'1970-01-01 01:00:00+01:00'", TS, [datetime(1970, 1, 1, tzinfo=UTC)], [None], [True]),
    ("((`a`))", INT, [1, None], [0, 0], [1, None]),
]  # fmt: skip

FOREIGN = [
    "t.i32 + 1 > 2 AND t.p",  # Spark may look at t.p first
    "CASE WHEN t.p THEN t.i32 + 1 END",
    "COALESCE(t.i32 + 1, 0)",
    "t.f64 / u.f64 > 1 OR t.p",
    "t.i32 + 1 + 2",  # Spark adds 1 + 2 first
    "1 + t.i32 + u.i32",
    "t.i32 + u.i32 = u.i32 + t.i32",  # true without looking
    "t.i32 + 1 > NULL",
    "t.i64 = 9007199254740992e0",
    "t.i64 > t.f64",
    "CAST(t.i64 AS DOUBLE) = 9007199254740992e0",
    "t.s = 1",
    "t.s = DATE'2020-01-01'",
    "t.ts > t.nt",
    "t.ts > t.d",
    "CAST(t.i32 AS STRING)",
    "CAST(t.i64 AS INT)",
    "CAST(t.f64 AS INT)",
    "upper(t.s)",
    "length(t.s) > 1",
    "t.s LIKE 'a!%' ESCAPE '!'",
    "t.s LIKE u.s",
    "t.s ILIKE 'a%'",
    "t.s || 'a'",
    "t.i32 % u.i32",
    "t.i32 % 0",
    "t.i32 / 0",
    "t.i32 DIV 2",
    "t.i32 IN (u.i32 , 1)",
    "COALESCE(2147483647, 1) + 1",
    "1 / COALESCE(0, 1)",
    "IF(t.p , 0, -0.0D)",  # to Spark two equal branches
    "t.f64 = -CAST(0.0 AS DOUBLE)",
    "2147483647 + 1",
    "t.w * u.w",  # 77 digits
    "t.m * NULL",
    "t.m + t.f64",
    "-t.m",
    "t.m / 0",
    "t.m % 2",
    "t.w + t.m > 1 AND t.p",  # can overflow
    "t.d + INTERVAL '1' DAY",
    "DATE'9999-12-31' + INTERVAL '1' DAY",
    "EXTRACT(YEAR FROM t.ts )",
    "EXTRACT(WEEK FROM t.d )",
    "substring(t.s , -1, 2)",
    "substring(t.s , 0, 2)",
    "substring(t.s , 2)",
    "substring(t.x , 1, 2)",
]


@pytest.mark.parametrize(("sql", "kind", "a", "b", "expected"), MEANING, ids=[f"{row[0]}-{row[1]}" for row in MEANING])
def test_native_expression_means_what_spark_means(
    sql: str, kind: pa.DataType, a: list[Any], b: list[Any], expected: Any
) -> None:
    stretch = stretch_of(None, [sql], [("a", kind), ("b", kind)])
    assert stretch is not None
    change = pa.table({"c0": pa.array(a, kind), "c1": pa.array(b, kind), "_diff": pa.array([1] * len(a), BIGINT)})
    if isinstance(expected, str):
        with pytest.raises(EvaluationError) as raised:
            stretch.run(change)
        assert expected in str(raised.value)
        return
    found = stretch.run(change)["c0"].to_pylist()
    assert [repr(value) for value in found] == [repr(value) for value in expected]


@pytest.mark.parametrize("sql", FOREIGN)
def test_what_is_not_certain_is_left_to_spark(sql: str) -> None:
    assert compiled(q(sql)) is None


def test_products_of_decimals_are_computed_up_to_the_digits_that_can_be_rounded() -> None:
    for left, right, native in [((38, 30), (36, 30), True), ((37, 30), (37, 30), True), ((38, 30), (37, 30), False)]:
        one, other = pa.decimal128(*left), pa.decimal128(*right)
        stretch = stretch_of(None, ["`a` * `b`"], [("a", one), ("b", other)])
        assert (stretch is not None) == native
        if stretch is not None:
            values = [pa.array([Decimal("1.5"), None], one), pa.array([Decimal("0.5"), Decimal(1)], other)]
            change = pa.table({"c0": values[0], "c1": values[1], "_diff": pa.array([1, 1], BIGINT)})
            assert stretch.run(change)["c0"].to_pylist() == [Decimal("0.75"), None]


def test_filter_keeps_rows_where_the_predicate_is_true_and_projects_only_them() -> None:
    stretch = stretch_of("`a` < 5", ["`b`", "`a` + 1"], [("a", INT), ("b", LIST)])
    assert stretch is not None
    change = pa.table({
        "c0": pa.array([1, MAX, None, 4], INT), "c1": pa.array([[1], [2], [3], None], LIST),
        "_diff": pa.array([1, 2, 3, -4], BIGINT),
    })  # fmt: skip
    assert stretch.run(change).to_pydict() == {"c0": [[1], None], "c1": [2, 5], "_diff": [1, -4]}


def test_failing_predicate_raises_for_every_row_it_looks_at() -> None:
    stretch = stretch_of("`a` + 1 > 0", ["`a`"], [("a", INT)])
    assert stretch is not None
    with pytest.raises(EvaluationError, match="integer overflow") as raised:
        stretch.run(pa.table({"c0": pa.array([1, MAX], INT), "_diff": pa.array([1, 1], BIGINT)}))
    assert raised.value.fields["expression"]


def test_plain_columns_are_passed_on_without_a_copy() -> None:
    stretch = stretch_of("`a` > 0", ["`b`", "`b`"], [("a", INT), ("b", STRING)])
    assert stretch is not None
    table = pa.table({"c0": pa.array([1, 2], INT), "c1": ["x", "y"], "_diff": pa.array([1, 1], BIGINT)})
    out = stretch.run(table)
    addresses = {column.chunk(0).buffers()[2].address for column in (table["c1"], out["c0"], out["c1"])}
    assert len(addresses) == 1


def test_twins_that_spark_computes_once_are_left_to_spark() -> None:
    columns = [("a", DOUBLE), ("b", DOUBLE), ("c", DOUBLE), ("i", INT), ("j", INT)]
    assert stretch_of(None, ["`a` + `b` + `c`", "`c` + `b` + `a`"], columns) is None
    lazy = ["`i` + `j` * `j`", "`i` - `j` * `j`"]
    assert stretch_of(None, lazy, columns) is None
    assert stretch_of(None, lazy[:1], columns) is not None
    assert stretch_of(None, ["`i` + `i` > `j`", "`j` < `i` + `i`"], columns) is None


def test_stretch_is_a_value_that_survives_pickling() -> None:
    stretch = stretch_of("`a` IN (1, 2)", ["`a` + 1"], [("a", INT)])
    again = pickle.loads(pickle.dumps(stretch))
    assert again == stretch and hash(again) == hash(stretch)


def test_whatever_compiles_applies_to_many_rows_to_one_and_to_none() -> None:
    change = as_change(everything())
    texts = random_texts(400, seed=5)
    prepare(texts)
    for text in texts:
        found = compiled(text)
        for part in (change, change.slice(9, 1), change.slice(0, 0)) if found else ():
            with contextlib.suppress(EvaluationError):
                assert found[0].run(part).num_rows == part.num_rows, text


def test_chunks_and_no_rows_at_all_are_fine() -> None:
    stretch = stretch_of("`a` > 1", ["`a` + 1", "7", "CAST(NULL AS STRING)"], [("a", INT)])
    assert stretch is not None
    whole = pa.table({"c0": pa.array([1, 2, 3], INT), "_diff": pa.array([1, 1, 1], BIGINT)})
    pieces = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 1), whole.slice(2)])
    assert stretch.run(pieces).to_pydict() == {"c0": [3, 4], "c1": [7, 7], "c2": [None, None], "_diff": [1, 1]}
    assert stretch.run(whole.slice(0, 0)).schema == stretch.run(whole).schema
    assert stretch.run(whole.schema.empty_table()).num_rows == 0
