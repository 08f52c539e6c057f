"""Each rewrite on a plan made for it. That they keep the meaning is checked on random queries by `test_sql_means`."""

from __future__ import annotations

from dataclasses import replace

from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.apply import Applied, Apply
from holdfast.operators.generate import Generate
from holdfast.operators.join import Join
from holdfast.operators.rewrites import IN_LOOPS, RULES, rewrite
from holdfast.operators.rewrites.drop_identity import drop_identity
from holdfast.operators.rewrites.first_rows import first_rows
from holdfast.operators.rewrites.fuse_linear import fuse_linear
from holdfast.operators.rewrites.narrow_outer import narrow_outer
from holdfast.operators.rewrites.order_joins import order_joins
from holdfast.operators.rewrites.prune_columns import prune_columns
from holdfast.operators.rewrites.push_filter import push_filter
from holdfast.operators.rewrites.push_semi import push_semi
from holdfast.operators.rewrites.share_constants import share_constants
from holdfast.operators.rewrites.threshold import threshold
from holdfast.operators.threshold import Threshold
from holdfast.operators.topk import TopK
from holdfast.plan.expression import Lambda, Literal, Operation, Variable
from holdfast.plan.nodes import Field, Function, Linear, Named, Node, Order, Source, Union
from holdfast.plan.walk import Kept, reachable

from ..planned import step

T = Source("t", (Field("a", "int"), Field("b", "int"), Field("c", "string")))
U = Source("u", (Field("x", "int"), Field("y", "int")))
NONE: Kept = frozenset()


def linear(node: Node, predicate: str | None = None, **outputs: str) -> Linear:
    return step(node, predicate, outputs)


def call(name: str, function: str, *arguments: str) -> Call:
    return Call(name, function, arguments, "bigint")


def exploded(node: Node, *names: str) -> Generate:
    listed = Operation("array", tuple(node.column(name) for name in names), "array<int>")
    return Generate(node, "explode", (listed,), (Field("x", "int"),))


def test_the_rules_are_one_visible_tuple() -> None:
    assert (
        fuse_linear,
        narrow_outer,
        share_constants,
        push_filter,
        push_semi,
        order_joins,
        prune_columns,
        drop_identity,
        first_rows,
        threshold,
    ) == RULES


# -- fuse_linear ------------------------------------------------------------------------------------------------------


def test_fuse_linear_writes_the_inner_expressions_into_the_outer() -> None:
    inner = linear(T, "`a` > 0", p="`a` + 1", q="`b`")
    outer = linear(inner, "`q` < 5", r="`p` * 2", s="`q` + `q`")
    assert fuse_linear(outer, NONE) == linear(T, "`a` > 0 AND `b` < 5", r="(`a` + 1) * 2", s="`b` + `b`")


def test_fuse_linear_does_not_compute_twice_what_was_computed_once() -> None:
    outer = linear(linear(T, p="`a` * `b`"), r="`p` + 1", s="`p` + 2")
    assert fuse_linear(outer, NONE) == outer


def test_fuse_linear_does_not_move_work_into_a_lambda() -> None:
    inner = linear(T, p="`a` * `b`")
    element = Variable("e", "int")
    added = Lambda((element,), Operation("+", (element, inner.column("p")), "int"))
    listed = Operation("array", (Literal(1, "int"),), "array<int>")
    outer = Linear(inner, None, (Named("r", Operation("transform", (listed, added), "array<int>")),))
    assert fuse_linear(outer, NONE) == outer


def test_fuse_linear_fuses_a_whole_stack() -> None:
    node: Node = T
    for _ in range(5):
        node = linear(node, a="`a` + 1", b="`b`", c="`c`")
    assert fuse_linear(node, NONE) == linear(T, a="`a` + 1 + 1 + 1 + 1 + 1", b="`b`", c="`c`")


# -- push_filter ------------------------------------------------------------------------------------------------------


def test_push_filter_moves_conditions_to_the_side_of_a_join_that_they_touch() -> None:
    join = Join(T, U, ("a",), ("x",))
    node = linear(join, "`b` > 1 AND `y` > 2 AND `b` < `y`", b="`b`")
    assert push_filter(node, NONE) == linear(
        Join(
            linear(T, "`b` > 1", a="`a`", b="`b`", c="`c`"),
            linear(U, "`y` > 2", x="`x`", y="`y`"),
            ("a",),
            ("x",),
        ),
        "`b` < `y`",
        b="`b`",
    )


def test_push_filter_moves_conditions_on_keys_below_an_aggregate() -> None:
    aggregate = Aggregate(T, ("c",), (call("n", "count"),))
    node = linear(aggregate, "`c` = 'x' AND `n` > 1", n="`n`")
    filtered = linear(T, "`c` = 'x'", a="`a`", b="`b`", c="`c`")
    assert push_filter(node, NONE) == linear(Aggregate(filtered, ("c",), aggregate.calls), "`n` > 1", n="`n`")


