"""The placement of a plan's rows: the stage in which they are computed, and the keys by which they are spread there.

A placement predicts, node by node, what `plan/dataflow.py` will do with a plan: rows move only where a keyed node needs
another key than those by which they are already spread. Rewrites that have a choice use it to count stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.plan.nodes import Node

Key = tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """The stage in which rows are computed (0: they come from sources), and the keys by which they are spread."""

    stage: int
    spread: frozenset[Key] = frozenset()

    def needed(self, key: Key) -> int:
        """The stage of an operator that needs these rows spread by ``key``."""
        return self.stage if self.stage and key in self.spread else self.stage + 1


def placement(node: Node) -> Placement:
    """Return the placement of the rows of ``node``."""
    return node.placed(*map(placement, node.inputs))
