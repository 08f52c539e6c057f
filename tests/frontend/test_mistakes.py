"""A mistake in a view's SQL is refused when the view is declared: the error says what is wrong, and where."""

from __future__ import annotations

import pytest

from holdfast.errors import SqlError
from holdfast.frontend.schema import parse_schema
from holdfast.plan.nodes import Source

from ..planned import plan_sql

CATALOG = {
    "orders": Source("orders", parse_schema("id long, user string, amount double", subject="orders")),
    "users": Source("users", parse_schema("id long, name string", subject="users")),
}

# The mark ^ stands before the place that the error must name; it is taken out of the text.
MISTAKES = [
    ("SELECT ^nope FROM orders", "column 'nope' not found in orders"),
    ("SELECT id,\n       ^o.nope FROM orders o", "column 'o.nope' not found in o"),
    ("SELECT id FROM ^nowhere", "table 'nowhere' not found"),
    ("SELECT id FROM orders JOIN ^nowhere ON true", "table 'nowhere' not found"),
    ("SELECT name FROM ^parquet.`/tmp/x`", "table 'parquet./tmp/x' not found"),
    ("SELECT * FROM ^'orders.csv'", "table 'orders.csv' not found"),
    ("SELECT ^id FROM orders o JOIN users u ON o.id = u.id", "column 'id' is ambiguous"),
    ("SELECT o.id FROM orders o JOIN users u ON o.id = ^v.id", "column 'v.id' not found"),
    ("SELECT ^t.* FROM orders", "table 't' of t.* not found"),
    ("SELECT o.id FROM orders o JOIN ^users o ON true", "table 'o' appears twice in FROM"),
    ("SELECT ^id, count(*) AS n FROM orders", "column 'id' is neither grouped nor aggregated"),
    (
        "SELECT user, ^amount, count(*) AS n FROM orders GROUP BY user",
        "column 'amount' is neither grouped nor aggregated",
    ),
    ("SELECT user FROM orders WHERE ^sum(amount) > 1", "aggregate sum in WHERE"),
    ("SELECT user FROM orders WHERE ^row_number() OVER (ORDER BY id) = 1", "window function in WHERE"),
    ("SELECT user, sum(^count(*)) AS n FROM orders GROUP BY user", "aggregate count inside another aggregate"),
    ("SELECT user FROM orders GROUP BY ^sum(amount)", "aggregate in GROUP BY"),
    ("SELECT sum(^row_number() OVER (ORDER BY id)) AS s FROM orders", "window function inside an aggregate"),
    ("SELECT o.id FROM orders o JOIN users u ON ^max(o.id) = u.id", "aggregate max in ON"),
    ("SELECT id FROM orders UNION ALL SELECT ^id, name FROM users", "UNION of 1 columns (id) with 2"),
    ("SELECT id FROM orders INTERSECT SELECT ^id, name FROM users", "INTERSECT of 1 columns (id) with 2"),
    ("SELECT id AS x, ^user AS x FROM orders", "two output columns are called 'x'"),
    ("SELECT id FROM orders QUALIFY ^id > 1", "QUALIFY needs a window function"),
    ("SELECT id, rank() OVER ^w AS r FROM orders", "window 'w' is not defined"),
    ("SELECT DISTINCT id FROM orders ORDER BY ^amount LIMIT 1", "ORDER BY may only use columns of the select list"),
    ("SELECT id FROM orders ORDER BY id ^LIMIT -1", "LIMIT must not be negative"),
    ("SELECT ^sum(id, amount) AS s FROM orders", "sum takes one argument, found 2"),
    ("SELECT ^max_by(id) AS s FROM orders", "max_by takes two arguments, found 1"),
    ("SELECT ^count() AS s FROM orders", "count takes an argument"),
    ("SELECT ^percentile(id, 1.5) AS s FROM orders", "a percentage between 0 and 1"),
    ("SELECT ^row_number() OVER (PARTITION BY user) AS r FROM orders", "row_number needs an ORDER BY"),
    ("SELECT ^ntile(0) OVER (ORDER BY id) AS r FROM orders", "ntile needs a number above 0"),
    ("SELECT ^sum(DISTINCT id) OVER (ORDER BY user) AS s FROM orders", "DISTINCT in the window function sum"),
    ("SELECT ^lag(id) OVER (ORDER BY id ROWS 1 PRECEDING) AS s FROM orders", "lag has a frame of its own"),
    ("SELECT ^sum(id) IGNORE NULLS AS s FROM orders", "IGNORE NULLS belongs behind first, last or any_value"),
    ("SELECT id FROM orders WHERE ^id IN (SELECT id, name FROM users)", "IN compares 1 value with 2 columns"),
    ("SELECT id, (SELECT ^id, name FROM users) AS x FROM orders", "a scalar subquery gives one column, found 2"),
    ("SELECT a FROM ^orders AS x(a, b)", "2 column names are given for 3 columns"),
]


@pytest.mark.parametrize(("marked", "message"), MISTAKES, ids=[marked.replace("^", "") for marked, _ in MISTAKES])
def test_a_mistake_is_refused_with_what_is_wrong_and_where(marked: str, message: str) -> None:
    offset = marked.index("^")
    before = marked[:offset]
    with pytest.raises(SqlError) as caught:
        plan_sql("v", marked.replace("^", "", 1), CATALOG)
    assert message in str(caught.value)
    place = (before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)
    assert (caught.value.fields["line"], caught.value.fields["column"]) == place, str(caught.value)
