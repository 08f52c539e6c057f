"""What cannot be maintained is refused when the view is declared: the construct is named, and its place in the text."""

from __future__ import annotations

import pytest

from holdfast.errors import SqlError, Unsupported
from holdfast.frontend.schema import parse_schema
from holdfast.plan.nodes import Source

from ..planned import plan_sql

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
    ("SELECT 1 + ^explode(tags) AS t FROM orders", "the generator explode in this place"),
    ("SELECT id FROM orders WHERE ^explode(tags) = 1", "the generator explode in this place"),
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
    ("SELECT id FROM orders WHERE ^window(ts, '1 hour').start > ts", "the time window window here"),
    ("SELECT ^window(ts, '1 hour'), window(ts, '2 hours') FROM orders", "a second time window in one SELECT"),
    ("SELECT count(*) AS n FROM orders GROUP BY ^window(ts, user)", "a time window whose duration is not a text"),
    ("SELECT ^window(ts, '1 hour', '1 second') AS w FROM orders", "a sliding window of 3600 slides"),
    (
        "SELECT count(*) AS n FROM orders GROUP BY ^session_window(ts, '1 hour').start",
        "session_window that is not a key of GROUP BY by itself",
    ),
    (
        "SELECT user, count(*) AS n FROM orders GROUP BY ROLLUP (user, ^session_window(ts, '1 hour'))",
        "session_window with GROUPING SETS",
    ),
    ("SELECT * FROM orders ^TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT id, ^shuffle(tags) AS r FROM orders", "the nondeterministic function shuffle"),
    ("SELECT ^spark_partition_id() AS r FROM orders", "the nondeterministic function spark_partition_id"),
    ("SELECT id, ^current_user AS u FROM orders", "the nondeterministic function current_user"),
    ("SELECT id FROM orders WHERE hour(^now()) = 3", "this condition on the current time in WHERE"),
    ("SELECT id FROM orders WHERE ts <> ^current_date()", "this condition on the current time in WHERE"),
    ("SELECT id FROM orders WHERE ts > ^now() - INTERVAL 1 MONTH", "this condition on the current time in WHERE"),
    ("SELECT id FROM orders WHERE ts > ^now() OR ts < now()", "this condition on the current time in WHERE"),
    ("SELECT id FROM orders WHERE ts > ^now() - make_interval(id)", "this condition on the current time in WHERE"),
    ("SELECT id FROM orders WHERE ts IN (^localtimestamp)", "this condition on the current time in WHERE"),
    ("SELECT id FROM orders WHERE unix_timestamp(^now()) > id", "this condition on the current time in WHERE"),
    (
        "SELECT user, max(ts) AS m FROM orders GROUP BY user HAVING NOT max(ts) BETWEEN ^now() AND ts",
        "this condition on the current time in HAVING",
    ),
    ("SELECT o.id FROM orders o LEFT JOIN users u ON o.id = u.id AND o.ts > ^now()", "the current time in ON"),
    ("SELECT ^current_date() AS d, count(*) AS n FROM orders GROUP BY d", "the current time in GROUP BY"),
    ("SELECT id FROM orders QUALIFY rank() OVER (ORDER BY id) = 1 AND ts > ^now()", "the current time in QUALIFY"),
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
    ("SELECT ^percentile_approx(id, 0.5) AS p FROM orders", "the aggregate percentile_approx"),
    ("SELECT ^approx_percentile(id, 0.5) AS p FROM orders", "the aggregate approx_percentile"),
    ("SELECT ^hll_sketch_agg(id) AS h FROM orders", "the aggregate hll_sketch_agg"),
    ("SELECT ^histogram_numeric(id, 3) AS h FROM orders", "the aggregate histogram_numeric"),
    ("SELECT ^listagg(user) AS p FROM orders", "the aggregate listagg"),
    ("SELECT ^try_sum(id) AS p FROM orders", "the aggregate try_sum"),
    ("SELECT ^regr_slope(id, amount) AS p FROM orders", "the aggregate regr_slope"),
    (
        "SELECT ^monotonically_increasing_id() AS i FROM orders",
        "the nondeterministic function monotonically_increasing_id",
    ),
    ("SELECT sum(id) OVER (ORDER BY id ^GROUPS 1 PRECEDING) AS f FROM orders", "a frame by GROUPS"),
    (
        "SELECT sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING ^EXCLUDE TIES) AS f FROM orders",
        "EXCLUDE in a frame",
    ),
    ("SELECT array_agg(id ^ORDER BY user) AS a FROM orders", "ORDER BY inside a call"),
    ("SELECT array_agg(^id LIMIT 2) AS a FROM orders", "the expression 'id LIMIT 2'"),
    ("SELECT id FROM orders LIMIT ^3 BY user", "LIMIT … BY"),
    ("SELECT id FROM orders ^FETCH FIRST 3 ROWS ONLY", "FETCH"),
    ("SELECT id FROM orders ORDER BY ^id WITH FILL LIMIT 3", "WITH FILL"),
    ("SELECT user, count(*) AS n FROM orders GROUP BY ^user WITH TOTALS", "WITH TOTALS"),
    ("WITH ^a AS MATERIALIZED (SELECT id FROM orders) SELECT * FROM a", "MATERIALIZED"),
    ("SELECT DISTINCT ON (^user) id FROM orders", "DISTINCT ON"),
    ("SELECT o.id FROM orders o ^ASOF JOIN users u ON o.id > u.id", "ASOF JOIN"),
    ("SELECT id FROM orders ^FOR UPDATE", "FOR UPDATE"),
    ("^MERGE INTO orders USING users ON true WHEN MATCHED THEN DELETE", "the statement MERGE"),
    ("^ALTER TABLE orders ADD COLUMN x int", "the statement ALTER"),
    ("^TRUNCATE TABLE orders", "the statement TRUNCATE"),
    ("^CACHE TABLE orders", "the statement CACHE"),
    ("^SET x = 1", "the statement SET"),
    ("^USE db", "the statement USE"),
    ("^TABLE orders", "the statement TABLE"),
    ("^CREATE VIEW v AS SELECT id FROM orders", "the statement CREATE VIEW"),
    ("SELECT id, (^SELECT name FROM users) AS x FROM orders", "a scalar subquery that may have several rows"),
    (
        "SELECT id, (^SELECT max(id) FROM users u WHERE u.id > orders.id) AS m FROM orders",
        "a scalar subquery with a correlated condition that is not an equality",
    ),
    ("SELECT o.id FROM orders o LEFT JOIN users u ON ^EXISTS (SELECT 1 FROM users)", "EXISTS (subquery) here"),
    ("SELECT o.id FROM orders o JOIN users u ON ^o.id IN (SELECT id FROM users)", "IN (subquery) here"),
    ("SELECT id FROM orders WHERE (^id, user) NOT IN (SELECT id, name FROM users)", "NOT IN with several columns"),
    ("SELECT count(^*, id) AS s FROM orders", "* inside an expression"),
    ("SELECT * FROM orders PIVOT (sum(amount) FOR user IN ('a', ^user))", "PIVOT by a value that is not a constant"),
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


def test_months_from_a_timestamp_are_refused_with_the_way_out() -> None:
    with pytest.raises(Unsupported, match=r"months can be taken from current_date\(\) alone"):
        plan_sql("v", "SELECT id FROM orders WHERE ts > now() - INTERVAL 1 YEAR", CATALOG)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("window(ts, '1 month')", "a time window cannot be in months; write days"),
        ("window(ts, 'soon')", "'soon' is not a duration"),
        ("window(ts, '1 hour', '2 hours')", "0 < slide <= duration"),
        ("window(ts, '0 hours')", "0 < slide <= duration"),
        ("window(ts, '1 hour', '1 hour', '-1 hour')", "a start within one slide"),
        ("window(ts)", "found 1 arguments"),
        ("session_window(ts, '1 hour', '2 hours')", "session_window takes a time and a gap"),
        ("window(max(ts), '1 hour')", "aggregate max in window"),
    ],
)
def test_a_time_window_that_is_none_is_an_error(window: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        plan_sql("v", f"SELECT {window} AS w FROM orders", CATALOG)


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
