"""A statement means the same however it is spelled.

The generated cases, written in every way of `spelling`, and as a DataFrame: a spelling that Spark analyses to the same
plan has the same fingerprint as the case itself, so it holds the same rows (the cases are compared with Spark's answers
in `test_cases`). Whatever has another fingerprint is run, and compared with Spark's answer to the case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError, HoldfastError, SqlError
from holdfast.plan.fingerprint import fingerprint

from .cases import CASES, View, make
from .check import TOGETHER, flows, run
from .data import SCHEMAS
from .generating import FUNCTIONS
from .spelling import SPELLINGS

FRAME = "as a DataFrame"
ALL = (*SPELLINGS, FRAME)
SAMPLE = 12
"""Cases of a spelling, in the short run."""


@dataclass(frozen=True)
class Spelled:
    """The last view of a case, spelled otherwise."""

    number: int
    spelling: str

    @property
    def query(self) -> str | Callable[[hf.Flow], DataFrame]:
        text = self.meant
        assert isinstance(text, str)
        return (lambda flow: flow.sql(text)) if self.spelling == FRAME else SPELLINGS[self.spelling](text)

    @property
    def meant(self) -> View:
        return list(make(self.number).views.values())[-1]

    def __str__(self) -> str:
        shown = self.query if isinstance(self.query, str) else "flow.sql(…)"
        return f"case {self.number}, {self.spelling}:\n  {self.meant}\n  {shown}"


def _spelled(numbers: Iterable[int], spellings: Iterable[str]) -> list[Spelled]:
    """The cases that are texts, in the spellings in which they read otherwise."""
    found = [Spelled(number, spelling) for number in numbers for spelling in spellings]
    return [each for each in found if isinstance(each.meant, str) and each.query != each.meant]


class _Plans:
    """Plans of cases, in one flow. The inner views of cases are declared in it."""

    def __init__(self, spark: SparkSession, log: Path) -> None:
        self._flow = hf.Flow("spelled", log=log, spark=spark)
        for table, schema in SCHEMAS.items():
            self._flow.input(table, schema)
        for name, (function, returns) in FUNCTIONS.items():
            self._flow.udf(name, function, returns)

    def same(self, each: Spelled) -> tuple[bool, bool]:
        """Whether a spelling has the plan of the case according to Spark, and according to Holdfast."""
        *below, (name, meant) = make(each.number).views.items()
        for view, query in below:
            if view not in self._flow._catalog.views:
                self._flow.view(view, query if isinstance(query, str) else query(self._flow.table))
        assert isinstance(meant, str)
        (one, its), (other, others) = self._plan(name, meant), self._plan(name, each.query)
        return bool(one.sameResult(other)), its == others

    def _plan(self, name: str, query: str | Callable[[hf.Flow], DataFrame]) -> tuple[Any, str]:
        """Spark's plan and the fingerprint of ours."""
        catalog = self._flow._catalog
        asked = query if isinstance(query, str) else query(self._flow)
        planned = self._flow._planner().plan(name, asked, catalog.tables, catalog.schemas, catalog.functions)
        frame: Any = self._flow.sql(asked) if isinstance(asked, str) else asked
        return frame._jdf.queryExecution().analyzed(), fingerprint(planned.node)


def _check(spark: SparkSession, directory: Path, spelled: list[Spelled]) -> None:
    plans = _Plans(spark, directory / "plans")
    wrong: list[str] = []
    others: list[Spelled] = []
    for each in spelled:
        try:
            spark_same, same = plans.same(each)
        except HoldfastError as error:
            wrong.append(f"{each}\n  {error}")
            continue
        if spark_same and not same:
            wrong.append(f"{each}\n  another fingerprint")
        elif not same:
            others.append(each)
    assert not wrong, f"{len(wrong)} of {len(spelled)}\n" + "\n".join(wrong[:5])
    assert len(others) < len(spelled), "not one has the plan of its case"
    _run(spark, directory / "rows", others)


def _run(spark: SparkSession, directory: Path, spelled: list[Spelled]) -> None:
    """Run spellings, and compare them with what the cases give."""
    for first in range(0, len(spelled), TOGETHER):
        views: dict[str, View] = {}
        spelt: dict[str, str | Callable[[hf.Flow], DataFrame]] = {}
        told: dict[str, str] = {}
        for place, each in enumerate(spelled[first : first + TOGETHER]):
            *below, (_, meant) = make(each.number).views.items()
            views.update(below)  # the same ones, for every spelling of the case
            name = f"s{place}"
            views[name], spelt[name], told[name] = meant, each.query, str(each)
        run(spark, directory / str(first), first, views, told=_told(told), spelled=spelt)


def _told(names: dict[str, str]) -> Callable[[str], str]:
    return lambda view: names.get(view, view)


def _in_turn(numbers: Iterable[int]) -> list[Spelled]:
    """One spelling of each case, each case in another one."""
    found = []
    for number in numbers:
        options = _spelled([number], ALL)
        found += options[number % len(options) :][:1] if options else []
    return found


