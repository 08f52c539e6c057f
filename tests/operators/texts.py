"""Expressions for tests of the native evaluator, and a table with NULL, NaN, -0.0 and the extremes of each type."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
from tests.planned import expressions, step

from holdfast.operators.expressions.native_stretch import NativeStretch, compile_stretch
from holdfast.plan.nodes import Field, Linear, Named, Source
from holdfast.plan.types import arrow_type

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
_SIMPLE = ("tinyint", "smallint", "int", "bigint", "float", "double", "string", "boolean", "date", "timestamp")
_LONG = tuple(f"decimal({digits},30)" for digits in (36, 37, 38))
_TYPES = (*_SIMPLE, *_LONG, "timestamp_ntz", "binary", "decimal(10,2)", "decimal(38,18)", "array<int>")
SPARK = {arrow_type(name): name for name in _TYPES}
"""Arrow's type → Spark's."""

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


def rows(columns: Sequence[tuple[str, pa.DataType]]) -> Source:
    return Source("rows", tuple(Field(name, SPARK[kind]) for name, kind in columns))


EVERYTHING = rows(COLUMNS)


def stretch_of(
    predicate: str | None, outputs: Sequence[str], columns: Sequence[tuple[str, pa.DataType]] = COLUMNS
) -> NativeStretch | None:
    """What is compiled of a predicate and outputs, given as texts."""
    return compile_stretch(step(rows(columns), predicate, {f"x{place}": each for place, each in enumerate(outputs)}))


def prepare(texts: Sequence[str]) -> None:
    """Let Spark read many texts at once: one by one it takes long."""
    for start in range(0, len(texts), _MANY):
        part = texts[start : start + _MANY]
        for text, tree in zip(part, expressions(part, EVERYTHING.fields), strict=True):
            made = compile_stretch(Linear(EVERYTHING, None, (Named("x", tree),)))
            _compiled[text] = None if made is None else (made, arrow_type(tree.type))


_MANY = 60
_compiled: dict[str, tuple[NativeStretch, pa.DataType] | None] = {}


def compiled(sql: str) -> tuple[NativeStretch, pa.DataType] | None:
    """The stretch that computes ``sql`` alone, and the type that it has."""
    if sql not in _compiled:
        prepare([sql])
    return _compiled[sql]


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
    texts += [f"CAST(t.w AS decimal({digits}))" for digits in ("38,4", "30,0", "22,1", "21,0")]
    texts += [f"CAST(t.m AS decimal({digits}))" for digits in ("9,0", "10,1", "38,1")]
    texts += ["t.m / 7.0", "t.m / 3", "t.i32 / 0.7", "t.m / -0.03", "(t.m * 0.000001) / 7", "100.00 * t.m / 3.000"]
    texts += ["t.d < DATE'2024-01-31' + INTERVAL '1' MONTH", "t.d >= DATE'2023-02-28' + INTERVAL '1' YEAR"]
    texts += ["t.d = DATE'2024-03-31' - INTERVAL '1' MONTH", "t.d <= DATE'2024-05-30' - INTERVAL '90' DAY"]
    texts += [f"EXTRACT({part} FROM t.d )" for part in ("YEAR", "MONTH", "DAY")]
    texts += ["substring(t.s , 1, 2)", "substring(t.s , 2, 0)", "substring(t.s , 3, 7) IN ('b', 'x')"]
    texts += [f"t.s LIKE '{pattern}'" for pattern in ("a%b", "_", "b_b", "%a_%", "z_%", "z%_", "a(%.", "_\n", "%%b%%b")]
    texts += ["t.d > '2020-1-1'", "t.f32 = 0.1", "t.f32 + 1", "try_cast(t.i32 AS BIGINT)", "t.m * 1Y"]
    texts += ["t.s = 'a\\\\nb'", "t.s = 'it''s'", "t.f64 + (COALESCE(7, -1) % 5)"]
    texts += ["t.ts > DATE'2024-01-01' + INTERVAL '1' HOUR"]
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
    texts += ["t.w > u.m * 1000000.00000000", "t.m * 12345678.00 <= u.w * 0.1"]
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
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"{a} * {b}", f"(- {a})", f"({a} / {b})",
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
