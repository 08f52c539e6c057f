"""Names that are not there, or mean several things: the error says what was meant, probably, and where."""

from __future__ import annotations

import pytest

from holdfast.errors import AmbiguousName, UnknownName
from holdfast.frontend.nearest import did_you_mean, nearest
from holdfast.frontend.schema import parse_schema
from holdfast.plan.nodes import Node, Source

from ..planned import plan_sql

CATALOG: dict[str, Node] = {
    "orders": Source("orders", parse_schema("id long, user string, amount double", subject="orders")),
    "users": Source("users", parse_schema("id long, name string", subject="users")),
}
CATALOG["spend"] = plan_sql("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user", CATALOG)


def failure(sql: str) -> UnknownName | AmbiguousName:
    with pytest.raises((UnknownName, AmbiguousName)) as caught:
        plan_sql("top", sql, CATALOG)
    return caught.value


def test_an_unknown_column_is_answered_with_the_nearest() -> None:
    error = failure("SELECT user\nFROM spend\nWHERE totl > 3")
    assert str(error) == "view 'top': column 'totl' not found in spend(user, total); did you mean 'total'?"
    assert error.fields == {
        "view": "top",
        "name": "totl",
        "line": 3,
        "column": 7,
        "candidates": ["user", "total"],
    }


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT o.nam FROM orders o JOIN users u USING (id)", "'o.nam' not found in o(id, user, amount)"),
        ("SELECT u.nam FROM orders JOIN users u USING (id)", "'u.nam' not found in u(id, name); did you mean 'name'?"),
        ("SELECT nme FROM orders o JOIN users u USING (id)", "o(id, user, amount), u(id, name); did you mean 'name'?"),
        ("SELECT x.id FROM orders", "column 'x.id' not found in orders(id, user, amount)"),
        ("SELECT order.id FROM orders", "did you mean 'orders'?"),
        ("SELECT id FROM orders o WHERE orders.id = 1", "column 'orders.id' not found in o(id, user, amount)"),
        ("SELECT sum(amont) AS s FROM orders", "did you mean 'amount'?"),
        ("SELECT id FROM orders GROUP BY id HAVING totl > 1", "column 'totl' not found in orders"),
        ("SELECT id AS key FROM orders ORDER BY kez LIMIT 1", "column 'kez' not found in orders"),
        ("SELECT transform(array(1), x -> y) AS a FROM orders", "column 'y' not found"),
        ("SELECT x, transform(array(1), x -> x) AS a FROM orders", "column 'x' not found"),
        ("SELECT id FROM orders JOIN users USING (name)", "column 'name' not found in orders(id, user, amount)"),
        ("SELECT id FROM (SELECT user FROM orders)", "column 'id' not found in input(user)"),
        ("SELECT id FROM orders UNION SELECT id FROM users ORDER BY name LIMIT 1", "column 'name' not found"),
        ("SELECT id FROM orders a JOIN users b ON a.id = c.id JOIN users c ON b.id = c.id", "column 'c.id' not found"),
    ],
)
def test_unknown_columns_are_found_everywhere(sql: str, message: str) -> None:
    error = failure(sql)
    assert isinstance(error, UnknownName)
    assert message in str(error)
    assert {"line", "column", "name", "candidates"} <= set(error.fields)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM order", "table 'order' not found; did you mean 'orders'?"),
        ("SELECT * FROM ordres o", "did you mean 'orders'?"),
        ("SELECT * FROM zzz", "table 'zzz' not found; known are orders, users, spend"),
        ("SELECT * FROM db.orders", "table 'db.orders' not found; did you mean 'orders'?"),
        ("WITH spendings AS (SELECT 1 FROM orders) SELECT * FROM spendngs", "did you mean 'spendings'?"),
        ("SELECT usr.* FROM users", "table 'usr' of usr.* not found in FROM; did you mean 'users'?"),
        ("SELECT * EXCEPT (nme) FROM users", "column 'nme' of EXCEPT not found; did you mean 'name'?"),
    ],
)
def test_unknown_tables_are_answered_with_the_nearest(sql: str, message: str) -> None:
    error = failure(sql)
    assert isinstance(error, UnknownName)
    assert message in str(error)


def test_a_cte_is_gone_outside_its_query() -> None:
    error = failure("SELECT * FROM (WITH c AS (SELECT id FROM orders) SELECT * FROM c) x JOIN c USING (id)")
    assert "table 'c' not found" in str(error)


def test_an_ambiguous_column_lists_what_it_can_mean() -> None:
    error = failure("SELECT id FROM orders AS o, users AS u WHERE o.id = u.id")
    assert isinstance(error, AmbiguousName)
    assert str(error) == "view 'top': column 'id' is ambiguous: it can mean o.id or u.id"
    assert error.fields["candidates"] == ["o.id", "u.id"]
    assert (error.fields["line"], error.fields["column"]) == (1, 8)


def test_a_column_of_using_is_not_ambiguous() -> None:
    assert plan_sql("v", "SELECT id FROM orders JOIN users USING (id)", CATALOG).columns == ("id",)


def test_the_nearest_name_ignores_case_and_may_be_none() -> None:
    assert nearest("TOTL", ["total", "user"]) == "total"
    assert nearest("zzz", ["total", "user"]) is None
    assert did_you_mean("zzz", ["total"]) == ""
