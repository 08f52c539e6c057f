"""What a plan means, said as plainly as possible: lists of rows, and expressions evaluated value by value.

Knows the operators that `tests.frontend.queries` generates. NULL is None; booleans are True, False and None.
"""

from __future__ import annotations

import operator
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.apply import Apply
from holdfast.operators.generate import Generate
from holdfast.operators.join import Join
from holdfast.operators.loop import Loop
from holdfast.operators.loops.body import input_name, variable_name
from holdfast.operators.set_operation import SetOperation
from holdfast.operators.threshold import Threshold
from holdfast.operators.topk import TopK
from holdfast.operators.window import Window
from holdfast.operators.window_functions import WindowCall
from holdfast.plan.expression import FOREIGN, Column, Literal, Operation, SparkExpression, Tree
from holdfast.plan.nodes import Linear, Node, Order, Source, Union

Row = tuple[Any, ...]

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def run(node: Node, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The rows of a plan over the given sources."""
    match node:
        case Source():
            return list(tables[node.name])
        case Linear():
            outputs = [output.expression for output in node.outputs]
            predicate = node.predicate
            rows = [dict(zip(node.input.columns, row, strict=True)) for row in run(node.input, tables)]
            kept = [row for row in rows if predicate is None or evaluate(predicate, row) is True]
            return [tuple(evaluate(tree, row) for tree in outputs) for row in kept]
        case Generate():
            (argument,) = node.arguments
            found = []
            for row in run(node.input, tables):
                values = evaluate(argument, dict(zip(node.input.columns, row, strict=True))) or []
                found += [(*row, value) for value in (values or [None] if node.outer else values)]
            return found
        case Apply():
            places = [[node.input.columns.index(name) for name in call.arguments] for call in node.calls]
            bodies = [pickle.loads(call.function.pickled) for call in node.calls]
            return [
                row + tuple(body(*(row[each] for each in own)) for body, own in zip(bodies, places, strict=True))
                for row in run(node.input, tables)
            ]
        case Union():
            return [row for each in node.inputs for row in run(each, tables)]
        case SetOperation():
            ours, theirs = Counter(run(node.left, tables)), Counter(run(node.right, tables))
            if not node.all:
                ours, theirs = Counter(ours.keys()), Counter({row: len(ours) for row in theirs})
            return list(((ours & theirs) if node.kind == "intersect" else (ours - theirs)).elements())
        case Threshold():
            pairs = _join(_as_join(node), run(node.left, tables), run(node.right, tables))
            value, bound = (
                side.columns.index(name) for side, name in ((node.left, node.value), (node.right, node.bound))
            )
            width = len(node.left.columns)
            return [row[:width] for row in pairs if _holds(node.comparison, row[value], row[width + bound])]
        case Join():
            return _join(node, run(node.left, tables), run(node.right, tables))
        case Aggregate():
            columns = node.input.columns
            groups = _keyed(run(node.input, tables), [columns.index(key) for key in node.keys])
            if not node.keys:
                groups = groups or {(): []}
            return [key + tuple(_call(call, rows, columns) for call in node.calls) for key, rows in groups.items()]
        case Loop():
            return _loop(node, [run(each, tables) for each in node.inputs])
        case TopK():
            return _sorted(run(node.input, tables), node.order, node.columns)[node.offset : node.offset + node.limit]
        case Window():
            columns = node.input.columns
            order = [columns.index(each.column) for each in node.order]
            found = []
            for part in _keyed(run(node.input, tables), [columns.index(key) for key in node.partition]).values():
                rows = _sorted(part, node.order, columns)
                peers = [tuple(row[place] for place in order) for row in rows]
                for at, row in enumerate(rows):
                    found.append(row + tuple(_over(call, rows, at, peers, columns) for call in node.calls))
            if node.first is not None:
                place = node.columns.index(node.first.call)
                found = [row for row in found if row[place] <= node.first.count]
            return found


def _loop(node: Loop, inputs: Sequence[Sequence[Row]]) -> list[Row]:
    """Round by round, from nothing or from a start."""
    given = {input_name(index): rows for index, rows in enumerate(inputs)}
    now = [[] if each.start is None else list(inputs[each.start]) for each in node.variables]
    for _ in range(node.max_rounds if node.rounds is None else node.rounds):
        held = {**given, **{variable_name(index): rows for index, rows in enumerate(now)}}
        following = [run(each.body, held) for each in node.variables]
        if node.rounds is None and [Counter(rows) for rows in following] == [Counter(rows) for rows in now]:
            break
        now = following
    return now[node.result]


def _sorted(rows: list[Row], order: Sequence[Order], columns: tuple[str, ...]) -> list[Row]:
    """In order, ties by the whole row."""
    rows = sorted(rows, key=lambda row: [_ascending(value) for value in row])
    for each in reversed(order):
        place = columns.index(each.column)
        nulls = [row for row in rows if row[place] is None]
        others = [row for row in rows if row[place] is not None]
        others.sort(key=lambda row: row[place], reverse=each.descending)
        rows = nulls + others if each.nulls_first else others + nulls
    return rows


def _over(call: WindowCall, rows: list[Row], at: int, peers: list[Row], columns: tuple[str, ...]) -> Any:
    """A window function's value for the row at a place of its partition."""
    first, last = peers.index(peers[at]), len(peers) - 1 - peers[::-1].index(peers[at])
    match call.function:
        case "row_number":
            return at + 1
        case "rank":
            return first + 1
        case "dense_rank":
            return len(set(peers[: first + 1]))
        case "lag" | "lead":
            place = at - call.number if call.function == "lag" else at + call.number
            if 0 <= place < len(rows):
                return rows[place][columns.index(call.arguments[0])]
            return rows[at][columns.index(call.arguments[1])] if len(call.arguments) > 1 else None
    frame = call.frame
    assert frame is not None
    low = 0 if frame.start is None else max(at + frame.start, 0) if frame.rows else first
    high = len(rows) if frame.end is None else max(at + frame.end + 1, 0) if frame.rows else last + 1
    inside = rows[low:high]
    if call.function in ("first_value", "last_value"):
        row = None if not inside else inside[0 if call.function == "first_value" else -1]
        return None if row is None else row[columns.index(call.arguments[0])]
    return _call(Call(call.name, call.function, call.arguments, call.type), inside, columns)


def _join(node: Join, left: list[Row], right: list[Row]) -> list[Row]:
    strict = [place for place in range(len(node.left_keys)) if not (node.null_safe and node.null_safe[place])]
    ours = [node.left.columns.index(key) for key in node.left_keys]
    theirs = [node.right.columns.index(key) for key in node.right_keys]

    def match(one: Row, other: Row) -> bool:
        keys = [one[place] for place in ours], [other[place] for place in theirs]
        return keys[0] == keys[1] and all(keys[0][place] is not None for place in strict)

    matched = [row for row in left if any(match(row, other) for other in right)]
    alone = [row for row in left if not any(match(row, other) for other in right)]
    if node.how in ("semi", "anti"):
        return matched if node.how == "semi" else alone
    rows = [row + other for row in left for other in right if match(row, other)]
    if node.how in ("left", "full"):
        rows += [row + (None,) * len(node.right.columns) for row in alone]
    if node.how == "full":
        orphans = [other for other in right if not any(match(row, other) for row in left)]
        rows += [(None,) * len(node.left.columns) + other for other in orphans]
    return rows


def _as_join(node: Threshold) -> Join:
    return Join(node.left, node.right, node.left_keys, node.right_keys, "inner", node.null_safe)


def _holds(comparison: str, value: Any, bound: Any) -> bool:
    if value is None or bound is None:
        return False
    return bool(value != bound if comparison == "<>" else BINARY[comparison](value, bound))


def _ascending(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)


def _keyed(rows: list[Row], places: list[int]) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[place] for place in places)].append(row)
    return dict(groups)