def test_push_filter_leaves_a_constant_condition_above_a_global_aggregate() -> None:
    node = linear(Aggregate(T, (), (call("n", "count"),)), "FALSE", n="`n`")
    assert push_filter(node, NONE) == node


def test_push_filter_moves_conditions_into_a_union() -> None:
    node = linear(Union((linear(T, p="`a`", q="`b`"), linear(U, r="`x`", s="`y`"))), "`p` > 1 AND `q` = 2", p="`p`")
    assert push_filter(node, NONE) == linear(
        Union(
            (
                linear(linear(T, p="`a`", q="`b`"), "`p` > 1 AND `q` = 2", p="`p`", q="`q`"),
                linear(linear(U, r="`x`", s="`y`"), "`r` > 1 AND `s` = 2", r="`r`", s="`s`"),
            )
        ),
        p="`p`",
    )


def test_push_filter_never_goes_below_a_topk() -> None:
    node = linear(TopK(T, (Order("a", False, True),), 3), "`a` > 1", a="`a`")
    assert push_filter(node, NONE) == node


def test_push_filter_leaves_a_node_that_is_used_twice() -> None:
    shared = Aggregate(T, ("c",), (call("n", "count"),))
    node = Union((linear(shared, "`c` = 'x'", n="`n`"), linear(shared, "`c` = 'y'", n="`n`")))
    assert push_filter(node, NONE) == node


# -- prune_columns ----------------------------------------------------------------------------------------------------


def test_prune_columns_keeps_what_is_read_above_a_join_and_its_keys() -> None:
    node = linear(Join(T, linear(U, x="`x`", y="`y`"), ("a",), ("x",)), b="`b`")
    assert prune_columns(node, NONE) == linear(
        Join(linear(T, a="`a`", b="`b`"), linear(U, x="`x`"), ("a",), ("x",)), b="`b`"
    )


def test_prune_columns_drops_aggregates_that_nobody_reads_and_their_arguments() -> None:
    aggregate = Aggregate(T, ("c",), (call("n", "sum", "a"), call("m", "max", "b")))
    assert prune_columns(linear(aggregate, n="`n`"), NONE) == linear(
        Aggregate(linear(T, a="`a`", c="`c`"), ("c",), (call("n", "sum", "a"),)), n="`n`"
    )


def test_prune_columns_keeps_what_a_topk_orders_by() -> None:
    node = linear(TopK(T, (Order("b", True, False),), 3), a="`a`")
    assert prune_columns(node, NONE) == linear(
        TopK(linear(T, a="`a`", b="`b`"), (Order("b", True, False),), 3), a="`a`"
    )


def test_prune_columns_prunes_the_inputs_of_a_union_by_position() -> None:
    node = linear(Union((linear(T, p="`a`", q="`b`"), U)), q="`q`")
    assert prune_columns(node, NONE) == linear(Union((linear(T, q="`b`"), linear(U, y="`y`"))), q="`q`")


def test_prune_columns_keeps_every_column_of_a_distinct() -> None:
    node = linear(Aggregate(linear(T, a="`a`", b="`b`"), ("a", "b"), ()), a="`a`")
    assert prune_columns(node, NONE) == node


def test_prune_columns_leaves_one_node_where_two_read_it() -> None:
    shared = Aggregate(T, ("c",), (call("n", "sum", "a"), call("m", "max", "b"), call("o", "min", "b")))
    left, right = linear(shared, p="`c`", q="`n`"), linear(shared, r="`c`", s="`m`")
    pruned = prune_columns(Join(left, right, ("p",), ("r",)), NONE)
    assert isinstance(pruned, Join)
    assert isinstance(pruned.left, Linear)
    assert isinstance(pruned.right, Linear)
    assert pruned.left.input is pruned.right.input
    assert pruned.left.input.columns == ("c", "n", "m")


def test_prune_columns_keeps_the_columns_of_the_top_node() -> None:
    assert prune_columns(T, NONE) is T
    assert prune_columns(TopK(T, (), 3), NONE) == TopK(T, (), 3)


# -- drop_identity ----------------------------------------------------------------------------------------------------


def test_drop_identity_drops_a_linear_that_changes_nothing() -> None:
    assert drop_identity(linear(T, a="`a`", b="`b`", c="`c`"), NONE) is T


def test_drop_identity_keeps_a_renaming_a_reordering_and_a_filter() -> None:
    for node in (
        linear(T, x="`a`", b="`b`", c="`c`"),
        linear(T, b="`b`", a="`a`", c="`c`"),
        linear(T, "`a` > 1", a="`a`", b="`b`", c="`c`"),
        linear(T, a="`a`", b="`b`"),
    ):
        assert drop_identity(node, NONE) == node


# -- threshold --------------------------------------------------------------------------------------------------------


def compared(predicate: str, how: str = "inner", **outputs: str) -> Linear:
    """Rows of `t` joined with the one row of an aggregate of `u`."""
    one = Aggregate(U, (), (call("n", "count"),))
    return linear(Join(T, one, (), (), how), predicate, **outputs)  # type: ignore[arg-type]  # a text, for the test


