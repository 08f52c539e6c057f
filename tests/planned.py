"""Plans of SQL texts for tests that are about plans: what Spark and the conversion make of a text, and no flow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from holdfast.plan.nodes import Field, Node, Source, Temporal, UserFunction

from .session import shared_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.analysis import Analyst
    from holdfast.spark.planning import Planner


@cache
def _planner(session: SparkSession | None = None) -> tuple[Planner, Analyst]:
    from holdfast.spark.analysis import Analyst
    from holdfast.spark.leaf import Leaves
    from holdfast.spark.meaning import meaning_of, planning_session
    from holdfast.spark.planning import Planner

    spark = session or shared_session()
    meaning = meaning_of(spark, "tests")
    return Planner(spark, meaning, Leaves(spark, _never_read), "tests"), Analyst(planning_session(spark, meaning))


def _never_read(*_: object) -> DataFrame:
    raise AssertionError("plans are not run here")


def planner() -> Planner:
    """What reads queries, in a session of the tests' own."""
    return _planner()[0]


def plan_sql(
    name: str,
    sql: str,
    catalog: Mapping[str, Node],
    functions: Mapping[str, UserFunction] | None = None,
    session: SparkSession | None = None,
) -> Node:
    """The plan of view ``name`` over the plans in ``catalog``, as ``session`` reads it, before it is rewritten."""
    planner, analyst = _planner(session)
    schemas: dict[str, tuple[Field, ...]] = {}
    for table, node in catalog.items():
        rows = node.input if isinstance(node, Temporal) else node
        known = rows.fields if isinstance(rows, Source) else analyst.types[analyst.settle(table, rows)]
        schemas[table] = tuple(known)
    return planner.plan(name, sql, catalog, schemas, functions or {}).node


def expiring(source: Source, expires: str) -> Node:
    """The rows of ``source`` until the moment that ``expires`` gives for each."""
    return _planner()[0].expiring(source, expires, {})
