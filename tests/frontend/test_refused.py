"""What cannot be kept up to date is refused when the view is declared: the construct is named, and its place."""

from __future__ import annotations

import pytest

from holdfast.errors import Unsupported
from holdfast.plan.nodes import Source
from holdfast.plan.schema import parse_schema

from ..planned import plan_sql

SCHEMAS = {
    "orders": "id long, user string, amount double, tags array<int>, s struct<f:int>, ts timestamp",
    "users": "id long, name string",
}
CATALOG = {name: Source(name, parse_schema(schema, subject=name)) for name, schema in SCHEMAS.items()}

# The mark ^ stands before the place that the error must name; it is taken out of the text.
REFUSED = [
    (
        "SELECT ^collect_list(id) OVER (ORDER BY id) AS s FROM orders",
        "the aggregate collect_list before OVER is not supported",
    ),
    (
        "SELECT ^max_by(id, amount) OVER (ORDER BY id) AS s FROM orders",
        "the aggregate max_by before OVER is not supported",
    ),
    (
        "SELECT ^counter_diff(id) OVER (ORDER BY id) AS s FROM orders",
        "the window function counter_diff before OVER is not",
    ),
    (
        "SELECT ^percentile_cont(0.5) WITHIN GROUP (ORDER BY id) OVER (PARTITION BY user) AS s FROM orders",
        "the aggregate percentile_cont before OVER is not supported",
    ),
    (
        "SELECT ^covar_pop(DISTINCT id, amount) AS c FROM orders",
        "DISTINCT in covar_pop is not supported: select the distinct",
    ),
    ("SELECT * FROM orders ^TABLESAMPLE (10 PERCENT)", "Sample is not supported"),
    ("SELECT id, ^shuffle(tags) AS r FROM orders", "the nondeterministic function shuffle is not supported:"),
    ("SELECT ^spark_partition_id() AS r FROM orders", "the nondeterministic function spark_partition_id is not"),
    ("SELECT id, ^current_user AS u FROM orders", "the nondeterministic function current_user is not"),
    ("SELECT id FROM orders WHERE hour(^now()) = 3", "this condition on the current time in WHERE is not"),
    ("SELECT id FROM orders WHERE ts <> ^current_date()", "this condition on the current time in WHERE is not"),
    (
        "SELECT id FROM orders WHERE ts > ^now() - INTERVAL 1 MONTH",
        "this condition on the current time in WHERE is not",
    ),
    ("SELECT id FROM orders WHERE ts > ^now() OR ts < now()", "this condition on the current time in WHERE is not"),
    (
        "SELECT id FROM orders WHERE ts > ^now() - make_interval(id)",
        "this condition on the current time in WHERE is not",
    ),
    ("SELECT id FROM orders WHERE unix_timestamp(^now()) > id", "this condition on the current time in WHERE is not"),
    (
        "SELECT o.id FROM orders o LEFT JOIN users u ON o.id = u.id AND o.ts > ^now()",
        "the current time in ON is not supported: filter by it in",
    ),
    (
        "SELECT ^current_date() AS d, count(*) AS n FROM orders GROUP BY d",
        "the current time in GROUP BY is not supported: name it in a",
    ),
    (
        "SELECT count(*) FILTER (WHERE ts > ^now()) AS n FROM orders",
        "the current time in FILTER is not supported: filter by it",
    ),
    (
        "SELECT transform(tags, x -> ^rand()) AS r FROM orders",
        "rand in a lambda function is not supported: compute it",
    ),
    ("SELECT ^input_file_name() AS f FROM orders", "the nondeterministic function input_file_name is not"),
    ("^CREATE TABLE t (a int)", "CREATE TABLE is not supported: a view is a query, such as a"),
    ("^DELETE FROM orders", "DELETE FROM TABLE is not supported: a view is a query, such"),
    ("^INSERT INTO orders SELECT * FROM orders", "INSERT INTO is not supported: a view is a query, such as a"),
    ("^ALTER TABLE orders ADD COLUMN x int", "ADD COLUMNS is not supported: a view is a query, such as a"),
    ("^TRUNCATE TABLE orders", "TRUNCATE TABLE is not supported: a view is a query, such as a"),
    ("^DROP TABLE orders", "DROP TABLE is not supported: a view is a query, such as a"),
    ("^UPDATE orders SET id = 1", "UPDATE TABLE is not supported: a view is a query, such as a"),
    ("^SHOW TABLES", "SHOW TABLES is not supported: a view is a query, such as a"),
    ("SELECT id FROM orders ^ORDER BY id OFFSET 3", "OFFSET without LIMIT is not supported"),
    ("SELECT ^hll_sketch_agg(id) AS h FROM orders", "the aggregate hll_sketch_agg is not supported: no sketch"),
    (
        "SELECT ^histogram_numeric(id, 3) AS h FROM orders",
        "the aggregate histogram_numeric is not supported: group by",
    ),
    (
        "SELECT ^monotonically_increasing_id() AS i FROM orders",
        "the nondeterministic function monotonically_increasing_id",
    ),
    (
        "^MERGE INTO orders USING users ON true WHEN MATCHED THEN DELETE",
        "MERGE INTO TABLE is not supported: a view is a query, such",
    ),
    ("^CACHE TABLE orders", "CACHE TABLE is not supported: a view is a query, such as a"),
    ("^SET x = 1", "SET COMMAND is not supported: a view is a query, such as a"),
    ("^USE db", "SET CATALOG AND NAMESPACE is not supported: a view is a"),
    ("^CREATE VIEW v AS SELECT id FROM orders", "CREATE VIEW is not supported: a view is a query, such as a"),
]


@pytest.mark.parametrize(("marked", "message"), REFUSED, ids=[marked.replace("^", "") for marked, _ in REFUSED])
def test_what_cannot_be_kept_up_to_date_is_refused_with_its_name_and_place(marked: str, message: str) -> None:
    with pytest.raises(Unsupported) as caught:
        plan_sql("v", marked.replace("^", "", 1), CATALOG)
    assert message in str(caught.value)
    assert _place(marked) == (caught.value.fields.get("line"), caught.value.fields.get("column"))


def _place(marked: str) -> tuple[int | None, int | None]:
    """The line and the column of the mark."""
    if "^" not in marked:
        return None, None
    before = marked[: marked.index("^")]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def test_hints_are_ignored() -> None:
    hinted = plan_sql("v", "SELECT /*+ BROADCAST(orders) */ id FROM orders", CATALOG)
    assert hinted == plan_sql("v", "SELECT id FROM orders", CATALOG)


def test_a_column_named_like_a_bare_function_is_a_column() -> None:
    catalog = {"t": Source("t", parse_schema("current_date date, user string, localtimestamp int", subject="t"))}
    node = plan_sql("v", "SELECT user, localtimestamp FROM t", catalog)
    assert node.columns == ("user", "localtimestamp")
