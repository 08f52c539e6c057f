"""Window functions as Spark writes them: for Spark's analysis, and for people."""

from __future__ import annotations

from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Frame, Order, Reach, Window, WindowCall

RANKINGS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
NEIGHBOURS = frozenset({"lag", "lead"})
VALUES = frozenset({"first_value", "last_value", "nth_value"})


def call_text(call: WindowCall) -> str:
    """``lag(`x`, 2, `d`) IGNORE NULLS``"""
    arguments = [quoted(name) for name in call.arguments]
    if call.function in NEIGHBOURS | {"nth_value", "ntile"}:
        arguments.insert(1, str(call.number))
    elif not arguments and call.function not in RANKINGS:
        arguments = ["*"]
    return f"{call.function}({', '.join(arguments)}){' IGNORE NULLS' if call.ignore_nulls else ''}"


def over_text(node: Window, call: WindowCall) -> str:
    """The call with its window: ``sum(`x`) OVER (PARTITION BY … ORDER BY … ROWS BETWEEN … AND …)``."""
    clauses = []
    if node.partition:
        clauses.append(f"PARTITION BY {', '.join(map(quoted, node.partition))}")
    if node.order:
        clauses.append(f"ORDER BY {', '.join(map(_order_text, node.order))}")
    if call.frame is not None:
        clauses.append(_frame_text(call.frame, call.reach))
    return f"{call_text(call)} OVER ({' '.join(clauses)})"


def _order_text(order: Order) -> str:
    return f"{quoted(order.column)}{' DESC' * order.descending} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def _frame_text(frame: Frame, reach: tuple[Reach | None, Reach | None]) -> str:
    start = _bound_text(frame.start, "PRECEDING") if reach[0] is None else reach[0].text
    end = _bound_text(frame.end, "FOLLOWING") if reach[1] is None else reach[1].text
    return f"{'ROWS' if frame.rows else 'RANGE'} BETWEEN {start} AND {end}"


def _bound_text(bound: int | None, side: str) -> str:
    if bound is None:
        return f"UNBOUNDED {side}"
    if bound == 0:
        return "CURRENT ROW"
    return f"{-bound} PRECEDING" if bound < 0 else f"{bound} FOLLOWING"
