"""Recursive statements whose loops compute texts, arrays, structs and bits, as views of a flow: Spark computes what is
before and behind the loops (``oracle/test_written_recursions.py`` has the statements that run in one task)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import holdfast as hf

from ..oracle.in_process import Bag, hashable
from ..oracle.test_written_recursions import in_spark
from ..oracle.written_recursions import COMPUTED, SCHEMAS, Tables, fixpoint

EPOCHS = 3


def test_loops_that_compute_are_what_plain_iteration_says_after_every_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(1)
    with hf.Flow("computed", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        inputs = {name: flow.input(name, schema) for name, schema in SCHEMAS.items()}
        for place, written in enumerate(COMPUTED.values()):
            flow.view(f"v{place}", written.text)
        for epoch in range(EPOCHS):
            for name, change in tables.change().items():
                for row, diff in change.items():
                    (inputs[name].insert if diff > 0 else inputs[name].delete)([row] * abs(diff))
            flow.step()
            for place, (name, written) in enumerate(COMPUTED.items()):
                found = _bag(flow.read(f"v{place}").toArrow())
                meant = fixpoint(written, tables.tables()) if written.query else in_spark(spark, written, tables)
                assert found == meant, f"{name}, epoch {epoch}: too many {found - meant}, too few {meant - found}"


def _bag(rows: pa.Table) -> Bag:
    return Counter(hashable(tuple(each.values())) for each in rows.to_pylist())
