"""Recursions that no generator writes, over tables that change: after every epoch what plain iteration says."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import LoopDiverged
from holdfast.operators.rewrites import rewrite
from holdfast.plan.nodes import Source
from holdfast.plan.schema import parse_schema

from ..planned import plan_sql
from .in_process import Bag, InProcess, hashable
from .written_recursions import SCHEMAS, WRITTEN, Tables, Written, arrow, fixpoint

EPOCHS = 5


def in_spark(spark: SparkSession, written: Written, tables: Tables) -> Bag:
    session = spark.newSession()
    for name, rows in tables.rows.items():
        session.createDataFrame(arrow(name, rows)).createOrReplaceTempView(name)
    return Counter(hashable(tuple(row)) for row in session.sql(written.text).collect())


def check(spark: SparkSession, name: str, seed: int, directory: Path) -> None:
    written, tables = WRITTEN[name], Tables(seed)
    sources = {table: Source(table, parse_schema(schema, subject=table)) for table, schema in SCHEMAS.items()}
    running = InProcess({"v": rewrite(plan_sql("v", written.text, sources))}, directory, random.Random(seed))
    for epoch in range(EPOCHS):
        try:
            running.epoch(tables.change())
        except LoopDiverged:  # some statements have no fixpoint over some rows; plain iteration must not end either
            with pytest.raises(AssertionError, match="the fixpoint is not reached"):
                fixpoint(written, tables.tables())
            return
        meant = fixpoint(written, tables.tables()) if written.definitions else in_spark(spark, written, tables)
        found = running.rows["v"]
        assert found == meant, (
            f"{name}, seed {seed}, epoch {epoch}: too many: {found - meant}, too few: {meant - found}\n{tables.rows}"
        )


@pytest.mark.parametrize("name", WRITTEN)
def test_a_statement_written_by_hand_is_what_plain_iteration_says(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    check(spark, name, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_a_statement_written_by_hand_is_what_plain_iteration_says_of_more_rows(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    for seed in range(1, 6):
        check(spark, name, seed, tmp_path / str(seed))
