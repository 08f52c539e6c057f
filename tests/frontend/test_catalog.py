"""Views over views: in which order they are planned, and what is said of those that cannot be."""

from __future__ import annotations

import pytest

from holdfast.connectors import Input
from holdfast.errors import DeclarationError, UnknownName, ViewCycle
from holdfast.frontend.catalog import Catalog
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.schema import parse_schema
from holdfast.plan.walk import reachable

from ..planned import planner


def catalog(**views: str) -> Catalog:
    made = Catalog().with_source("t", Input("t", parse_schema("k long, x long", subject="t")), None, None)
    for name, sql in views.items():
        made = made.with_view(name, sql, planner())
    return made


@pytest.mark.parametrize("sql", ["SELECT * FROM v", "select k from V", "SELECT k FROM t WHERE k IN (SELECT k FROM v)"])
def test_a_view_that_reads_itself_says_so(sql: str) -> None:
    with pytest.raises(ViewCycle, match="view 'v': it reads itself; a view can read sources"):
        catalog(v=sql)
    with pytest.raises(ViewCycle):
        catalog(v="SELECT * FROM t").with_view("v", sql, planner())


def test_a_cycle_of_views_is_named_with_all_that_are_in_it() -> None:
    made = catalog(a="SELECT * FROM t", b="SELECT * FROM a", c="SELECT k FROM b")
    with pytest.raises(ViewCycle, match="'a' reads 'c' reads 'b' reads 'a'") as caught:
        made.with_view("a", "SELECT k, k AS x FROM c", planner())
    assert caught.value.fields["cycle"] == ["a", "c", "b", "a"]


def test_a_view_may_be_replaced_by_one_that_reads_a_later_one() -> None:
    made = catalog(a="SELECT * FROM t", b="SELECT k FROM t", c="SELECT k FROM a")
    made = made.with_view("a", "SELECT k FROM b", planner())
    assert made.views["a"].columns == ("k",) and list(made.queries) == ["a", "b", "c"]


def test_a_dropped_view_that_others_read_names_them() -> None:
    made = catalog(a="SELECT * FROM t", b="SELECT * FROM a", c="SELECT x.k FROM t JOIN A AS x ON x.k = t.k")
    with pytest.raises(DeclarationError, match="view 'a': it cannot be dropped while 'b', 'c' read it"):
        made.without_view("a")
    assert list(made.without_view("b").views) == ["a", "c"]


def test_a_name_that_a_with_clause_gives_is_not_a_view() -> None:
    made = catalog(a="SELECT * FROM t", v="WITH a AS (SELECT k FROM t) SELECT * FROM a")
    assert "a" not in made.without_view("a").views
    made = catalog(w="SELECT * FROM t", v="WITH w AS (SELECT k FROM w) SELECT * FROM w")
    with pytest.raises(DeclarationError, match="'v' reads it"):
        made.without_view("w")
    with pytest.raises(UnknownName, match="nowhere"):
        catalog(v="SELECT * FROM nowhere")


@pytest.mark.parametrize("change", ["drop another", "replace another", "declare again"])
def test_a_view_of_a_dataframe_shares_the_view_it_reads_whatever_else_is_declared(change: str) -> None:
    total = "SELECT k, sum(x) AS s FROM t GROUP BY k"
    made = catalog(total=total, other="SELECT count(*) AS n FROM t")
    frame = planner().table("total", made.schemas["total"]).filter("k = 1")
    made = made.with_view("one", frame, planner())
    before = fingerprint(made.views["one"])
    assert any(node is made.views["total"] for node in reachable(made.views["one"]))
    match change:
        case "drop another":
            made = made.without_view("other")
        case "replace another":
            made = made.with_view("other", "SELECT max(x) AS n FROM t", planner())
        case _:
            made = made.with_view("total", total.lower(), planner())
    assert fingerprint(made.views["one"]) == before
    assert any(node is made.views["total"] for node in reachable(made.views["one"]))


def test_a_view_that_is_replaced_by_another_meaning_has_the_new_plan() -> None:
    made = catalog(total="SELECT k, sum(x) AS s FROM t GROUP BY k", one="SELECT s FROM total WHERE k = 1")
    made = made.with_view("total", "SELECT k, max(x) AS s FROM t GROUP BY k", planner())
    assert any(node is made.views["total"] for node in reachable(made.views["one"]))
    renamed = made.with_view("total", "SELECT k, max(x) AS s, 1 AS one FROM t GROUP BY k", planner())
    assert renamed.views["total"].columns == ("k", "s", "one")
