"""After every epoch, each view equals Spark's batch result of the same SQL, and its changes add up to it.

This family catches whatever makes an operator, a rewrite, an expression or the routing between them wrong: queries,
schemas, data and changes are all generated. One generated flow has several views
(a case each), since they share epochs.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, currently_in_test_context, given, settings
from hypothesis import note as hypothesis_note
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.testing import Oracle, assert_same_rows
from holdfast.testing.oracle import total_of_changes

from .generator import Case, generate_case, generate_row

VIEWS = 15
EPOCHS = 3
ran: dict[str, int] = {"cases": 0}


def note(text: str) -> None:
    """Shown by hypothesis when a case fails; outside of hypothesis the caller shows what it needs."""
    if currently_in_test_context():
        hypothesis_note(text)


def _declare(flow: hf.Flow, case: Case) -> dict[str, Any]:
    inputs = {table: flow.input(table, case.schema(table)) for table in case.tables}
    for view, sql in list(case.views.items()):
        note(f"{view}: {sql}")
        flow.view(view, sql)
    return inputs


def _change(random: Random, case: Case, oracle: Oracle, inputs: dict[str, Any]) -> None:
    """Insert some rows, delete some that are there: told to the flow and to the oracle alike."""
    for table, columns in case.tables.items():
        if random.random() < 0.15:
            continue
        have = oracle.rows(table)
        gone = random.sample(have, min(len(have), random.randint(0, 6)))
        rows = [generate_row(random, [kind for _, kind in columns]) for _ in range(random.randint(0, 12))]
        note(f"{table}: insert {rows}, delete {gone}")
        inputs[table].insert(rows)
        inputs[table].delete(gone)
        oracle.insert(table, rows)
        oracle.delete(table, gone)


def check_case(spark: SparkSession, directory: Any, random: Random, views: int = VIEWS, epochs: int = EPOCHS) -> None:
    case = generate_case(random, views)
    oracle = Oracle(spark, {table: case.schema(table) for table in case.tables})
    batch = {view: sql.replace("any_value(", "min(") for view, sql in case.views.items()}
    note(f"tables: {case.tables}")
    partitions = random.choice([1, 2, 3])
    # What views hold is the question here; how they are kept has tests of its own.
    with hf.Flow(
        "oracle", log=directory, spark=spark, partitions=partitions, retain="all", strategy="volatile"
    ) as flow:
        inputs = _declare(flow, case)
        wanted: list[dict[str, pa.Table]] = []
        for _ in range(epochs):
            _change(random, case, oracle, inputs)
            if flow.step().idle:
                continue
            wanted.append({view: frame.toArrow() for view, frame in oracle.expect(batch).items()})
            for view, expected in wanted[-1].items():
                assert_same_rows(flow.read(view), expected, f"{view} = {case.views[view]}")
        for view, sql in case.views.items():
            changes = flow.changes(view).toArrow()
            for epoch, expected in enumerate(wanted):
                assert_same_rows(total_of_changes(changes, epoch), expected[view], f"changes of {view} = {sql}")
    ran["cases"] += views


@settings(
    max_examples=21,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(random=st.randoms(use_true_random=False))
def test_every_view_equals_the_batch_result_after_every_epoch(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    check_case(spark, tmp_path_factory.mktemp("flow"), random)


def test_at_least_300_generated_cases_were_checked() -> None:
    if ran["cases"] == 0:
        pytest.skip("run together with the cases")
    assert ran["cases"] >= 300


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=True))
def test_many_more_views_equal_the_batch_result(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    check_case(spark, tmp_path_factory.mktemp("flow"), random, views=10, epochs=5)
