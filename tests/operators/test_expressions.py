"""The native evaluator of linear stretches.

Three families. A hand-written table says what the semantics are, readable without Spark. A second table says what is
left to Spark. Then Spark itself is the oracle: every expression here that compiles natively, and some hundred random
ones, are run by both over a table with NULL, NaN, -0.0 and the extremes of each type; they must agree bit for bit, or
fail on the same rows.
"""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from holdfast.errors import EvaluationError
from holdfast.operators.expressions import Stretch, apply, compile_stretch
from holdfast.operators.reading import read
from holdfast.operators.terms import Column

INT, BIGINT, FLOAT, DOUBLE, BOOL, STRING = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string()
TS, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
NAN, INF = math.nan, math.inf
MAX, LMAX = 2**31 - 1, 2**63 - 1
DBL_MAX = 1.7976931348623157e308

# Column `t.i32` holds these down the table and `u.i32` across it, so that each meets each.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [None, -128, -1, 0, 1, 7, 127]),
    "i16": (pa.int16(), [None, -(2**15), -1, 0, 1, 300, 2**15 - 1]),
    "i32": (INT, [None, -MAX - 1, -1, 0, 1, 70_000, MAX]),
    "i64": (BIGINT, [None, -LMAX - 1, -1, 0, 3, 2**53 + 1, LMAX]),
    "f32": (FLOAT, [None, NAN, -INF, -0.0, 0.0, 0.5, 16777216.0]),
    "f64": (DOUBLE, [None, NAN, INF, -0.0, 0.0, 0.1, DBL_MAX]),
    "s": (STRING, [None, "", "a", "ab%", "bab", "Ä", "z\x00\n"]),
    "p": (BOOL, [None, True, False, True, None, False, False]),
    "d": (pa.date32(), [None, date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(2024, 3, 1),
                        date(9999, 12, 31)]),
    "ts": (TS, [None, datetime(1, 1, 3, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
                datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 10, 0, 0, 500000, UTC),
                datetime(2024, 2, 29, 12, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)]),
    "nt": (NTZ, [None, datetime(1, 1, 3), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1),
                 datetime(2024, 2, 29, 10), datetime(2024, 3, 1), datetime(9999, 12, 29)]),
    "m": (pa.decimal128(10, 2),
          [None, *map(Decimal, ["-99999999.99", "-0.01", "0.00", "1.50", "7.00", "99999999.99"])]),
    "w": (pa.decimal128(38, 18),
          [None, *map(Decimal, ["-1.5", "0", "1E-18", "1.5", "7", "12345678901234567890.123456789012345678"])]),
    "x": (pa.binary(), [None, b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]),
}  # fmt: skip
COLUMNS = [(f"{table}.{name}", kind) for name, (kind, _) in VALUES.items() for table in ("t", "u")]


def everything() -> pa.Table:
    """Each value of each type next to each other one."""
    pairs = list(product(range(7), range(7)))
    arrays = []
    for kind, values in VALUES.values():
        for side in (0, 1):
            arrays.append(pa.array([values[pair[side]] for pair in pairs], kind))
    return pa.table([*arrays, pa.array(range(len(pairs)), BIGINT)], names=[*(name for name, _ in COLUMNS), "_diff"])


def as_change(table: pa.Table) -> pa.Table:
    return table.rename_columns([*(f"c{place}" for place in range(table.num_columns - 1)), "_diff"])


def q(sql: str) -> str:
    """Short texts for people: t.i32 for `t.i32`."""
    words = sql
    for name, _ in sorted(COLUMNS, key=lambda column: -len(column[0])):
        words = (
            words.replace(f"{name} ", f"`{name}` ").replace(f"{name})", f"`{name}`)").replace(f"{name},", f"`{name}`,")
        )
        if words.endswith(name):
            words = f"{words[: -len(name)]}`{name}`"
    return words


