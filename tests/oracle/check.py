"""Runs views in a flow while their inputs change, and compares them with Spark's batch result after every epoch.

Many cases share a flow, since they share its epochs. The changes are made by the flow's own number, so a case sees the
same ones whether it runs with others or alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.testing import Oracle, assert_same_rows, stopped_clock
from holdfast.testing.oracle import total_of_changes

from .cases import View, make
from .data import NOON, SCHEMAS, Change, Row, change
from .generating import FUNCTIONS

TOGETHER = 20
"""Cases in a flow."""

EPOCHS = 3

passed: set[int] = set()
"""The cases that were run in this process, and were right."""


def check(spark: SparkSession, directory: Path, numbers: Sequence[int]) -> None:
    """Run cases that see the same changes (those of one flow), and compare."""
    seed = numbers[0] // TOGETHER
    cases = [make(number) for number in numbers]
    views = {view: query for case in cases for view, query in case.views.items()}
    owner = {view: case for case in cases for view in case.views}

    def told(view: str) -> str:
        again = f"HOLDFAST_CASE={owner[view].number} pytest tests/oracle -k runs_again"
        return f"{owner[view]}\nrun it alone: {again}"

    run(spark, directory, seed, views, told=told)
    passed.update(numbers)


def run(
    spark: SparkSession,
    directory: Path,
    seed: int,
    views: Mapping[str, View],
    schemas: Mapping[str, str] = SCHEMAS,
    changes: Callable[[Random, str, list[Row]], Change] = change,
    told: Callable[[str], str] = str,
    spelled: Mapping[str, str | Callable[[hf.Flow], DataFrame]] | None = None,
) -> None:
    """Keep ``views`` up to date for some epochs, and compare each after each. ``told`` says whose view it is.

    ``spelled``: view → what the flow is given in its place; Spark is asked ``views``.
    """
    random, paths = Random(f"flow {seed}"), Random(f"paths {seed}")
    oracle = Oracle(spark, schemas)
    batch = {view: _settled(query) for view, query in views.items()}
    story: list[str] = []
    # What views hold is the question here; how they are kept has tests of its own.
    with (
        stopped_clock(NOON) as clock,
        hf.Flow(
            "oracle", log=directory, spark=spark, partitions=1 + seed % 2, retain="all", strategy="volatile"
        ) as flow,
    ):
        for name, (function, returns) in FUNCTIONS.items():
            flow.udf(name, function, returns)
            oracle.session.udf.register(name, function, returns)
        inputs = {table: flow.input(table, schema) for table, schema in schemas.items()}
        for view, query in views.items():
            given = (spelled or {}).get(view)
            made = given(flow) if callable(given) else given
            try:
                flow.view(view, made or (query if isinstance(query, str) else query(flow.table)))
            except hf.HoldfastError as error:
                raise AssertionError(f"{told(view)}\nwas refused: {error}") from error
        for epoch in range(EPOCHS):
            for table, pushed in inputs.items():
                made = changes(random, table, oracle.rows(table))
                story.append(f"epoch {epoch}, {table}: {made}")
                pushed.insert(made.inserted)
                pushed.delete(made.deleted)
                for old, new in made.updated:
                    pushed.update([old], [new])
                oracle.delete(table, made.deleted + [old for old, _ in made.updated])
                oracle.insert(table, made.inserted + [new for _, new in made.updated])
            clock.advance(minutes=10)
            with _by(paths.choice(("", "resident", "task", "stages"))):
                flow.step()
            for view, expected in oracle.expect(batch, clock.micros).items():
                try:
                    _compare(flow, view, epoch, expected.toArrow())
                except AssertionError as error:
                    raise AssertionError("\n".join([told(view), *story, f"epoch {epoch}: {error}"])) from None


@contextmanager
def _by(path: str) -> Iterator[None]:
    """Have epochs run in this way, where it is open to them; "": as they would be."""
    if path:
        os.environ["HOLDFAST_PATH"] = path
    try:
        yield
    finally:
        os.environ.pop("HOLDFAST_PATH", None)


def _compare(flow: hf.Flow, view: str, epoch: int, expected: pa.Table) -> None:
    # As flow.read and flow.changes do, but without a Spark job for each.
    kept, _ = flow._started().views.readable(view, epoch)
    assert_same_rows(kept.rows(0, 2**64, epoch), expected, view)
    assert_same_rows(total_of_changes(kept.history(0, 2**64, epoch)), expected, f"changes of {view}")


def _settled(query: View) -> View:
    """What Spark must be asked, where Holdfast promises one of Spark's possible answers: the least value."""
    return query.replace("any_value(", "min(") if isinstance(query, str) else query


def flows(count: int) -> list[list[int]]:
    """The cases 0 … count - 1, flow by flow."""
    return [list(range(first, min(count, first + TOGETHER))) for first in range(0, count, TOGETHER)]


def asked_for() -> int | None:
    """The case that the environment asks for."""
    number = os.environ.get("HOLDFAST_CASE")
    return None if number is None else int(number)
