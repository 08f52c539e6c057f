"""Joins: a tree of binary joins from relations and conditions.

Inner joins: ON and WHERE mean the same, so all conditions are conjuncts of one list. The tree is left-deep: it starts
with the first relation, and repeatedly takes the first one (in the order of FROM) that an equality connects with the
relations joined so far. Such equalities become the keys. The remaining conditions filter the result, and
`operators.rewrites.push_filter` moves them down. A relation that no equality connects is joined without a key: all rows
with all rows.

Outer, semi and anti joins: the conditions of ON decide what matches, so none of them may become a filter above. An
equality of both sides is a key. A condition on one side filters that side, if rows that fail it would not come out
anyway; otherwise it becomes a key that is NULL, and so matches nothing, unless the condition holds. A remaining
condition on both sides takes the join apart (`_apart`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.frontend.build_nodes import columns, extend, linear
from holdfast.frontend.column_names import label, unique
from holdfast.frontend.factored_conditions import factored
from holdfast.frontend.placeholders import has_placeholder, is_timed
from holdfast.frontend.uncorrelated_subqueries import Item, has_subquery
from holdfast.operators.join import Join
from holdfast.plan.expression import (
    TRUE,
    Column,
    SparkExpression,
    Tree,
    choice,
    conjunction,
    is_operation,
    null,
    references,
)
from holdfast.plan.nodes import Node, Union

How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class Key:
    """An equality that is a key of a join: the condition from which it comes, and its two sides."""

    condition: Tree
    left: Tree
    right: Tree
    null_safe: bool = False


def join_all(relations: Sequence[Node], conditions: Sequence[Tree]) -> tuple[Node, list[Tree]]:
    """Join all relations, whose column names differ. Return the inner join, and the conditions still to be checked on
    its rows."""
    relations, conditions = _on_time(relations, conditions)
    owner = {name: place for place, relation in enumerate(relations) for name in relation.columns}
    waiting, conditions = list(range(1, len(relations))), factored(conditions, [one.columns for one in relations])
    node, joined = relations[0], {0}
    while waiting:
        place, keys = _next(waiting, conditions, joined, owner)
        node = join(node, relations[place], keys)
        conditions = [each for each in conditions if all(each is not key.condition for key in keys)]
        joined.add(place)
        waiting.remove(place)
    return node, conditions


def _on_time(relations: Sequence[Node], conditions: Sequence[Tree]) -> tuple[list[Node], list[Tree]]:
    """Filter each relation by the conditions on the clock that read only it, so that dropped rows need not be joined or
    kept. Return the relations and the remaining conditions."""
    found, rest = list(relations), list(conditions)
    for place, relation in enumerate(relations if len(relations) > 1 else ()):
        own = [each for each in rest if is_timed(each) and used(each) <= set(relation.columns)]
        found[place] = filtered(relation, own)
        rest = [each for each in rest if all(each is not one for one in own)]
    return found, rest


def _next(waiting: list[int], conditions: list[Tree], joined: set[int], owner: dict[str, int]) -> tuple[int, list[Key]]:
    """Return the relation to join next, and its keys. An equality that takes NULLs as equal is a key only if there is
    no other."""
    for kind in ("=", "<=>"):
        for place in waiting:
            here = {name for name, one in owner.items() if one in joined}
            there = {name for name, one in owner.items() if one == place}
            keys: list[Key] = []
            for condition in conditions:
                key = key_of(condition, here, there) if is_operation(condition, kind) else None
                # An expression is a key only once: a second equality on it stays a condition, so key columns are
                # distinct.
                if key is not None and all(key.left != each.left and key.right != each.right for each in keys):
                    keys.append(key)
            if keys:
                return place, keys
    return waiting[0], []


def join_outer(left: Node, right: Node, how: How, conditions: Sequence[Tree]) -> Node:
    """Join ``left`` with ``right`` where all ``conditions`` hold. Columns: those of both (of the left one, if it is a
    semi or anti join), and maybe further ones."""
    if how == "right":
        swapped = join_outer(right, left, "left", conditions)
        return linear(swapped, None, columns(swapped, [*left.columns, *right.columns]))
    keys: list[Key] = []
    filters: tuple[list[Tree], list[Tree]] = ([], [])
    others: list[Tree] = []
    here, there = set(left.columns), set(right.columns)
    for condition in dict.fromkeys(conditions):
        key, reads = key_of(condition, here, there), used(condition)
        if key is not None:
            keys.append(key)
        elif how == "semi" and reads <= here:
            filters[0].append(condition)
        elif how != "full" and reads and reads <= there:
            filters[1].append(condition)
        elif reads <= here:
            keys.append(Key(condition, flag(condition), TRUE))
        elif reads <= there:
            keys.append(Key(condition, TRUE, flag(condition)))
        else:
            others.append(condition)
    left, right = (filtered(node, parts) for node, parts in zip((left, right), filters, strict=True))
    return _apart(left, right, keys, how, others) if others else join(left, right, keys, how)


def _apart(left: Node, right: Node, keys: list[Key], how: How, conditions: list[Tree]) -> Node:
    """Build a join with conditions that are not keys: the filtered inner join tells which rows match.

    A row of a side matches if it equals, in all columns, that side's part of a row of the filtered join. Rows that
    differ only in the sign of a zero are equal here, so what may tell them apart in the conditions is a column, too.
    """
    for place, side in enumerate((left, right)):
        signed = signed_parts(conditions, side)
        side, names = with_columns(side, signed, [*left.columns, *right.columns])
        made: dict[Tree, Tree] = {part: side.column(name) for part, name in zip(signed, names, strict=True)}
        conditions = [each.transform(made.get) for each in conditions]
        left, right = (left, side) if place else (side, right)
    both = [*left.columns, *right.columns]
    pairs = join(left, right, keys)
    inner = linear(pairs, conjunction(conditions), columns(pairs, list(dict.fromkeys(both))))

    def split(side: Node, how: Literal["semi", "anti"]) -> Node:
        taken = list(side.columns)
        names = [unique(name, taken) for name in side.columns]
        matched = linear(inner, None, [(new, side.column(old)) for new, old in zip(names, side.columns, strict=True)])
        return Join(side, matched, side.columns, tuple(names), how, (True,) * len(names))

    if how == "semi" or how == "anti":
        return split(left, how)
    parts = [inner]
    for side in (left, right) if how == "full" else (left,):
        items = [(name, side.column(name) if name in side.columns else null(inner.types[name])) for name in both]
        parts.append(linear(split(side, "anti"), None, items))
    return Union(tuple(parts))


def signed_parts(conditions: Sequence[Tree], side: Node) -> list[Tree]:
    """The parts of ``conditions`` that Spark computes from floating-point columns of ``side`` alone: only those may
    tell -0.0 from 0.0, as a cast to a text does."""
    found: dict[Tree, None] = {}
    for part in (part for each in conditions for part in each.walk()):
        if not isinstance(part, SparkExpression) or has_placeholder(part) or has_subquery(part):
            continue
        names = used(part)
        if names <= set(side.columns) and any(_is_floating(side.types[name]) for name in names):
            found[part] = None
    return list(found)


def _is_floating(kind: str) -> bool:
    return "float" in kind or "double" in kind


def filtered(node: Node, parts: list[Tree]) -> Node:
    return linear(node, conjunction(parts), columns(node)) if parts else node


def flag(condition: Tree) -> Tree:
    """TRUE where the condition holds, NULL elsewhere."""
    return choice(condition, TRUE)


def used(tree: Tree) -> set[str]:
    return set(references(tree))


def key_of(condition: Tree, here: set[str], there: set[str]) -> Key | None:
    """Return the condition as a key, if it is an equality between columns ``here`` and columns ``there``; else None."""
    if not is_operation(condition, "=", "<=>") or is_timed(condition):
        return None
    for left, right in (condition.parts, condition.parts[::-1]):
        ours, theirs = used(left), used(right)
        if ours and ours <= here and theirs and theirs <= there:
            return Key(condition, left, right, is_operation(condition, "<=>"))
    return None


def join(left: Node, right: Node, keys: list[Key], how: How = "inner") -> Node:
    assert how != "right"
    taken = [*left.columns, *right.columns]
    left, left_keys = with_columns(left, [key.left for key in keys], taken)
    taken += left.columns
    right, right_keys = with_columns(right, [key.right for key in keys], taken)
    flags = tuple(key.null_safe for key in keys)
    return Join(left, right, left_keys, right_keys, how, flags if any(flags) else ())


def with_columns(node: Node, trees: list[Tree], taken: Sequence[str]) -> tuple[Node, tuple[str, ...]]:
    """Return ``node`` with a column for each tree, and the names of these columns."""
    names: dict[Tree, str] = {}
    added: list[Item] = []
    for tree in trees:
        if isinstance(tree, Column):
            names[tree] = tree.name
        elif tree not in names:
            names[tree] = unique(label(tree), [*taken, *(each for each, _ in added)])
            added.append((names[tree], tree))
    return (extend(node, added) if added else node), tuple(names[tree] for tree in trees)
