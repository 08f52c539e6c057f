"""Where the rows of a plan lie: in which stage they come about, and by which columns they are spread then.

This foretells what `plan/dataflow.py` will do with a plan, node by node: rows move only where a keyed node needs
another key than the one by which they are spread already. A rewrite that has a choice counts stages with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.plan.nodes import Node

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
    return node.placed(*map(placement, node.inputs))
