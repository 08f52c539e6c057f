"""PySpark's verbs: the same plans as SQL, by fingerprint, and errors in the same words."""

from __future__ import annotations

from typing import Any

import pytest
from holdfast.frontend.verbs import Table

from holdfast.errors import AmbiguousName, DeclarationError, HoldfastError, SqlError, UnknownName, Unsupported
from holdfast.frontend.schema import parse_schema
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Aggregate, Node, Source
from holdfast.plan.rewrites import rewrite

from ..planned import plan_sql

ORDERS = Source("orders", parse_schema("id long, user string, amount double, `odd name` int", subject="orders"))
USERS = Source("users", parse_schema("id long, name string, age int", subject="users"))
CATALOG: dict[str, Node] = {"orders": ORDERS, "users": USERS}


class Column:
    """Stands for a PySpark Column."""

    def __init__(self, sql: str) -> None:
        self.sql = sql


def column_sql(value: Any) -> str:
    assert isinstance(value, Column)
    return value.sql


orders = Table(ORDERS, column_sql=column_sql)
users = Table(USERS, column_sql=column_sql)
o, u = orders.alias("o"), users.alias("u")

PAIRS = [
    (orders.select("id", "amount"), "SELECT id, amount FROM orders"),
    (orders.select(["id", "amount"]), "SELECT id, amount FROM orders"),
    (orders.select("*"), "SELECT * FROM orders"),
    (orders.select("odd name", Column("amount * 2 AS d")), "SELECT `odd name`, amount * 2 AS d FROM orders"),
    (orders.select("orders.id", "upper(user) u"), "SELECT id, upper(user) AS u FROM orders"),
    (orders.selectExpr("id + 1 AS x", "user"), "SELECT id + 1 AS x, user FROM orders"),
    (orders.select("count(*) AS n"), "SELECT count(*) AS n FROM orders"),
    (orders.where("amount > 3"), "SELECT * FROM orders WHERE amount > 3"),
    (orders.filter(Column("(amount > 3)")).where("id = 1"), "SELECT * FROM orders WHERE amount > 3 AND id = 1"),
    (orders.withColumn("x", "amount + 1"), "SELECT *, amount + 1 AS x FROM orders"),
    (orders.withColumn("Amount", "amount + 1"), "SELECT id, user, amount + 1 AS amount, `odd name` FROM orders"),
    (orders.withColumnRenamed("user", "who").select("who"), "SELECT user AS who FROM orders"),
    (orders.withColumnRenamed("nobody", "who"), "SELECT * FROM orders"),
    (orders.drop("user", "nothing", "odd name"), "SELECT id, amount FROM orders"),
    (orders.drop(Column("user"), "odd name"), "SELECT id, amount FROM orders"),
    (
        orders.withColumns({"x": "amount + 1", "amount": "id"}),
        "SELECT id, user, id AS i, `odd name`, amount + 1 FROM orders",
    ),
    (orders.withColumnsRenamed({"user": "id2", "ID": "user"}).select("user", "id2"), "SELECT id, user FROM orders"),
    (users.toDF("a", "b", "c").select("b"), "SELECT name FROM users"),
    (orders.select("id", "explode(split(user, ' ')) AS w"), "SELECT id, explode(split(user, ' ')) AS w FROM orders"),
    (orders.withColumn("w", Column("explode(array(id))")), "SELECT *, explode(array(id)) AS w FROM orders"),
    (orders.select("posexplode(array(id)) AS (p, x)"), "SELECT posexplode(array(id)) FROM orders"),
    (
        users.dropDuplicates(["name"]),
        "SELECT id, name, age FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY name) AS n FROM users) "
        "WHERE n <= 1",
    ),
    (users.drop_duplicates(), "SELECT DISTINCT * FROM users"),
    (
        orders.unionByName(users.select("id", "name AS user"), allowMissingColumns=True),
        "SELECT * FROM orders UNION ALL SELECT id, name, NULL, NULL FROM users",
    ),
    (
        users.select("id", "age").unionByName(users.select("age", "id")),
        "SELECT id, age FROM users UNION ALL SELECT id, age FROM users",
    ),
    (orders.orderBy("amount").offset(2).limit(3), "SELECT * FROM orders ORDER BY amount LIMIT 3 OFFSET 2"),
    (orders.transform(lambda table, least: table.where(f"id > {least}"), least=3), "SELECT * FROM orders WHERE id > 3"),
    (
        orders.fillna(0),
        "SELECT coalesce(id, CAST(0 AS bigint)), user, coalesce(nanvl(amount, NULL), CAST(0 AS double)), "
        "coalesce(`odd name`, CAST(0 AS int)) FROM orders",
    ),
    (orders.na.fill({"user": "x"}).select("user"), "SELECT coalesce(user, CAST('x' AS string)) FROM orders"),
    (users.dropna(), "SELECT * FROM users WHERE NOT id IS NULL AND NOT name IS NULL AND NOT age IS NULL"),
    (users.dropna(thresh=1, subset=["name"]), "SELECT * FROM users WHERE NOT name IS NULL"),
    (
        users.replace({"a": "b"}).select("name"),
        "SELECT CASE WHEN name = CAST('a' AS string) THEN CAST('b' AS string) ELSE name END FROM users",
    ),
    (
        orders.groupingSets([["user"], []], "user").agg("count(*) AS n"),
        "SELECT user, count(*) AS n FROM orders GROUP BY GROUPING SETS ((user), ())",
    ),
    (orders.groupBy("user").agg("sum(amount) AS total"), "SELECT user, sum(amount) AS total FROM orders GROUP BY user"),
    (
        orders.groupBy("user").agg({"amount": "sum", "*": "count"}),
        "SELECT user, sum(amount), count(*) FROM orders GROUP BY user",
    ),
    (orders.groupBy("upper(user) AS u").count(), "SELECT upper(user) AS u, count(*) AS count FROM orders GROUP BY 1"),
    (orders.groupBy("user").sum("amount", "id"), "SELECT user, sum(amount), sum(id) FROM orders GROUP BY user"),
    (orders.groupBy("user", "id").avg("amount"), "SELECT user, id, avg(amount) FROM orders GROUP BY user, id"),
    (orders.groupBy(["user"]).min("amount"), "SELECT user, min(amount) FROM orders GROUP BY user"),
    (orders.groupBy("user").max("odd name"), "SELECT user, max(`odd name`) FROM orders GROUP BY user"),
    (
        orders.groupBy("user").agg("count_if(id > 1) AS n", "sum(DISTINCT amount)"),
        "SELECT user, count_if(id > 1) AS n, sum(DISTINCT amount) FROM orders GROUP BY user",
    ),
    (
        orders.rollup("user", "id").agg("count(*) AS n", "grouping(user) AS g"),
        "SELECT user, id, count(*) AS n, grouping(user) AS g FROM orders GROUP BY ROLLUP (user, id)",
    ),
    (orders.cube("user").count(), "SELECT user, count(*) FROM orders GROUP BY user WITH CUBE"),
    (
        orders.groupBy("id").pivot("user", ["x", None]).agg("sum(amount) AS s", "max(amount)"),
        "SELECT * FROM (SELECT id, user, amount FROM orders) PIVOT (sum(amount) AS s, max(amount) "
        "FOR user IN ('x', NULL))",
    ),
    (
        orders.groupBy("id").pivot("user", ["x"]).count(),
        "SELECT id, CASE WHEN count(*) FILTER (WHERE user <=> 'x') > 0 THEN count(*) FILTER (WHERE user <=> 'x') END "
        "FROM orders GROUP BY id",
    ),
    (orders.groupBy().count(), "SELECT count(*) FROM orders"),
    (orders.agg("sum(amount) AS s", Column("max(id)")), "SELECT sum(amount) AS s, max(id) FROM orders"),
    (
        orders.groupBy("user").count().where("count > 2"),
        "SELECT user, count(*) AS c FROM orders GROUP BY user HAVING c > 2",
    ),
    (orders.select("user").distinct(), "SELECT DISTINCT user FROM orders"),
    (orders.select("user").dropDuplicates(), "SELECT DISTINCT user FROM orders"),
    (orders.select("id").union(users.select("id")), "SELECT id FROM orders UNION ALL SELECT id FROM users"),
    (
        orders.select("id").union(users.select("id")).unionAll(users.select("age")),
        "SELECT id FROM orders UNION ALL SELECT id FROM users UNION ALL SELECT age FROM users",
    ),
    (orders.select("id").intersect(users.select("id")), "SELECT id FROM orders INTERSECT SELECT id FROM users"),
    (orders.select("id").intersectAll(users.select("id")), "SELECT id FROM orders INTERSECT ALL SELECT id FROM users"),
    (orders.select("id").subtract(users.select("id")), "SELECT id FROM orders MINUS SELECT id FROM users"),
    (orders.select("id").exceptAll(users.select("id")), "SELECT id FROM orders EXCEPT ALL SELECT id FROM users"),
    (orders.orderBy("amount").limit(3), "SELECT * FROM orders ORDER BY amount LIMIT 3"),
    (orders.sort("amount DESC", "id").limit(3), "SELECT * FROM orders ORDER BY amount DESC, id LIMIT 3"),
    (orders.orderBy(Column("amount DESC NULLS LAST")).limit(3), "SELECT * FROM orders ORDER BY amount DESC LIMIT 3"),
    (orders.orderBy("amount", ascending=False).limit(3), "SELECT * FROM orders ORDER BY amount DESC LIMIT 3"),
    (
        orders.orderBy("user", "id", ascending=[True, False]).limit(1),
        "SELECT * FROM orders ORDER BY user, id DESC LIMIT 1",
    ),
    (orders.orderBy("amount + id").limit(3), "SELECT * FROM orders ORDER BY amount + id LIMIT 3"),
    (orders.limit(3), "SELECT * FROM orders LIMIT 3"),
    (orders.join(users, "id"), "SELECT * FROM orders JOIN users USING (id)"),
    (orders.join(users, "id", "left"), "SELECT * FROM orders LEFT JOIN users USING (id)"),
    (orders.join(users, "id", "rightouter"), "SELECT * FROM orders RIGHT JOIN users USING (id)"),
    (orders.join(users, "id", how="full_outer"), "SELECT * FROM orders FULL JOIN users USING (id)"),
    (orders.join(users, "id", "left_semi"), "SELECT * FROM orders LEFT SEMI JOIN users USING (id)"),
    (o.join(u, "o.id <=> u.id", "anti"), "SELECT * FROM orders o LEFT ANTI JOIN users u ON o.id <=> u.id"),
    (o.join(u, "o.id < u.id").select("o.id", "age"), "SELECT o.id, age FROM orders o JOIN users u ON o.id < u.id"),
    (orders.crossJoin(users).select("user", "name"), "SELECT user, name FROM orders CROSS JOIN users"),
    (orders.join(users, ["id"]).select("name"), "SELECT name FROM orders JOIN users USING (id)"),
    (
        o.join(u, "o.id = u.id").select("o.user", "u.name"),
        "SELECT o.user, u.name FROM orders o JOIN users u ON o.id = u.id",
    ),
    (
        o.join(u, Column("((o.id = u.id) AND (o.amount > u.age))")).where("u.age > 3").select("o.id"),
        "SELECT o.id FROM orders o JOIN users u ON o.id = u.id AND o.amount > u.age WHERE u.age > 3",
    ),
    (
        o.join(u, [Column("o.id = u.id"), Column("o.user = u.name")], "inner").select("age"),
        "SELECT age FROM orders o JOIN users u ON o.id = u.id AND o.user = u.name",
    ),
    (
        o.join(u, "id").join(orders.alias("p"), "id").select("id", "p.amount", "name"),
        "SELECT id, p.amount, name FROM orders o JOIN users u USING (id) JOIN orders p USING (id)",
    ),
    (
        orders.where("id > 1").join(orders.groupBy("user").count(), "user").select("count", "id"),
        "SELECT c, id FROM (SELECT * FROM orders WHERE id > 1) a "
        "JOIN (SELECT user, count(*) AS c FROM orders GROUP BY user) b USING (user)",
    ),
]