def compiled(sql: str) -> tuple[Stretch, pa.DataType] | None:
    """The stretch that computes ``sql`` alone, and the type that it has."""
    term = read(sql, {name: Column(kind, place) for place, (name, kind) in enumerate(COLUMNS)})
    if term is None:
        return None
    stretch = compile_stretch(None, [("x", sql)], COLUMNS, [term.type])
    return None if stretch is None else (stretch, term.type)


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
    ("`a` + `b`", INT, [MAX], [1], "integer overflow in `a` + `b`"),
    ("`a` * 2", BIGINT, [LMAX], [0], "integer overflow in `a` * 2"),
    ("-`a`", INT, [-MAX - 1], [0], "integer overflow in -`a`"),
    ("-`a`", INT, [MAX, None], [0, 0], [-MAX, None]),
    ("`b` + `a` * `a`", INT, [MAX, 1], [None, 1], [None, 2]),
    ("`a` / `b`", DOUBLE, [1.0, None, 1.0], [4.0, 0.0, None], [0.25, None, None]),
    ("`a` / `b`", DOUBLE, [1.0], [-0.0], "division by zero in `a` / `b`"),
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
    ("((`a`)) AS z", INT, [1, None], [0, 0], [1, None]),
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
    "t.i32 = DATE'2020-01-01'",
    "t.d > '2020-1-1'",
    "t.ts > TIMESTAMP'2020-01-01 00:00:00'",  # in which time zone?
    "t.ts > t.nt",
    "t.ts > t.d",
    "t.f32 = 0.1",
    "t.f32 + 1",
    "CAST(t.i32 AS STRING)",
    "CAST(t.i64 AS INT)",
    "CAST(t.f64 AS INT)",
    "try_cast(t.i32 AS BIGINT)",
    "upper(t.s)",
    "length(t.s) > 1",
    "t.s LIKE 'a!%' ESCAPE '!'",
    "t.s LIKE u.s",
    "t.s ILIKE 'a%'",
    r"t.s = 'a\nb'",
    "t.s = 'it''s'",
    "t.s || 'a'",
    "t.i32 % u.i32",
    "t.i32 % 0",
    "t.i32 / 0",
    "t.i32 DIV 2",
    "t.i32 IN (u.i32 , 1)",
    "t.i32 = (t.i32 IS NULL)",
    "t.p = t.i32 > 1",
    "now() > t.ts",
    "rand() > 0.5",
    "nonesuch > 1",
    "t.f64 + (COALESCE(7, -1) % 5)",  # the same for all rows
    "COALESCE(2147483647, 1) + 1",
    "1 / COALESCE(0, 1)",
    "IF(t.p , 0, -0.0D)",  # to Spark two equal branches
    "t.f64 = -CAST(0.0 AS DOUBLE)",
    "2147483647 + 1",
    "t.i32 +",
    "t.w * u.w",  # 77 digits
    "t.m * 1Y",
    "t.m * NULL",
    "t.m + t.f64",
    "-t.m",
    "t.m / 0",
    "t.m % 2",
    "t.w + t.m > 1 AND t.p",  # can overflow
    "t.d + INTERVAL '1' DAY",
    "DATE'2024-01-01' + INTERVAL '1' HOUR",
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
    results = [BOOL, INT, BIGINT, DOUBLE, STRING]
    stretches = (compile_stretch(None, [("x", sql)], [("a", kind), ("b", kind)], [result]) for result in results)
    stretch = next(found for found in stretches if found is not None)
    change = pa.table({"c0": pa.array(a, kind), "c1": pa.array(b, kind), "_diff": pa.array([1] * len(a), BIGINT)})
    if isinstance(expected, str):
        with pytest.raises(EvaluationError) as raised:
            apply(stretch, change)
        assert expected in str(raised.value)
        return
    found = apply(stretch, change)["c0"].to_pylist()
    assert [repr(value) for value in found] == [repr(value) for value in expected]


@pytest.mark.parametrize("sql", FOREIGN)
def test_what_is_not_certain_is_left_to_spark(sql: str) -> None:
    assert compiled(q(sql)) is None


def test_filter_keeps_rows_where_the_predicate_is_true_and_projects_only_them() -> None:
    columns = [("a", INT), ("b", pa.list_(INT))]
    stretch = compile_stretch("`a` < 5", [("b", "`b`"), ("next", "`a` + 1")], columns, [pa.list_(INT), INT])
    assert stretch is not None
    change = pa.table({
        "c0": pa.array([1, MAX, None, 4], INT), "c1": pa.array([[1], [2], [3], None], pa.list_(INT)),
        "_diff": pa.array([1, 2, 3, -4], BIGINT),
    })  # fmt: skip
    assert apply(stretch, change).to_pydict() == {"c0": [[1], None], "c1": [2, 5], "_diff": [1, -4]}