@pytest.mark.parametrize("spelling", ALL)
def test_a_statement_has_the_same_plan_however_it_is_spelled(
    spark: SparkSession, tmp_path: Path, spelling: str
) -> None:
    start = ALL.index(spelling) * 25  # other cases for each
    _check(spark, tmp_path, _spelled([(start + number) % CASES for number in range(CASES)], [spelling])[:SAMPLE])


def test_views_hold_the_same_rows_however_they_are_spelled(spark: SparkSession, tmp_path: Path) -> None:
    _run(spark, tmp_path, _in_turn(range(0, CASES, CASES // TOGETHER))[:TOGETHER])


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ALL)
def test_all_cases_have_the_same_plan_however_they_are_spelled(
    spark: SparkSession, tmp_path: Path, spelling: str
) -> None:
    _check(spark, tmp_path, _spelled(range(CASES), [spelling]))


@pytest.mark.slow
@pytest.mark.parametrize("numbers", flows(CASES), ids=lambda numbers: f"{numbers[0]}-{numbers[-1]}")
def test_all_cases_hold_the_same_rows_however_they_are_spelled(
    spark: SparkSession, tmp_path: Path, numbers: list[int]
) -> None:
    _run(spark, tmp_path, _in_turn(numbers))


# -- single statements ---------------------------------------------------------------------------------------------

Declare = Callable[[str], str]


@pytest.fixture(scope="module")
def declared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Declare:
    """Declares a view, and gives its fingerprint and the names of its columns as one text."""
    flow = hf.Flow("single", log=tmp_path_factory.mktemp("single"), spark=spark)
    flow.input("t", "k long, x long, d date")
    flow.input("u", "y long, x long, k long, d date")
    flow.input("clocks", "id long, current_date date, current_user string")

    def declare(sql: str) -> str:
        catalog = flow._catalog
        node = flow._planner().plan("v", sql, catalog.tables, catalog.schemas, catalog.functions).node
        return f"{fingerprint(node)} {', '.join(node.columns).lower()}"

    return declare


@pytest.mark.parametrize(
    "frame",
    [
        "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
        "ROWS UNBOUNDED PRECEDING",
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "RANGE BETWEEN INTERVAL 10 DAYS PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN INTERVAL 1 DAY FOLLOWING AND INTERVAL 2 DAYS FOLLOWING",
    ],
)
def test_a_frame_in_small_letters_is_that_frame(declared: Declare, frame: str) -> None:
    def plan(frame: str) -> str:
        return declared(f"SELECT k, sum(x) OVER (ORDER BY d {frame}) AS s FROM t")

    assert plan(frame.lower()) == plan(frame)
    assert plan(frame) != plan("ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING")


@pytest.mark.parametrize("name", ["current_date", "CURRENT_USER"])
def test_a_column_goes_before_the_function_of_its_name(declared: Declare, name: str) -> None:
    assert declared(f"SELECT {name} AS x FROM clocks") == declared(f"SELECT `{name.lower()}` AS x FROM clocks")
    assert declared("SELECT current_date AS x FROM t") == declared("SELECT current_date() AS x FROM t")


def test_isnull_is_a_name_unless_it_is_called(declared: Declare) -> None:
    assert declared("SELECT x isnull FROM t") == declared("SELECT x AS isnull FROM t")
    with pytest.raises(SqlError, match="isnull"):
        declared("SELECT k FROM t WHERE x isnull")


@pytest.mark.parametrize(
    ("join", "columns"),
    [
        ("LEFT SEMI JOIN (SELECT x FROM u) USING (x)", "x, k, d"),
        ("LEFT ANTI JOIN u USING (d, k)", "d, k, x"),
        ("JOIN (SELECT y, x, k FROM u) USING (x, k)", "x, k, d, y"),
        ("FULL JOIN (SELECT y, x, k FROM u) USING (x, k)", "x, k, d, y"),
        ("NATURAL JOIN (SELECT y, x, k FROM u)", "k, x, d, y"),
    ],
)
def test_the_columns_of_using_come_first(declared: Declare, join: str, columns: str) -> None:
    assert declared(f"SELECT * FROM t {join}").partition(" ")[2] == columns


def test_names_that_differ_only_by_case_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("cases", log=tmp_path / "log", spark=spark)
    flow.input("orders", "id long")
    with pytest.raises(DeclarationError, match="input 'Orders': there is 'orders' already, and names ignore case"):
        flow.input("Orders", "id long")
    with pytest.raises(DeclarationError, match="view 'ORDERS': there is 'orders' already"):
        flow.view("ORDERS", "SELECT id + 1 AS id FROM orders")


def test_a_comment_that_does_not_end_is_an_error(declared: Declare) -> None:
    with pytest.raises(SqlError, match="bracketed comment"):
        declared("SELECT k FROM t /* WHERE x > 1")


def test_distinct_rows_are_not_counted_as_all_rows(declared: Declare) -> None:
    assert declared("SELECT count(DISTINCT *) AS n FROM t") == declared("SELECT count(DISTINCT k, x, d) AS n FROM t")
    assert declared("SELECT count(DISTINCT *) AS n FROM t") != declared("SELECT count(*) AS n FROM t")