@pytest.mark.parametrize(("table", "sql"), PAIRS, ids=[sql for _, sql in PAIRS])
def test_verbs_and_sql_give_the_same_plan(table: Table, sql: str) -> None:
    plan = plan_sql("v", sql, CATALOG)
    assert fingerprint(rewrite(table.plan)) == fingerprint(rewrite(plan))
    assert len(table.columns) == len(plan.columns)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (orders, ["id", "user", "amount", "odd name"]),
        (orders.groupBy("user").count(), ["user", "count"]),
        (orders.groupBy("user").sum("amount"), ["user", "sum(amount)"]),
        (orders.join(users, "id"), ["id", "user", "amount", "odd name", "name", "age"]),
        (orders.withColumn("x", "1"), ["id", "user", "amount", "odd name", "x"]),
        (orders.withColumnRenamed("ID", "key"), ["key", "user", "amount", "odd name"]),
    ],
)
def test_columns_are_those_of_pyspark(table: Table, columns: list[str]) -> None:
    assert table.columns == columns
    assert list(table.plan.columns) == columns


def test_a_table_is_a_value() -> None:
    before = orders.plan
    orders.where("id > 1").select("id").limit(1)
    assert orders.plan is before is ORDERS


def test_an_order_without_limit_means_nothing() -> None:
    assert orders.orderBy("amount").plan is ORDERS
    assert isinstance(orders.orderBy("amount").distinct().plan, Aggregate)