def test_failing_predicate_raises_for_every_row_it_looks_at() -> None:
    stretch = compile_stretch("`a` + 1 > 0", [("a", "`a`")], [("a", INT)], [INT])
    assert stretch is not None
    with pytest.raises(EvaluationError, match="integer overflow") as raised:
        apply(stretch, pa.table({"c0": pa.array([1, MAX], INT), "_diff": pa.array([1, 1], BIGINT)}))
    assert raised.value.fields["expression"]


def test_plain_columns_are_passed_on_without_a_copy() -> None:
    stretch = compile_stretch("`a` > 0", [("b", "`b`"), ("b2", "`b`")], [("a", INT), ("b", STRING)], [STRING, STRING])
    assert stretch is not None
    table = pa.table({"c0": pa.array([1, 2], INT), "c1": ["x", "y"], "_diff": pa.array([1, 1], BIGINT)})
    out = apply(stretch, table)
    addresses = {column.chunk(0).buffers()[2].address for column in (table["c1"], out["c0"], out["c1"])}
    assert len(addresses) == 1


def test_result_type_other_than_sparks_is_left_to_spark() -> None:
    assert compile_stretch(None, [("x", "`a` + 1")], [("a", INT)], [BIGINT]) is None


def test_twins_that_spark_computes_once_are_left_to_spark() -> None:
    columns = [("a", DOUBLE), ("b", DOUBLE), ("c", DOUBLE), ("i", INT), ("j", INT)]
    twins = [("x", "`a` + `b` + `c`"), ("y", "`c` + `b` + `a`")]
    assert compile_stretch(None, twins, columns, [DOUBLE, DOUBLE]) is None
    lazy = [("x", "`i` + `j` * `j`"), ("y", "`i` - `j` * `j`")]
    assert compile_stretch(None, lazy, columns, [INT, INT]) is None
    assert compile_stretch(None, lazy[:1], columns, [INT]) is not None
    mirrored = [("x", "`i` + `i` > `j`"), ("y", "`j` < `i` + `i`")]
    assert compile_stretch(None, mirrored, columns, [BOOL, BOOL]) is None


def test_stretch_is_a_value_that_survives_pickling() -> None:
    stretch = compile_stretch("`a` IN (1, 2)", [("x", "`a` + 1")], [("a", INT)], [INT])
    again = pickle.loads(pickle.dumps(stretch))
    assert again == stretch and hash(again) == hash(stretch)


def test_applying_parses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stretch = compile_stretch("`a` > 1", [("x", "`a` + 1")], [("a", INT)], [INT])
    assert stretch is not None
    monkeypatch.setattr("sqlglot.parse_one", None)
    change = pa.table({"c0": pa.array([1, 2], INT), "_diff": pa.array([1, 1], BIGINT)})
    assert apply(stretch, change)["c0"].to_pylist() == [3]


def test_whatever_compiles_applies_to_many_rows_to_one_and_to_none() -> None:
    change = as_change(everything())
    for text in random_texts(400, seed=5):
        found = compiled(text)
        for part in (change, change.slice(9, 1), change.slice(0, 0)) if found else ():
            with contextlib.suppress(EvaluationError):
                assert apply(found[0], part).num_rows == part.num_rows, text


def test_chunks_and_no_rows_at_all_are_fine() -> None:
    stretch = compile_stretch(
        "`a` > 1", [("x", "`a` + 1"), ("k", "7"), ("z", "CAST(NULL AS STRING)")], [("a", INT)], [INT, INT, STRING]
    )
    assert stretch is not None
    whole = pa.table({"c0": pa.array([1, 2, 3], INT), "_diff": pa.array([1, 1, 1], BIGINT)})
    pieces = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 1), whole.slice(2)])
    assert apply(stretch, pieces).to_pydict() == {"c0": [3, 4], "c1": [7, 7], "c2": [None, None], "_diff": [1, 1]}
    assert apply(stretch, whole.slice(0, 0)).schema == apply(stretch, whole).schema
    assert apply(stretch, whole.schema.empty_table()).num_rows == 0


