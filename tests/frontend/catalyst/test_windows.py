"""How window functions are planned: one `Window` for each partition and order, over what their operands need."""

from __future__ import annotations

import pytest

from holdfast.errors import SqlError
from holdfast.operators.aggregate import Aggregate
from holdfast.operators.draw import Draw
from holdfast.operators.rewrites import rewrite
from holdfast.operators.window import First, Window
from holdfast.operators.window_frames import Frame
from holdfast.operators.window_functions import WindowCall
from holdfast.plan.expression import readable
from holdfast.plan.nodes import Linear, Node, Order, Source
from holdfast.plan.schema import parse_schema
from holdfast.plan.walk import reachable

from ...planned import plan_sql

ORDERS = Source("orders", parse_schema("id long, user string, amount double", subject="orders"))
CATALOG = {"orders": ORDERS}
BY_ID = (Order("id", False, True),)


def windows(node: Node) -> list[Window]:
    """The windows of a plan, the lowest first."""
    below = [each for child in node.inputs for each in windows(child)]
    return [*below, node] if isinstance(node, Window) else below


def shown(node: Node) -> str:
    """The condition of a node, for people."""
    assert isinstance(node, Linear) and node.predicate is not None
    return readable(node.predicate)


def planned(sql: str) -> list[Window]:
    return windows(rewrite(plan_sql("v", sql, CATALOG)))


def call_of(call: str) -> WindowCall:
    (window,) = planned(f"SELECT {call} AS x FROM orders")
    return window.calls[0]


def test_functions_over_one_partition_and_order_are_one_window() -> None:
    (window,) = planned(
        """SELECT row_number() OVER (PARTITION BY user ORDER BY id) AS n,
                  sum(amount) OVER (PARTITION BY user ORDER BY id ASC NULLS FIRST) AS s FROM orders"""
    )
    assert window == Window(
        window.input,
        ("user",),
        BY_ID,
        (
            WindowCall("n", "row_number", "int"),
            WindowCall("s", "sum", "double", ("amount",), frame=Frame(False, None, 0)),
        ),
    )


def test_other_orders_are_other_windows() -> None:
    found = planned("SELECT rank() OVER (ORDER BY id) AS a, rank() OVER (ORDER BY id DESC) AS b FROM orders")
    assert [window.order for window in found] == [BY_ID, (Order("id", True, False),)]


def test_one_function_written_twice_is_computed_once() -> None:
    (window,) = planned("SELECT count(*) OVER () AS n, id / count(*) OVER () AS share FROM orders")
    assert [call.name for call in window.calls] == ["n"]


@pytest.mark.parametrize(
    ("clause", "frame"),
    [
        ("", Frame(True, None, None)),
        ("ORDER BY id", Frame(False, None, 0)),
        ("ORDER BY id ROWS 2 PRECEDING", Frame(True, -2, 0)),
        ("ORDER BY id ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING", Frame(True, -1, 3)),
        ("ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", Frame(True, None, None)),
        ("ORDER BY id RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", Frame(False, 0, None)),
    ],
)
def test_frames(clause: str, frame: Frame) -> None:
    assert call_of(f"sum(id) OVER ({clause})").frame == frame


@pytest.mark.parametrize(
    ("direction", "bounds", "low", "high"),
    [
        ("", "1 PRECEDING AND 2 FOLLOWING", "`id` - 1L", "`id` + 2L"),
        ("DESC", "1 PRECEDING AND 2 FOLLOWING", "`id` + 1L", "`id` - 2L"),
        ("", "UNBOUNDED PRECEDING AND 1 PRECEDING", None, "`id` - 1L"),
    ],
)
def test_a_frame_by_value_reaches_to_values_computed_below(
    direction: str, bounds: str, low: str | None, high: str | None
) -> None:
    (window,) = planned(f"SELECT sum(amount) OVER (ORDER BY id {direction} RANGE BETWEEN {bounds}) AS s FROM orders")
    assert isinstance(window.input, Linear)
    computed = {output.name: readable(output.expression) for output in window.input.outputs}
    reach = [None if end is None else computed[end.column] for end in window.calls[0].reach]
    assert reach == [low, high]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lag(id)", WindowCall("x", "lag", "bigint", ("id",), 1)),
        ("lag(id, -2)", WindowCall("x", "lag", "bigint", ("id",), -2)),
        ("lead(id, 2, NULL)", WindowCall("x", "lead", "bigint", ("id",), 2)),
        ("lag(id, 1, id)", WindowCall("x", "lag", "bigint", ("id", "id"), 1)),
        ("lag(id, 3 - 1)", WindowCall("x", "lag", "bigint", ("id",), 2)),
        ("lag(id) IGNORE NULLS", WindowCall("x", "lag", "bigint", ("id",), ignore_nulls=True)),
        ("lag(id, 1, NULL, true)", WindowCall("x", "lag", "bigint", ("id",), ignore_nulls=True)),
        ("ntile(4)", WindowCall("x", "ntile", "int", (), 4)),
        ("first(id, true)", WindowCall("x", "first_value", "bigint", ("id",), 1, Frame(False, None, 0), True)),
        (
            "last_value(id) IGNORE NULLS",
            WindowCall("x", "last_value", "bigint", ("id",), 1, Frame(False, None, 0), True),
        ),
        ("nth_value(id, 2)", WindowCall("x", "nth_value", "bigint", ("id",), 2, Frame(False, None, 0))),
        ("mean(id)", WindowCall("x", "avg", "double", ("id",), 1, Frame(False, None, 0))),
        ("count(1)", WindowCall("x", "count", "bigint", (), 1, Frame(False, None, 0))),
    ],
)
def test_one_meaning_has_one_form(written: str, meant: WindowCall) -> None:
    assert call_of(f"{written} OVER (ORDER BY id)") == meant


