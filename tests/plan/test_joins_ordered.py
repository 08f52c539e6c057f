"""The order of joins: the same rows in any order, found again in one pass, and few exchanges for queries like TPC-H's.

Random regions of inner joins, with filters, renamings, outer and semi joins around them, are interpreted before and
after each rule. The number of exchanges is what the plan's placement says, and placement is compared with the dataflow.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from holdfast.operators.join import Join
from holdfast.operators.rewrites import rewrite
from holdfast.operators.rewrites.narrow_outer import narrow_outer
from holdfast.operators.rewrites.order_joins import order_joins
from holdfast.operators.rewrites.push_filter import push_filter
from holdfast.operators.rewrites.push_semi import push_semi
from holdfast.operators.rewrites.share_constants import share_constants
from holdfast.plan.dataflow import build
from holdfast.plan.expression import Tree, condition, number, readable
from holdfast.plan.nodes import Field, Linear, Named, Node, Source
from holdfast.plan.placement import placement
from holdfast.plan.schema import parse_schema
from holdfast.plan.walk import Kept, reachable

from ..planned import plan_sql, step
from .interpreter import Row, run
from .tpch import QUERIES, TABLES

NONE: Kept = frozenset()


class Maker:
    """A random plan of joins over sources of two or three columns, and their rows."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tables: dict[str, list[Row]] = {}

    def leaf(self) -> Node:
        place = len(self.tables)
        names = "abc"[: self.chance.choice((2, 2, 3))]
        source = Source(f"t{place}", tuple(Field(f"t{place}.{name}", "int") for name in names))
        values = [None, 0, 1, 2]
        self.tables[source.name] = [
            tuple(self.chance.choice(values) for _ in source.fields) for _ in range(self.chance.randrange(1, 7))
        ]
        if self.chance.random() < 0.3:
            return self.linear(source, self.condition(source))
        return source

    def condition(self, node: Node) -> Tree:
        one, other = (node.column(self.chance.choice(node.columns)) for _ in range(2))
        right = {"=": (number(1), other), "<": (number(2),), ">=": (other,)}
        name = self.chance.choice(("=", "=", "<", ">="))
        return condition(name, one, self.chance.choice(right[name]))

    def linear(self, node: Node, predicate: Tree | None, rename: bool = False) -> Linear:
        names = [name for name in node.columns if self.chance.random() < 0.9] or list(node.columns)
        return Linear(
            node, predicate, tuple(Named(f"{name}'" if rename else name, node.column(name)) for name in names)
        )

    def joined(self, leaves: int) -> Node:
        if leaves == 1:
            return self.leaf()
        split = self.chance.randrange(1, leaves)
        left, right = self.joined(split), self.joined(leaves - split)
        count = min(self.chance.choice((0, 1, 1, 1, 2)), len(left.columns), len(right.columns))
        how = self.chance.choice(("inner",) * 8 + ("left", "full", "semi", "anti"))
        node: Node = Join(
            left, right, tuple(self.chance.sample(left.columns, count)),
            tuple(self.chance.sample(right.columns, count)), how,  # type: ignore[arg-type]
        )  # fmt: skip
        if self.chance.random() < 0.4:
            return self.linear(node, self.condition(node), self.chance.random() < 0.3)
        return node


@pytest.mark.parametrize("block", range(5))
def test_joins_in_another_order_have_the_same_rows(block: int) -> None:
    ordered = 0
    for seed in range(block * 60, block * 60 + 60):
        maker = Maker(seed)
        plan = maker.joined(maker.chance.choice((3, 3, 4, 5)))
        expected = Counter(run(plan, maker.tables))
        for rule in (order_joins, push_semi, narrow_outer, push_filter, share_constants):
            better = rule(plan, NONE)
            assert better.columns == plan.columns, (seed, rule)
            assert Counter(run(better, maker.tables)) == expected, (seed, rule)
            ordered += rule is order_joins and better is not plan
        whole = rewrite(plan)
        assert Counter(run(whole, maker.tables)) == expected, seed
        assert rewrite(whole) is whole, seed
    assert ordered > 5, "the rule does something"