# Spark as the oracle.


def certain_texts() -> list[str]:
    """Expressions over every type that must compile natively."""
    texts: list[str] = []
    literals = {
        "i8": ["7", "-128", "300", "1Y", "1.0"], "i16": ["300", "-1", "70000"],
        "i32": ["1", "-2147483648", "3000000000", "1.5e0", "7.0"],
        "i64": ["3", "9223372036854775807", "-9223372036854775808", "3L"], "f32": ["0.5", "0", "16777216"],
        "f64": ["0.1", "0", "-0.0", "1e-1", "0.1D", "1.7976931348623157e308", "3L"],
        "s": ["'a'", "''", "'Ä'", '"bab"'], "p": ["true", "FALSE"], "d": ["DATE'2024-02-29'", "'1970-01-01'"],
        "ts": ["TIMESTAMP'2024-02-29 12:00:00Z'", "TIMESTAMP'2024-02-29 11:00:00.5+01:00'", "'1970-01-01T00:00:00Z'"],
        "nt": ["TIMESTAMP_NTZ'2024-03-01 00:00:00'"], "m": ["1.5", "7", "-0.01", "99999999.99"],
        "w": ["1.5", "0.000000000000000001"],
    }  # fmt: skip
    for name in VALUES:
        for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            texts.append(f"t.{name} {operator} u.{name}")
            texts.extend(f"t.{name} {operator} {literal}" for literal in literals.get(name, []))
            texts.extend(f"{literal} {operator} t.{name}" for literal in literals.get(name, [])[:2])
        texts += [f"t.{name} IS NULL", f"t.{name} IS NOT NULL", f"t.{name} = NULL", f"NULL <=> t.{name}"]
        texts += [
            f"CASE WHEN t.p THEN t.{name} ELSE u.{name} END",
            f"IF(t.p , t.{name} , NULL)",
            f"nvl(t.{name} , u.{name})",
        ]
        if name in literals:
            listed = [literal for literal in literals[name] if literal not in ("300", "70000", "3000000000", "1.5e0")]
            texts += [f"t.{name} IN ({', '.join(listed)})", f"t.{name} NOT IN ({literals[name][0]}, NULL)"]
            texts += [
                f"t.{name} BETWEEN {literals[name][0]} AND u.{name}",
                f"CASE t.{name} WHEN {literals[name][0]} THEN 1 ELSE 2L END",
            ]
    for name in ("i8", "i16", "i32", "i64"):
        texts += [
            f"CAST(t.{name} AS BIGINT)",
            f"CAST(t.{name} AS DOUBLE)",
            f"t.{name} % 7",
            f"t.{name} % -3L",
            f"t.{name} / 3",
        ]
        texts += [
            f"t.{name} < u.i64",
            f"COALESCE(t.{name} , u.i64 , 5)",
            f"COALESCE(t.{name} , u.f64)",
            f"t.{name} + t.f64",
        ]
    for operator in "+-*":
        texts += [f"t.f64 {operator} u.f64", f"t.f32 {operator} u.f32", f"t.f64 {operator} 2", f"1.1 {operator} t.f64"]
        texts += [f"t.f64 {operator} t.i64", f"t.i32 {operator} t.f64", f"t.f64 {operator} 0.1D {operator} u.f64"]
    texts += [
        "t.i32 > t.f64",
        "t.f32 < t.f64",
        "-t.f64",
        "-t.f32",
        "t.f64 / 3",
        "t.f64 / -1.5",
        "isnan(t.f32)",
        "isnan(t.f64 - u.f64)",
    ]
    texts += [
        "t.p AND u.p",
        "t.p OR u.p",
        "NOT t.p",
        "NOT (t.p AND NOT u.p) OR t.i32 > 1",
        "t.p IS TRUE",
        "t.p IS NOT FALSE",
    ]
    texts += [f"t.s LIKE '{pattern}'" for pattern in ("a%", "%b", "%a%", "bab", "%", "", "%%", "Ä%", "%\n")]
    texts += [
        "t.s NOT LIKE 'a%'",
        "t.i64 > 60 * 60 - 1",
        "t.f64 IN (0, 0.1, -1)",
        "t.i32 > -(5)",
    ]
    texts += [
        "NULL IS NULL",
        "1 = 1",
        "1.5",
        "'x'",
        "DATE'2024-02-29'",
        "true",
        "CAST(NULL AS DATE)",
        "CAST(1.5 AS DOUBLE)",
    ]
    texts += [
        "IF(t.f64 > 0, 1.5, t.f64)",
        "CASE WHEN isnan(t.f64) THEN 0 ELSE t.f64 END",
        "t.i32 IS NOT DISTINCT FROM u.i32",
    ]
    for operator in "+-*":
        texts += [f"t.m {operator} {other}" for other in ("u.m", "2", "10000000000L", "0.05", "t.i32", "u.i8", "-1.5")]
        texts += [f"{other} {operator} t.m" for other in ("1", "100.00", "u.i64")]
        texts += [f"t.m > 0.06 {operator} 0.01", f"t.m {operator} u.m < t.w", f"(1 {operator} t.m ) * u.m"]
    texts += ["t.i32 > 1.5", "t.i64 <= t.m", "t.m = t.w", "t.w >= t.i8", "t.i32 <=> t.m", "nvl(t.m , t.w )"]
    texts += ["CASE WHEN t.p THEN t.m * u.m ELSE 0 END", "COALESCE(t.i32 , t.m )", "t.m BETWEEN 0.06 - 0.01 AND t.i32"]
    texts += ["t.m / 7.0", "t.m / 3", "t.i32 / 0.7", "t.m / -0.03", "(t.m * 0.000001) / 7", "100.00 * t.m / 3.000"]
    texts += ["t.d < DATE'2024-01-31' + INTERVAL '1' MONTH", "t.d >= DATE'2023-02-28' + INTERVAL '1' YEAR"]
    texts += ["t.d = DATE'2024-03-31' - INTERVAL '1' MONTH", "t.d <= DATE'2024-05-30' - INTERVAL '90' DAY"]
    texts += [f"EXTRACT({part} FROM t.d )" for part in ("YEAR", "MONTH", "DAY")]
    texts += ["substring(t.s , 1, 2)", "substring(t.s , 2, 0)", "substring(t.s , 3, 7) IN ('b', 'x')"]
    texts += [f"t.s LIKE '{pattern}'" for pattern in ("a%b", "_", "b_b", "%a_%", "z_%", "z%_", "a(%.", "_\n", "%%b%%b")]
    texts += ["t.s NOT LIKE '%a%b%'", "t.s LIKE 'a_c'", "t.s LIKE 'a%c'"]
    return [q(text) for text in texts]