def _call(call: Call, rows: list[Row], columns: tuple[str, ...]) -> Any:
    picked = [tuple(row[columns.index(name)] for name in call.arguments) for row in rows]
    present = [values for values in picked if None not in values]
    if call.function == "count":
        return len(set(present)) if call.distinct else len(present)
    values = [value for (value,) in (set(present) if call.distinct else present)]
    if not values:
        return None
    return {"sum": sum, "min": min, "max": max, "any_value": min}[call.function](values)


def evaluate(tree: Tree, row: Mapping[str, Any]) -> Any:
    """The value of an expression on a row."""
    match tree:
        case Column():
            return row[tree.name]
        case Literal():
            return tree.value
        case SparkExpression():
            known = FOREIGN.fullmatch(tree.name)
            assert known is not None
            return _function(known[1], [evaluate(each, row) for each in tree.holes])
        case Operation():
            return _operation(tree.name, [evaluate(each, row) for each in tree.operands])
    raise AssertionError(f"{tree} is not known here")


def _operation(name: str, values: list[Any]) -> Any:
    match name:
        case "negative":
            return None if values[0] is None else -values[0]
        case "cast":  # of numbers to wider ones
            return values[0]
        case "not":
            return None if values[0] is None else not values[0]
        case "is null":
            return values[0] is None
        case "and" | "or":
            decisive = name == "or"
            return decisive if decisive in values else None if None in values else not decisive
        case "in":
            value, *others = values
            if value is None:
                return None
            return True if value in others else None if None in others else False
        case "case":
            *pairs, otherwise = values
            found = [value for test, value in zip(pairs[::2], pairs[1::2], strict=True) if test is True]
            return found[0] if found else otherwise
        case "coalesce":
            return next((value for value in values if value is not None), None)
        case "<=>":
            return bool(values[0] == values[1])
    return None if None in values else BINARY[name](*values)


def _function(name: str, values: list[Any]) -> Any:
    return None if values[0] is None else {"abs": abs, "upper": str.upper}[name](values[0])
