"""WITH RECURSIVE … UNION ALL, as Spark analyses it: a `UnionLoop` of an anchor and a term over the rows added last.

Spark computes levels: the anchor, then the term over the anchor, then the term over that level, and so on; the result
is all levels. If the term is linear (every row comes from one row of the level before), the term over the union of all
levels so far gives the same rows, one round later. Then the loop's rows are the fixpoint of ``Z = anchor + term(Z)``,
and round *r* adds level *r* - 1. Other terms (DISTINCT, LIMIT, the level joined with itself), which Spark computes
level by level, have no such fixpoint, and are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.frontend.catalyst.relation import Relation
from holdfast.frontend.catalyst.tree import CatalystOperator
from holdfast.operators.loops.building import Recursion, is_linear, loop_of
from holdfast.plan.nodes import Union

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Converter


def union_loop(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert a recursive common table expression to a loop."""
    anchor, term = operator.children
    first = converter.relation(anchor).exactly()
    leaf = converter.statement.loop_leaf(first.node.fields)
    converter.loops[int(operator.parameters["id"])] = leaf
    outer, converter.statement.in_loop = converter.statement.in_loop, True
    further = converter.relation(term).exactly()
    converter.statement.in_loop = outer
    if not is_linear(further.node, [leaf]):
        raise converter.statement.unsupported(
            "UNION ALL with a recursive term that is not linear", term, "write UNION, which asks for the fixpoint"
        )
    statement, depth = converter.statement, operator.parameters.get("maxDepth")
    bound = statement.max_rounds or (statement.limits.levels if depth is None else int(depth))
    body = Union((first.node, further.node))
    loop = loop_of(
        [Recursion(leaf, body)], 0, max_rounds=bound, max_rows=statement.limits.rows, subject=statement.subject
    )
    ids = [int(each["id"]) for each in operator.parameters["outputAttrIds"]]
    return Relation(loop, tuple(zip(ids, loop.columns, strict=True)))


def union_loop_ref(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert a reference to a recursive common table expression inside itself."""
    leaf = converter.loops[int(operator.parameters["loopId"])]
    attributes = operator.expressions("output")
    return Relation(leaf, tuple((each.id, name) for each, name in zip(attributes, leaf.columns, strict=True)))
