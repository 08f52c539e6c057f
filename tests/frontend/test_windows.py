"""How window functions are planned: one `Window` for each partition and order, over what their operands need."""

from __future__ import annotations

import pytest
from holdfast.frontend.verbs import Table

from holdfast.errors import SqlError
from holdfast.frontend.schema import parse_schema
from holdfast.plan.nodes import Aggregate, Draw, First, Frame, Linear, Node, Order, Source, Window, WindowCall, inputs
from holdfast.plan.rewrites import rewrite

from ..planned import plan_sql

ORDERS = Source("orders", parse_schema("id long, user string, amount double", subject="orders"))
CATALOG = {"orders": ORDERS}
BY_ID = (Order("id", False, True),)


def windows(node: Node) -> list[Window]:
    """The windows of a plan, the lowest first."""
    below = [each for child in inputs(node) for each in windows(child)]
    return [*below, node] if isinstance(node, Window) else below


def planned(sql: str) -> list[Window]:
    return windows(plan_sql("v", sql, CATALOG))


def call_of(call: str) -> WindowCall:
    (window,) = planned(f"SELECT {call} AS x FROM orders")
    return window.calls[0]


def test_functions_over_one_partition_and_order_are_one_window() -> None:
    (window,) = planned(
        """SELECT row_number() OVER (PARTITION BY user ORDER BY id) AS n,
                  sum(amount) OVER (PARTITION BY user ORDER BY id ASC NULLS FIRST) AS s FROM orders"""
    )
    assert window == Window(
        ORDERS,
        ("user",),
        BY_ID,
        (WindowCall("n", "row_number"), WindowCall("s", "sum", ("amount",), frame=Frame(False, None, 0))),
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
        ("", "1 PRECEDING AND 2 FOLLOWING", "`id` - 1", "`id` + 2"),
        ("DESC", "1 PRECEDING AND 2 FOLLOWING", "`id` + 1", "`id` - 2"),
        ("", "CURRENT ROW AND INTERVAL '1' DAY FOLLOWING", None, "`id` + INTERVAL '1' DAY"),
        ("", "UNBOUNDED PRECEDING AND 1 PRECEDING", None, "`id` - 1"),
    ],
)
def test_a_frame_by_value_reaches_to_values_computed_below(
    direction: str, bounds: str, low: str | None, high: str | None
) -> None:
    (window,) = planned(f"SELECT sum(amount) OVER (ORDER BY id {direction} RANGE BETWEEN {bounds}) AS s FROM orders")
    assert isinstance(window.input, Linear)
    computed = {output.name: output.sql for output in window.input.outputs}
    reach = [None if end is None else computed[end.column] for end in window.calls[0].reach]
    assert reach == [low, high]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lag(id)", WindowCall("x", "lag", ("id",), 1)),
        ("lag(id, -2)", WindowCall("x", "lag", ("id",), -2)),
        ("lead(id, 2, NULL)", WindowCall("x", "lead", ("id",), 2)),
        ("lag(id, 1L, id)", WindowCall("x", "lag", ("id", "id"), 1)),
        ("lag(id) IGNORE NULLS", WindowCall("x", "lag", ("id",), ignore_nulls=True)),
        ("lag(id, 1, NULL, true)", WindowCall("x", "lag", ("id",), ignore_nulls=True)),
        ("ntile(4)", WindowCall("x", "ntile", (), 4)),
        ("first(id, true)", WindowCall("x", "first_value", ("id",), 1, Frame(False, None, 0), True)),
        ("last_value(id IGNORE NULLS)", WindowCall("x", "last_value", ("id",), 1, Frame(False, None, 0), True)),
        ("nth_value(id, 2)", WindowCall("x", "nth_value", ("id",), 2, Frame(False, None, 0))),
        ("mean(id)", WindowCall("x", "avg", ("id",), 1, Frame(False, None, 0))),
        ("count(1)", WindowCall("x", "count", (), 1, Frame(False, None, 0))),
    ],
)
def test_one_meaning_has_one_form(written: str, meant: WindowCall) -> None:
    assert call_of(f"{written} OVER (ORDER BY id)") == meant


def test_a_window_over_groups_takes_their_results() -> None:
    (window,) = planned("SELECT user, rank() OVER (ORDER BY sum(amount) DESC) AS r FROM orders GROUP BY user")
    assert isinstance(window.input, Aggregate)
    assert window.order == (Order("sum(amount)", True, False),)


def test_windows_come_after_having_and_before_distinct() -> None:
    node = plan_sql(
        "v", "SELECT DISTINCT count(*) OVER () AS n FROM orders GROUP BY user HAVING sum(id) > 1", CATALOG
    )  # fmt: skip
    assert isinstance(node, Aggregate)
    (window,) = windows(node)
    assert isinstance(window.input, Linear)
    assert window.input.predicate == "`sum(id)` > 1"


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
    assert window.order == (Order("s", True, False),)
    assert len(window.partition) == 1


def test_aggregates_inside_a_window_may_have_a_filter() -> None:
    (window,) = planned("SELECT sum(count(*) FILTER (WHERE id > 1)) OVER () AS s FROM orders GROUP BY user")
    assert isinstance(window.input, Aggregate)
    (window,) = planned("SELECT count(sum(id), 1) OVER () AS s FROM orders GROUP BY user")
    assert window.calls[0].arguments == ("sum(id)",)


