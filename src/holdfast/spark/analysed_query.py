"""A query, analysed by Spark, for `frontend.catalyst` to convert.

Some of Spark's own rules (`spark.decorrelation`) rewrite the analysed plan: they make the keys of groups columns, and
turn correlated subqueries into joins. Spark's whole optimiser is not used, because it would also replace ``now()`` by a
literal.

Uses Spark's internals, through py4j: `LogicalPlan`, its rules and its expressions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from holdfast.connectors.table import Table
from holdfast.frontend.catalyst.expressions import NAMED_ARGUMENT
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator, Path, read_expression, read_plan
from holdfast.plan.nodes import Field, Source, UserFunction
from holdfast.spark import spark_expressions
from holdfast.spark.decorrelation import decorrelated
from holdfast.spark.jvm import CATALYST, jvm_class, scala_object
from holdfast.spark.python_functions import function_of
from holdfast.spark.schemas import fields_of, type_of_json
from holdfast.spark.statements import unpacked
from holdfast.spark.static_tables import static

_LOGICAL = f"{CATALYST}.plans.logical"
_FOLDING = ("ReplaceExpressions", "RewriteWithExpression", "ConstantFolding")
_MODES = ("evalMode", "evalContext")
_OTHER_MODES = re.compile(r"\b(TRY|LEGACY)\b")
_NUMBERS = re.compile(r"(?<=CommonExpressionId\()\d+|(?<=\)#)\d+")
"""Numbers that Spark assigns from counters of its own: ids of common expressions, and of calls of Python functions."""

_NO_MEANING = ("origin", "qualifier", "metadata", "name", "nullable")


class Analysed:
    """The analysed plan of a query. ``plan`` is its form in Python; Spark's own objects are reached through paths."""

    def __init__(
        self, session: SparkSession, read: Any, subject: str = "", functions: Mapping[str, UserFunction] | None = None
    ) -> None:
        """``read``: Spark's analysis of a query (`spark.statements`). ``functions``: the functions declared for the
        flow."""
        self._session, self._subject, self._functions = session, subject, functions or {}
        self._read = read
        self.statics: dict[str, Table] = {}
        """The static tables that the query reads, by the names that they have as sources."""

        shown = unpacked(read.described())
        described = json.loads(shown)
        self.fields: tuple[Field, ...] = fields_of(StructType.fromJson(described["schema"]))
        """The columns of the query."""

        told = described["told"]
        if told is None:
            shown = unpacked(read.finished(decorrelated(session, read.plan())))
            told = json.loads(shown)
        self._found: dict[Path, Any] = {}
        self._made: dict[Path, Any] = {}
        """Objects made here that are not in Spark's plan, by the paths that the Python plan gives them."""

        self._ansi: set[Path] = set()
        """The paths of expressions known to have ANSI SQL's error behaviour."""

        # TRY or LEGACY may also stand in a name or a text of the query. Then each expression is examined on its own.
        self._all_ansi = bool(told["ansi"]) and "TRY" not in shown and "LEGACY" not in shown
        self.has_collations = "string collate " in shown or "__COLLATIONS" in shown or "ResolvedCollation" in shown
        self.plan: CatalystOperator = read_plan(_completed(told["plan"], read))

    def object(self, path: Path) -> Any:
        """Return Spark's own object at a path of the plan."""
        if path not in self._found:
            above = next((each for each in self._made if path[: len(each)] == each), ())
            start = self._made[above] if above else self._root
            rest = path[len(above) :]
            self._found[path] = self._read.at(start, _text(rest)) if rest else start
        return self._found[path]

    @cached_property
    def _root(self) -> Any:
        return self._read.root()

    def _asked(self, path: Path, *methods: str) -> str:
        """Call a chain of methods on the object at a path, each on the result of the one before, in one call of the
        JVM."""
        if any(path[: len(each)] == each for each in self._made):
            found = self.object(path)
            for method in methods:
                found = getattr(found, method)()
            return str(found)
        return str(self._read.textAt(_text((*path, *methods))))

    def type_of(self, expression: CatalystExpression) -> str:
        found = self._asked(expression.path, "dataType", "catalogString")
        # In Spark's text of a struct, the end of a field's name cannot be found.
        return type_of_json(self._asked(expression.path, "dataType", "json")) if "struct<" in found else found

    def position(self, node: CatalystExpression | CatalystOperator) -> tuple[int, int] | None:
        origin = self.object(node.path).origin()
        line, start = origin.line(), origin.startPosition()
        return None if line.isEmpty() or start.isEmpty() else (int(line.get()), int(start.get()) + 1)

    def origin(self, node: CatalystExpression) -> str:
        origin = self.object(node.path).origin()
        if origin.line().isEmpty() or origin.startPosition().isEmpty():
            return ""
        return " ".join(
            str(each.get()) if each.isDefined() else "-"
            for each in (origin.objectType(), origin.objectName(), origin.line(), origin.startPosition())
        )

    def constant(self, expression: CatalystExpression) -> Any:
        try:
            value = self.object(expression.path).eval(None)
        except (Py4JJavaError, PySparkException):
            return None
        return [float(each) for each in value.toDoubleArray()] if hasattr(value, "toDoubleArray") else value

    def function_name(self, expression: CatalystExpression) -> str:
        return self._asked(expression.path, "prettyName")

    def collation_key(self, collation: str) -> str:
        return spark_expressions.collation_key(self._session, collation)

    def output(self, operator: CatalystOperator) -> list[CatalystExpression]:
        found = self.object((*operator.path, "output"))
        paths = [(*operator.path, "output", place) for place in range(found.size())]
        return [read_expression(json.loads(self.object(path).toJSON()), path) for path in paths]

    def is_session(self, attribute: CatalystExpression) -> bool:
        return bool(self.object(attribute.path).metadata().contains("spark.sessionWindow"))

    def pivot_values(self, expression: CatalystExpression) -> list[CatalystExpression]:
        own, jvm = self.object(expression.path), self._session.sparkContext._jvm
        types, expressions = jvm.org.apache.spark.sql.types, jvm.org.apache.spark.sql.catalyst.expressions
        # Passed to Python one by one, the values would lose their types.
        values = jvm.org.apache.spark.sql.catalyst.util.GenericArrayData(own.pivotColumnValues())
        listed = expressions.Literal(values, types.ArrayType(own.pivotColumn().dataType(), True))
        number = scala_object(self._session, f"{CATALYST}.expressions.Literal")
        folding = scala_object(self._session, f"{CATALYST}.optimizer.ConstantFolding")
        found = []
        for place in range(own.pivotColumnValues().size()):
            item = expressions.GetArrayItem(listed, number.apply(place), False)
            path = (*expression.path, "pivotColumnValues", place)
            self._made[path] = folding.constantFolding(item, False)
            found.append(read_expression(json.loads(self._made[path].toJSON()), path))
        return found

    def foreign(self, expression: CatalystExpression, holes: Sequence[CatalystExpression]) -> str:
        own = self.object(expression.path)
        paths = [tuple(map(int, hole.path[len(expression.path) :])) for hole in holes]
        return spark_expressions.keep(own, paths, self._meaning(expression, {hole.path for hole in holes}))

    def literal(self, expression: CatalystExpression) -> CatalystExpression | None:
        own = self.object(expression.path)
        if expression.kind != "Literal":
            nothing = jvm_class(self._session, f"{_LOGICAL}.OneRowRelation")()
            plan = jvm_class(self._session, f"{_LOGICAL}.Filter")(own, nothing)
            try:
                for rule in _FOLDING:
                    plan = scala_object(self._session, f"{CATALYST}.optimizer.{rule}").apply(plan)
            except (Py4JJavaError, PySparkException):  # 1 / 0 must fail only when there are rows
                return None
            own = plan.condition() if plan.getClass().getSimpleName() == "Filter" else own
            if own.getClass().getSimpleName() != "Literal":
                return None
        parameters = json.loads(own.toJSON())[0]
        if parameters["dataType"] == "timestamp" and parameters["value"] is not None:
            parameters["value"] = str(own.value())  # JSON shows it in the session's time zone
        return CatalystExpression("Literal", (), parameters, expression.path)

    def is_deterministic(self, expression: CatalystExpression) -> bool:
        return bool(self.object(expression.path).deterministic())

    def mode(self, expression: CatalystExpression) -> str:
        name = next(each for each in _MODES if each in expression.parameters)
        found = re.search("ANSI|TRY|LEGACY", self._asked(expression.path, name))
        return "" if found is None else found[0]

    def is_ansi(self, expression: CatalystExpression) -> bool:
        if self._all_ansi:
            return True
        for root, *below in _shown_whole(expression):
            if root.path in self._ansi:
                continue
            try:
                shown = self.object(root.path).asCode()
            except Py4JJavaError:  # it cannot show NULL
                shown = " ".join(self.mode(part) for part in (root, *below) if _has_mode(part))
            if _OTHER_MODES.search(shown):
                return False
            self._ansi.update(part.path for part in (root, *below))
        return True

    def hidden(self, expression: CatalystExpression, name: str) -> str:
        return self._asked(expression.path, name)

    def _meaning(self, expression: CatalystExpression, holes: Set[Path]) -> str:
        """Return a text that is equal for expressions of equal meaning, whatever the names and ids in them."""
        shape = json.dumps(self._shape(expression, holes, {}), sort_keys=True, default=str)
        text = str(self.object(expression.path).toString())
        for part in expression.walk():
            if "exprId" in part.parameters:
                name = part.parameters.get("name", "scalar-subquery")
                text = text.replace(f"{name}#{part.id}", "#")
            if part.kind == "GetStructField" and (spelled := part.parameters.get("name")) is not None:
                # Spark's text has the statement's spelling of the field; the struct's may differ, since names ignore
                # case.
                text = re.sub(rf"\.{re.escape(spelled)}(?!\w)", f".{self._field(part)}".replace("\\", r"\\"), text)
        modes = [] if self.is_ansi(expression) else [self.mode(each) for each in expression.walk() if _has_mode(each)]
        return f"{shape}\n{_NUMBERS.sub('', text)}\n{modes}"

    def _field(self, expression: CatalystExpression) -> str:
        """The name of the field that the expression takes out of a struct, as the struct spells it."""
        return str(self.object(expression.path).childSchema().fields()[expression.parameters["ordinal"]].name())

    def _shape(self, value: Any, holes: Set[Path], numbers: dict[str, int]) -> Any:
        if isinstance(value, CatalystExpression):
            if value.path in holes:
                return ["hole", value.parameters.get("dataType") or self.type_of(value)]
            own = {
                key: self._shape(each, holes, numbers)
                for key, each in value.parameters.items()
                if key not in _NO_MEANING
            }
            if value.kind == "Literal" and (own["dataType"] == "binary" or not isinstance(own["dataType"], str)):
                own["value"] = str(self.object(value.path).sql())  # JSON shows the address of its bytes in memory
            if value.kind == "Like":
                own["escapeChar"] = self.hidden(value, "escapeChar")
            if value.kind == "ScalaUDF":
                own["function"] = str(self.object(value.path).function().getClass().getName())
            return [value.kind, own, [self._shape(child, holes, numbers) for child in value.children]]
        if isinstance(value, dict):
            if "jvmId" in value:
                return numbers.setdefault(str(value["id"]), len(numbers))
            if "num-children" in value:  # a tree within a tuple is among the children, too
                return None
            return {key: self._shape(each, holes, numbers) for key, each in value.items()}
        return [self._shape(each, holes, numbers) for each in value] if isinstance(value, list) else value

    def raised(self, condition: str) -> str:
        return spark_expressions.error(self._session, condition)

    def function(self, expression: CatalystExpression) -> UserFunction:
        own = self.object(expression.path)
        names = [each.parameters["key"] if each.kind == NAMED_ARGUMENT else None for each in expression.children]
        return function_of(self._subject, self._session, own, names, self._functions)

    def static(self, operator: CatalystOperator, view: CatalystOperator | None) -> Source:
        within = "" if view is None else str(self.object(view.path).desc().identifier().table())
        name, table = static(self._session, self.object(operator.path), within)
        self.statics.setdefault(name, table)
        return Source(name, tuple(table.fields))


