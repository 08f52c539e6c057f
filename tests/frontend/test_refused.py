"""What cannot be maintained is refused when the view is declared: the construct is named, and its place in the text."""

from __future__ import annotations

import pytest

from holdfast.errors import SqlError, Unsupported
from holdfast.frontend.schema import parse_schema
from holdfast.frontend.sql import plan_sql
from holdfast.plan.nodes import Source

CATALOG = {
    "orders": Source(
        "orders",
        parse_schema(
            "id long, user string, amount double, tags array<int>, s struct<f:int>, ts timestamp", subject="orders"
        ),
    ),
    "users": Source("users", parse_schema("id long, name string", subject="users")),
}

# The mark ^ stands before the place that the error must name; it is taken out of the text.
REFUSED = [
    ("SELECT * FROM orders o ^NATURAL JOIN users u", "NATURAL JOIN"),
    ("SELECT 1 FROM orders o, ^LATERAL (SELECT name FROM users) u", "a LATERAL subquery"),
    ("SELECT e FROM orders ^LATERAL VIEW upper(tags) x AS e", "LATERAL VIEW of something that is no generator"),
    (
        "SELECT sum(id) OVER (ORDER BY id ^RANGE BETWEEN id PRECEDING AND CURRENT ROW) AS s FROM orders",
        "a frame whose bound is not a number",
    ),
    (
        "SELECT sum(id) OVER (ORDER BY id ^ROWS BETWEEN 1 + 1 PRECEDING AND CURRENT ROW) AS s FROM orders",
        "a frame whose bound is not a number",
    ),
    ("SELECT ^lag(id, id) OVER (ORDER BY id) AS s FROM orders", "lag with a number that is not written as one"),
    ("SELECT ^collect_list(id) OVER (ORDER BY id) AS s FROM orders", "the aggregate collect_list before OVER"),
    ("SELECT ^max_by(id, amount) OVER (ORDER BY id) AS s FROM orders", "the aggregate max_by before OVER"),
    ("SELECT ^counter_diff(id) OVER (ORDER BY id) AS s FROM orders", "the window function counter_diff"),
    ("SELECT sum(amount) ^FILTER (WHERE id > 1) OVER (ORDER BY id) AS s FROM orders", "FILTER before OVER"),
    (
        "SELECT percentile_cont(0.5) ^WITHIN GROUP (ORDER BY id) OVER (PARTITION BY user) AS s FROM orders",
        "WITHIN GROUP before OVER",
    ),
    ("SELECT ^rank() AS r FROM orders", "the window function rank"),
    ("SELECT * FROM orders PIVOT (^count(*), max(user) FOR id IN (1, 2))", "PIVOT with count beside max"),
    ("SELECT * FROM orders PIVOT (^abs(amount) FOR user IN ('a', 'b'))", "an expression in PIVOT"),
    ("SELECT * FROM users ^UNPIVOT (v FOR n IN (id))", "UNPIVOT"),
    ("SELECT size(^explode(tags)) AS t FROM orders", "the generator explode in this place"),
    ("SELECT id FROM orders WHERE ^explode_outer(tags) = 'x'", "the generator explode_outer in this place"),
    ("SELECT ^inline(array(s)) FROM orders", "inline without names for its columns"),
    ("SELECT ^variant_explode(s) FROM orders", "variant_explode in this place"),
    ("SELECT 1 AS x FROM orders LATERAL VIEW ^variant_explode(s) v", "variant_explode in this place"),
    ("SELECT ^explode(array(rank() OVER (ORDER BY id))) AS x FROM orders", "a window function inside explode"),
    (
        "SELECT id FROM orders LATERAL VIEW explode(tags) g AS t JOIN ^users ON users.id = t",
        "a join behind LATERAL VIEW",
    ),
    ("SELECT o.id FROM orders o LEFT JOIN ^LATERAL explode(tags) g(t)", "LEFT JOIN LATERAL without ON"),
    ("SELECT o.id FROM orders o LEFT JOIN ^LATERAL explode(tags) g(t) ON t > 1", "a condition on LEFT JOIN LATERAL"),
    ("SELECT o.id FROM orders o FULL JOIN ^LATERAL explode(tags) g(t) ON true", "FULL JOIN LATERAL"),
    (
        "SELECT o.id FROM orders o, LATERAL explode(tags) g(t) RIGHT JOIN ^users u ON u.id = t",
        "RIGHT JOIN behind a comma and LATERAL",
    ),
    ("SELECT explode(tags) AS t, count(*) AS n FROM orders ^GROUP BY ALL", "GROUP BY ALL with a generator"),
    ("SELECT id FROM orders UNION ALL BY ^NAME SELECT id FROM users", "UNION BY NAME"),
    ("SELECT ^approx_count_distinct(id) AS c FROM orders", "the aggregate approx_count_distinct"),
    ("SELECT ^percentile(id, amount) AS c FROM orders", "percentile at a percentage that is not a number"),
    ("SELECT mode() ^WITHIN GROUP (ORDER BY id DESC) AS c FROM orders", "WITHIN GROUP"),
    ("SELECT ^covar_pop(DISTINCT id, amount) AS c FROM orders", "DISTINCT in covar_pop"),
    ("SELECT ^corr(id, amount) AS c FROM orders", "the aggregate corr"),
    ("SELECT user, count(*) FROM orders GROUP BY ^window(ts, '1 hour'), user", "the time window window"),
    ("SELECT * FROM orders ^TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT id, ^shuffle(tags) AS r FROM orders", "the nondeterministic function shuffle"),
    ("SELECT ^spark_partition_id() AS r FROM orders", "the nondeterministic function spark_partition_id"),
    ("SELECT id, ^current_user AS u FROM orders", "the nondeterministic function current_user"),
    ("SELECT id FROM orders WHERE ts > ^now()", "the current time in WHERE"),
    ("SELECT id FROM orders WHERE ts > ^localtimestamp", "the current time in WHERE"),
    ("SELECT user, max(ts) AS m FROM orders GROUP BY user HAVING max(ts) < ^now()", "the current time in HAVING"),
    ("SELECT ^current_date() AS d, count(*) AS n FROM orders GROUP BY d", "the current time in GROUP BY"),
    ("SELECT count(*) FILTER (WHERE ts > ^now()) AS n FROM orders", "the current time in FILTER"),
    ("SELECT transform(tags, x -> ^rand()) AS r FROM orders", "rand inside a lambda function"),
    ("SELECT id, ^rand(id) AS r FROM orders", "rand with a seed that is not a number"),
    ("SELECT ^input_file_name() AS f FROM orders", "the nondeterministic function input_file_name"),
    ("^CREATE TABLE t (a int)", "the statement CREATE TABLE"),
    ("^INSERT INTO orders SELECT * FROM orders", "the statement INSERT"),
    ("^DELETE FROM orders", "the statement DELETE"),
    ("^DROP TABLE orders", "the statement DROP"),
    ("^UPDATE orders SET id = 1", "the statement UPDATE"),
    ("^SHOW TABLES", "the statement SHOW"),
    ("SELECT id FROM orders; SELECT ^name FROM users", "more than one statement"),
    ("SELECT id FROM orders WHERE id = ^:limit", "a parameter"),
    ("SELECT * FROM ^range(10)", "the table-valued function range"),
    ("SELECT * FROM ^orders VERSION AS OF 3", "time travel in a query"),
    ("SELECT * FROM ^orders TIMESTAMP AS OF '2020-01-01'", "time travel in a query"),
    ("SELECT a FROM ^VALUES (1) AS v(a)", "VALUES"),
    ("WITH ^RECURSIVE r AS (SELECT id FROM orders) SELECT * FROM r", "WITH RECURSIVE"),
    ("^SELECT 1 AS one", "SELECT without FROM"),
    ("SELECT ^s.* FROM orders", "expanding a struct with *"),
    ("SELECT id FROM orders ORDER BY id LIMIT 10 ^OFFSET id", "OFFSET that is not a number"),
    ("SELECT id FROM orders ^LIMIT 5 + 5", "LIMIT that is not a number"),
    ("SELECT id FROM orders ORDER BY id ^OFFSET 3", "OFFSET without LIMIT"),
    ("SELECT id FROM orders ^SORT BY id", "SORT BY"),
    ("SELECT id FROM orders ^CLUSTER BY id", "CLUSTER BY"),
    ("SELECT id FROM orders ^DISTRIBUTE BY id", "DISTRIBUTE BY"),
    ("SELECT id FROM (^orders JOIN users USING (id))", "a join in parentheses"),
    ("SELECT ^system.builtin.abs(id) AS a FROM orders", "a qualified function name"),
    ("SELECT ^id = 1 = true AS a FROM orders", "a mixture of operators without parentheses"),
    ("SELECT id ^>>> 2 AS a FROM orders", ">>>"),
    ("FROM orders ^|> WHERE id > 1", "|> (pipe syntax)"),
]


