"""SQL to plans: what each construct becomes. That the plans mean what the SQL means is `test_sql_means`' affair."""

from __future__ import annotations

import pytest

from holdfast.errors import SqlError
from holdfast.frontend.schema import parse_schema
from holdfast.plan.nodes import Aggregate, Call, Join, Linear, Named, Node, Order, Source, TopK, Union

from ..planned import plan_sql

ORDERS = Source(
    "orders",
    parse_schema("id long, user string, amount double, tags array<int>, s struct<f:int,g:struct<h:int>>", subject="o"),
)
USERS = Source("users", parse_schema("id long, name string, age int", subject="u"))
CATALOG: dict[str, Node] = {"orders": ORDERS, "users": USERS}


def plan(sql: str, **views: Node) -> Node:
    return plan_sql("v", sql, {**CATALOG, **views})


def outputs(node: Node) -> dict[str, str]:
    assert isinstance(node, Linear)
    return {output.name: output.sql for output in node.outputs}


def expression(sql: str) -> str:
    """The text that an expression over orders becomes."""
    return outputs(plan(f"SELECT {sql} AS x FROM orders"))["x"]


def test_a_star_alone_is_the_table_itself() -> None:
    assert plan("SELECT * FROM orders") is ORDERS


def test_select_and_where_are_one_linear() -> None:
    assert plan("SELECT id, amount * 2 AS double FROM orders WHERE amount > 1 AND user = 'ada'") == Linear(
        ORDERS,
        "`amount` > 1 AND `user` = 'ada'",
        (Named("id", "`id`"), Named("double", "`amount` * 2")),
    )


def test_names_ignore_case_and_keep_their_declared_spelling() -> None:
    assert plan("SELECT ID, o.User FROM ORDERS AS O").columns == ("id", "user")


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("amount", "amount"),
        ("o.amount", "amount"),
        ("s.f", "f"),
        ("o.s.g.h", "h"),
        ("amount + 1", "(amount + 1)"),
        ("upper(user)", "upper(user)"),
        ("CAST(id AS string)", "id"),
        ("tags[0]", "tags[0]"),
        ("1", "1"),
        ("'x'", "x"),
        ("count(*)", "count(1)"),
        ("sum(amount)", "sum(amount)"),
        ("sum(o.amount * 2)", "sum((amount * 2))"),
    ],
)
def test_columns_without_a_name_are_named_as_spark_names_them(item: str, name: str) -> None:
    assert plan(f"SELECT {item} FROM orders o").columns == (name,)


def test_an_equality_joins_and_columns_are_qualified() -> None:
    node = plan("SELECT o.user, u.name FROM orders o JOIN users u ON o.id = u.id")
    assert isinstance(node, Linear)
    join = node.input
    assert isinstance(join, Join)
    assert (join.left_keys, join.right_keys) == (("o.id",), ("u.id",))
    assert outputs(node) == {"user": "`o.user`", "name": "`u.name`"}


def test_on_where_and_comma_joins_are_the_same_plan() -> None:
    on = plan("SELECT o.user FROM orders o JOIN users u ON o.id = u.id AND u.age > 30")
    assert on == plan("SELECT o.user FROM orders o, users u WHERE o.id = u.id AND u.age > 30")
    assert on == plan("SELECT o.user FROM orders o JOIN users u WHERE u.id = o.id AND u.age > 30")


def test_a_residual_condition_filters_the_joined_rows() -> None:
    node = plan("SELECT o.id FROM orders o JOIN users u ON o.id = u.id AND o.amount < u.age")
    assert isinstance(node, Linear)
    assert node.predicate == "`o.amount` < `u.age`"


def test_a_key_that_is_an_expression_is_computed_below_the_join() -> None:
    node = plan("SELECT o.id FROM orders o JOIN users u ON upper(o.user) = trim(u.name)")
    assert isinstance(node, Linear)
    join = node.input
    assert isinstance(join, Join)
    assert (join.left_keys, join.right_keys) == (("upper(o.user)",), ("trim(u.name)",))
    assert outputs(join.left)["upper(o.user)"] == "upper(`o.user`)"


