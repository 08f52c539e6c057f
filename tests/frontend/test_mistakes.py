"""Mistakes in a view's SQL: Spark finds them, and the error says what is wrong and where, in the view's own text."""

from __future__ import annotations

import pytest

from holdfast.errors import SqlError

from ..planned import plan_sql
from .test_refused import CATALOG, _place

# The mark ^ stands before the place that the error must name; where there is none, Spark does not say where.
MISTAKES = [
    (
        "SELECT e FROM orders ^LATERAL VIEW upper(tags) x AS e",
        "The generator is not supported: `upper` is expected to be a",
    ),
    (
        "SELECT sum(id) OVER (ORDER BY id RANGE BETWEEN ^id PRECEDING AND CURRENT ROW) AS s FROM orders",
        "syntax error: Invalid SQL syntax: Frame bound value must be",
    ),
    ("SELECT ^lag(id, id) OVER (ORDER BY id) AS s FROM orders", "Cannot specify window frame for lag function."),
    ("SELECT ^rank() AS r FROM orders", 'Window function "RANK()" requires an OVER clause.'),
    (
        "SELECT * FROM orders PIVOT (abs(amount) FOR user IN ('a', 'b'))",
        "Aggregate expression required for pivot, but",
    ),
    ("SELECT 1 + explode(tags) AS t FROM orders", 'The generator is not supported: nested in expressions "(1 +'),
    ("SELECT id FROM orders WHERE explode(tags) = 1", "The generator is not supported: outside the SELECT clause,"),
    ("SELECT ^size(explode(tags)) AS t FROM orders", "The generator is not supported: nested in expressions"),
    (
        "SELECT id FROM orders WHERE explode_outer(tags) = 'x'",
        "The generator is not supported: outside the SELECT clause,",
    ),
    ("SELECT ^variant_explode(s) FROM orders", "`variant_explode` appears as a scalar expression here, but"),
    (
        "SELECT 1 AS x FROM orders ^LATERAL VIEW variant_explode(s) v",
        "The routine `default`.`variant_explode` cannot be found.",
    ),
    ("SELECT explode(array(rank() OVER (ORDER BY id))) AS x FROM orders", "Found the unresolved operator: 'Project"),
    (
        "SELECT id FROM orders LATERAL VIEW explode(tags) g AS t ^JOIN users ON users.id = t",
        "syntax error: Syntax error at or near 'JOIN'.",
    ),
    (
        "SELECT o.id FROM orders o ^FULL JOIN LATERAL explode(tags) g(t) ON true",
        "syntax error: The FULL OUTER JOIN with LATERAL correlation",
    ),
    ("SELECT id FROM orders UNION ALL ^BY NAME SELECT id FROM users", "syntax error: Syntax error at or near 'BY'."),
    (
        "SELECT ^percentile(id, amount) AS c FROM orders",
        'Cannot resolve "percentile(id, amount, 1)" due to data type',
    ),
    (
        "^SELECT window(ts, '1 hour'), window(ts, '2 hours') FROM orders",
        "Multiple time/session window expressions would result in a",
    ),
    (
        "SELECT count(*) AS n FROM orders GROUP BY ^window(ts, user)",
        "The duration and time inputs to window must be an integer,",
    ),
    ("SELECT id FROM orders WHERE ts IN (^localtimestamp)", "column 'localtimestamp' not found"),
    (
        "SELECT user, max(ts) AS m FROM orders GROUP BY user HAVING NOT max(ts) BETWEEN now() AND ^ts",
        "column 'ts' not found",
    ),
    ("SELECT id, ^rand(id) AS r FROM orders", 'The seed expression "id" of the expression "rand(id)" must'),
    ("SELECT id FROM orders; ^SELECT name FROM users", "syntax error: Syntax error at or near 'SELECT': extra input"),
    ("SELECT id FROM orders WHERE id = ^:limit", "the parameter 'limit' has no value: a view takes no parameters"),
    ("SELECT * FROM ^orders VERSION AS OF 3", "The feature is not supported: Time travel on the relation:"),
    (
        "SELECT * FROM ^orders TIMESTAMP AS OF '2020-01-01'",
        "The feature is not supported: Time travel on the relation:",
    ),
    (
        "SELECT ^id FROM orders ORDER BY id LIMIT 10 OFFSET id",
        'The limit like expression "id" is invalid. The offset',
    ),
    (
        "SELECT sum(id) OVER (ORDER BY id ^GROUPS 1 PRECEDING) AS f FROM orders",
        "syntax error: Syntax error at or near 'GROUPS'.",
    ),
    (
        "SELECT sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING ^EXCLUDE TIES) AS f FROM orders",
        "syntax error: Syntax error at or near 'EXCLUDE': missing",
    ),
    (
        "SELECT array_agg(id ^ORDER BY user) AS a FROM orders",
        "syntax error: Syntax error at or near 'ORDER': missing ')'.",
    ),
    ("SELECT array_agg(id ^LIMIT 2) AS a FROM orders", "syntax error: Syntax error at or near 'LIMIT': missing ')'."),
    ("SELECT id FROM orders LIMIT 3 ^BY user", "syntax error: Syntax error at or near 'BY'."),
    ("SELECT id FROM orders FETCH ^FIRST 3 ROWS ONLY", "syntax error: Syntax error at or near 'FIRST'."),
    ("SELECT id FROM orders ORDER BY id ^WITH FILL LIMIT 3", "syntax error: Syntax error at or near 'WITH'."),
    (
        "SELECT user, count(*) AS n FROM orders GROUP BY user WITH ^TOTALS",
        "syntax error: Syntax error at or near 'TOTALS': extra input",
    ),
    (
        "WITH a AS ^MATERIALIZED (SELECT id FROM orders) SELECT * FROM a",
        "syntax error: Syntax error at or near 'MATERIALIZED'.",
    ),
    ("SELECT DISTINCT ^ON (user) id FROM orders", "function 'ON' not found"),
    ("SELECT o.id FROM orders o ASOF JOIN users u ^ON o.id > u.id", "syntax error: Syntax error at or near 'ON'."),
    ("SELECT id FROM orders FOR ^UPDATE", "syntax error: Syntax error at or near 'UPDATE': extra input"),
    (
        "SELECT * FROM orders PIVOT (sum(amount) FOR ^user IN ('a', user))",
        'Literal expressions required for pivot values, found "user".',
    ),
    ("SELECT ^nope FROM orders", "column 'nope' not found"),
    ("SELECT id,\n       ^o.nope FROM orders o", "column 'o.nope' not found"),
    ("SELECT id FROM ^nowhere", "table 'nowhere' not found"),
    ("SELECT id FROM orders JOIN ^nowhere ON true", "table 'nowhere' not found"),
    ("SELECT name FROM parquet.`/tmp/x`", "Path does not exist: file:/tmp/x."),
    ("SELECT * FROM ^'orders.csv'", "syntax error: Syntax error at or near ''orders.csv'': extra"),
    (
        "SELECT ^id FROM orders o JOIN users u ON o.id = u.id",
        "Reference `id` is ambiguous, could be: [`o`.`id`, `u`.`id`].",
    ),
    ("SELECT o.id FROM orders o JOIN users u ON o.id = ^v.id", "column 'v.id' not found; did you mean 'u.id'?"),
    ("SELECT ^t.* FROM orders", "Cannot resolve `t`.* given input columns `amount`, `id`,"),
    ("SELECT ^o.id FROM orders o JOIN users o ON true", "Reference `o`.`id` is ambiguous, could be: [`o`.`id`,"),
    ("^SELECT id, count(*) AS n FROM orders", "The query does not include a GROUP BY clause. Add GROUP BY"),
    (
        "SELECT user, ^amount, count(*) AS n FROM orders GROUP BY user",
        'The non-aggregating expression "amount" is based on columns',
    ),
    ("^SELECT user FROM orders WHERE sum(amount) > 1", 'The WHERE condition "(sum(amount) > 1)" contains invalid'),
    (
        "SELECT user FROM orders ^WHERE row_number() OVER (ORDER BY id) = 1",
        "It is not allowed to use window functions inside WHERE",
    ),
    (
        "SELECT user, sum(^count(*)) AS n FROM orders GROUP BY user",
        "It is not allowed to use an aggregate function in the",
    ),
    ("SELECT user FROM orders GROUP BY ^sum(amount)", "Aggregate functions are not allowed in GROUP BY, but found"),
    (
        "SELECT sum(row_number() OVER (ORDER BY id)) AS s FROM orders",
        "It is not allowed to use a window function inside an",
    ),
    (
        "SELECT o.id FROM orders o ^JOIN users u ON max(o.id) = u.id",
        "The query operator Join contains one or more unsupported",
    ),
    (
        "^SELECT id FROM orders UNION ALL SELECT id, name FROM users",
        "UNION can only be performed on inputs with the same number",
    ),
    (
        "^SELECT id FROM orders INTERSECT SELECT id, name FROM users",
        "INTERSECT can only be performed on inputs with the same",
    ),
    ("SELECT id AS x, user AS x FROM orders", "two output columns are called 'x'; rename one with AS"),
    ("SELECT id FROM orders QUALIFY id > 1", "The QUALIFY clause requires at least one window function in"),
    ("SELECT id, rank() OVER ^w AS r FROM orders", "Window specification is not defined in the WINDOW clause"),
    ("SELECT DISTINCT id FROM orders ORDER BY ^amount LIMIT 1", "column 'amount' not found"),
    ("SELECT id FROM orders ORDER BY id LIMIT ^-1", 'The limit like expression "-1" is invalid. The limit'),
    ("SELECT ^sum(id, amount) AS s FROM orders", "The `sum` requires 1 parameters but the actual number is 2."),
    ("SELECT ^max_by(id) AS s FROM orders", "The `max_by` requires [2, 3] parameters but the actual"),
    ("SELECT ^count() AS s FROM orders", "The `count` requires >= 1 parameters but the actual number"),
    ("SELECT ^percentile(id, 1.5) AS s FROM orders", 'Cannot resolve "percentile(id, 1.5, 1)" due to data type'),
    (
        "SELECT ^row_number() OVER (PARTITION BY user) AS r FROM orders",
        "Window function row_number requires the window to be",
    ),
    (
        "SELECT ^ntile(0) OVER (ORDER BY id) AS r FROM orders",
        'Cannot resolve "ntile(0)" due to data type mismatch: The',
    ),
    (
        "SELECT ^sum(DISTINCT id) OVER (ORDER BY user) AS s FROM orders",
        'Distinct window functions are not supported: "sum(DISTINCT',
    ),
    (
        "SELECT ^lag(id) OVER (ORDER BY id ROWS 1 PRECEDING) AS s FROM orders",
        "Cannot specify window frame for lag function.",
    ),
    ("SELECT ^sum(id) IGNORE NULLS AS s FROM orders", "Invalid SQL syntax: The function `sum` does not support"),
    (
        "SELECT id FROM orders WHERE id ^IN (SELECT id, name FROM users)",
        'Cannot resolve "(id IN (listquery()))" due to data type',
    ),
    (
        "SELECT id, ^(SELECT id, name FROM users) AS x FROM orders",
        "Invalid subquery: Scalar subquery must return only one",
    ),
    ("SELECT a FROM ^orders AS x(a, b)", "The number of columns or variables assigned or aliased: 6"),
]


@pytest.mark.parametrize(("marked", "message"), MISTAKES, ids=[marked.replace("^", "") for marked, _ in MISTAKES])
def test_a_mistake_is_refused_with_what_is_wrong_and_where(marked: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        plan_sql("v", marked.replace("^", "", 1), CATALOG)
    assert message in str(caught.value)
    assert _place(marked) == (caught.value.fields.get("line"), caught.value.fields.get("column"))


@pytest.mark.parametrize("sql", ["", "   ", "-- nothing", ";"])
def test_an_empty_text_is_refused(sql: str) -> None:
    with pytest.raises(SqlError, match="view 'v'"):
        plan_sql("v", sql, CATALOG)