def _has_mode(expression: CatalystExpression) -> bool:
    return any(name in expression.parameters for name in _MODES)


def _shown_whole(expression: CatalystExpression) -> Iterator[list[CatalystExpression]]:
    """Yield the parts of an expression that have a mode, in groups: ``asCode`` of a group's first member shows the
    whole group. (It does not show the elements of lists.)"""
    waiting = [expression]
    for root in waiting:
        within, found = [root], False
        for part in within:
            found |= _has_mode(part)
            scalar = {each for each in part.parameters.values() if type(each) is int}
            for place, child in enumerate(part.children):
                (within if place in scalar else waiting).append(child)
        if found:
            yield within


def _text(path: Path) -> str:
    return "/".join(map(str, path))


def _completed(nodes: list[dict[str, Any]], read: Any) -> list[dict[str, Any]]:
    """Fill into the JSON of a plan what Spark leaves out: lists of lists that a DataFrame made (``unpivot``)."""

    def lacks(node: dict[str, Any]) -> bool:
        return node["class"].endswith(".Expand") and node["projections"] is None

    if any(map(lacks, nodes)):
        for node, own in zip(nodes, _operators(read.root()), strict=True):
            if lacks(node):
                node["projections"] = [
                    [json.loads(each.toJSON()) for each in _each(row)] for row in _each(own.projections())
                ]
    return nodes


def _operators(root: Any) -> Iterator[Any]:
    yield root
    for child in _each(root.children()):
        yield from _operators(child)


def _each(found: Any) -> list[Any]:
    return [found.apply(place) for place in range(found.size())]
