"""Conversion of Spark's plan into Holdfast's.

`CONVERTERS` maps each of Catalyst's operators to the function that converts it. An operator that is not in it cannot be
kept up to date, and is refused by name. Spark has already resolved names, types and coercions, and turned correlated
subqueries into joins (`spark.analysed_query`); what remains is to express each operator by nodes that are kept
incrementally.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from holdfast.errors import SqlError
from holdfast.frontend.build_nodes import extend, linear
from holdfast.frontend.catalyst.clock import check_temporal
from holdfast.frontend.catalyst.expressions import Expressions
from holdfast.frontend.catalyst.generators import generate
from holdfast.frontend.catalyst.groups import aggregate, compared_by, deduplicate, distinct, within_watermark
from holdfast.frontend.catalyst.joins import is_above_join, join
from holdfast.frontend.catalyst.pivot import is_pivot, pivot
from holdfast.frontend.catalyst.recursion import union_loop, union_loop_ref
from holdfast.frontend.catalyst.relation import Relation, filtered, project
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.statics import REFUSED, STATIC, refused, static, view
from holdfast.frontend.catalyst.subqueries import at_most_one
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator, direction
from holdfast.frontend.catalyst.windows import window
from holdfast.frontend.column_names import label, unique
from holdfast.frontend.uncorrelated_subqueries import Item
from holdfast.operators.loops.body import LoopLeaf
from holdfast.operators.set_operation import SetOperation
from holdfast.operators.topk import TopK
from holdfast.plan.expression import Tree, cast, plain
from holdfast.plan.nodes import Node, Order, Union
from holdfast.plan.schema import RESERVED

COLLECTION = "holdfast:"
"""Prefix of the alias of a leaf that stands for a collection of the flow; the collection's name follows."""


class Converter:
    """Converts the operators of one statement. ``collections``: the nodes for which its leaves stand, by name."""

    def __init__(self, statement: Statement, collections: Mapping[str, Node]) -> None:
        self.statement, self.collections = statement, collections
        self.view: CatalystOperator | None = None
        """The view of the user's session whose plan is being converted, if any."""

        self.reads: set[str] = set()
        """The collections that the statement reads."""

        self.definitions: dict[int, Relation] = {}
        """Common table expressions converted so far, by Spark's id."""

        self.loops: dict[int, LoopLeaf] = {}
        """Spark's id of a recursive common table expression → the leaf that stands for it inside itself."""

    def relation(self, operator: CatalystOperator) -> Relation:
        """Convert an operator. Raises `Unsupported` if it cannot be kept up to date."""
        convert = CONVERTERS.get(operator.kind)
        if convert is None:
            raise self.statement.unsupported(operator.kind, operator)
        return convert(self, operator)

    def expressions(self, names: Mapping[int, str]) -> Expressions:
        return Expressions(self.statement, names, self.subquery)

    def tree(self, expression: CatalystExpression, relation: Relation) -> Tree:
        return self.expressions(relation.names).tree(expression)

    def condition(self, expression: CatalystExpression, names: Mapping[int, str], clause: str = "WHERE") -> Tree:
        """Convert a condition that filters rows. Raises `Unsupported` if it depends on the clock in an unsupported
        way."""
        tree = self.expressions(names).tree(expression)
        check_temporal(tree, clause, self.statement)
        return tree

    def subquery(self, plan: CatalystOperator, expression: CatalystExpression) -> Node:
        """Convert a subquery that refers to nothing outside itself; a scalar subquery's plan gives one row at most."""
        node = self.relation(plan).exactly().node
        return at_most_one(node, self.statement) if expression.kind == "ScalarSubquery" else node

    def is_collection(self, operator: CatalystOperator) -> bool:
        """Whether the operator stands for a collection of the flow."""
        return operator.kind == "SubqueryAlias" and operator.parameters["identifier"]["name"].startswith(COLLECTION)


Convert = Callable[[Converter, CatalystOperator], Relation]


# -- leaves and operators that only pass rows on ------------------------------------------------------------------


