"""PySpark's `Column` expressions as SQL text, so that both fronts build the same plan.

A Column is a tree of nodes in the JVM. Their own ``sql()`` is for messages, not for parsing: it writes ``*(a, 2)``,
loses DISTINCT, and leaves dates without quotes. So the tree is walked here, node by node; what is not known is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pyspark.sql import Column

from holdfast.errors import DeclarationError
from holdfast.plan.expression import quoted

_INFIX = {"+", "-", "*", "/", "%", "&", "|", "^", "=", "==", "!=", "<>", ">", ">=", "<", "<=", "<=>", "and", "or"}
_PREFIX = {"!": "NOT ", "not": "NOT ", "~": "~"}
_SEEDED = ("rand", "random", "randn", "uuid")


def column_sql(column: Any) -> str:
    """The SQL text of a Column."""
    if not isinstance(column, Column):
        raise DeclarationError(f"expected a column name, a SQL text or a Column, found {column!r}")
    node = column._jc.node()  # the only way to a Column's tree in PySpark 4
    if _kind(node) == "SqlExpression":
        return str(node.expression())  # may carry an alias of its own
    if _kind(node) == "Alias":
        names = [quoted(str(each)) for each in _items(node.name())]
        listed = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return f"{_text(node.child())} AS {listed}"
    return _sorted(node) if _kind(node) == "SortOrder" else _text(node)


def _sorted(node: Any) -> str:
    direction = "DESC" if _kind(node.sortDirection()) == "Descending$" else "ASC"
    nulls = "FIRST" if _kind(node.nullOrdering()) == "NullsFirst$" else "LAST"
    return f"{_text(node.child())} {direction} NULLS {nulls}"


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(place) for place in range(sequence.size()))


def _text(node: Any) -> str:
    match _kind(node):
        case "UnresolvedAttribute":
            return ".".join(quoted(str(part)) for part in _items(node.nameParts()))
        case "UnresolvedStar":
            return str(node.unparsedTarget().get()) if node.unparsedTarget().isDefined() else "*"
        case "Literal":
            return _literal(node)
        case "SqlExpression":
            return f"({node.expression()})"
        case "Alias":
            return f"{_text(node.child())} AS {quoted(str(next(_items(node.name()))))}"  # inside struct(…)
        case "Cast":
            tried = node.evalMode().isDefined() and _kind(node.evalMode().get()) == "Try$"
            return f"{'TRY_CAST' if tried else 'CAST'}({_text(node.child())} AS {node.dataType().sql()})"
        case "CaseWhenOtherwise":
            branches = [f"WHEN {_text(pair._1())} THEN {_text(pair._2())}" for pair in _items(node.branches())]
            last = f" ELSE {_text(node.otherwise().get())}" if node.otherwise().isDefined() else ""
            return f"CASE {' '.join(branches)}{last} END"
        case "UnresolvedExtractValue":
            return f"{_text(node.child())}[{_text(node.extraction())}]"
        case "UnresolvedFunction":
            return _function(node)
        case "LambdaFunction":
            variables = ", ".join(_text(each) for each in _items(node.arguments()))
            return f"({variables}) -> {_text(node.function())}"
        case "UnresolvedNamedLambdaVariable":
            return str(node.name())
        case "Window":
            return f"{_text(node.windowFunction())} OVER ({_window(node.windowSpec())})"
    raise DeclarationError(f"Column {node.sql()}: {_kind(node)} cannot be turned into SQL; write it as SQL text")


def _function(node: Any) -> str:
    name = str(node.functionName())
    arguments = [_text(each) for each in _items(node.arguments())]
    if name.lower() in _INFIX and len(arguments) == 2:
        return f"({arguments[0]} {name.upper()} {arguments[1]})"
    if name.lower() in _PREFIX and len(arguments) == 1:
        return f"({_PREFIX[name.lower()]}{arguments[0]})"
    if name.lower() in _SEEDED and len(arguments) == 1 and _is_made_up(arguments[0]):
        return f"{name}()"
    if name.lower() == "in":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    return f"{name}({'DISTINCT ' if node.isDistinct() else ''}{', '.join(arguments)})"


def _window(spec: Any) -> str:
    """What stands in the parentheses of OVER."""
    partition = [_text(each) for each in _items(spec.partitionColumns())]
    order = [_sorted(each) for each in _items(spec.sortColumns())]
    clauses = [f"PARTITION BY {', '.join(partition)}"] if partition else []
    clauses += [f"ORDER BY {', '.join(order)}"] if order else []
    if spec.frame().isDefined():
        frame = spec.frame().get()
        unit = "ROWS" if _kind(frame.frameType()) == "Row$" else "RANGE"
        clauses.append(f"{unit} BETWEEN {_bound(frame.lower())} AND {_bound(frame.upper())}")
    return " ".join(clauses)


def _bound(node: Any) -> str:
    match _kind(node):
        case "CurrentRow$":
            return "CURRENT ROW"
        case "UnboundedPreceding$":
            return "UNBOUNDED PRECEDING"
        case "UnboundedFollowing$":
            return "UNBOUNDED FOLLOWING"
    offset = _text(node.value())
    return f"{offset[1:]} PRECEDING" if offset.startswith("-") else f"{offset} FOLLOWING"


def _is_made_up(seed: str) -> bool:
    """``F.rand()`` puts a seed of 64 random bits into the tree, another in every run: the view would mean something new
    each time it is declared. A seed that large is taken for one of those; without it a call is drawn for itself."""
    number = seed.removesuffix("L")
    return number.lstrip("-").isdigit() and abs(int(number)) >= 1 << 32


def _literal(node: Any) -> str:
    value = node.value()
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return str(node.sql())  # 1, or 1L: only the JVM still knows which
        case float():
            return f"{value!r}D" if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
    match _kind(value):
        case "Date" | "LocalDate":
            return f"DATE '{value.toString()}'"
        case "Timestamp":
            return f"TIMESTAMP '{value.toInstant().toString()}'"
        case "Instant":
            return f"TIMESTAMP '{value.toString()}'"
        case "LocalDateTime":
            return f"TIMESTAMP_NTZ '{value.toString()}'"
    raise DeclarationError(f"Column {node.sql()}: a literal of type {_kind(value)} cannot be turned into SQL")
