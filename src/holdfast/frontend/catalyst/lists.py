"""Aggregates whose result is a list of values, or the value that goes with the greatest or least of another.

- ``max_by(x, y)`` is the ``x`` of the greatest pair (y, x), so that the whole pair breaks ties.
- ``listagg`` joins a sorted list: by WITHIN GROUP's order, then by the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.frontend.catalyst.aggregate_calls import AggregateCall, Result
from holdfast.frontend.catalyst.tree import direction
from holdfast.plan.expression import (
    Lambda,
    Literal,
    Operation,
    Tree,
    Variable,
    choice,
    condition,
    field,
    is_known,
    is_null,
    null,
    number,
    struct,
    text,
)


def by(function: str) -> Result:
    return lambda asked: by_order(asked, function, asked.compared(1))


def by_order(asked: AggregateCall, function: str, order: Tree) -> Tree:
    pair = _with_order(asked, order)
    return field(asked.call(function, [pair], pair.type), "value", asked.all_rows(0).type)


def first_by(asked: AggregateCall) -> Tree:
    """``max_by(x, y, n)`` and ``min_by(x, y, n)``, whose result is a list."""
    wanted = asked.statement.catalyst.constant(asked.function.children[2])
    if not isinstance(wanted, int):
        raise asked.unsupported(f"{asked.name} of so many values that is not a number", "write the number")
    pair = _with_order(asked, asked.compared(1))
    found = asked.calls.call("collect_set" if asked.distinct else "collect_list", [pair], f"array<{pair.type}>")
    elements = found if asked.function.parameters["reverse"] else _of_list("reverse", found)
    return _of_some(found, _values(_of_list("slice", elements, number(1), number(wanted)), asked.all_rows(0)))


def _with_order(asked: AggregateCall, order: Tree) -> Tree:
    """A struct of the order and the value; NULL where the order is NULL."""
    return asked.where(struct(order=order, value=asked.all_rows(0)), is_known(order))


def _of_list(function: str, found: Tree, *others: Tree) -> Tree:
    """A function from a list to a list of the same type."""
    return Operation(function, (found, *others), found.type)


def _of_some(found: Tree, value: Tree) -> Tree:
    """``value`` if the list ``found`` has elements, else NULL."""
    return choice(condition(">", Operation("size", (found,), "int"), number(0)), value)


def _values(found: Tree, value: Tree) -> Tree:
    """The field ``value`` of each element of a list."""
    return field(found, "value", f"array<{value.type}>")


def listed(function: str) -> Result:
    def made(asked: AggregateCall) -> Tree:
        kind = "collect_set" if asked.distinct else function
        own = asked.all_rows(0)
        if asked.function.parameters.get("ignoreNulls", True):
            return asked.call(kind, [asked.argument(0)], f"array<{own.type}>")
        held = asked.where(struct(value=own))
        return _values(asked.call(kind, [held], f"array<{held.type}>"), own)

    return made


def joined(asked: AggregateCall) -> Tree:
    """``listagg``: a text, or NULL if there are no values."""
    value, delimiter, *orders = asked.function.children
    own = asked.all_rows(0)
    kind = "collect_set" if asked.distinct else "collect_list"
    if orders:
        fields = {f"order{place}": asked.calls.comparable(each.children[0]) for place, each in enumerate(orders)}
        pair = asked.where(struct(**fields, value=own), is_known(own))
        found = asked.call(kind, [pair], f"array<{pair.type}>")
        elements = _values(_sorted(found, {**fields, "value": own}, list(map(direction, orders))), own)
    else:
        found = elements = asked.call(kind, [asked.argument(0)], f"array<{own.type}>")
    between = asked.calls.argument(delimiter)
    is_text = asked.statement.catalyst.type_of(value) != "binary"
    if delimiter.kind == "Literal" and delimiter.parameters.get("value") is None:
        between = text("") if is_text else Literal(b"", "binary")
    if is_text:
        return _of_some(found, Operation("array_join", (elements, between), own.type))
    before, element = Variable("a", "binary"), Variable("e", "binary")
    longer = Operation("concat", (before, between, element), "binary")
    step = Lambda((before, element), Operation("coalesce", (longer, element), "binary"))
    return _of_some(found, Operation("reduce", (elements, null("binary"), step), "binary"))


def _sorted(found: Tree, fields: dict[str, Tree], directions: Sequence[tuple[bool, bool]]) -> Tree:
    """Sort a list, which is in the natural order of its structs, by the fields ``order0``, … in these directions."""
    if all(each == (False, True) for each in directions):
        return found
    if all(each == (True, False) for each in directions):
        return _of_list("reverse", found)
    kind = found.type.removeprefix("array<").removesuffix(">")
    left, right = Variable("l", kind), Variable("r", kind)
    cases: list[Tree] = []
    for place, (descending, nulls_first) in enumerate(directions):
        name = f"order{place}"
        one, other = (field(each, name, fields[name].type) for each in (left, right))
        before, null_before = (1 if descending else -1), (-1 if nulls_first else 1)
        cases += [condition("and", is_null(one), is_known(other)), number(null_before)]
        cases += [condition("and", is_known(one), is_null(other)), number(-null_before)]
        cases += [condition("<", one, other), number(before), condition(">", one, other), number(-before)]
    one, other = (field(each, "value", fields["value"].type) for each in (left, right))
    cases += [condition("<", one, other), number(-1), condition(">", one, other), number(1)]
    return _of_list("array_sort", found, Lambda((left, right), choice(*cases, number(0))))