def _alias(converter: Converter, operator: CatalystOperator) -> Relation:
    """An alias of a relation; the alias of a flow's collection is replaced by the collection's node."""
    if not converter.is_collection(operator):
        return converter.relation(operator.child)
    name = operator.parameters["identifier"]["name"].removeprefix(COLLECTION)
    node = converter.collections.get(name)
    if node is None:
        raise converter.statement.unsupported(
            "a DataFrame of another flow, or of a view that was dropped", operator, "make it of flow.table or flow.sql"
        )
    converter.reads.add(name)
    attributes = operator.child.expressions("output")
    if len(attributes) != len(node.columns):
        shown = name.rpartition(":")[2]
        raise converter.statement.error(
            SqlError, f"'{shown}' has other columns than when the DataFrame was made; make it again", operator
        )
    return Relation(node, tuple((each.id, own) for each, own in zip(attributes, node.columns, strict=True)))


def _passed(converter: Converter, operator: CatalystOperator) -> Relation:
    return converter.relation(operator.child)


def _with(converter: Converter, operator: CatalystOperator) -> Relation:
    *definitions, query = operator.children
    for each in definitions:
        converter.definitions[each.parameters["id"]] = converter.relation(each.child).exactly()
    return converter.relation(query)


def _reference(converter: Converter, operator: CatalystOperator) -> Relation:
    defined = converter.definitions[operator.parameters["cteId"]]
    attributes = operator.expressions("output")
    return Relation(
        defined.node, tuple((each.id, name) for each, (_, name) in zip(attributes, defined.outputs, strict=True))
    )


# -- rows ----------------------------------------------------------------------------------------------------------


def _project(converter: Converter, operator: CatalystOperator) -> Relation:
    if is_pivot(operator):
        return pivot(converter, operator)
    below = converter.relation(operator.child)
    expressions = converter.expressions(below.names)
    items = [(each.id, each.name, expressions.tree(each)) for each in operator.expressions("projectList")]
    return project(below, None, items)


def _filter(converter: Converter, operator: CatalystOperator) -> Relation:
    if is_above_join(converter, operator):
        return join(converter, operator)
    below = converter.relation(operator.child)
    condition = operator.expression("condition")
    assert condition is not None
    clause = {"Aggregate": "HAVING", "Window": "QUALIFY"}.get(operator.child.kind, "WHERE")
    return filtered(below, converter.condition(condition, below.names, clause))


def _union(converter: Converter, operator: CatalystOperator) -> Relation:
    sides = [converter.relation(child).exactly() for child in operator.children]
    sides = [sides[0], *(_of_types(side, sides[0]) for side in sides[1:])]
    inputs: list[Node] = []
    for side in sides:
        inputs += side.node.inputs if isinstance(side.node, Union) else [side.node]
    return Relation(Union(tuple(inputs)), sides[0].outputs)


def _of_types(side: Relation, first: Relation) -> Relation:
    """Return a side of a union or difference with the types of the first side. Structs whose fields have other names
    are the same to Spark, position by position, and take the first side's names."""
    kinds = [
        (first.node.types[one], side.node.types[other])
        for one, other in zip(first.node.columns, side.node.columns, strict=True)
    ]
    if all(one == other for one, other in kinds):
        return side
    ids = {name: id for id, name in side.outputs}
    items = [
        (ids[name], name, cast(side.node.column(name), kind))
        for name, (kind, _) in zip(side.node.columns, kinds, strict=True)
    ]
    return project(side, None, items).exactly()