def failing_texts() -> list[str]:
    """Expressions that fail on some rows of the table."""
    texts = [f"-t.{name}" for name in ("i8", "i16", "i32", "i64")]
    for name, operator in product(("i8", "i16", "i32", "i64"), "+-*"):
        texts.append(f"t.{name} {operator} u.{name}")
    texts += [
        "t.i8 + 1Y",
        "t.i8 * 2",
        "t.i16 - t.i8",
        "t.i32 + 1",
        "1 - t.i32",
        "t.i64 * 2",
        "t.i32 * u.i64",
        "t.i64 - -1",
    ]
    texts += ["t.f64 / u.f64", "t.i32 / u.i32", "1 / t.i32", "t.i64 / t.f64", "t.f64 / t.i8"]
    texts += ["u.i32 + (t.i32 - 1)", "u.i32 + t.i32 * t.i32", "u.i32 - (t.i32 - (u.i32 * 2))"]
    texts += [
        "(t.i32 + 1) / u.i32",
        "u.i32 / (t.i32 + 1)",
        "(t.i32 * t.i32) / (u.i32 * 2)",
        "(t.i32 / u.i32) / (u.f64 / t.f64)",
    ]
    texts += [
        "t.i32 + 1 > u.i32",
        "u.i32 < t.i32 + 1",
        "NOT (u.i64 = t.i64 * 3)",
        "t.f64 / u.f64 >= 1",
        "-(t.i32 * u.i32)",
        "t.i32 - -u.i32",
    ]
    texts += ["t.m * u.w", "t.w * u.i64", "t.w + u.m * 1000000.00", "t.w - u.i64", "t.w * 1234567.891"]
    texts += ["t.m / u.m", "t.w / u.m", "t.m / u.w", "t.w / u.w", "t.i64 / u.m", "100.00 * t.w / u.m", "1 / t.m"]
    texts += ["t.w > u.m * 1000000.00000000", "t.m * 12345678.00 <= u.w * 0.1", "t.w = u.w * 1.0"]
    texts += ["t.w * u.m * t.m", "t.m / (u.m - 1.5)", "t.w / 0.003 > 1", "u.i32 + t.w * u.i64"]
    texts += ["CAST(t.i32 + u.i32 AS BIGINT) * 2", "(t.i32 + u.i32) % 7", "t.i32 + u.i32 <= 5L"]
    return [q(text) for text in texts]