@pytest.mark.parametrize(("marked", "construct"), REFUSED, ids=[marked.replace("^", "") for marked, _ in REFUSED])
def test_what_cannot_be_maintained_is_refused_with_its_name_and_place(marked: str, construct: str) -> None:
    offset = marked.index("^")
    sql = marked.replace("^", "", 1)
    with pytest.raises(Unsupported) as caught:
        plan_sql("v", sql, CATALOG)
    before = sql[:offset]
    line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
    fields = caught.value.fields
    assert (fields["construct"], fields["line"], fields["column"]) == (construct, line, column), str(caught.value)
    assert fields["view"] == "v"
    assert str(caught.value).startswith(f"view 'v': {construct} is not supported")
    assert f"(line {line}, column {column})" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ("input_file_name()", "put the name into the data"),
        ("monotonically_increasing_id()", r"use uuid\(\) for a key"),
        ("current_user()", "write the name as a text"),
        ("reflect('a', 'b')", "its answers are kept"),
    ],
)
def test_a_nondeterministic_function_that_is_not_drawn_is_refused_with_what_to_do_instead(
    call: str, advice: str
) -> None:
    with pytest.raises(Unsupported, match=advice):
        plan_sql("v", f"SELECT {call} AS r FROM orders", CATALOG)


def test_time_in_a_filter_is_refused_with_the_reason() -> None:
    with pytest.raises(Unsupported, match="time in a filter: rows would leave the view as time passes"):
        plan_sql("v", "SELECT id FROM orders WHERE ts > current_timestamp()", CATALOG)


