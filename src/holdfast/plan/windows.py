"""Window functions as Spark writes them, for people."""

from __future__ import annotations

from holdfast.plan.expression import quoted
from holdfast.plan.nodes import WindowCall

RANKINGS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
NEIGHBOURS = frozenset({"lag", "lead"})


def call_text(call: WindowCall) -> str:
    """``lag(`x`, 2, `d`) IGNORE NULLS``"""
    arguments = [quoted(name) for name in call.arguments]
    if call.function in NEIGHBOURS | {"nth_value", "ntile"}:
        arguments.insert(1, str(call.number))
    elif not arguments and call.function not in RANKINGS:
        arguments = ["*"]
    return f"{call.function}({', '.join(arguments)}){' IGNORE NULLS' if call.ignore_nulls else ''}"
