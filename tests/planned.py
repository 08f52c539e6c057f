"""Plans of SQL texts for tests that are about plans: what Spark and the conversion make of a text, and no flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from holdfast.plan.expression import Tree
from holdfast.plan.nodes import Field, Linear, Named, Node, Source, UserFunction

from .session import shared_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.planning import Planner


@cache
def planner(session: SparkSession | None = None) -> Planner:
    """What reads queries, as a session does."""
    from holdfast.spark.flow_leaves import FlowLeaves
    from holdfast.spark.planning import Planner
    from holdfast.spark.session_meaning import meaning_of

    spark = session or shared_session()
    return Planner(spark, meaning_of(spark, "tests"), FlowLeaves(spark, _never_read), "tests")


def _never_read(*_: object) -> DataFrame:
    raise AssertionError("plans are not run here")


def plan_sql(
    name: str,
    sql: str,
    catalog: Mapping[str, Node],
    functions: Mapping[str, UserFunction] | None = None,
    session: SparkSession | None = None,
) -> Node:
    """The plan of view ``name`` over the plans in ``catalog``, as ``session`` reads it, before it is rewritten."""
    schemas = {table: node.fields for table, node in catalog.items()}
    return planner(session).plan(name, sql, catalog, schemas, functions or {}).node


def expressions(texts: Sequence[str], fields: Sequence[Field]) -> list[Tree]:
    """What Spark and the conversion make of the texts of expressions over columns."""
    return _expressions(tuple(texts), tuple(fields))


@lru_cache(maxsize=4096)
def _expressions(texts: tuple[str, ...], fields: tuple[Field, ...]) -> list[Tree]:
    source = Source("rows", fields)
    named = ", ".join(f"{text} AS e{place}" for place, text in enumerate(texts))
    plan = plan_sql("v", f"SELECT {named} FROM rows", {"rows": source})
    if plan == source:  # they are its columns
        return [source.column(name) for name in source.columns]
    assert isinstance(plan, Linear) and plan.input == source
    return [output.expression for output in plan.outputs]


def step(node: Node, predicate: str | None, outputs: Mapping[str, str]) -> Linear:
    """A `Linear` over ``node`` whose expressions are given as texts."""
    texts = [*outputs.values(), *([] if predicate is None else [predicate])]
    trees = expressions(texts, node.fields)
    return Linear(
        node,
        None if predicate is None else trees[-1],
        tuple(Named(name, tree) for name, tree in zip(outputs, trees, strict=False)),
    )


def expression(text: str, fields: Sequence[Field]) -> Tree:
    """The same of one."""
    (found,) = expressions([text], fields)
    return found


def expiring(source: Source, expires: str) -> Node:
    """The rows of ``source`` until the moment that ``expires`` gives for each."""
    return planner().expiring(source, expires, {})
