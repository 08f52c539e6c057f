"""Spark's analysed plan as Python values.

``LogicalPlan.toJSON`` returns the whole tree in one call: a list of nodes in pre-order, each with its class, its number
of children and its parameters. A parameter that is a tree itself (a condition, a select list, the plan of a subquery)
is such a list again. `read_plan` makes a tree of `CatalystOperator` and `CatalystExpression` of it.

Every value has its path from the root, so that `spark.analysed_query` can find the JVM's own object where the JSON does
not say enough: the type of an expression, its position in the SQL text, the bytes of a Python function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.plan.types import field_name

Path = tuple[int | str, ...]
"""The path from the root to a value: the index of a child, or the name of a parameter, then the index in a list."""


@dataclass(frozen=True)
class CatalystExpression:
    """An expression of Catalyst."""

    kind: str
    """Catalyst's class, without its package: ``Add``, ``Cast``, ``AttributeReference``."""

    children: tuple[CatalystExpression, ...]
    parameters: Mapping[str, Any] = field(compare=False, repr=False)
    path: Path = field(compare=False, repr=False)

    @property
    def id(self) -> int:
        """The id of a named expression, by which the operators above refer to it."""
        return int(self.parameters["exprId"]["id"])

    @property
    def name(self) -> str:
        return str(self.parameters["name"])

    def walk(self) -> Iterator[CatalystExpression]:
        """This expression and all below it, in pre-order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def child(self, name: str) -> CatalystExpression:
        """The child that is the parameter ``name``."""
        index: int = self.parameters[name]
        return self.children[index]


@dataclass(frozen=True)
class CatalystOperator:
    """A relational operator of Catalyst, such as ``Project`` or ``Join``."""

    kind: str
    children: tuple[CatalystOperator, ...]
    parameters: Mapping[str, Any] = field(compare=False, repr=False)
    """A parameter that is a tree is a `CatalystExpression`, a list of them, or a `CatalystOperator`."""

    path: Path = field(compare=False, repr=False)

    @property
    def child(self) -> CatalystOperator:
        (only,) = self.children
        return only

    def expression(self, name: str) -> CatalystExpression | None:
        found = self.parameters.get(name)
        return found if isinstance(found, CatalystExpression) else None

    def expressions(self, name: str) -> tuple[CatalystExpression, ...]:
        return tuple(self.parameters.get(name) or ())

    def walk(self) -> Iterator[CatalystOperator]:
        yield self
        for child in self.children:
            yield from child.walk()


_TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""The types whose name in a plan's JSON is not SQL's."""


def sql_type(kind: Any) -> str | None:
    """Return SQL's name of a type in a plan's JSON; None if Spark must be asked."""
    if isinstance(kind, str):
        return _TYPES.get(kind, kind)
    match kind and kind.get("type"):
        case "array":
            inner = [sql_type(kind["elementType"])]
        case "map":
            inner = [sql_type(kind["keyType"]), sql_type(kind["valueType"])]
        case "struct" if not any("__COLLATIONS" in each["metadata"] for each in kind["fields"]):
            types = [(each["name"], sql_type(each["type"])) for each in kind["fields"]]
            inner = [None if own is None else f"{field_name(name)}:{own}" for name, own in types]
        case _:
            return None
    known = [each for each in inner if each is not None]
    return f"{kind['type']}<{','.join(known)}>" if len(known) == len(inner) else None


def direction(sort: CatalystExpression) -> tuple[bool, bool]:
    """Return (descending, nulls first) of a ``SortOrder``."""
    found = [str(sort.parameters[name].get("object", "")) for name in ("direction", "nullOrdering")]
    return "Descending" in found[0], "NullsFirst" in found[1]


def read_plan(nodes: list[dict[str, Any]]) -> CatalystOperator:
    """Return the tree of a plan from the output of ``toJSON``."""
    found = _read(nodes, ())
    assert isinstance(found, CatalystOperator)
    return found


def read_expression(nodes: list[dict[str, Any]], path: Path) -> CatalystExpression:
    """Return the tree of an expression at ``path`` from the output of ``toJSON``."""
    found = _read(nodes, path)
    assert isinstance(found, CatalystExpression)
    return found


def _read(nodes: list[dict[str, Any]], path: Path) -> CatalystOperator | CatalystExpression:
    waiting = iter(nodes)

    def one(path: Path) -> CatalystOperator | CatalystExpression:
        node = next(waiting)
        children = tuple(one((*path, index)) for index in range(node["num-children"]))
        name = node["class"]
        parameters = {key: _parameter(value, (*path, key)) for key, value in node.items() if key not in _OWN}
        made = CatalystOperator if _is_operator(name) else CatalystExpression
        return made(name.rsplit(".", 1)[-1], children, parameters, path)  # type: ignore[arg-type]  # alike by kind

    return one(path)


_OWN = ("class", "num-children")


def _is_operator(name: str) -> bool:
    return ".plans.logical." in name or ".execution." in name or name.endswith(".PipeOperator")


def _parameter(value: Any, path: Path) -> Any:
    if isinstance(value, list) and value:
        if isinstance(value[0], dict) and "num-children" in value[0]:
            return _read(value, path)
        if all(isinstance(each, list) for each in value):
            return [_parameter(each, (*path, index)) for index, each in enumerate(value)]
    return value
