"""A row on which an expression fails abandons its epoch: with Spark's words and the view's name, and nothing is lost.

Each case has an input and a view of its own in one flow. A bad row comes together with good ones; the step raises, all
views are as they were, and once the bad row is deleted the good ones arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import BadFile, EvaluationError

SCHEMA = "k int, x int, l long, d decimal(10,2), s string, a array<int>, m map<string,int>"
GOOD = (1, 2, 3, "4.00", "5", [6], {"a": 7})
INT, LONG = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True)
class Case:
    """``bad``: the columns in which the bad row is another than `GOOD`. ``words``: of Spark's message."""

    select: str
    bad: dict[str, Any]
    words: str
    condition: str


CASES = {
    "division": Case("k, 10 / x AS y", {"x": 0}, "Division by zero. Use `try_divide`", "DIVIDE_BY_ZERO"),
    "division of decimals": Case("k, d / (d - 1) AS y", {"d": "1.00"}, "Division by zero.", "DIVIDE_BY_ZERO"),
    "remainder": Case("k, 10 % x AS y", {"x": 0}, "by zero", "REMAINDER_BY_ZERO"),
    "div": Case("k, 10 div x AS y", {"x": 0}, "Division by zero.", "DIVIDE_BY_ZERO"),
    "overflow of a sum": Case("k, x + 1 AS y", {"x": INT}, "integer overflow. Use 'try_add'", "ARITHMETIC_OVERFLOW"),
    "overflow of a product": Case(
        "k, l * 2 AS y", {"l": LONG}, "long overflow. Use 'try_multiply'", "ARITHMETIC_OVERFLOW"
    ),
    "overflow of a difference": Case("k, -2 - x AS y", {"x": INT}, "integer overflow", "ARITHMETIC_OVERFLOW"),
    "overflow of a negative": Case("k, -l AS y", {"l": -(2**63)}, "long overflow", "ARITHMETIC_OVERFLOW"),
    "overflow of a cast": Case("k, CAST(l AS int) AS y", {"l": LONG}, "cannot be cast to", "CAST_OVERFLOW"),
    "overflow of a decimal": Case(
        "k, CAST(x AS decimal(3,0)) AS y",
        {"x": 5000},
        "cannot be represented as Decimal(3, 0)",
        "NUMERIC_VALUE_OUT_OF_RANGE",
    ),
    "cast": Case(
        "k, CAST(s AS int) AS y",
        {"s": "many"},
        'The value \'many\' of the type "STRING" cannot be cast to "INT"',
        "CAST_INVALID_INPUT",
    ),
    "cast to a date": Case(
        "k, CAST('2024-01-0' || s AS date) AS y", {"s": "soon"}, "'2024-01-0soon'", "CAST_INVALID_INPUT"
    ),
    "array index": Case("k, a[1 - length(s)] AS y", {"s": "12345"}, "out of bounds", "INVALID_ARRAY_INDEX"),
    "element_at": Case("k, element_at(a, x - 1) AS y", {"x": 9}, "out of bounds", "INVALID_ARRAY_INDEX_IN_ELEMENT_AT"),
    "function": Case("k, abs(x) AS y", {"x": -(2**31)}, "overflow", "ARITHMETIC_OVERFLOW"),
    "raise_error": Case(
        "k, CASE WHEN x < 0 THEN raise_error('negative: ' || x) END AS y",
        {"x": -1},
        "negative: -1",
        "USER_RAISED_EXCEPTION",
    ),
    "condition": Case("k FROM {t} WHERE 10 / x > 1", {"x": 0}, "Division by zero.", "DIVIDE_BY_ZERO"),
    "key of a group": Case(
        "CAST(s AS int) AS y, count(*) AS n FROM {t} GROUP BY 1", {"s": "?"}, "The value '?'", "CAST_INVALID_INPUT"
    ),
    "argument of an aggregate": Case("sum(10 / x) AS y FROM {t}", {"x": 0}, "Division by zero.", "DIVIDE_BY_ZERO"),
    "behind an aggregate": Case(
        "k, 10 / (sum(x) - 9) AS y FROM {t} GROUP BY k", {"k": 7, "x": 9}, "Division by zero.", "DIVIDE_BY_ZERO"
    ),
    "condition of a join": Case(
        "p.k FROM {t} p JOIN {t} q ON 10 / p.x = q.l + 2", {"x": 0}, "Division by zero.", "DIVIDE_BY_ZERO"
    ),
    "lambda": Case("k, transform(a, e -> 1 / e) AS y", {"a": [1, 0]}, "Division by zero.", "DIVIDE_BY_ZERO"),
    "generator": Case("k, explode(array(1 / x)) AS y", {"x": 0}, "Division by zero.", "DIVIDE_BY_ZERO"),
    "scalar subquery": Case(
        "k, (SELECT q.x FROM {t} q WHERE q.k <= 0) AS y FROM {t}",
        {"k": -1},
        "More than one row returned by a subquery used as an expression.",
        "SCALAR_SUBQUERY_TOO_MANY_ROWS",
    ),
    "correlated subquery": Case(
        "p.k, (SELECT q.x FROM {t} q WHERE q.k = p.k) AS y FROM {t} p",
        {"k": 0, "x": 7},
        "More than one row returned by a subquery used as an expression.",
        "SCALAR_SUBQUERY_TOO_MANY_ROWS",
    ),
    "pattern of a date": Case(
        "k, date_format(date'2020-01-01', if(s = '5', 'yyyy', s)) AS y",
        {"s": "EEEE-ww"},
        "Fail to recognize 'EEEE-ww' pattern",
        "INCONSISTENT_BEHAVIOR_CROSS_VERSION",
    ),
    "key of a map that is NULL": Case("k, map(nullif(s, '?'), x) AS y", {"s": "?"}, "null as map key", "NULL_MAP_KEY"),
    "key of a map that comes twice": Case("k, map(s, 1, 'b', 2) AS y", {"s": "b"}, "Duplicate", "DUPLICATED_MAP_KEY"),
    "regular expression": Case(
        "k, regexp_replace('abc', if(s = '5', 'a', s), '') AS y", {"s": "("}, "regexp", "INVALID_PARAMETER_VALUE"
    ),
    "URL": Case("k, url_decode(s) AS y", {"s": "%zz"}, "%zz", "CANNOT_DECODE_URL"),
    "key of a cipher": Case(
        "k, aes_encrypt(s, repeat('k', if(x = 2, 16, x)), 'ECB') AS y", {"x": 3}, "16, 24", "INVALID_PARAMETER_VALUE"
    ),
    "insertion into an array": Case(
        "k, array_insert(a, x, 1) AS y", {"x": 0}, "The index 0 is", "INVALID_INDEX_OF_ZERO"
    ),
    "date of parts": Case("k, make_date(2024, x, 1) AS y", {"x": 13}, "MonthOfYear", "DATETIME_FIELD_OUT_OF_BOUNDS"),
    "window": Case("k, sum(10 / x) OVER (ORDER BY k) AS y", {"x": 0}, "Division by zero.", "DIVIDE_BY_ZERO"),
}


