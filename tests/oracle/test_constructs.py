"""What a Spark user expects of SQL beyond the generated cases equals Spark's batch result after every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from .check import run
from .expected import FAMILIES, KEPT, Kept

equal: list[Kept] = []
"""The constructs that were run in this process, and were right."""


@pytest.fixture(scope="module")
def declared(spark: SparkSession) -> Iterator[None]:
    """A SQL function and a session variable of the user's."""
    spark.sql("CREATE OR REPLACE FUNCTION hf_twice(x INT) RETURNS INT RETURN x * 2")
    spark.sql("DECLARE OR REPLACE VARIABLE hf_least INT DEFAULT 2")
    yield
    spark.sql("DROP TEMPORARY VARIABLE hf_least")
    spark.sql("DROP FUNCTION hf_twice")


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_construct_equals_the_batch_result(spark: SparkSession, tmp_path: Path, family: str) -> None:
    kept = FAMILIES[family]
    names = {f"e{place}": each for place, each in enumerate(kept)}
    run(
        spark,
        tmp_path,
        len(family),
        {name: each.asked or each.sql for name, each in names.items()},
        told=lambda view: f"{names[view].name}: {names[view].sql}",
        spelled={name: each.sql for name, each in names.items()},
    )
    equal.extend(kept)


def test_every_construct_is_listed_once() -> None:
    assert len({each.name for each in KEPT}) == len(KEPT)
    assert len({each.sql for each in KEPT}) == len(KEPT)