def test_relations_are_joined_in_an_order_in_which_equalities_connect_them() -> None:
    node = plan("SELECT a.id FROM orders a, users b, orders c WHERE a.id = c.id AND b.id = c.id")
    assert isinstance(node, Linear)
    top = node.input
    assert isinstance(top, Join)
    assert isinstance(top.left, Join)
    assert (top.left.left_keys, top.left.right_keys) == (("a.id",), ("c.id",))
    assert (top.left_keys, top.right_keys) == (("c.id",), ("b.id",))


def test_an_expression_is_a_key_once() -> None:
    node = plan("SELECT a.id FROM orders a JOIN users b ON a.id = b.id AND a.id = b.age")
    assert isinstance(node, Linear)
    assert isinstance(node.input, Join)
    assert node.input.left_keys == ("a.id",)
    assert node.predicate == "`a.id` = `b.age`"


def test_using_shows_its_column_once_and_first() -> None:
    node = plan("SELECT * FROM (SELECT user, id FROM orders) o JOIN users u USING (id)")
    assert node.columns == ("id", "user", "name", "age")
    assert plan("SELECT o.id AS a, u.id AS b, id AS c FROM orders o JOIN users u USING (id)").columns == ("a", "b", "c")


def test_an_aggregate_gets_keys_and_arguments_and_nothing_else() -> None:
    assert plan("SELECT user, sum(amount) AS total FROM orders WHERE id > 1 GROUP BY user") == Aggregate(
        Linear(ORDERS, "`id` > 1", (Named("user", "`user`"), Named("amount", "`amount`"))),
        ("user",),
        (Call("total", "sum", ("amount",)),),
    )


def test_a_global_aggregate_has_no_keys() -> None:
    assert plan("SELECT count(*) AS n FROM orders") == Aggregate(
        Linear(ORDERS, None, ()), (), (Call("n", "count", ()),)
    )


@pytest.mark.parametrize(
    ("call", "function", "distinct", "arguments"),
    [
        ("count(*)", "count", False, ()),
        ("count(1)", "count", False, ()),
        ("count(id)", "count", False, ("id",)),
        ("count(DISTINCT id)", "count", True, ("id",)),
        ("count(DISTINCT id, user)", "count", True, ("id", "user")),
        ("count(id, user)", "count", False, ("if(id IS NULL OR user IS NULL, NULL, 1)",)),
        ("sum(ALL amount)", "sum", False, ("amount",)),
        ("mean(amount)", "avg", False, ("amount",)),
        ("std(amount)", "stddev_samp", False, ("amount",)),
        ("stddev(amount)", "stddev_samp", False, ("amount",)),
        ("variance(amount)", "var_samp", False, ("amount",)),
        ("var_pop(amount)", "var_pop", False, ("amount",)),
        ("any_value(user)", "any_value", False, ("user",)),
        ("any_value(user) IGNORE NULLS", "any_value", False, ("user",)),
        ("first(user)", "any_value", False, ("user",)),
        ("first(user IGNORE NULLS)", "any_value", False, ("user",)),
        ("first(user, true)", "any_value", False, ("user",)),
        ("first_value(user)", "any_value", False, ("user",)),
        ("last(user) RESPECT NULLS", "any_value", False, ("user",)),
        ("last_value(user, false)", "any_value", False, ("user",)),
        ("sum(DISTINCT amount)", "sum", True, ("amount",)),
        ("max(DISTINCT amount)", "max", False, ("amount",)),
        ("count(*) FILTER (WHERE id > 1)", "count", False, ("CASE WHEN id > 1 THEN 1 END",)),
        ("sum(amount) FILTER (WHERE id > 1)", "sum", False, ("CASE WHEN id > 1 THEN amount END",)),
        ("every(id > 1)", "bool_and", False, ("id > 1",)),
        ("some(id > 1)", "bool_or", False, ("id > 1",)),
        ("array_agg(user)", "collect_list", False, ("user",)),
        ("array_agg(DISTINCT user)", "collect_set", False, ("user",)),
        ("mode() WITHIN GROUP (ORDER BY user)", "mode", False, ("user",)),
    ],
)
def test_aggregates_become_the_calls_that_can_be_maintained(
    call: str, function: str, distinct: bool, arguments: tuple[str, ...]
) -> None:
    node = plan(f"SELECT {call} AS x FROM orders")
    assert isinstance(node, Aggregate)
    assert node.calls == (Call("x", function, arguments, distinct),)


