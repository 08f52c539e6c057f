"""Fingerprints: a hash of an operator's meaning, as 16 hex digits. An operator finds its state by its fingerprint.

Two nodes have the same fingerprint only if they hold the same rows in the same columns *by position*, so that each can
read the state that the other wrote. Names of columns do not matter, except a source's: they select the data it reads.
Each node computes its own fingerprint (`Node.meaning`). Expressions are compared over input positions; AND ignores
order and repetition; a `Linear` that only renames columns has the fingerprint of its input.

`VERSION` goes into every fingerprint: when the meaning of an operator or the content of its trace changes, state of the
old version must not be found. Before it is raised, sources must be excluded from it: otherwise the rows of inputs that
code pushed would not be found either, and they exist only in the log.

Cost: linear in the number of distinct nodes (a shared node counts once).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from holdfast.plan.expression import (
    Column,
    Lambda,
    Literal,
    Operation,
    SparkExpression,
    Tree,
    Variable,
)
from holdfast.plan.walk import reachable

if TYPE_CHECKING:
    from holdfast.plan.nodes import Node, Order

VERSION = 1


def fingerprint(node: Node) -> str:
    """Return the fingerprint of ``node``: 16 hex digits."""
    return fingerprints(reachable(node))[id(node)]


def fingerprints(nodes: Sequence[Node]) -> dict[int, str]:
    """Return the fingerprints of all nodes of a plan: ``id(node)`` → fingerprint. Inputs must come before their
    readers."""
    # Keyed by identity, not by value: hashing a node would walk a shared input once per path to it.
    known: dict[int, str] = {}
    for each in nodes:
        known[id(each)] = each.meaning(*(known[id(child)] for child in each.inputs))
    return known


def digest(*parts: object) -> str:
    """Hash the parts of a meaning into a fingerprint: the operator's name, its inputs' fingerprints, plain values."""
    # repr quotes strings, so that different parts never give the same bytes
    return blake2b(repr((VERSION, *parts)).encode(), digest_size=8).hexdigest()


def positions(names: Sequence[str], columns: Sequence[str]) -> tuple[int, ...]:
    """The positions of the columns ``names`` among ``columns``."""
    return tuple(columns.index(name) for name in names)


def order_positions(order: Sequence[Order], columns: Sequence[str]) -> tuple[tuple[int, bool, bool], ...]:
    """An order over positions: (position, descending, nulls first) of each column."""
    return tuple((columns.index(each.column), each.descending, each.nulls_first) for each in order)


def shape(tree: Tree, indices: Mapping[str, int]) -> object:
    """An expression over input positions, as plain values whose ``repr`` is the same in every process."""
    match tree:
        case Column():
            return f"`${indices[tree.name]}`"
        case Literal():
            return tree.type, tree.value
        case Operation():
            return tree.name, tree.type, *[shape(each, indices) for each in tree.operands]
        case SparkExpression():
            return tree.name, *[shape(each, indices) for each in tree.holes]
        case Variable():
            return "variable", tree.name
        case Lambda():
            return "lambda", *[each.name for each in tree.variables], shape(tree.body, indices)
    raise AssertionError(f"{tree} is no expression of a plan")
