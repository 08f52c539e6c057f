"""Joins: relations and conditions to a tree of binary equi-joins.

All joins are inner, so ON and WHERE mean the same and every condition is one conjunct of one list. The tree is
left-deep: it starts at the first relation and takes, again and again, the first one (in the order of FROM) that an
equality connects to what is joined already. Such equalities become the keys; what is left over filters the result,
and `plan.rewrites.push_filter` moves it to where it belongs. A relation that no equality connects is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from holdfast.frontend.build import Item, extend, label, linear, unique
from holdfast.frontend.names import Relation
from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Join, Node


def qualified(relation: Relation, taken: Sequence[str]) -> Relation:
    """The relation with columns named ``alias.column``, so that they stay apart in a join."""
    internal: list[str] = []
    for name in relation.columns:
        wanted = f"{relation.alias}.{name}" if relation.alias else name
        internal.append(unique(wanted, [*taken, *internal]))
    items = [(new, column(old)) for new, old in zip(internal, relation.internal, strict=True)]
    return Relation(relation.alias, linear(relation.node, None, items), relation.columns, tuple(internal))


def join_all(
    relations: Sequence[Relation], places: Sequence[Tree], conditions: Sequence[Tree], text: Text
) -> tuple[Node, list[Tree]]:
    """The join of all relations, and the conditions that are still to be checked on its rows."""
    owner = {name: place for place, relation in enumerate(relations) for name in relation.internal}
    waiting, conditions = list(range(1, len(relations))), list(conditions)
    node, joined = relations[0].node, {0}
    while waiting:
        for place in waiting:
            keys = _keys(conditions, joined, place, owner)
            if keys:
                break
        else:
            touching = any(waiting[0] in (used := _used(each, owner)) and len(used) > 1 for each in conditions)
            name = relations[waiting[0]].alias
            construct = "a join without an equality" if touching else "a cross join"
            raise text.unsupported(
                construct, places[waiting[0]], f"no condition of the form left = right connects {name!r} to the rest"
            )
        node = _join(node, relations[place].node, keys)
        conditions = [each for each in conditions if all(each is not condition for condition, _, _ in keys)]
        joined.add(place)
        waiting.remove(place)
    return node, conditions


def _used(tree: Tree, owner: dict[str, int]) -> set[int]:
    return {owner[node.name] for node in tree.find_all(exp.Column)}


def _keys(conditions: list[Tree], joined: set[int], place: int, owner: dict[str, int]) -> list[tuple[Tree, Tree, Tree]]:
    """(condition, left key, right key) for each equality between what is joined and the relation at ``place``.

    An expression is a key once: a second equality on it stays a condition, so that key columns are distinct.
    """
    keys: list[tuple[Tree, Tree, Tree]] = []
    for condition in conditions:
        if not isinstance(condition, exp.EQ):
            continue
        for left, right in ((condition.this, condition.expression), (condition.expression, condition.this)):
            here, there = _used(left, owner), _used(right, owner)
            fresh = all(left != other[1] and right != other[2] for other in keys)
            if here and here <= joined and there == {place} and fresh:
                keys.append((condition, left, right))
                break
    return keys


def _join(left: Node, right: Node, keys: list[tuple[Tree, Tree, Tree]]) -> Node:
    taken = [*left.columns, *right.columns]
    left, left_keys = _with_columns(left, [key for _, key, _ in keys], taken)
    taken += left.columns
    right, right_keys = _with_columns(right, [key for _, _, key in keys], taken)
    return Join(left, right, left_keys, right_keys)


def _with_columns(node: Node, trees: list[Tree], taken: Sequence[str]) -> tuple[Node, tuple[str, ...]]:
    """``node`` with a column for each tree, and the names of these columns."""
    names: list[str] = []
    added: list[Item] = []
    for tree in trees:
        if isinstance(tree, exp.Column):
            names.append(tree.name)
            continue
        name = unique(label(tree), [*taken, *(each for each, _ in added)])
        names.append(name)
        added.append((name, tree))
    return (extend(node, added) if added else node), tuple(names)
