"""Spark is the oracle of the native evaluator: every expression of `texts` that compiles natively, and some hundred
random ones, are run by both over the same table; they must agree bit for bit, or fail on the same rows.
"""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from holdfast.errors import EvaluationError
from operators.texts import (
    BIGINT,
    BOOL,
    DOUBLE,
    as_change,
    certain_texts,
    compiled,
    everything,
    failing_texts,
    prepare,
    random_texts,
    stretch_of,
)


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
    return found[0].run(as_change(table))["c0"]


def test_certain_expressions_give_sparks_bits(everything_in_spark: Any) -> None:
    table, texts = everything(), certain_texts()
    prepare(texts)
    for start in range(0, len(texts), 40):
        group = texts[start : start + 40]
        oracle = select(everything_in_spark, group)
        for place, text in enumerate(group):
            found = native(text, table)
            assert bits(found) == bits(oracle.column(place)), text
            assert found.type == oracle.column(place).type or pa.types.is_timestamp(found.type), text


def test_predicates_keep_the_rows_that_spark_keeps(everything_in_spark: Any) -> None:
    table = everything()
    prepare(certain_texts())
    texts = [text for text in certain_texts() if (found := compiled(text)) and found[1] == BOOL]
    for text in random.Random(1).sample(texts, 25):
        stretch = stretch_of(text, ["1"])
        assert stretch is not None
        kept = stretch.run(as_change(table))["_diff"].to_pylist()
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
            found[0].run(as_change(table.slice(row, 1)))
        except EvaluationError:
            bad.append(row)
    good = [row for row in range(table.num_rows) if row not in bad]
    if good:
        assert bits(native(text, table.take(good))) == bits(select(frame, [text], good).column(0)), text
    for row in random.Random(text).sample(bad, min(1, len(bad))):
        assert fails(frame, row, text), (text, table.slice(row, 1).to_pylist())


def test_failing_expressions_fail_on_sparks_rows(everything_in_spark: Any) -> None:
    table = everything()
    prepare(failing_texts())
    for text in failing_texts():
        agrees_row_by_row(everything_in_spark, table, text)


def test_random_expressions_agree_with_spark(everything_in_spark: Any) -> None:
    table = everything()
    texts = random_texts(600, seed=20240229)
    prepare(texts)
    found = {text: compiled(text) for text in texts}
    native_ones = {text: stretch for text, stretch in found.items() if stretch is not None}
    assert len(native_ones) > 100
    failing = [text for text, (stretch, _) in native_ones.items() if stretch.outputs[0].raises]
    plain = [text for text in native_ones if text not in failing]
    for start in range(0, len(plain), 25):
        group = plain[start : start + 25]
        stretch = stretch_of(None, group)
        if stretch is None:  # Spark might compute some of them once for all: then each alone
            for text in group:
                assert bits(native(text, table)) == bits(select(everything_in_spark, [text]).column(0)), text
            continue
        together, oracle = stretch.run(as_change(table)), select(everything_in_spark, group)
        for place, text in enumerate(group):
            assert bits(together.column(place)) == bits(oracle.column(place)), text
    for text in failing[:10]:
        agrees_row_by_row(everything_in_spark, table, text)