@pytest.mark.parametrize(
    ("call", "percentage"),
    [
        ("median(amount)", "0.5"),
        ("percentile(amount, 0.25)", "0.25"),
        ("percentile_cont(amount, 1)", "1"),
        ("percentile_cont(0.2) WITHIN GROUP (ORDER BY amount)", "0.2"),
        ("percentile_cont(0.2) WITHIN GROUP (ORDER BY amount DESC)", "0.8"),
    ],
)
def test_percentiles_are_one_function_with_a_constant(call: str, percentage: str) -> None:
    node = plan(f"SELECT {call} AS x FROM orders")
    assert isinstance(node, Aggregate)
    assert node.calls == (Call("x", "percentile", ("amount",), False, (percentage,)),)


def test_max_by_is_the_value_of_the_greatest_pair() -> None:
    node = plan("SELECT max_by(user, amount) AS x FROM orders")
    assert isinstance(node, Linear)
    assert isinstance(node.input, Aggregate)
    (call,) = node.input.calls
    assert call.function == "max"
    (pair,) = outputs(node.input.input).values()
    assert pair == "CASE WHEN NOT `amount` IS NULL THEN named_struct('order', `amount`, 'value', `user`) END"
    assert outputs(node) == {"x": f"`{call.name}`.`value`"}


def test_each_grouping_set_is_a_copy_of_the_rows_with_the_other_keys_null() -> None:
    node = plan("SELECT user, id, sum(id) AS s FROM orders GROUP BY GROUPING SETS ((user, id), (user))")
    assert isinstance(node, Linear)
    aggregate = node.input
    assert isinstance(aggregate, Aggregate)
    assert aggregate.keys == ("user", "id", "grouping set")
    assert isinstance(aggregate.input, Union)
    first, second = (outputs(each) for each in aggregate.input.inputs)
    assert first == {"user": "`user`", "id": "`id`", "grouping set": "0", "id_2": "`id`"}
    assert second == {**first, "id": "CASE WHEN FALSE THEN `id` END", "grouping set": "1"}
    assert aggregate.calls == (Call("s", "sum", ("id_2",)),)


def test_a_pivot_groups_by_the_columns_that_it_does_not_mention() -> None:
    source = "(SELECT user, id, amount FROM orders)"
    pivot = plan(f"SELECT * FROM {source} PIVOT (sum(amount) FOR id IN (1, 2 AS two)) p")
    assert pivot == plan(
        "SELECT user, sum(amount) FILTER (WHERE id <=> 1) AS `1`, sum(amount) FILTER (WHERE id <=> 2) AS two "
        f"FROM {source} GROUP BY user"
    )


def test_equal_aggregates_are_one_call() -> None:
    node = plan("SELECT user, sum(amount) AS a, sum( amount )+1 AS b FROM orders GROUP BY user HAVING SUM(amount) > 3")
    assert isinstance(node, Linear)
    assert isinstance(node.input, Aggregate)
    assert [call.function for call in node.input.calls] == ["sum"]
    assert node.predicate == "`a` > 3"
    assert outputs(node)["b"] == "`a` + 1"


def test_expressions_over_keys_and_aggregates_are_computed_above() -> None:
    node = plan("SELECT upper(user) || '!' AS u, max(id) - min(id) AS d FROM orders GROUP BY upper(user)")
    assert outputs(node) == {"u": "`upper(user)` || '!'", "d": "`max(id)` - `min(id)`"}