def _expand(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert `Expand`: each input row gives one row for each list of expressions."""
    below = converter.relation(operator.child)
    expressions = converter.expressions(below.names)
    outputs = operator.expressions("output")
    sides = []
    for projection in operator.parameters["projections"]:
        trees = [expressions.tree(each) for each in projection]
        items = [(each.id, each.name, tree) for each, tree in zip(outputs, trees, strict=True)]
        sides.append(project(replace(below, order=()), None, items).exactly())
    return Relation(Union(tuple(side.node for side in sides)), sides[0].outputs)


def _set(kind: str) -> Convert:
    def convert(converter: Converter, operator: CatalystOperator) -> Relation:
        left, right = (converter.relation(child).exactly() for child in operator.children)
        if compared_by(converter, operator, left):
            advice = "make them lower(…), or join the sides"
            raise converter.statement.unsupported(f"{kind.upper()} of texts with a collation", operator, advice)
        right = _of_types(right, left)
        node = SetOperation(left.node, right.node, kind, bool(operator.parameters["isAll"]))
        return replace(left, node=node)

    return convert


# -- order and limits ----------------------------------------------------------------------------------------------


def _sort(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert `Sort`: the same rows, with a column for every expression to sort by."""
    below = converter.relation(operator.child)
    added: list[Item] = []
    order: list[Order] = []
    for sort in operator.expressions("order"):
        tree = converter.expressions(below.names).comparable(sort.children[0])
        name = plain(tree)
        if name is None:
            name = unique(label(tree), [*below.node.columns, *(each for each, _ in added)])
            added.append((name, tree))
        if all(name != each.column for each in order):
            order.append(Order(name, *direction(sort)))
    return replace(below, node=extend(below.node, added) if added else below.node, order=tuple(order))


def _limit(converter: Converter, operator: CatalystOperator) -> Relation:
    limit = _number(converter, operator, "limitExpr")
    child = operator.child
    if child.kind in ("LocalLimit", "GlobalLimit"):
        limit, child = min(limit, _number(converter, child, "limitExpr")), child.child
    offset = 0
    if child.kind == "Offset":
        offset, child = _number(converter, child, "offsetExpr"), child.child
    below = converter.relation(child)
    return replace(below, node=TopK(below.node, below.order, limit, offset))


def _number(converter: Converter, operator: CatalystOperator, name: str) -> int:
    asked = operator.expression(name)
    found = None if asked is None else converter.expressions({}).constant(asked)
    if found is None or found.parameters.get("value") is None:
        raise converter.statement.unsupported(f"{operator.kind} that is not a number", operator, "write the number")
    return int(found.parameters["value"])


def _offset(converter: Converter, operator: CatalystOperator) -> Relation:
    raise converter.statement.unsupported("OFFSET without LIMIT", operator)


CONVERTERS: dict[str, Convert] = {
    "SubqueryAlias": _alias,
    **dict.fromkeys(STATIC, static),
    "View": view,
    "PipeOperator": _passed,
    "ResolvedHint": _passed,
    "Repartition": _passed,
    "RepartitionByExpression": _passed,
    "RebalancePartitions": _passed,
    "WithCTE": _with,
    "CTERelationRef": _reference,
    "UnionLoop": union_loop,
    "UnionLoopRef": union_loop_ref,
    "Project": _project,
    "Filter": _filter,
    "Join": join,
    "Union": _union,
    "Expand": _expand,
    "Distinct": distinct,
    "Deduplicate": deduplicate,
    "DeduplicateWithinWatermark": within_watermark,
    "Aggregate": aggregate,
    "Window": window,
    "Generate": generate,
    "Intersect": _set("intersect"),
    "Except": _set("except"),
    "Sort": _sort,
    "GlobalLimit": _limit,
    "LocalLimit": _limit,
    "Offset": _offset,
    **{kind: refused(*said) for kind, said in REFUSED.items()},
}


def convert(
    statement: Statement, plan: CatalystOperator, collections: Mapping[str, Node]
) -> tuple[Node, frozenset[str]]:
    """Return the plan of a view that Spark has analysed, and the names of the collections that it reads."""
    converter = Converter(statement, collections)
    relation = converter.relation(plan)
    outputs = plan.expressions("projectList")
    names = [each.name for each in outputs]
    _check_names(statement, names)
    items = [(name, relation.node.column(own)) for name, (_, own) in zip(names, relation.outputs, strict=True)]
    return linear(relation.node, None, items), frozenset(converter.reads)


def _check_names(statement: Statement, names: Sequence[str]) -> None:
    """Refuse output columns with equal or empty names, or with names reserved for Holdfast."""
    seen: dict[str, str] = {}
    for name in names:
        if name == "":
            raise statement.error(SqlError, "an output column has an empty name", name=name)
        if (other := seen.get(name.lower())) is not None:
            message = f"two output columns are called {other!r}; rename one with AS"
            raise statement.error(SqlError, message, name=name)
        if name.lower().startswith(RESERVED):
            ours = ", ".join(RESERVED)
            message = f"output column {name!r} is reserved: names that start with {ours} are Holdfast's own"
            raise statement.error(SqlError, f"{message}; rename it with AS", name=name)
        seen[name.lower()] = name
