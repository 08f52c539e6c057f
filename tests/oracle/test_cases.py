"""After every epoch, each view equals Spark's batch result of the same SQL, and its changes add up to it.

The cases are those of `cases`: each construct of the registry alone, and constructs over one another. This family
catches whatever makes an operator, a rewrite, an expression or the routing between them wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from .cases import CASES, MANY
from .check import TOGETHER, asked_for, check, flows


def name(numbers: list[int]) -> str:
    return f"{numbers[0]}-{numbers[-1]}"


SOON = 80 // TOGETHER
"""So many flows are run by `make test`: most constructs alone. The rest: `make test-slow`."""


def in_time(numbers: list[list[int]]) -> list[Any]:
    return [each if index < SOON else pytest.param(each, marks=pytest.mark.slow) for index, each in enumerate(numbers)]


@pytest.mark.parametrize("numbers", in_time(flows(CASES)), ids=name)
def test_every_view_equals_the_batch_result_after_every_epoch(
    spark: SparkSession, tmp_path: Path, numbers: list[int]
) -> None:
    check(spark, tmp_path, numbers)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", flows(MANY)[CASES // TOGETHER :], ids=name)
def test_many_more_views_equal_the_batch_result(spark: SparkSession, tmp_path: Path, numbers: list[int]) -> None:
    check(spark, tmp_path, numbers)


def test_a_case_runs_again_by_its_number(spark: SparkSession, tmp_path: Path) -> None:
    number = asked_for()
    if number is None:
        pytest.skip("set HOLDFAST_CASE to the number of a case")
    check(spark, tmp_path, [number])
