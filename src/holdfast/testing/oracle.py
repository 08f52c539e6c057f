"""The oracle: Spark's own batch result of the same SQL.

An `Oracle` holds the bag of rows of each input. Tell it every insertion and deletion that the flow is told. After every
epoch, `Oracle.expect` returns what each view must be: the result of the view's SQL, run by Spark over those bags.

Doubles agree to 1e-9 relative (Holdfast's sums are exact, Spark's depend on the order of the rows); everything else
agrees exactly. NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from holdfast.frontend.sql_words import words
from holdfast.plan.expression import quoted
from holdfast.plan.schema import parse_schema
from holdfast.plan.types import arrow_type, ddl_type

Row = tuple[Any, ...]
Query = str | Callable[[Callable[[str], DataFrame]], DataFrame]
"""SQL, or a function that applies DataFrame verbs to tables and views. Its argument returns a table by name."""

_TIMES = {
    **dict.fromkeys(("now", "current_timestamp"), "timestamp_micros({})"),
    **dict.fromkeys(("current_date", "curdate"), "CAST(timestamp_micros({}) AS DATE)"),
    "localtimestamp": "CAST(timestamp_micros({}) AS TIMESTAMP_NTZ)",
}
"""Calls of the clock → the expression of their value at a given moment."""

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # A broadcast needs a job of its own; without it nothing is exchanged either, since each input is one partition.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


class Oracle:
    """Computes what a flow's views must be, with Spark."""

    def __init__(
        self, spark: SparkSession, schemas: Mapping[str, str], expires: Mapping[str, str] | None = None
    ) -> None:
        """``schemas``: input → its schema, as given to ``flow.input``. ``expires``: the same for inputs whose rows
        expire."""
        # A separate session without generated code: over a few rows, compiling a query costs more than running it.
        self._spark = spark.newSession()
        for key, value in _INTERPRETED.items():
            self._spark.conf.set(key, value)
        self._schemas = dict(schemas)
        self._rows: dict[str, list[Row]] = {name: [] for name in schemas}
        self._expires = dict(expires or {})

    @property
    def session(self) -> SparkSession:
        """The session in which the views' SQL runs. Register the functions that it calls here."""
        return self._spark

    def insert(self, name: str, rows: Iterable[Row]) -> None:
        self._rows[name] += rows

    def delete(self, name: str, rows: Iterable[Row]) -> None:
        for row in rows:
            keys = [_exact(each) for each in self._rows[name]]
            del self._rows[name][keys.index(_exact(row))]

    def rows(self, name: str) -> list[Row]:
        return list(self._rows[name])

    def expect(self, views: Mapping[str, Query], clock: int | None = None) -> dict[str, DataFrame]:
        """Return the batch results of ``views`` (name → SQL or verbs, in the order in which they were declared).

        ``clock``: the moment as of which the results hold, in microseconds since 1970. Calls of the clock in the SQL
        have that value, and rows that have expired by then are left out. (A flow's ``now()`` in a select list is
        different: it is the time at which the row came.)
        """
        for name, schema in self._schemas.items():
            fields = parse_schema(schema, subject=f"input '{name}'")
            columns = [
                pa.array([row[place] for row in self._rows[name]], arrow_type(field.type))
                for place, field in enumerate(fields)
            ]
            table = pa.table(columns, names=[field.name for field in fields])
            # The types are given as DDL: from Arrow alone, Spark would take a timestamp without zone for one with a
            # zone.
            schema = ", ".join(f"{quoted(field.name)} {ddl_type(field.type)}" for field in fields)
            frame = self._spark.createDataFrame(table, schema).coalesce(1)
            if clock is not None and name in self._expires:
                expires = self._expires[name]
                frame = frame.where(f"({expires}) IS NULL OR ({expires}) > {_TIMES['now'].format(clock)}")
            frame.createOrReplaceTempView(name)
        results = {}
        for name, query in views.items():
            if isinstance(query, str):
                results[name] = self._spark.sql(query if clock is None else as_of(query, clock))
            else:
                results[name] = query(self._spark.table)
            results[name].createOrReplaceTempView(name)
        return results


