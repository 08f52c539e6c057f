"""GROUPING SETS, ROLLUP and CUBE: from a GROUP BY clause to its keys, and the sets of keys to group by.

``GROUP BY a, ROLLUP (b, c)`` is the product of its elements' sets: (a, b, c), (a, b), (a). A set that occurs twice
counts twice, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

from sqlglot import exp

from holdfast.plan.expression import Tree

Set = tuple[Tree, ...]
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def keys_and_sets(group: Tree, resolve: Callable[[Tree], Tree]) -> tuple[list[Tree], list[Set] | None]:
    """The keys of GROUP BY, resolved, each once, and its sets of keys; None where there is but one set, of all keys."""
    elements: list[Tree] = list(group.expressions)
    for name, kind in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        for whole in group.args.get(name) or ():
            # WITH ROLLUP stands behind the keys that it is about.
            elements = [kind(expressions=elements)] if not whole.expressions else [*elements, whole]
    given = group.args.get("grouping_sets") or ()
    if not given and not any(isinstance(each, _SETS) for each in elements):
        return [resolve(each) for each in elements], None
    if given and not any(isinstance(each, _SETS) for each in elements):
        # GROUP BY a, b GROUPING SETS (…): the keys are listed in front.
        keys = [resolve(each) for each in elements]
        sets = [found for each in given for found in _sets(each, resolve)]
    else:
        parts = [_sets(each, resolve) for each in [*elements, *given]]
        sets = [tuple(tree for part in chosen for tree in part) for chosen in product(*parts)]
        keys = []
    sets = [tuple(dict.fromkeys(each)) for each in sets]
    written = [tree for each in [*elements, *given] for tree in _leaves(each, resolve)]
    return list(dict.fromkeys([*keys, *written])), sets


def _sets(element: Tree, resolve: Callable[[Tree], Tree]) -> list[Set]:
    """The sets of keys that one element of GROUP BY stands for."""
    match element:
        case exp.Rollup():
            units = [_unit(each, resolve) for each in element.expressions]
            return [_joined(units[:size]) for size in range(len(units), -1, -1)]
        case exp.Cube():
            units = [_unit(each, resolve) for each in element.expressions]
            sizes = range(len(units), -1, -1)
            return [_joined(chosen) for size in sizes for chosen in combinations(units, size)]
        case exp.GroupingSets():
            return [
                found
                for each in element.expressions
                for found in (_sets(each, resolve) if isinstance(each, _SETS) else [_unit(each, resolve)])
            ]
    return [(resolve(element),)]


def _unit(tree: Tree, resolve: Callable[[Tree], Tree]) -> Set:
    """``a``, ``(a, b)`` or ``()``: keys that come and go together."""
    return tuple(resolve(each) for each in (tree.expressions if isinstance(tree, exp.Tuple) else [tree]))


def _joined(units: Sequence[Set]) -> Set:
    return tuple(tree for unit in units for tree in unit)


def _leaves(element: Tree, resolve: Callable[[Tree], Tree]) -> list[Tree]:
    """The keys of an element in the order in which they are written."""
    if not isinstance(element, _SETS):
        return [resolve(element)]
    inner = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in element.expressions]
    return [tree for unit in inner for each in unit for tree in _leaves(each, resolve)]