def random_texts(count: int, seed: int) -> list[str]:
    """Nested expressions; whether they compile is another matter."""
    dice = random.Random(seed)
    numbers = ["1", "-1", "0", "2.5", "1e0", "7L", "0.1D", "-0.0D", "127Y"]

    def number(depth: int) -> str:
        if depth == 0 or dice.random() < 0.2:
            kinds = ("i8", "i32", "i32", "i64", "f64", "f64", "f32", "m", "m")
            columns = [f"`{side}.{name}`" for side in "tu" for name in kinds]
            return dice.choice(numbers) if dice.random() < 0.3 else dice.choice(columns)
        a, b = number(depth - 1), number(depth - 1)
        return dice.choice([
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"{a} * {b}", f"(-{a})", f"({a} / {b})",
            f"COALESCE({a}, {b})", f"CASE WHEN {truth(depth - 1)} THEN {a} ELSE {b} END",
            f"IF({truth(depth - 1)}, {a}, {b})", f"CAST({a} AS DOUBLE)", f"({a} % 5)",
        ])  # fmt: skip

    def truth(depth: int) -> str:
        if depth == 0:
            return dice.choice(
                ["`t.p`", "`u.p`", "true", "`t.s` LIKE 'a%'", "`t.d` > '1970-01-01'", "`u.s` <= `t.s`", "`t.m` > 1.5"]
            )
        a, b = number(depth - 1), number(depth - 1)
        operator = dice.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        return dice.choice([
            f"({a} {operator} {b})", f"({a} {operator} {b})", f"({truth(depth - 1)} AND {truth(depth - 1)})",
            f"({truth(depth - 1)} OR {truth(depth - 1)})", f"(NOT {truth(depth - 1)})", f"({a} IS NULL)",
            f"({a} IN (1, 0, -1))", f"({a} BETWEEN {b} AND {number(0)})",
        ])  # fmt: skip

    return [dice.choice([number, truth])(dice.choice([2, 2, 3])) for _ in range(count)]


@pytest.fixture(scope="module", name="spark")
def compiling_session(spark: Any) -> Any:
    """A session that runs expressions as a real flow does: compiled."""
    session = spark.newSession()
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        # Else a small table is evaluated by the optimiser's interpreter, which no real flow would use.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it would print every failure that a test is about
    return session


@pytest.fixture(scope="module")
def everything_in_spark(spark: Any) -> Any:
    return spark.createDataFrame(everything()).coalesce(1)


def select(frame: Any, texts: list[str], rows: list[int] | None = None) -> pa.Table:
    """What Spark computes, over all rows or over those whose ``_diff``, which numbers them, is in ``rows``."""
    if rows is not None:
        frame = frame.where(f"_diff IN ({', '.join(map(str, rows))})")
    return frame.selectExpr(*(f"{text} AS x{place}" for place, text in enumerate(texts))).toArrow()


