"""Fingerprints: what an operator means, as 16 hex digits. State is found again by it.

Two nodes have the same fingerprint only if they hold the same rows in the same columns *by position*, so that one can
read the state that the other wrote. Names of columns do not matter, except a source's: those say which data it reads.
Expressions are compared over input positions; AND ignores order and repetition; a `Linear` that only renames is its
input. `VERSION` goes into every fingerprint: when the meaning of an operator, or what it keeps in its trace, changes,
state of the old version is not to be found. Before it is raised, a source must be left out of that: it would also hide
the rows that a log keeps of inputs that code pushed, and nothing else has those.

Cost: linear in the number of distinct nodes (shared ones count once).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from holdfast.plan.expression import (
    Column,
    Lambda,
    Literal,
    Operation,
    SparkExpression,
    Tree,
    Variable,
    conjuncts,
    plain,
)
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Draw,
    Generate,
    Join,
    Linear,
    Node,
    Order,
    SetOperation,
    Source,
    Temporal,
    TopK,
    Union,
    Window,
)
from holdfast.plan.walk import reachable

VERSION = 1


def fingerprint(node: Node) -> str:
    """The fingerprint of ``node``: 16 hex digits."""
    # Known by identity, not by value: hashing a node would walk a shared input once per path to it.
    known: dict[int, str] = {}
    for each in reachable(node):
        known[id(each)] = _compute(each, known)
    return known[id(node)]


def _compute(node: Node, known: Mapping[int, str]) -> str:
    """The fingerprint of a node whose inputs' are known."""
    match node:
        case Source():
            return _digest("source", node.name, tuple((field.name, field.type) for field in node.fields))
        case Linear():
            inner, columns = known[id(node.input)], node.input.columns
            if node.predicate is None and tuple(plain(output.expression) for output in node.outputs) == columns:
                return inner
            places = {name: place for place, name in enumerate(columns)}
            conditions = tuple(sorted({repr(_shape(part, places)) for part in conjuncts(node.predicate)}))
            return _digest("linear", inner, conditions, tuple(_shape(each.expression, places) for each in node.outputs))
        case Generate():
            places = {name: place for place, name in enumerate(node.input.columns)}
            arguments = tuple(_shape(each, places) for each in node.arguments)
            return _digest("generate", known[id(node.input)], node.function, arguments, node.outer, len(node.made))
        case Apply():
            applied = tuple(
                (each.function.meaning, each.function.returns, _positions(each.arguments, node.input.columns))
                for each in node.calls
            )
            return _digest("apply", known[id(node.input)], applied)
        case Union():
            # A bag has no order, so neither have the inputs.
            return _digest("union", tuple(sorted(known[id(each)] for each in node.inputs)))
        case SetOperation():
            return _digest(node.kind, node.all, known[id(node.left)], known[id(node.right)])
        case Join():
            # An inner join has nothing behind its keys: it had a fingerprint before there were others.
            kind = () if node.how == "inner" and not node.null_safe else (node.how, node.null_safe)
            return _digest(
                "join",
                known[id(node.left)],
                known[id(node.right)],
                _positions(node.left_keys, node.left.columns),
                _positions(node.right_keys, node.right.columns),
                *kind,
            )
        case Aggregate():
            columns = node.input.columns
            calls = tuple(
                (call.function, _positions(call.arguments, columns), call.distinct, *call.parameters)
                for call in node.calls
            )
            return _digest("aggregate", known[id(node.input)], _positions(node.keys, columns), calls)
        case TopK():
            return _digest("topk", known[id(node.input)], _order(node.order, node.columns), node.limit, node.offset)
        case Window():
            columns = node.input.columns
            functions = tuple(
                (
                    call.function,
                    _positions(call.arguments, columns),
                    call.number,
                    None if call.frame is None else (call.frame.rows, call.frame.start, call.frame.end),
                    call.ignore_nulls,
                    tuple(None if end is None else columns.index(end.column) for end in call.reach),
                )
                for call in node.calls
            )
            partition = _positions(node.partition, columns)
            names = [call.name for call in node.calls]
            first = None if node.first is None else (names.index(node.first.call), node.first.count)
            return _digest("window", known[id(node.input)], partition, _order(node.order, columns), functions, first)
        case Draw():
            draws = tuple(
                (
                    each.function,
                    each.salt,
                    _positions(each.arguments, node.input.columns),
                    each.type,
                    None if each.outside is None else each.outside.meaning,
                )
                for each in node.draws
            )
            return _digest("draw", known[id(node.input)], draws)
        case Temporal():
            moments = (None if name is None else node.columns.index(name) for name in (node.start, node.end))
            return _digest("temporal", known[id(node.input)], *moments)


def _digest(*parts: object) -> str:
    # repr quotes texts, so that different parts never give the same bytes
    return blake2b(repr((VERSION, *parts)).encode(), digest_size=8).hexdigest()


def _positions(names: tuple[str, ...], columns: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(columns.index(name) for name in names)


def _order(order: tuple[Order, ...], columns: tuple[str, ...]) -> tuple[tuple[int, bool, bool], ...]:
    return tuple((columns.index(each.column), each.descending, each.nulls_first) for each in order)


def _shape(tree: Tree, places: Mapping[str, int]) -> object:
    """An expression over input positions, in plain values whose texts are the same in every process."""
    match tree:
        case Column():
            return f"`${places[tree.name]}`"
        case Literal():
            return tree.type, tree.value
        case Operation():
            return tree.name, tree.type, *[_shape(each, places) for each in tree.operands]
        case SparkExpression():
            return tree.name, *[_shape(each, places) for each in tree.holes]
        case Variable():
            return "variable", tree.name
        case Lambda():
            return "lambda", *[each.name for each in tree.variables], _shape(tree.body, places)
    raise AssertionError(f"{tree} is no expression of a plan")