def test_hints_are_ignored() -> None:
    hinted = plan_sql("v", "SELECT /*+ BROADCAST(orders) */ id FROM orders", CATALOG)
    assert hinted == plan_sql("v", "SELECT id FROM orders", CATALOG)


def test_a_column_named_like_a_bare_function_is_a_column() -> None:
    catalog = {"t": Source("t", parse_schema("current_date date, user string, localtimestamp int", subject="t"))}
    node = plan_sql("v", "SELECT user, localtimestamp FROM t", catalog)
    assert node.columns == ("user", "localtimestamp")


@pytest.mark.parametrize(
    ("sql", "line", "column", "near"),
    [
        ("SELEC id FROM orders", 1, 10, "FROM"),
        ("SELECT id,\n  FROM orders WHERE (id", 2, 22, "id"),
        ("SELECT id FROM orders WHERE", 1, 23, "WHERE"),
        ("SELECT id FROM orders GROUP id", 1, 29, "id"),
        ("SELECT sum( FROM orders", 1, 18, "orders"),
        ("SELECT id FROM orders ORDER BY", 1, 23, "ORDER BY"),
        ("SELECT 'abc FROM orders", 1, 23, "s"),
    ],
)
def test_a_syntax_error_names_line_column_and_text(sql: str, line: int, column: int, near: str) -> None:
    with pytest.raises(SqlError) as caught:
        plan_sql("v", sql, CATALOG)
    fields = caught.value.fields
    assert (fields["line"], fields["column"], fields["near"]) == (line, column, near), str(caught.value)
    assert "syntax error" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("sql", ["", "   ", "-- nothing", ";"])
def test_an_empty_text_is_refused(sql: str) -> None:
    with pytest.raises(SqlError, match="empty"):
        plan_sql("v", sql, CATALOG)