# -- what is known ----------------------------------------------------------------------------------------------------

A = Source("a", (Field("a.x", "int"), Field("a.y", "int")))
B = Source("b", (Field("b.x", "int"), Field("b.z", "int")))
C = Source("c", (Field("c.x", "int"), Field("c.z", "int")))


def joins(node: Node) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(each.left_keys, each.right_keys) for each in reachable(node) if isinstance(each, Join)]


def test_equalities_are_transitive_so_that_nothing_is_joined_with_everything() -> None:
    # a × c, and both with b: instead, a with b and that with c, by the same key, in one exchange.
    plan = Join(Join(A, C, (), ()), B, ("a.x", "c.x"), ("b.x", "b.x"))
    assert all(left for left, _ in joins(order_joins(plan, NONE)))
    assert placement(order_joins(plan, NONE)).stage == 1


def test_columns_of_one_relation_that_equal_a_third_must_be_equal() -> None:
    plan = Join(Join(A, B, ("a.x", "a.y"), ("b.x", "b.x")), C, ("b.z",), ("c.z",))
    tables: dict[str, list[Row]] = {"a": [(1, 1), (1, 2)], "b": [(1, 5)], "c": [(0, 5)]}
    assert Counter(run(order_joins(plan, NONE), tables)) == Counter([(1, 1, 1, 5, 0, 5)])


def test_a_node_that_others_read_is_a_relation_like_any_other() -> None:
    shared = Join(Join(A, B, ("a.x",), ("b.x",)), C, (), ())
    assert order_joins(shared, frozenset({id(shared)})) is shared


def test_a_constant_goes_to_all_columns_that_are_equal() -> None:
    plan = step(Join(A, B, ("a.x",), ("b.x",)), "`a.x` = 5", {"z": "`b.z`"})
    nodes = [each for each in reachable(rewrite(plan)) if isinstance(each, Linear)]
    filters = [readable(each.predicate) for each in nodes if each.predicate is not None]
    assert sorted(filters) == ["`a.x` = 5", "`b.x` = 5"]


def test_a_left_join_whose_made_up_rows_are_dropped_is_an_inner_one() -> None:
    plan = step(Join(A, B, ("a.x",), ("b.x",), "left"), "`b.z` > 1", {"y": "`a.y`"})
    narrowed = narrow_outer(plan, NONE)
    assert isinstance(narrowed, Linear) and isinstance(narrowed.input, Join) and narrowed.input.how == "inner"
    for kept in ("`b.z` IS NULL", "coalesce(`b.z`, 2) > 1", "`b.z` > 1 OR `a.y` > 1", "`b.z` <=> 1", "`a.y` > 1"):
        other = step(plan.input, kept, {"y": "`a.y`"})
        assert narrow_outer(other, NONE) is other, kept


# -- exchanges --------------------------------------------------------------------------------------------------------

CATALOG = {name: Source(name, parse_schema(schema, subject=name)) for name, schema in TABLES.items()}


def stages(node: Node) -> int:
    """The exchanges of the dataflow itself."""
    flow = build({"v": node}, {}, lambda _: True)
    return max(operator.stage for operator in flow.operators.values() if operator.kind != "log")


@pytest.mark.parametrize(
    ("query", "at_most"), [("q02", 6), ("q05", 4), ("q07", 4), ("q08", 4), ("q09", 4), ("q18", 4), ("q21", 8)]
)
def test_a_query_of_tpch_has_few_exchanges_and_no_join_without_a_key(query: str, at_most: int) -> None:
    plan = rewrite(plan_sql(query, QUERIES[query], CATALOG))
    assert stages(plan) <= at_most
    assert placement(plan).stage == stages(plan)
    assert all(left for left, _ in joins(plan))


def test_a_small_relation_is_joined_with_its_like_before_it_meets_a_large_one() -> None:
    plan = rewrite(plan_sql("q05", QUERIES["q05"], CATALOG))
    for each in reachable(plan):
        if isinstance(each, Join):
            sides = [{leaf.name for leaf in reachable(side) if isinstance(leaf, Source)} for side in each.inputs]
            if {"region"} in sides:
                assert {"nation"} in sides