def test_qualify_filters_what_the_windows_give() -> None:
    short = "SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders QUALIFY n <= 3"
    long = "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders) WHERE n <= 3"
    assert rewrite(plan_sql("v", short, CATALOG)) == rewrite(plan_sql("v", long, CATALOG))


def test_qualify_may_have_a_window_of_its_own() -> None:
    node = plan_sql("v", "SELECT id FROM orders QUALIFY rank() OVER (ORDER BY id) = 1", CATALOG)
    assert isinstance(node, Linear)
    assert (node.columns, node.predicate) == (("id",), "`rank` = 1")


def test_a_drawn_value_is_drawn_once_for_the_window_and_the_column() -> None:
    (window,) = planned("SELECT rand() AS r, rank() OVER (ORDER BY r) AS n FROM orders")
    assert isinstance(window.input, Draw)
    assert window.order == (Order("rand()", False, True),)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id FROM orders WHERE rank() OVER (ORDER BY id) = 1", "window function in WHERE"),
        ("SELECT user FROM orders GROUP BY user HAVING rank() OVER (ORDER BY user) = 1", "window function in HAVING"),
        ("SELECT rank() OVER (ORDER BY id) AS r FROM orders GROUP BY r", "window function in GROUP BY"),
        ("SELECT rank() OVER (ORDER BY id) AS r FROM orders GROUP BY 1", "window function in GROUP BY"),
        ("SELECT * FROM orders o JOIN orders p ON rank() OVER (ORDER BY o.id) = p.id", "window function in ON"),
        ("SELECT sum(id) FILTER (WHERE rank() OVER (ORDER BY id) = 1) AS s FROM orders", "inside an aggregate"),
        ("SELECT sum(rank() OVER (ORDER BY id)) AS r FROM orders", "window function inside an aggregate"),
        ("SELECT rank() OVER () AS r FROM orders", "rank needs an ORDER BY"),
        ("SELECT rank() OVER w AS r FROM orders", "window 'w' is not defined"),
        ("SELECT upper(user) OVER () AS r FROM orders", "upper is neither a window function nor an aggregate"),
        ("SELECT count(DISTINCT id) OVER () AS r FROM orders", "DISTINCT in the window function count"),
        ("SELECT ntile(0) OVER (ORDER BY id) AS r FROM orders", "a number above 0"),
        ("SELECT lag() OVER (ORDER BY id) AS r FROM orders", "lag cannot have 0 arguments"),
        ("SELECT sum(id) IGNORE NULLS OVER () AS r FROM orders", "IGNORE NULLS does not belong behind sum"),
        ("SELECT sum(id) OVER (ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW) AS r FROM orders", "lower bound"),
        (
            "SELECT sum(id) OVER (ORDER BY id, user RANGE 1 PRECEDING) AS r FROM orders",
            "one ORDER BY expression, found 2",
        ),
        ("SELECT id FROM orders QUALIFY id > 1", "QUALIFY needs a window function"),
    ],
)
def test_what_spark_refuses_is_refused(sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        plan_sql("v", sql, CATALOG)


def test_a_filter_on_the_partition_moves_below_the_window() -> None:
    sql = "SELECT * FROM (SELECT user, count(*) OVER (PARTITION BY user) AS n FROM orders) WHERE user = 'a' AND n > 1"
    node = rewrite(plan_sql("v", sql, CATALOG))
    assert isinstance(node, Linear)
    assert node.predicate == "`n` > 1"
    (window,) = windows(node)
    assert isinstance(window.input, Linear)
    assert window.input.predicate == "`user` = 'a'"


def test_a_window_that_nobody_reads_is_not_computed() -> None:
    sql = "SELECT id FROM (SELECT id, rank() OVER (ORDER BY amount) AS r FROM orders)"
    assert rewrite(plan_sql("v", sql, CATALOG)) == rewrite(plan_sql("v", "SELECT id FROM orders", CATALOG))


def test_verbs_and_sql_give_the_same_window() -> None:
    call = "row_number() OVER (PARTITION BY user ORDER BY id)"
    table = Table(ORDERS).withColumn("n", call).where("n = 1").select("id")
    sql = f"SELECT id FROM (SELECT *, {call} AS n FROM orders) WHERE n = 1"
    assert rewrite(table.plan) == rewrite(plan_sql("v", sql, CATALOG))


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
    [("a <= 3", 3), ("a < 3", 2), ("3 >= a", 3), ("a = 2", 2), ("1 = a", 1), ("a BETWEEN 2 AND 4", 4), ("a <= 5L", 5)],
)
def test_a_filter_for_the_first_rows_is_told_to_the_window(condition: str, count: int) -> None:
    assert numbered(condition, "row_number") == First("a", count)
    assert numbered(f"{condition} AND amount > 0", "rank") == First("a", count)


def test_of_several_bounds_the_least_counts() -> None:
    assert numbered("a <= 3 AND b <= 2", "row_number", "rank") == First("b", 2)


@pytest.mark.parametrize(
    "condition", ["a >= 3", "3 <= a", "a <= 0", "a <= 3 OR id = 1", "a <> 2", "a <= id", "a < 2.5"]
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
