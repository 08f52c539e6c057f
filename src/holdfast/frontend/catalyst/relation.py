"""A converted relation: a plan node, and the columns for which Spark's attribute ids stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.frontend.build_nodes import columns, linear
from holdfast.frontend.column_names import unique
from holdfast.frontend.uncorrelated_subqueries import Item
from holdfast.plan.expression import Tree, plain
from holdfast.plan.nodes import Linear, Node, Order


@dataclass(frozen=True)
class Relation:
    """The rows of ``node``. ``outputs``: Spark's attributes, in order, as (id, column of ``node``).

    The node may have further columns, to which only ``order`` refers. ``order`` is the order of a Sort below, and only
    a limit above uses it.
    """

    node: Node
    outputs: tuple[tuple[int, str], ...]
    order: tuple[Order, ...] = ()

    @property
    def names(self) -> dict[int, str]:
        """Id of an attribute → column."""
        return dict(self.outputs)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.outputs)

    def exactly(self) -> Relation:
        """Return the same rows with only the columns of the outputs, in their order. No column occurs twice."""
        if self.columns == self.node.columns:
            return replace(self, order=())
        items: list[Item] = []
        outputs: list[tuple[int, str]] = []
        for id, name in self.outputs:
            new = unique(name, [each for each, _ in items])
            items.append((new, self.node.column(name)))
            outputs.append((id, new))
        return Relation(linear(self.node, None, items), tuple(outputs))

    def apart(self, taken: Sequence[str]) -> Relation:
        """Return the same rows with column names that differ from all in ``taken``."""
        own = self.exactly()
        lower = {name.lower() for name in taken}
        if not any(name.lower() in lower for name in own.columns):
            return own
        names: dict[str, str] = {}
        for name in own.columns:
            names[name] = unique(name, [*taken, *names.values()])
        node = linear(own.node, None, [(names[name], own.node.column(name)) for name in own.columns])
        return Relation(node, tuple((id, names[name]) for id, name in own.outputs))


def project(relation: Relation, predicate: Tree | None, items: Sequence[tuple[int, str, Tree]]) -> Relation:
    """Compute columns from the rows that ``predicate`` keeps: (id, the wanted name, expression)."""
    given: list[Item] = []
    outputs: list[tuple[int, str]] = []
    known: dict[str | None, str] = {}
    for id, wanted, tree in items:
        name = unique(wanted or "column", [each for each, _ in given])
        given.append((name, tree))
        known.setdefault(plain(tree), name)
        outputs.append((id, name))
    order: list[Order] = []
    for item in relation.order:
        name = next((known[each] for each in _alike(relation.node, item.column) if each in known), "")
        if not name:
            name = unique(item.column, [each for each, _ in given])
            given.append((name, relation.node.column(item.column)))
        order.append(replace(item, column=name))
    return Relation(linear(relation.node, predicate, given), tuple(outputs), tuple(order))


def _alike(node: Node, name: str) -> list[str]:
    """The columns of a node with the same expression as the column ``name``, that one first."""
    if not isinstance(node, Linear):
        return [name]
    own = next(output.expression for output in node.outputs if output.name == name)
    return [name, *(output.name for output in node.outputs if output.expression == own and output.name != name)]


def filtered(relation: Relation, predicate: Tree | None) -> Relation:
    """Return the rows of a relation that ``predicate`` keeps."""
    if predicate is None:
        return relation
    return replace(relation, node=linear(relation.node, predicate, columns(relation.node)))
