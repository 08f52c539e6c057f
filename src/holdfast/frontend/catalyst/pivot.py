"""PIVOT, as Spark plans it: groups by keys and pivot column, then groups by keys that put the results in an array.

Spark's plan, from the top: a `Project` that takes the elements out of the arrays, an `Aggregate` with a ``PivotFirst``
for each aggregate, and the `Aggregate` that the user wrote. Here they become one `Aggregate` by the keys: for each
value of the pivot column, each aggregate over the rows with that value. If there are no such rows, the result is NULL,
whatever the aggregate's result for no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.frontend.catalyst.groups import ATTRIBUTE, GroupConversion, unaliased
from holdfast.frontend.catalyst.relation import Relation, project
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator
from holdfast.plan.expression import Tree, choice, condition, number

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Converter


def is_pivot(operator: CatalystOperator) -> bool:
    """Whether it is the `Project` above a pivot."""
    if operator.kind != "Project" or operator.child.kind != "Aggregate":
        return False
    return any(map(_pivot_first, operator.child.expressions("aggregateExpressions")))


def pivot(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert a pivot: the groups, with a column for each aggregate and value."""
    second = operator.child
    first = second.child
    if first.kind != "Aggregate":
        raise converter.statement.unsupported("this PIVOT", operator)
    below = converter.relation(first.child)
    outputs = operator.expressions("projectList")
    groups = GroupConversion(converter, below, [each.name for each in outputs])
    inner = {each.id: unaliased(each) for each in first.expressions("aggregateExpressions")}
    keys: dict[int, CatalystExpression] = {}
    for key in second.expressions("groupingExpressions"):
        keys[key.id] = own = inner[key.id]
        if own.kind == ATTRIBUTE:
            groups.key(own, next((each.name for each in outputs if each.id == key.id), None))
        else:
            groups.constant_key(own)
    elements: dict[int, list[Tree]] = {}
    for each in second.expressions("aggregateExpressions"):
        if (found := _pivot_first(each)) is not None:
            by, value = found.children
            choices = converter.statement.catalyst.pivot_values(found)
            elements[each.id] = [_chosen(groups, inner[by.id], one, inner[value.id]) for one in choices]
    items = []
    for each in outputs:
        own = unaliased(each)
        if own.kind == "GetArrayItem":
            array, place = own.children
            tree = elements[array.id][int(place.parameters["value"])]
        else:
            tree = groups.output(keys[own.id])
        items.append((each.id, each.name, tree))
    return project(Relation(groups.plan(), ()), None, items)


def _pivot_first(output: CatalystExpression) -> CatalystExpression | None:
    call = unaliased(output)
    found = call.children[0] if call.kind == "AggregateExpression" else call
    return found if found.kind == "PivotFirst" else None


def _chosen(
    groups: GroupConversion, by: CatalystExpression, wanted: CatalystExpression, value: CatalystExpression
) -> Tree:
    """Convert an aggregate over those rows of a group whose pivot column has the value ``wanted``."""
    groups.only = condition("<=>", groups.argument(by), groups.argument(wanted))
    rows = groups.call("count", [choice(groups.only, number(1))], "bigint")
    tree = groups.output(value)
    groups.only = None
    return choice(condition(">", rows, number(0, "bigint")), tree)
