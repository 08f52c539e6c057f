"""Factoring of OR: the conditions that all branches have in common, and those that they imply for each relation.

``(k = j AND a) OR (k = j AND b)`` is ``k = j AND (a OR b)``: only in this form is the equality a key of a join, and not
a condition on all rows with all rows. And ``(a1 AND b1) OR (a2 AND b2)``, where the a's are of one relation, implies
``a1 OR a2``, which can filter that relation before any join. Both hold for conditions that a row must satisfy, NULLs
included: an added condition is true wherever the whole is.

Branches with subqueries or draws are left alone, since these become joins and operators of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.frontend.placeholders import has_placeholder
from holdfast.frontend.uncorrelated_subqueries import has_subquery
from holdfast.plan.expression import Tree, chained, conjuncts, is_operation, references


def factored(conditions: Sequence[Tree], relations: Sequence[Collection[str]]) -> list[Tree]:
    """Return equivalent conditions, with the common parts of alternatives as conditions of their own, and with the
    conditions that they imply for each of the ``relations`` (given by their columns)."""
    result: list[Tree] = []
    for condition in conditions:
        parts = _common_first(condition) if _is_open(condition) else [condition]
        result += parts
        if len(relations) > 1:
            found = (_implied(part, set(columns)) for part in parts if _is_open(part) for columns in relations)
            result += [each for each in found if each is not None]
    return list(dict.fromkeys(result))


def _is_open(tree: Tree) -> bool:
    return is_operation(tree, "or") and not has_subquery(tree) and not has_placeholder(tree)


def _branches(tree: Tree) -> list[Tree]:
    return [part for each in tree.parts for part in _branches(each)] if is_operation(tree, "or") else [tree]


def _common_first(tree: Tree) -> list[Tree]:
    branches = [conjuncts(branch) for branch in _branches(tree)]
    common = [part for part in dict.fromkeys(branches[0]) if all(part in branch for branch in branches[1:])]
    if not common:
        return [tree]
    rests = [[part for part in branch if part not in common] for branch in branches]
    return common if not all(rests) else [*common, _any_of(rests)]


def _implied(tree: Tree, columns: set[str]) -> Tree | None:
    """Return the condition that ``tree`` implies for the relation with these columns; None if there is none, or it is
    ``tree``."""
    told = [[part for part in conjuncts(branch) if _is_about(part, columns)] for branch in _branches(tree)]
    if not all(told):
        return None
    implied = _any_of(told)
    return None if implied == tree else implied


def _is_about(tree: Tree, columns: set[str]) -> bool:
    used = set(references(tree))
    return bool(used) and used <= columns


def _any_of(branches: list[list[Tree]]) -> Tree:
    return chained("or", [chained("and", branch) for branch in branches])
