"""Where the rows of a plan lie: in which stage they come about, and by which columns they are spread then.

This foretells what `plan/dataflow.py` will do with a plan, node by node: rows move only where a keyed node needs
another key than the one by which they are spread already. A rewrite that has a choice counts stages with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.plan.expression import plain
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Draw,
    Generate,
    Join,
    Linear,
    Node,
    SetOperation,
    Source,
    Temporal,
    TopK,
    Union,
    Window,
)

Key = tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Rows that come about in a stage (0: they come from sources), spread by any of these keys."""

    stage: int
    spread: frozenset[Key] = frozenset()

    def needed(self, key: Key) -> int:
        """The stage of an operator that needs these rows spread by ``key``."""
        return self.stage if self.stage and key in self.spread else self.stage + 1


def placement(node: Node) -> Placement:
    """Where the rows of ``node`` lie."""
    match node:
        case Source():
            return Placement(0)
        case Linear():
            return _renamed(placement(node.input), node)
        case Generate() | Apply():
            return placement(node.input)
        case Union():
            return Placement(max(placement(each).stage for each in node.inputs))
        case SetOperation():
            stage = max(
                placement(node.left).needed(node.left.columns), placement(node.right).needed(node.right.columns)
            )
            return Placement(stage, frozenset({node.columns}))
        case Join():
            return joined(node, placement(node.left), placement(node.right))
        case Aggregate():
            return Placement(placement(node.input).needed(node.keys), frozenset({node.keys}))
        case Window():
            return Placement(placement(node.input).needed(node.partition), frozenset({node.partition}))
        case Draw():
            return Placement(placement(node.input).needed(node.input.columns), frozenset({node.input.columns}))
        case Temporal():
            below = placement(node.input)
            if below.stage and below.spread:
                return below
            row = tuple(name for name in node.columns if name not in node.moments) or node.columns
            return Placement(below.stage + 1, frozenset({row}))
        case TopK():
            below = placement(node.input)
            # The first half is made wherever rows lie by some key; rows that lie by none are spread by the whole row.
            return Placement((below.stage if below.spread else below.stage + 1) + 1, frozenset({()}))


def joined(node: Join, left: Placement, right: Placement) -> Placement:
    """Where the rows of a join lie, given where its sides' do."""
    stage = max(left.needed(node.left_keys), right.needed(node.right_keys))
    match node.how:
        case "inner":
            return Placement(stage, frozenset({node.left_keys, node.right_keys}))
        case "full":
            return Placement(stage)
        case _:
            return Placement(stage, frozenset({node.left_keys}))


def _renamed(below: Placement, node: Linear) -> Placement:
    names: dict[str, list[str]] = {}
    for output in node.outputs:
        if (inner := plain(output.expression)) is not None:
            names.setdefault(inner, []).append(output.name)
    # One name for a column is enough: the frontends do not name a column twice without need.
    kept = {tuple(names[name][0] for name in key) for key in below.spread if all(name in names for name in key)}
    return Placement(below.stage, frozenset(kept))
