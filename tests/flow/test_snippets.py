"""DataFrame code in PySpark's idiom runs unchanged over ``flow.table(…)`` and over plain DataFrames, and agrees."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.testing import Oracle, assert_same_rows

from .snippets import SNIPPETS, Snippet

PEOPLE = (
    "name string, dept string, salary double, age int, city string, hired date, skills array<string>, "
    "home struct<street:string,zip:int>"
)
DEPTS = "dept string, title string, budget double"
TOGETHER = 27
"""Snippets in a flow: they share its epochs."""

Row = tuple[Any, ...]


def _person(
    name: str | None,
    dept: str | None,
    salary: float | None,
    age: int | None,
    city: str | None,
    month: int,
    *skills: str,
) -> Row:
    home = {"street": f"{city} street", "zip": 1000 + month} if city else None
    return name, dept, salary, age, city, datetime.date(2018 + month % 5, month, 3 * month % 28 + 1), list(skills), home


ANNA, BO, CARLA, DAN, EVE, FINN, GRO = (
    _person("Anna Berg", "dev", 3500.0, 41, "Oslo", 1, "sql", "python"),
    _person("Bo", "dev", 1200.0, 25, "Bergen", 2, "java"),
    _person("Carla", "ops", 2500.0, 33, "Oslo", 3),
    _person("Dan", None, 900.0, 19, None, 5, "sql"),
    _person("Eve Arn", "hr", None, 52, "Oslo", 8, "talk", "sql", "talk"),
    _person("Finn", "ops", 2500.0, 33, "Bergen", 9, "bash"),
    _person(None, "ops", 1800.0, None, "Tromsø", 12, "sql"),
)
DEV, OPS, LAW = ("dev", "Development", 3000.0), ("ops", "Operations", 2000.0), ("law", None, None)
EPOCHS: list[dict[str, tuple[list[Row], list[Row]]]] = [
    {"people": ([ANNA, BO, CARLA, DAN, BO], []), "depts": ([DEV, LAW], [])},
    {"people": ([EVE, FINN, GRO], [BO, CARLA]), "depts": ([OPS, OPS], [])},
    {"people": ([CARLA], [ANNA, DAN, EVE]), "depts": ([("dev", "Dev", 1000.0)], [DEV, OPS])},
]
"""Table → what is inserted and what is deleted, epoch by epoch."""


@pytest.mark.parametrize("first", range(0, len(SNIPPETS), TOGETHER))
def test_snippets_agree_over_a_flow_and_over_plain_frames(spark: SparkSession, tmp_path: Path, first: int) -> None:
    chosen = list(SNIPPETS.items())[first : first + TOGETHER]
    oracle = Oracle(spark, {"people": PEOPLE, "depts": DEPTS})
    with hf.Flow("snippets", log=tmp_path, spark=spark, partitions=2, retain="all", strategy="volatile") as flow:
        inputs = {"people": flow.input("people", PEOPLE), "depts": flow.input("depts", DEPTS)}
        refused = []
        for name, snippet in chosen:
            try:
                flow.view(name, snippet(flow.table("people"), flow.table("depts")))
            except hf.HoldfastError as error:
                refused.append(f"{name}: {error}")
        assert not refused, "\n".join(refused)
        wrong = []
        for epoch, changes in enumerate(EPOCHS):
            for table, (inserted, deleted) in changes.items():
                inputs[table].insert(inserted)
                inputs[table].delete(deleted)
                oracle.insert(table, inserted)
                oracle.delete(table, deleted)
            flow.step()
            for name, expected in oracle.expect({name: _over(snippet) for name, snippet in chosen}).items():
                kept, _ = flow._started().views.readable(name, epoch)
                try:
                    assert_same_rows(kept.rows(0, 2**64, epoch), expected, name)
                except AssertionError as error:
                    wrong.append(f"epoch {epoch}: {error}")
                assert flow._catalog.views[name].columns == tuple(expected.columns), name
        assert not wrong, "\n".join(wrong)


def _over(snippet: Snippet) -> Callable[[Callable[[str], DataFrame]], DataFrame]:
    return lambda table: snippet(table("people"), table("depts"))


def test_there_are_a_hundred_snippets() -> None:
    assert len(SNIPPETS) >= 100
