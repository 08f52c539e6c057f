"""Fingerprints: what an operator means, as 16 hex digits. State is found again by it.

Two nodes have the same fingerprint only if they hold the same rows in the same columns *by position*, so that one can
read the state that the other wrote. Names of columns do not matter, except a source's: those say which data it reads.
Each node says what goes into its own (`Node.meaning`). Expressions are compared over input positions; AND ignores order
and repetition; a `Linear` that only renames is its input.

`VERSION` goes into every fingerprint: when the meaning of an operator, or what it keeps in its trace, changes, state of
the old version is not to be found. Before it is raised, a source must be left out of that: it would also hide the rows
that a log keeps of inputs that code pushed, and nothing else has those.

Cost: linear in the number of distinct nodes (shared ones count once).
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
    """The fingerprint of ``node``: 16 hex digits."""
    return fingerprints(reachable(node))[id(node)]


def fingerprints(nodes: Sequence[Node]) -> dict[int, str]:
    """The fingerprints of all nodes of a plan, inputs before those that read them, by identity."""
    # Not by value: hashing a node would walk a shared input once per path to it.
    known: dict[int, str] = {}
    for each in nodes:
        known[id(each)] = each.meaning(*(known[id(child)] for child in each.inputs))
    return known


def digest(*parts: object) -> str:
    """The fingerprint of what these parts say: the name of an operator, its inputs' fingerprints, plain values."""
    # repr quotes texts, so that different parts never give the same bytes
    return blake2b(repr((VERSION, *parts)).encode(), digest_size=8).hexdigest()


def positions(names: Sequence[str], columns: Sequence[str]) -> tuple[int, ...]:
    """Where the columns ``names`` are among ``columns``."""
    return tuple(columns.index(name) for name in names)


def order_positions(order: Sequence[Order], columns: Sequence[str]) -> tuple[tuple[int, bool, bool], ...]:
    """An order over positions: column, descending, nulls first."""
    return tuple((columns.index(each.column), each.descending, each.nulls_first) for each in order)


def shape(tree: Tree, indices: Mapping[str, int]) -> object:
    """An expression over input positions, in plain values whose texts are the same in every process."""
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