def test_threshold_replaces_a_comparison_with_a_scalar() -> None:
    one = Aggregate(U, (), (call("n", "count"),))
    wide = linear(T, a="`a`", b="`b`", c="`c`", **{"CAST(`a` AS bigint)": "CAST(`a` AS bigint)"})
    for predicate, sign in (("a > n", ">"), ("n > a", "<"), ("a = n", "="), ("NOT a = n", "<>"), ("n <= a", ">=")):
        found = threshold(compared(predicate, b="`b`"), NONE)
        assert found == linear(Threshold(wide, one, (), (), "CAST(`a` AS bigint)", sign, "n"), b="`b`"), predicate  # type: ignore[arg-type]  # signs of the test


def test_threshold_replaces_a_comparison_with_a_value_of_each_key() -> None:
    least = Aggregate(U, ("x",), (Call("m", "min", ("y",), "int"),))
    found = threshold(linear(Join(least, T, ("x",), ("a",)), "m < b AND c = 'x'", a="`a`"), NONE)
    assert found == linear(Threshold(T, least, ("a",), ("x",), "b", ">", "m"), "c = 'x'", a="`a`")


def test_threshold_leaves_all_other_joins_alone() -> None:
    least = Aggregate(U, ("x", "y"), (Call("m", "min", ("y",), "int"),))
    for node in (
        compared("a > n", b="`b`", n="`n`"),  # the scalar is read
        compared("a > n AND b < n", b="`b`"),
        compared("a > n OR b = 1", b="`b`"),
        compared("a + 1 > n", b="`b`"),  # an overflow would be raised for rows that match nothing
        compared("a > n", "left", b="`b`"),
        linear(Join(T, U, ("a",), ("x",)), "b > y", a="`a`"),  # several rows per key
        linear(Join(T, least, ("a",), ("x",)), "b > m", a="`a`"),
    ):
        assert threshold(node, NONE) == node
    node = compared("a > n", b="`b`")
    assert threshold(node, frozenset({id(node.input)})) == node
    kinds = [type(each) for each in reachable(rewrite(node, rules=IN_LOOPS))]
    assert Join in kinds and Threshold not in kinds


# -- all of them ------------------------------------------------------------------------------------------------------


def test_rewrite_keeps_names_and_order_of_the_top_columns() -> None:
    node = linear(linear(T, p="`a`", q="`b`"), q="`q`", p="`p`")
    assert rewrite(node).columns == ("q", "p")


def test_rewrite_leaves_the_keyed_nodes_of_other_views_alone() -> None:
    spend = linear(Aggregate(T, ("c",), (call("n", "sum", "a"), call("m", "max", "b"))), c="`c`", n="`n` + 1", m="`m`")
    view = linear(spend, "`c` = 'x'", n="`n`")
    assert rewrite(view, keep=[spend]) == linear(spend.input, "`c` = 'x'", n="`n` + 1")
    assert rewrite(view) != rewrite(view, keep=[spend])


def test_rewrite_of_a_plan_that_doubles_itself_takes_no_exponential_time() -> None:
    node: Node = T
    for _ in range(30):
        aggregate = Aggregate(node, ("a",), (call("b", "sum", "b"), call("c", "max", "c")))
        node = Union((aggregate, aggregate))
    assert rewrite(node).columns == ("a", "b", "c")


# -- generators and functions -----------------------------------------------------------------------------------------


def test_a_condition_on_a_row_goes_below_what_is_made_of_the_row() -> None:
    generate = exploded(T, "a", "b")
    over = linear(generate, "`c` > 1 AND `x` > 2 AND `a` < `x`", x="`x`")
    below = replace(generate, input=linear(T, "`c` > 1", a="`a`", b="`b`", c="`c`"))
    assert push_filter(over, NONE) == linear(below, "`x` > 2 AND `a` < `x`", x="`x`")
    function = Function("f", "int", "m", "plain", b"")
    applied = Apply(T, (Applied("y", function, ("a",)),))
    moved = push_filter(linear(applied, "`b` = 1 AND `y` = 2", y="`y`"), NONE)
    assert moved == linear(Apply(linear(T, "`b` = 1", a="`a`", b="`b`", c="`c`"), applied.calls), "`y` = 2", y="`y`")


def test_a_generator_stays_and_a_call_that_nobody_reads_goes() -> None:
    generate = exploded(T, "a")
    pruned = prune_columns(linear(generate, b="`b`"), NONE)
    assert pruned == linear(replace(generate, input=linear(T, a="`a`", b="`b`")), b="`b`")
    function = Function("f", "int", "m", "plain", b"")
    calls = (Applied("y", function, ("a",)), Applied("z", function, ("b",)))
    pruned = prune_columns(linear(Apply(T, calls), z="`z`"), NONE)
    assert pruned == linear(Apply(linear(T, b="`b`"), calls[1:]), z="`z`")
    assert prune_columns(linear(Apply(T, calls), c="`c`"), NONE) == linear(linear(T, c="`c`"), c="`c`")