@pytest.mark.parametrize("group", ["upper(user)", "u", "1", "ALL", "UPPER( user )"])
def test_a_key_can_be_an_expression_an_alias_an_ordinal_or_all(group: str) -> None:
    node = plan(f"SELECT upper(user) AS u, count(*) AS n FROM orders GROUP BY {group}")
    assert isinstance(node, Aggregate)
    assert node.keys == ("u",)
    assert outputs(node.input) == {"u": "upper(`user`)"}


def test_an_alias_like_a_key_does_not_disturb_it() -> None:
    node = plan("SELECT max(amount) AS user FROM orders GROUP BY user")
    assert node.columns == ("user",)
    assert isinstance(node, Linear)
    assert isinstance(node.input, Aggregate)
    assert node.input.keys == ("user",)
    assert outputs(node)["user"] != "`user`"


def test_having_means_the_key_before_the_alias() -> None:
    node = plan("SELECT -id AS id, count(*) AS n FROM orders GROUP BY id HAVING id > 3 AND n > 1")
    assert isinstance(node, Linear)
    assert isinstance(node.input, Aggregate)
    key = node.input.keys[0]
    assert outputs(node.input.input)[key] == "`id`"
    assert node.predicate == f"`{key}` > 3 AND `n` > 1"


def test_having_takes_the_alias_where_the_inputs_are_ambiguous() -> None:
    node = plan(
        "SELECT o.id AS id, count(*) AS n FROM orders o JOIN users u ON o.id = u.id GROUP BY o.id HAVING id > 3"
    )
    assert isinstance(node, Linear)
    assert node.predicate == "`id` > 3"


@pytest.mark.parametrize(
    ("one", "other"), [("'a'", "'A'"), ("r'a'", "r'A'"), ("s.f", "amount"), ("1", "1L"), ("1", "'1'")]
)
def test_aggregates_of_different_values_are_different_calls(one: str, other: str) -> None:
    node = plan(f"SELECT max({one}) AS x, max({other}) AS y FROM orders")
    assert isinstance(node, Aggregate)
    assert len(node.calls) == 2


def test_distinct_is_an_aggregate_without_calls() -> None:
    assert plan("SELECT DISTINCT user FROM orders") == Aggregate(
        Linear(ORDERS, None, (Named("user", "`user`"),)), ("user",), ()
    )


def test_union_all_is_one_node_and_union_is_distinct() -> None:
    three = plan("SELECT id FROM orders UNION ALL SELECT id FROM users UNION ALL SELECT age FROM users")
    assert isinstance(three, Union)
    assert len(three.inputs) == 3
    two = plan("SELECT id FROM orders UNION SELECT id FROM users")
    assert isinstance(two, Aggregate)
    assert isinstance(two.input, Union)
    assert two.keys == ("id",)


def test_the_names_of_a_union_are_those_of_its_first_query() -> None:
    node = plan("SELECT id AS a, user AS b FROM orders UNION ALL SELECT id, id FROM users")
    assert node.columns == ("a", "b")


def test_order_by_with_limit_is_a_topk() -> None:
    assert plan("SELECT * FROM users ORDER BY age DESC, name LIMIT 3 OFFSET 1") == TopK(
        USERS, (Order("age", True, False), Order("name", False, True)), 3, 1
    )


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("age", Order("age", False, True)),
        ("age ASC NULLS LAST", Order("age", False, False)),
        ("age DESC", Order("age", True, False)),
        ("age DESC NULLS FIRST", Order("age", True, True)),
        ("3 DESC", Order("age", True, False)),
        ("users.age", Order("age", False, True)),
    ],
)
def test_nulls_come_first_upwards_and_last_downwards_unless_told(order: str, expected: Order) -> None:
    node = plan(f"SELECT * FROM users ORDER BY {order} LIMIT 1")
    assert isinstance(node, TopK)
    assert node.order == (expected,)


def test_what_is_ordered_by_and_not_selected_is_dropped_again() -> None:
    node = plan("SELECT user FROM orders GROUP BY user ORDER BY sum(amount) DESC LIMIT 2")
    assert node.columns == ("user",)
    assert isinstance(node, Linear)
    assert isinstance(node.input, TopK)
    assert node.input.order == (Order("sum(amount)", True, False),)