def test_a_window_over_groups_takes_their_results() -> None:
    (window,) = planned("SELECT user, rank() OVER (ORDER BY sum(amount) DESC) AS r FROM orders GROUP BY user")
    assert isinstance(window.input, (Aggregate, Linear))
    assert [(each.descending, each.nulls_first) for each in window.order] == [(True, False)]


def test_windows_come_after_having_and_before_distinct() -> None:
    node = plan_sql(
        "v", "SELECT DISTINCT count(*) OVER () AS n FROM orders GROUP BY user HAVING sum(id) > 1", CATALOG
    )  # fmt: skip
    assert isinstance(node, Aggregate)
    (window,) = windows(rewrite(node))
    assert isinstance(window.input, Linear)
    assert shown(window.input) == "`sum(id)` > 1L"


def test_a_window_inside_a_window_is_computed_first() -> None:
    inner, outer = planned("SELECT rank() OVER (ORDER BY count(*) OVER (PARTITION BY user)) AS r FROM orders")
    assert (inner.partition, outer.order) == (("user",), (Order(inner.calls[0].name, False, True),))


def test_named_windows_are_the_windows_they_name() -> None:
    named = "SELECT rank() OVER w AS r, sum(id) OVER (v) AS s FROM orders WINDOW w AS (ORDER BY id), v AS (w)"
    plain = "SELECT rank() OVER (ORDER BY id) AS r, sum(id) OVER (ORDER BY id) AS s FROM orders"
    assert plan_sql("v", named, CATALOG) == plan_sql("v", plain, CATALOG)


def test_a_subquery_has_named_windows_of_its_own() -> None:
    inside = "(SELECT sum(n) FROM (SELECT rank() OVER w AS n FROM orders WINDOW w AS (ORDER BY user)))"
    sql = f"SELECT rank() OVER w AS r, {inside} AS s FROM orders WINDOW w AS (ORDER BY id)"
    assert {each.order for each in planned(sql)} == {BY_ID, (Order("user", False, True),)}


def test_a_window_over_grouping_sets_may_ask_which_set_a_row_is_of() -> None:
    (window,) = planned(
        """SELECT user, sum(amount) AS s, rank() OVER (PARTITION BY grouping(user) ORDER BY sum(amount) DESC) AS r
           FROM orders GROUP BY ROLLUP (user)"""
    )
    assert [(each.descending, each.nulls_first) for each in window.order] == [(True, False)]
    assert len(window.partition) == 1


def test_aggregates_inside_a_window_may_have_a_filter() -> None:
    (window,) = planned("SELECT sum(count(*) FILTER (WHERE id > 1)) OVER () AS s FROM orders GROUP BY user")
    assert isinstance(window.input, Linear)
    assert isinstance(window.input.input, Aggregate)
    (window,) = planned("SELECT count(sum(id), 1) OVER () AS s FROM orders GROUP BY user")
    assert len(window.calls[0].arguments) == 1


def test_qualify_filters_what_the_windows_give() -> None:
    short = "SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders QUALIFY n <= 3"
    long = "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders) WHERE n <= 3"
    assert rewrite(plan_sql("v", short, CATALOG)) == rewrite(plan_sql("v", long, CATALOG))


def test_qualify_may_have_a_window_of_its_own() -> None:
    node = rewrite(plan_sql("v", "SELECT id FROM orders QUALIFY rank() OVER (ORDER BY id) = 1", CATALOG))
    (window,) = windows(node)
    assert isinstance(node, Linear)
    assert (node.columns, shown(node)) == (("id",), f"`{window.calls[0].name}` = 1")
    assert window.first == First(window.calls[0].name, 1)


