"""Rewrites: rules that turn a plan into an equivalent plan that costs less. One rule per file; `RULES` is their order.

A rule takes a whole plan and returns a whole plan with the same rows in the same columns (names and order). If there is
nothing to do, it returns the same object. The rules are applied in turn until none changes the plan.

Keyed nodes hold state, and state that two views share is kept once, by fingerprint. So a keyed node with another
reader, in another view (``keep``) or in this plan, is never changed: a filter pushed into it would make a second node
with its own state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.operators.rewrites.drop_identity import drop_identity
from holdfast.operators.rewrites.first_rows import first_rows
from holdfast.operators.rewrites.fuse_linear import fuse_linear
from holdfast.operators.rewrites.narrow_outer import narrow_outer
from holdfast.operators.rewrites.order_joins import order_joins
from holdfast.operators.rewrites.prune_columns import prune_columns
from holdfast.operators.rewrites.push_filter import push_filter
from holdfast.operators.rewrites.push_semi import push_semi
from holdfast.operators.rewrites.share_constants import share_constants
from holdfast.operators.rewrites.threshold import threshold
from holdfast.plan.nodes import Node
from holdfast.plan.walk import Kept, Rule, reachable

RULES: tuple[Rule, ...] = (
    fuse_linear,
    narrow_outer,
    share_constants,
    push_filter,
    push_semi,
    order_joins,
    prune_columns,
    drop_identity,
    first_rows,
    threshold,
)

IN_LOOPS: tuple[Rule, ...] = tuple(rule for rule in RULES if rule is not threshold)
"""The rules for the body of a loop, where an inner join costs less than another operator (`operators.loops.pairs`)."""

_ROUNDS = 50


def rewrite(node: Node, keep: Iterable[Node] | Kept = (), rules: Sequence[Rule] = RULES) -> Node:
    """Return an equivalent, cheaper plan. ``keep``: plans whose nodes must not be changed, or the ids of these nodes as
    a frozenset."""
    if isinstance(keep, frozenset):
        kept: Kept = keep
    else:
        kept = frozenset(id(each) for plan in keep for each in reachable(plan))
    for _ in range(_ROUNDS):
        before = node
        for rule in rules:
            node = rule(node, kept)
        if node is before:  # a rule that changes nothing returns the same object
            break
    return node


__all__ = ["IN_LOOPS", "RULES", "Rule", "rewrite"]
