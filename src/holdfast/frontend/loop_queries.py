"""Queries of views that are loops, as they were declared, and how far they may go."""

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
    """How far a recursion goes whose text says nothing: as far as Spark's, unless that is told otherwise."""

    levels: int = 100
    rows: int | None = None
    """So many rows a level of UNION ALL may add in an epoch; None: any number."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """A query whose recursion must end after so many rounds."""

    query: str | DataFrame
    max_rounds: int


@dataclass(frozen=True, eq=False)
class Iteration:
    """``start``, then ``body`` of it, and of that, and so on: until nothing changes, or as ``until`` says."""

    start: str | DataFrame
    body: Body
    until: Until
    max_rounds: int


Query: TypeAlias = "str | DataFrame | Bounded | Iteration"


def query_text(query: Query) -> str:
    """A query as a text, for people."""
    if isinstance(query, Bounded):
        query = query.query
    if isinstance(query, str):
        return query
    return f"(iteration of {query.body.__name__})" if isinstance(query, Iteration) else "(DataFrame)"
