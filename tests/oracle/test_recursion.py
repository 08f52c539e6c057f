"""Chains of views with loops over graphs that change, after every epoch what plain Python says they hold.

A chain over one of its graphs is a case: 200 cases in 20 epochs each, and 5,000 in the long runs."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amounts import times
from holdfast.operators.rewrites import rewrite
from holdfast.plan.nodes import Node, Source
from holdfast.plan.schema import parse_schema

from ..planned import plan_sql
from .in_process import Bag, InProcess
from .recursive_cases import BELOW, EPOCHS, GRAPHS, INSIDE, LOOPS, SCHEMAS, Chain, Graph, chain, followed, together


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory whose files are in memory, where there is such a place."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-oracle-", dir=place) as directory:
        yield Path(directory)


def planned(made: Chain) -> dict[str, Node]:
    sources = {name: Source(name, parse_schema(schema, subject=name)) for name, schema in SCHEMAS.items()}
    plans: dict[str, Node] = {}
    for view, text in made.views.items():
        node = plan_sql(view, text, {**sources, **plans})
        plans[view] = rewrite(node, keep=list(plans.values()))
    return plans


def check(number: int, directory: Path) -> None:
    """A chain of views, over several graphs."""
    made = chain(number)
    running = InProcess(planned(made), directory, random.Random(number))
    graphs = [Graph(number, place) for place in range(GRAPHS)]
    for epoch in range(EPOCHS):
        change = together([each.change(epoch) for each in graphs])
        tables = together([each.tables for each in graphs])
        running.epoch(change)
        found, meant = running.rows[made.last], made.meant(tables)
        assert found == meant, (
            f"chain {number}, epoch {epoch}: too many: {found - meant}, too few: {meant - found}\n"
            f"over {tables}\nchanged by {change}\n{made.views}"
        )


def in_spark(spark: SparkSession, made: Chain, tables: Mapping[str, Bag]) -> Bag:
    """What Spark says that the last view holds."""
    session = spark.newSession()
    for name, schema in SCHEMAS.items():
        session.createDataFrame(list(tables[name].elements()), schema).createOrReplaceTempView(name)
    for view, text in made.views.items():
        session.sql(text).createOrReplaceTempView(view)
    return Counter(tuple(row) for row in session.table(made.last).collect())


def check_in_spark(spark: SparkSession, number: int, directory: Path, every: int) -> None:
    """A chain whose loop Spark takes, against Spark after some of its epochs."""
    made = chain(number)
    running = InProcess(planned(made), directory, random.Random(number))
    graphs = [Graph(number, place) for place in range(GRAPHS)]
    for epoch in range(EPOCHS):
        running.epoch(together([each.change(epoch) for each in graphs]))
        if epoch % every == every - 1:
            meant = in_spark(spark, made, together([each.tables for each in graphs]))
            assert running.rows[made.last] == meant, f"chain {number}, epoch {epoch}: {made.views}"


WALKS = [number for number in range(list(LOOPS).index("walks"), 400, len(LOOPS)) if followed not in chain(number).twins]
"""Chains whose only loop is one that Spark takes."""


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_views_with_loops_are_what_plain_python_says(first: int, memory: Path) -> None:
    for number in range(first, first + 10):
        check(number, memory / str(number))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 40 + times(1_000), 20))
def test_many_views_with_loops_are_what_plain_python_says(first: int, memory: Path) -> None:
    for number in range(first, first + 20):
        check(number, memory / str(number))


def test_a_loop_that_spark_takes_is_what_spark_says(spark: SparkSession, memory: Path) -> None:
    check_in_spark(spark, WALKS[0], memory, EPOCHS)


@pytest.mark.slow
@pytest.mark.parametrize("number", WALKS[1:])
def test_many_loops_that_spark_takes_are_what_spark_says(number: int, spark: SparkSession, memory: Path) -> None:
    check_in_spark(spark, number, memory, 5)


@pytest.mark.parametrize("place", INSIDE)
def test_a_recursion_may_be_anywhere_in_a_statement(place: str, memory: Path) -> None:
    links, unchanged = next(iter(BELOW.items()))
    made = Chain({"links": links.format("edges"), "v": INSIDE[place]}, (unchanged, LOOPS["reach"].twin))
    running, graph = InProcess(planned(made), memory, random.Random(1)), Graph(1, 0)
    for epoch in range(4):
        running.epoch(graph.change(epoch))
        assert running.rows["v"] == made.meant(graph.tables), f"epoch {epoch}: {made.views['v']}"
