"""The other half of the flows of `test_cases_even`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from .cases import CASES
from .check import check, flows
from .test_cases_even import name


@pytest.mark.parametrize("numbers", flows(CASES)[1::2], ids=name)
def test_every_view_equals_the_batch_result_after_every_epoch(
    spark: SparkSession, tmp_path: Path, numbers: list[int]
) -> None:
    check(spark, tmp_path, numbers)