def bits(column: pa.ChunkedArray) -> list[Any]:
    """Values in a form in which equal is identical; floats by their bits, with any NaN as the one NaN."""
    kind = column.type
    if pa.types.is_floating(kind):
        wide = np.where(column.is_null().to_numpy(), 0.0, pc.fill_null(column, 0.0).to_numpy())
        wide = np.where(np.isnan(wide), np.nan, wide).astype(kind.to_pandas_dtype())
        codes = wide.view(np.uint64 if kind == DOUBLE else np.uint32).tolist()
        return [None if null else code for null, code in zip(column.is_null().to_pylist(), codes, strict=True)]
    if pa.types.is_timestamp(kind):
        return column.cast(BIGINT).to_pylist()
    return column.to_pylist()


def native(text: str, table: pa.Table) -> pa.ChunkedArray:
    found = compiled(text)
    assert found is not None, f"not native: {text}"
    return apply(found[0], as_change(table))["c0"]


def test_certain_expressions_give_sparks_bits(everything_in_spark: Any) -> None:
    table, texts = everything(), certain_texts()
    for start in range(0, len(texts), 40):
        group = texts[start : start + 40]
        oracle = select(everything_in_spark, group)
        for place, text in enumerate(group):
            found = native(text, table)
            assert bits(found) == bits(oracle.column(place)), text
            assert found.type == oracle.column(place).type or pa.types.is_timestamp(found.type), text


def test_predicates_keep_the_rows_that_spark_keeps(everything_in_spark: Any) -> None:
    table = everything()
    texts = [text for text in certain_texts() if (found := compiled(text)) and found[1] == BOOL]
    for text in random.Random(1).sample(texts, 25):
        stretch = compile_stretch(text, [("id", "1")], COLUMNS, [INT])
        assert stretch is not None
        kept = apply(stretch, as_change(table))["_diff"].to_pylist()
        assert kept == [row[0] for row in everything_in_spark.where(text).select("_diff").collect()], text


def fails(frame: Any, row: int, text: str) -> bool:
    try:
        select(frame, [text], [row])
    except Exception as error:
        known = ("ARITHMETIC_OVERFLOW", "DIVIDE_BY_ZERO", "NUMERIC_VALUE_OUT_OF_RANGE")
        assert any(condition in str(error) for condition in known), (text, error)
        return True
    return False


def agrees_row_by_row(frame: Any, table: pa.Table, text: str) -> None:
    """Native and Spark give the same bits, and fail on the same rows (one of the failing ones is tried)."""
    found = compiled(text)
    assert found is not None, f"not native: {text}"
    bad = []
    for row in range(table.num_rows):
        try:
            apply(found[0], as_change(table.slice(row, 1)))
        except EvaluationError:
            bad.append(row)
    good = [row for row in range(table.num_rows) if row not in bad]
    if good:
        assert bits(native(text, table.take(good))) == bits(select(frame, [text], good).column(0)), text
    for row in random.Random(text).sample(bad, min(1, len(bad))):
        assert fails(frame, row, text), (text, table.slice(row, 1).to_pylist())


def test_failing_expressions_fail_on_sparks_rows(everything_in_spark: Any) -> None:
    table = everything()
    for text in failing_texts():
        agrees_row_by_row(everything_in_spark, table, text)


def test_random_expressions_agree_with_spark(everything_in_spark: Any) -> None:
    table = everything()
    found = {text: compiled(text) for text in random_texts(600, seed=20240229)}
    native_ones = {text: stretch for text, stretch in found.items() if stretch is not None}
    assert len(native_ones) > 100
    failing = [text for text, (stretch, _) in native_ones.items() if stretch.outputs[0].raises]
    plain = [text for text in native_ones if text not in failing]
    for start in range(0, len(plain), 25):
        group = plain[start : start + 25]
        types = [native_ones[text][1] for text in group]
        stretch = compile_stretch(None, [(text, text) for text in group], COLUMNS, types)
        if stretch is None:  # Spark might compute some of them once for all: then each alone
            for text in group:
                assert bits(native(text, table)) == bits(select(everything_in_spark, [text]).column(0)), text
            continue
        together, oracle = apply(stretch, as_change(table)), select(everything_in_spark, group)
        for place, text in enumerate(group):
            assert bits(together.column(place)) == bits(oracle.column(place)), text
    for text in failing[:10]:
        agrees_row_by_row(everything_in_spark, table, text)
