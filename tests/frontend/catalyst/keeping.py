"""Keeps views of one input up to date for some epochs, and compares them with Spark's answers."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.errors import Unsupported
from holdfast.testing import Oracle, assert_same_rows

SCHEMA = (
    "id bigint, k int, u string, amount double, n decimal(10,2), d date, ts timestamp, xs array<int>, "
    "m map<string,int>, js string"
)


def _row(id: int, k: int | None, u: str | None, amount: float | None, xs: Any = (1, 2)) -> tuple[Any, ...]:
    day = datetime.date(2024, 1, 1) + datetime.timedelta(days=id % 3)
    at = datetime.datetime(2024, 1, 1, 0, 7 * id % 60, tzinfo=datetime.UTC) + datetime.timedelta(hours=id // 6)
    n = None if amount is None or amount != amount else Decimal(f"{amount:.2f}")
    listed = None if xs is None else list(xs)
    return (id, k, u, amount, n, day, at, listed, {"a": id, "b": 2}, f'{{"a": {id}, "b": "x"}}')


FIRST = [
    _row(1, 1, "ada", 1.5),
    _row(2, 1, "bob", -2.25, xs=()),
    _row(3, 2, "ada", 4.0, xs=(7, None)),
    _row(4, None, "cyd", 8.0, xs=None),
    _row(5, 2, None, 16.0),
    _row(6, 1, "Bob", None, xs=(3,)),
    _row(7, 3, "ada", 0.5),
    _row(8, 3, "ada", 0.5),
]
SECOND = [
    _row(9, 1, "ada", 7.75),
    _row(10, 3, "dee", 2.5, xs=(1, 1)),
    _row(11, 4, "eve", -1.0),
    _row(12, 1, "bob", 3.0),
]
EPOCHS = [(FIRST, []), (SECOND, FIRST[1:4]), ([FIRST[1], _row(13, 2, "bob", 2.0)], [SECOND[2], FIRST[7], FIRST[6]])]

Query = str | Callable[[Callable[[str], DataFrame]], DataFrame]


def check(
    spark: SparkSession, directory: Path, views: Mapping[str, Query], spelled: Mapping[str, Query] | None = None
) -> None:
    """Keep views of ``o`` up to date for some epochs, and compare each with Spark's answer to the same query, or to
    the one that ``spelled`` has for it."""
    oracle = Oracle(spark, {"o": SCHEMA})
    with hf.Flow("groups", log=directory, spark=spark, partitions=2, strategy="volatile") as flow:
        rows = flow.input("o", SCHEMA)
        for name, query in views.items():
            flow.view(name, query if isinstance(query, str) else query(flow.table))
        for epoch, (inserted, deleted) in enumerate(EPOCHS):
            rows.insert(inserted)
            rows.delete(deleted)
            oracle.delete("o", deleted)
            oracle.insert("o", inserted)
            flow.step()
            for name, expected in oracle.expect({**views, **(spelled or {})}).items():
                kept, _ = flow._started().views.readable(name, epoch)  # as flow.read does, without a Spark job
                assert_same_rows(kept.rows(0, 2**64, epoch), expected, name)


def numbered(*queries: Query) -> dict[str, Query]:
    return {f"v{place}": query for place, query in enumerate(queries)}


def refused(spark: SparkSession, directory: Path, query: Query) -> Unsupported:
    """The refusal of a view."""
    with hf.Flow("groups", log=directory, spark=spark) as flow:
        flow.input("o", SCHEMA)
        with pytest.raises(Unsupported) as found:
            flow.view("v", query if isinstance(query, str) else query(flow.table))
    return found.value
