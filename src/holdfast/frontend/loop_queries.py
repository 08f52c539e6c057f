"""Queries of views that are loops, as they were declared, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Body: TypeAlias = "Callable[[DataFrame], DataFrame]"
Until: TypeAlias = "int | Callable[[DataFrame, DataFrame], DataFrame] | None"


@dataclass(frozen=True)
class RecursionLimits:
    """The limits of a recursion whose text has none: Spark's, unless the session sets others."""

    levels: int = 100
    rows: int | None = None
    """Rows that a level of UNION ALL may add in an epoch. None: any number."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """A query whose recursion must end after ``max_rounds`` rounds."""

    query: str | DataFrame
    max_rounds: int


@dataclass(frozen=True, eq=False)
class Iteration:
    """``start``, then ``body`` applied to it again and again, until nothing changes, or as ``until`` says."""

    start: str | DataFrame
    body: Body
    until: Until
    max_rounds: int


Query: TypeAlias = "str | DataFrame | Bounded | Iteration"


def query_text(query: Query) -> str:
    """Return a query as a text, for messages."""
    if isinstance(query, Bounded):
        query = query.query
    if isinstance(query, str):
        return query
    return f"(iteration of {query.body.__name__})" if isinstance(query, Iteration) else "(DataFrame)"