def refused(build: Any) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        build()
    return caught.value


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (
            lambda: orders.select("amont"),
            UnknownName,
            "table 'orders': select: column 'amont' not found in orders(id, user, amount, odd name); "
            "did you mean 'amount'?",
        ),
        (lambda: orders.where("usr = 'x'"), UnknownName, "did you mean 'user'?"),
        (lambda: orders.join(users, "nme"), UnknownName, "column 'nme' not found"),
        (
            lambda: orders.join(users, "name"),
            UnknownName,
            "column 'name' not found in orders(id, user, amount, odd name)",
        ),
        (
            lambda: o.join(u, "o.id = u.id").select("id"),
            AmbiguousName,
            "column 'id' is ambiguous: it can mean o.id or u.id",
        ),
        (lambda: orders.join(orders, "orders.id = orders.id"), AmbiguousName, "give the inputs aliases"),
        (lambda: o.join(u, "o.id = u.id").plan, SqlError, "two output columns are called 'id'"),
        (lambda: orders.join(users, "id", "asof"), SqlError, "how='asof' is not a kind of join; known are inner"),
        (lambda: orders.dropDuplicates(["idd"]), UnknownName, "column 'idd' not found"),
        (lambda: orders.offset(3).select("id"), Unsupported, "offset without a limit behind it"),
        (lambda: orders.offset(3).plan, Unsupported, "offset without a limit behind it"),
        (lambda: orders.offset(-3), SqlError, "expected a number of rows, found -3"),
        (lambda: orders.unionByName(users), SqlError, "column 'user' is in one side only; allowMissingColumns=True"),
        (lambda: orders.toDF("a", "b"), SqlError, "2 names for 4 columns (id, user, amount, odd name)"),
        (lambda: orders.transform(lambda table: 3), SqlError, "expected the function to give a table, found int"),
        (lambda: orders.withColumn("x", "id + 1").fillna(0), Unsupported, "fillna of the computed column 'x'"),
        (lambda: orders.dropna(how="some"), SqlError, "how must be 'any' or 'all', not 'some'"),
        (lambda: orders.replace([1, 2], [3]), SqlError, "2 values to be replaced by 1"),
        (lambda: orders.fillna(0, ["idd"]), UnknownName, "column 'idd' not found"),
        (lambda: orders.select("shuffle(array(1)) AS r"), Unsupported, "the nondeterministic function shuffle"),
        (lambda: orders.where("year(now()) > 2020"), Unsupported, "this condition on the current time in a condition"),
        (lambda: orders.select("explode(array(1)) + 1 AS r"), Unsupported, "the generator explode in this place"),
        (lambda: orders.agg("approx_percentile(id)"), Unsupported, "the aggregate approx_percentile"),
        (lambda: orders.orderBy("amount").select("id").limit(3), Unsupported, "call limit directly after orderBy"),
        (lambda: orders.orderBy("amount").where("id > 1").limit(3), Unsupported, "call limit directly after orderBy"),
        (lambda: orders.limit(-1), SqlError, "expected a number of rows, found -1"),
        (lambda: orders.limit("3"), SqlError, "expected a number of rows, found '3'"),
        (lambda: orders.select(), SqlError, "it needs a column"),
        (lambda: orders.select("id", "amount AS id"), SqlError, "two output columns are called 'id'"),
        (lambda: orders.select("id, amount"), SqlError, "expected one expression, found 'id, amount'"),
        (lambda: orders.select("id FROM users"), SqlError, "expected one expression"),
        (lambda: orders.where("id >"), SqlError, "syntax error"),
        (lambda: orders.where("sum(id) > 1"), SqlError, "aggregate sum in a condition"),
        (lambda: orders.withColumn("x", "sum(id)"), SqlError, "aggregate sum in withColumn"),
        (lambda: orders.drop("id", "user", "amount", "odd name"), SqlError, "no column would be left"),
        (lambda: orders.groupBy("user").agg(), SqlError, "it needs an aggregate"),
        (lambda: orders.groupBy("user").agg("amount"), SqlError, "column 'amount' is neither grouped nor aggregated"),
        (
            lambda: orders.union(users),
            SqlError,
            "4 columns (id, user, amount, odd name) with 3 columns (id, name, age)",
        ),
        (lambda: orders.orderBy(), SqlError, "it needs a column"),
        (lambda: orders.orderBy("id", ascending=[True, False]), SqlError, "1 columns with 2 directions"),
        (lambda: orders.select("id AS _epoch").plan, SqlError, "output column '_epoch' is reserved"),
        (lambda: Table(ORDERS).select(3), DeclarationError, "expected a column name or a SQL text, found 3"),
    ],
)
def test_what_is_wrong_is_refused_in_the_words_of_sql(build: Any, kind: type[HoldfastError], message: str) -> None:
    error = refused(build)
    assert type(error) is kind
    assert message in str(error)
