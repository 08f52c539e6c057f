"""Where a column comes from: its type, as far as a plan can tell before Spark has seen it."""

from __future__ import annotations

from holdfast.plan.expression import plain
from holdfast.plan.nodes import Aggregate, Draw, Join, Linear, Node, Source, TopK, Window


def source_type(node: Node, name: str) -> str | None:
    """The type of a column that comes straight from a source; None if it is computed on the way."""
    match node:
        case Source():
            return next(field.type for field in node.fields if field.name == name)
        case Linear():
            inner = plain(next(output.sql for output in node.outputs if output.name == name))
            return None if inner is None else source_type(node.input, inner)
        case Join():
            return source_type(node.left if name in node.left.columns else node.right, name)
        case Aggregate():
            return source_type(node.input, name) if name in node.keys else None
        case TopK() | Window() | Draw():
            return source_type(node.input, name) if name in node.input.columns else None
        case _:
            return None
