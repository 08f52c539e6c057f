"""One-off queries with a policy for the loss of an executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from holdfast.connectors.source import Source
from holdfast.errors import DeclarationError
from holdfast.foundation import arguments
from holdfast.foundation.choices import OnLoss
from holdfast.results.query_results import Answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLICIES = get_args(OnLoss)


def query(
    spark: SparkSession,
    query: str | DataFrame,
    *,
    on_loss: OnLoss = "replay",
    tables: Mapping[str, Source | DataFrame] | None = None,
    timeout: float | None = None,
) -> Answer:
    """Compute ``query`` (SQL, or a DataFrame) and return its rows, as an Arrow table, with a `Report`.

    What happens when an executor is lost meanwhile:

    * ``"replay"``: the other executors do its work again; the answer is exact. The report says what was computed again,
      and where.
    * ``"terminate"``: the query is cancelled at once, and `MemberLost` says which executor was lost, what was done and
      what was not.
    * ``"continue"``: the input that it had read is left out, and the answer is computed from the rest. The report says
      how much of the input that is, and which pieces are missing.

    ``tables`` are sources or DataFrames that the SQL calls by name; ``hf.files([a, b], replicas=True)`` is read from
    any copy that can be read. After ``timeout`` seconds the query is cancelled and `TimeoutError` is raised. Wrong SQL
    raises `SqlError`; an expression or a function that fails on a row raises `EvaluationError`.
    """
    arguments.session("query", spark)
    if not hasattr(query, "sparkSession"):
        arguments.text("query", "query", query, "SQL or a DataFrame")
    arguments.one_of("query", "on_loss", on_loss, POLICIES)
    if timeout is not None:
        timeout = arguments.number("query", "timeout", timeout)
        if not timeout > 0:
            raise DeclarationError(f"query: the timeout must be more than 0 seconds, not {timeout!r}", timeout=timeout)
    if tables is not None and not isinstance(tables, Mapping):
        arguments.refuse("query", "tables", "sources or DataFrames by name", tables)
    for name, one in (tables or {}).items():
        arguments.text("query", "the name of a table", name)
        if not isinstance(one, Source) and not hasattr(one, "sparkSession"):
            arguments.refuse("query", f"table {name!r}", "a source or a DataFrame", one)
    if tables and not isinstance(query, str):
        raise DeclarationError("query: tables are for SQL; a DataFrame has its own")
    from holdfast.spark.watched_query import run_query

    return run_query(spark, query, on_loss, dict(tables or {}), timeout)