def as_of(sql: str, clock: int | str) -> str:
    """Return the query or condition with every call of the clock replaced by ``clock`` (microseconds since 1970)."""
    found = list(words(sql))
    pieces, done = [], 0
    for place, word in enumerate(found):
        name = word.written.lower()
        if name not in _TIMES or word.kind != "name":
            continue
        called = [each.written for each in found[place + 1 : place + 3]] == ["(", ")"]
        field = place > 0 and found[place - 1].written == "."
        if field or (name in ("now", "curdate") and not called):
            continue
        pieces += [sql[done : word.start], _TIMES[name].format(clock)]
        done = found[place + 2].end if called else word.end
    return "".join([*pieces, sql[done:]])


def assert_same_rows(found: DataFrame | pa.Table, expected: DataFrame | pa.Table, subject: str = "") -> None:
    """Assert that two tables hold the same bag of rows. The error shows rows that only one of them has."""
    left, right = _rows(found), _rows(expected)
    if len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True)):
        return
    only_found = Counter(map(_exact, left)) - Counter(map(_exact, right))
    only_expected = Counter(map(_exact, right)) - Counter(map(_exact, left))
    raise AssertionError(
        f"{subject}: {len(left)} rows found, {len(right)} expected\n"
        f"  only found:    {list(only_found.elements())[:5]}\n"
        f"  only expected: {list(only_expected.elements())[:5]}"
    )


def total_of_changes(changes: DataFrame | pa.Table, upto: int | None = None) -> pa.Table:
    """Return the rows to which a changelog adds up (by epoch ``upto``): each as often as its diffs say. Raises
    `AssertionError` if a row was retracted more often than it was added."""
    table = changes if isinstance(changes, pa.Table) else changes.toArrow()
    if upto is not None:
        table = table.filter(pc.less_equal(table.column("_epoch"), upto))
    plain = table.drop_columns(["_epoch", "_diff"])
    counts: Counter[Any] = Counter()
    places: dict[Any, int] = {}
    for place, (row, diff) in enumerate(zip(_pylist(plain), table.column("_diff").to_pylist(), strict=True)):
        counts[_exact(row)] += diff
        places[_exact(row)] = place
    negative = [row for row, count in counts.items() if count < 0]
    if negative:
        raise AssertionError(f"rows retracted more often than added: {negative[:3]}")
    return plain.take(pa.array([places[row] for row in counts.elements()], pa.int64()))


def _pylist(table: pa.Table) -> list[Row]:
    # Columns by position: a result may have two of the same name.
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _rows(frame: DataFrame | pa.Table) -> list[Row]:
    table = frame if isinstance(frame, pa.Table) else frame.toArrow()
    return sorted(_pylist(table), key=_sortable)


def _sortable(value: Any) -> Any:
    """A sort key that is the same for rows that are equal up to rounding."""
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case int() | decimal.Decimal():
            return (2, value)
        case float():
            if math.isnan(value):
                return (2, math.inf, 1)
            return (2, float(f"{value:.6e}") + 0.0)
        case str() | bytes() | datetime.date() | datetime.timedelta():
            return (3, str(value))
        case dict():
            return (4, *(_sortable(each) for each in value.values()))
        case list() | tuple():
            return (4, *(_sortable(each) for each in value))
    return (5, str(value))


def _exact(value: Any) -> Any:
    """A hashable form of a value, in which NaN equals NaN and -0.0 equals 0.0."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case dict():
            return tuple(_exact(each) for each in value.values())
        case list() | tuple():
            return tuple(_exact(each) for each in value)
    return value


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (
            (math.isnan(left) and math.isnan(right))
            or left == right
            or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return _same(list(left.values()), list(right.values()))
    if isinstance(left, Sequence) and isinstance(right, Sequence) and not isinstance(left, str | bytes):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)