def test_an_order_without_limit_means_nothing() -> None:
    assert plan("SELECT id FROM orders ORDER BY amount") == plan("SELECT id FROM orders")
    assert plan("SELECT * FROM (SELECT id FROM orders ORDER BY id) x") == plan("SELECT id FROM orders")


def test_a_limit_without_order_is_a_topk_without_order() -> None:
    assert plan("SELECT * FROM users LIMIT 3") == TopK(USERS, (), 3)
    assert plan("SELECT * FROM users LIMIT ALL") is USERS


def test_ctes_may_be_nested_shadow_tables_and_name_their_columns() -> None:
    node = plan("WITH users(a, b) AS (WITH x AS (SELECT id, age FROM users) SELECT * FROM x) SELECT b FROM users")
    assert node.columns == ("b",)


def test_a_cte_used_twice_is_one_node() -> None:
    node = plan(
        "WITH c AS (SELECT id, max(id) AS n FROM orders GROUP BY id) SELECT a.n FROM c a JOIN c b ON a.id = b.n"
    )
    assert isinstance(node, Linear)
    join = node.input
    assert isinstance(join, Join)
    assert isinstance(join.left, Linear)
    assert isinstance(join.right, Linear)
    assert join.left.input is join.right.input


def test_a_view_on_a_view_reads_its_very_node() -> None:
    spend = plan("SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    top = plan("SELECT * FROM Spend ORDER BY total DESC LIMIT 10", spend=spend)
    assert isinstance(top, TopK)
    assert top.input is spend


@pytest.mark.parametrize(
    ("written", "planned"),
    [
        ("s.f", "`s`.`f`"),
        ("orders.s.g.h", "`s`.`g`.`h`"),
        ("tags[id]", "`tags`[`id`]"),
        ("transform(tags, x -> x + id)", "transform(`tags`, _v0 -> _v0 + `id`)"),
        ("transform(tags, ID -> id + 1)", "transform(`tags`, _v0 -> _v0 + 1)"),
        ("transform(tags, id -> id + orders.id)", "transform(`tags`, _v0 -> _v0 + `id`)"),
        (
            "transform(tags, x -> transform(tags, (y, i) -> x + y + i))",
            "transform(`tags`, _v0 -> transform(`tags`, (_v1, _v2) -> _v0 + _v1 + _v2))",
        ),
        ("filter(array(s), e -> e.g.h > 1)", "filter(array(`s`), _v0 -> _v0.`g`.`h` > 1)"),
        ("struct(id, s.f, -id, user AS u)", "struct(`id` AS `id`, `s`.`f` AS `f`, -`id` AS `col3`, `user` AS `u`)"),
        ("dateadd(MONTH, id, date '2020-01-01')", "dateadd(MONTH, `id`, CAST('2020-01-01' AS DATE))"),
        ("NVL(user, 'x')", "nvl(`user`, 'x')"),
        ("my_own_function(user, 1)", "my_own_function(`user`, 1)"),
        ("CASE WHEN id > 1 THEN 'a' END", "CASE WHEN `id` > 1 THEN 'a' END"),
        ("id BETWEEN 1 AND 2", "`id` BETWEEN 1 AND 2"),
        ("user NOT LIKE 'a%'", "`user` NOT LIKE 'a%'"),
        ("amount + INTERVAL 1 DAY", "`amount` + INTERVAL '1' DAY"),
    ],
)
def test_expressions_refer_to_the_plans_columns(written: str, planned: str) -> None:
    assert expression(written) == planned


def test_an_alias_can_be_used_further_on_in_the_list() -> None:
    node = plan("SELECT amount * 2 AS a, a + 1 AS b FROM orders")
    assert outputs(node)["b"] == "`amount` * 2 + 1"


def test_a_column_goes_before_an_alias_of_its_name() -> None:
    node = plan("SELECT -amount AS amount, amount + 1 AS b FROM orders")
    assert outputs(node)["b"] == "`amount` + 1"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM orders o JOIN users u ON o.id = u.id", "two output columns are called 'id'; name the columns"),
        ("SELECT id, amount AS ID FROM orders", "two output columns are called 'id'; rename one with AS"),
        ("SELECT id AS _diff FROM orders", "output column '_diff' is reserved"),
        ("SELECT user, amount FROM orders GROUP BY user", "column 'amount' is neither grouped nor aggregated"),
        ("SELECT user, count(*) FROM orders", "column 'user' is neither grouped nor aggregated"),
        ("SELECT id FROM orders WHERE sum(amount) > 1", "aggregate sum in WHERE, where none may be"),
        ("SELECT o.id FROM orders o JOIN users u ON o.id = max(u.id)", "aggregate max in ON"),
        ("SELECT count(*) FROM orders GROUP BY sum(id)", "aggregate in GROUP BY"),
        ("SELECT count(*) FROM orders GROUP BY 1", "aggregate in GROUP BY"),
        ("SELECT grouping(user) FROM orders GROUP BY user", "grouping needs GROUP BY with GROUPING SETS"),
        ("SELECT grouping(id) FROM orders GROUP BY ROLLUP (user)", "grouping takes one key"),
        ("SELECT grouping_id(id) FROM orders GROUP BY CUBE (user, id)", "grouping_id takes no argument, or all"),
        ("SELECT upper(user) FILTER (WHERE id > 1) FROM orders", "FILTER belongs behind an aggregate"),
        ("SELECT sum(id) FILTER (WHERE max(id) > 1) FROM orders", "aggregate max inside another aggregate"),
        ("SELECT percentile(id, 2) FROM orders", "percentile takes a percentage between 0 and 1, found 2"),
        ("SELECT max_by(id) FROM orders", "max_by takes two arguments, found 1"),
        ("SELECT id FROM orders EXCEPT SELECT id, name FROM users", "EXCEPT of 1 columns (id) with 2 (id, name)"),
        ("SELECT sum(max(id)) FROM orders", "aggregate max inside another aggregate"),
        ("SELECT transform(tags, x -> sum(id)) FROM orders", "aggregate sum inside a lambda function"),
        ("SELECT sum(id, amount) FROM orders", "sum takes one argument, found 2"),
        ("SELECT count() FROM orders", "write count(*)"),
        ("SELECT upper(DISTINCT user) FROM orders", "DISTINCT in upper, which is not an aggregate"),
        ("SELECT id FROM orders GROUP BY 3", "GROUP BY 3: the select list has 1 columns"),
        ("SELECT id FROM orders ORDER BY 2 LIMIT 1", "ORDER BY 2: the select list has 1 columns"),
        ("SELECT DISTINCT id FROM orders ORDER BY amount LIMIT 1", "with SELECT DISTINCT, ORDER BY may only use"),
        ("SELECT id FROM orders UNION ALL SELECT id, name FROM users", "UNION of 1 columns (id) with 2"),
        ("SELECT a FROM orders AS x(a, b)", "2 column names are given for 5 columns"),
        ("WITH a AS (SELECT 1 FROM orders), A AS (SELECT 2 FROM orders) SELECT * FROM a", "WITH defines 'A' twice"),
        ("SELECT 1 AS x FROM orders, orders", "table 'orders' appears twice in FROM; give each its own alias"),
        ("SELECT id FROM orders ORDER BY id LIMIT -1", "LIMIT must not be negative"),
        ("SELECT " + "(" * 400 + "1" + ")" * 400 + " AS x FROM orders", "nested too deeply"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        plan(sql)
    assert message in str(caught.value)
    assert caught.value.fields["view"] == "v"


def test_long_conditions_are_no_deep_conditions() -> None:
    terms = " OR ".join(f"id = {number}" for number in range(500))
    node = plan(f"SELECT id FROM orders WHERE {terms}")
    assert isinstance(node, Linear)
    assert str(node.predicate).count(" OR ") == 499