def _row(**other: Any) -> tuple[Any, ...]:
    names = [column.split(" ")[0] for column in SCHEMA.replace("map<string,int>", "map").split(", ")]
    row = {**dict(zip(names, GOOD, strict=True)), **other}
    return tuple(Decimal(value) if name == "d" else value for name, value in row.items())


@pytest.fixture(scope="module")
def flow(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hf.Flow]:
    flow = hf.Flow("failing", log=tmp_path_factory.mktemp("failing"), spark=spark, partitions=1)
    for place, case in enumerate(CASES.values()):
        table = f"t{place}"
        flow.input(table, SCHEMA).insert([_row(k=0)])
        select = case.select if "{t}" in case.select else f"{case.select} FROM {{t}}"
        flow.view(f"v{place}", "SELECT " + select.format(t=table))
    flow.step()
    yield flow
    flow.close()


@pytest.mark.parametrize("name", CASES)
def test_a_failing_row_abandons_the_epoch_and_loses_nothing(flow: hf.Flow, name: str) -> None:
    case, place = CASES[name], list(CASES).index(name)
    view, table = f"v{place}", flow._catalog.sources[f"t{place}"]
    before, last = sorted(flow.read(view).collect()), flow.status().epoch
    table.insert([_row(k=2), _row(**case.bad)])
    try:
        with pytest.raises(EvaluationError) as caught:
            flow.step()
    finally:
        table.delete([_row(**case.bad)])  # whatever is wrong with this case, the next one can go on
    error = caught.value
    assert case.words in str(error)
    assert f"view '{view}'" in str(error)
    assert "Nothing of the epoch took effect. Take back the rows on which it fails" in str(error)
    assert (error.fields["condition"], error.fields["view"]) == (case.condition, view)
    assert "\n" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    assert flow.status().epoch == last
    assert sorted(flow.read(view).collect()) == before
    flow.step()
    assert sorted(flow.read(view).collect()) != before


def _write(path: Path, rows: list[tuple[int, int]]) -> None:
    pq.write_table(pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]}), path)


@pytest.mark.parametrize("way", ["mended", "removed"])
def test_a_flow_over_files_goes_on_once_the_file_is_mended_or_removed(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    (tmp_path / "in").mkdir()
    with hf.Flow("files", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        flow.source("t", hf.files(str(tmp_path / "in"), format="parquet", schema="k long, x long"))
        flow.view("v", "SELECT k, 10 / x AS y FROM t")
        _write(tmp_path / "in" / "a.parquet", [(1, 5)])
        flow.step()
        bad = tmp_path / "in" / "b.parquet"
        _write(bad, [(2, 5), (3, 0)])
        with pytest.raises(EvaluationError, match="view 'v', epoch 1: Division by zero"):
            flow.step()
        if way == "mended":
            _write(bad, [(2, 5)])
        else:
            bad.unlink()
        with pytest.raises(BadFile, match=r"changed after it was offered|removed before an epoch took it"):
            flow.step()
        _write(tmp_path / "in" / "c.parquet", [(4, 1)])
        flow.run(until="idle")
        mended = [(2, 2.0)] if way == "mended" else []
        assert sorted(flow.read("v").collect()) == [(1, 2.0), *mended, (4, 10.0)]


def test_a_failing_row_of_dataframe_code_names_the_view(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("frames", log=tmp_path, spark=spark, partitions=1) as flow:
        t = flow.input("t", "k int, x int")
        flow.view("other", flow.table("t").select("k", F.sqrt("x").alias("r")))
        flow.view("v", flow.table("t").select("k", F.floor(F.lit(10) / F.col("x")).alias("y")))
        t.insert([(1, 0), (2, 5)])
        with pytest.raises(EvaluationError, match="view 'v', epoch 0: Division by zero"):
            flow.step()
        t.delete([(1, 0)])
        flow.step()
        assert flow.read("v").collect() == [(2, 2)]