def test_a_drawn_value_is_drawn_once_for_the_window_and_the_column() -> None:
    (window,) = planned("SELECT r, rank() OVER (ORDER BY r) AS n FROM (SELECT rand() AS r FROM orders)")
    drawn = [draw for each in reachable(window) if isinstance(each, Draw) for draw in each.draws]
    assert [draw.function for draw in drawn] == ["rand"]
    assert window.order == (Order("r", False, True),)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id FROM orders WHERE rank() OVER (ORDER BY id) = 1", "window functions inside WHERE"),
        ("SELECT user FROM orders GROUP BY user HAVING rank() OVER (ORDER BY user) = 1", "functions inside HAVING"),
        ("SELECT rank() OVER (ORDER BY id) AS r FROM orders GROUP BY r", "not participating in the GROUP BY"),
        ("SELECT rank() OVER (ORDER BY id) AS r FROM orders GROUP BY 1", "not participating in the GROUP BY"),
        ("SELECT * FROM orders o JOIN orders p ON rank() OVER (ORDER BY o.id) = p.id", "avoid window functions"),
        ("SELECT sum(id) FILTER (WHERE rank() OVER (ORDER BY id) = 1) AS s FROM orders", "without a window function"),
        ("SELECT sum(rank() OVER (ORDER BY id)) AS r FROM orders", "window function inside an aggregate"),
        ("SELECT rank() OVER () AS r FROM orders", "requires the window to be ordered"),
        ("SELECT rank() OVER w AS r FROM orders", "not defined in the WINDOW clause for w"),
        ("SELECT upper(user) OVER () AS r FROM orders", "not supported within a window function"),
        ("SELECT count(DISTINCT id) OVER () AS r FROM orders", "Distinct window functions are not supported"),
        ("SELECT ntile(0) OVER (ORDER BY id) AS r FROM orders", "buckets must be between"),
        ("SELECT sum(id) IGNORE NULLS OVER () AS r FROM orders", "does not support IGNORE NULLS"),
        ("SELECT sum(id) OVER (ORDER BY id ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) AS r FROM orders", "lower bound"),
        (
            "SELECT sum(id) OVER (ORDER BY id, user RANGE 1 PRECEDING) AS r FROM orders",
            "multiple order by expressions",
        ),
        ("SELECT id FROM orders QUALIFY id > 1", "requires at least one window function"),
    ],
)
def test_what_spark_refuses_is_refused(sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        plan_sql("v", sql, CATALOG)


def test_a_filter_on_the_partition_moves_below_the_window() -> None:
    sql = "SELECT * FROM (SELECT user, count(*) OVER (PARTITION BY user) AS n FROM orders) WHERE user = 'a' AND n > 1"
    node = rewrite(plan_sql("v", sql, CATALOG))
    assert isinstance(node, Linear)
    assert shown(node) == "`n` > 1L"
    (window,) = windows(node)
    assert isinstance(window.input, Linear)
    assert shown(window.input) == "`user` = 'a'"


def test_a_window_that_nobody_reads_is_not_computed() -> None:
    sql = "SELECT id FROM (SELECT id, rank() OVER (ORDER BY amount) AS r FROM orders)"
    assert rewrite(plan_sql("v", sql, CATALOG)) == rewrite(plan_sql("v", "SELECT id FROM orders", CATALOG))


def numbered(condition: str, *functions: str) -> First | None:
    """What the window of ``functions`` (a, b, …) is told of a filter above it."""
    calls = ", ".join(
        f"{function}() OVER (PARTITION BY user ORDER BY id) AS {name}"
        for name, function in zip("abc", functions, strict=False)
    )
    (window,) = windows(
        rewrite(plan_sql("v", f"SELECT * FROM (SELECT *, {calls} FROM orders) WHERE {condition}", CATALOG))
    )
    return window.first


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("a <= 3", 3),
        ("a < 3", 2),
        ("3 >= a", 3),
        ("a = 2", 2),
        ("1 = a", 1),
        ("a BETWEEN 2 AND 4", 4),
        ("a <= 5L", 5),
        ("a < 2.5", 2),
    ],
)
def test_a_filter_for_the_first_rows_is_told_to_the_window(condition: str, count: int) -> None:
    assert numbered(condition, "row_number") == First("a", count)
    assert numbered(f"{condition} AND amount > 0", "rank") == First("a", count)


def test_of_several_bounds_the_least_counts() -> None:
    assert numbered("a <= 3 AND b <= 2", "row_number", "rank") == First("b", 2)


@pytest.mark.parametrize(
    "condition", ["a >= 3", "3 <= a", "a <= 0", "a <= 3 OR id = 1", "a <> 2", "a <= id", "a < 0.5"]
)
def test_other_filters_need_all_rows(condition: str) -> None:
    assert numbered(condition, "row_number") is None


def test_a_dense_rank_bounds_no_rows() -> None:
    assert numbered("a <= 3", "dense_rank") is None
    assert numbered("a <= 3 AND b <= 3", "dense_rank", "row_number") == First("b", 3)


def test_functions_that_look_behind_the_row_need_all_rows() -> None:
    assert numbered("a <= 3", "row_number", "cume_dist") is None


def test_a_window_that_another_view_reads_is_not_bounded() -> None:
    view = rewrite(plan_sql("w", "SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders", CATALOG))
    node = rewrite(plan_sql("v", "SELECT id FROM w WHERE n <= 3", {"w": view}), keep=[view])
    (window,) = windows(node)
    assert window.first is None
