"""A query, analysed by Spark, for `frontend.catalyst` to convert.

The analysed plan is rewritten by some of Spark's own rules (`spark.decorrelated`), which make the keys of groups
columns and turn correlated subqueries into joins. Spark's optimiser as a whole would also replace ``now()`` by a
literal.

Uses Spark's internals, through py4j: `LogicalPlan`, its rules and its expressions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from holdfast.frontend.catalyst.tree import Expression, Operator, Path, read_plan
from holdfast.plan.nodes import Field, UserFunction
from holdfast.spark import foreign
from holdfast.spark.decorrelated import decorrelated
from holdfast.spark.types import fields_of


class Analysed:
    """The analysed plan of a query: ``plan`` for Python, and Spark's own objects behind it."""

    def __init__(self, session: SparkSession, plan: Any) -> None:
        """``plan``: a LogicalPlan of Spark's, analysed."""
        self._session = session
        jvm: Any = session.sparkContext._jvm
        schema = StructType.fromJson(json.loads(plan.schema().json()))
        self.fields: tuple[Field, ...] = fields_of(schema)
        """The columns of the query."""

        plan = decorrelated(session, plan)
        # The outputs, by name and id, are the columns of the view.
        self._root = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(plan.output(), plan)
        self._found: dict[Path, Any] = {(): self._root}
        self.plan: Operator = read_plan(json.loads(self._root.toJSON()))

    def object(self, path: Path) -> Any:
        """Spark's own object at a path of the plan."""
        if path not in self._found:
            above, step = self.object(path[:-1]), path[-1]
            if isinstance(step, int):
                found = above.children().apply(step) if _is_tree(above) else above.apply(step)
            else:
                found = getattr(above, step)()
                found = found.get() if _is_option(found) else found
            self._found[path] = found
        return self._found[path]

    def type_of(self, expression: Expression) -> str:
        return str(self.object(expression.path).dataType().catalogString())

    def position(self, node: Expression | Operator) -> tuple[int, int] | None:
        origin = self.object(node.path).origin()
        line, start = origin.line(), origin.startPosition()
        return None if line.isEmpty() or start.isEmpty() else (int(line.get()), int(start.get()) + 1)

    def foreign(self, expression: Expression, holes: Sequence[Expression]) -> str:
        own = self.object(expression.path)
        paths = [hole.path[len(expression.path) :] for hole in holes]
        return foreign.keep(self._session, own, [tuple(map(int, path)) for path in paths], _shape(expression))

    def raised(self, condition: str) -> str:
        return foreign.error(self._session, condition)

    def function(self, expression: Expression) -> UserFunction:
        raise NotImplementedError


def _shape(expression: Expression) -> str:
    """A text that is equal for expressions of equal meaning: ids are replaced by their order of occurrence."""
    numbers: dict[str, int] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Expression):
            own = {key: plain(each) for key, each in value.parameters.items() if key not in ("origin", "qualifier")}
            return [value.kind, own, [plain(child) for child in value.children]]
        if isinstance(value, dict):
            if "jvmId" in value:
                return numbers.setdefault(str(value["id"]), len(numbers))
            return {key: plain(each) for key, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return json.dumps(plain(expression), sort_keys=True, default=str)


def _object(jvm: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(_package(jvm, name + "$"), "MODULE$")


def _package(jvm: Any, name: str) -> Any:
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _is_tree(found: Any) -> bool:
    return not found.getClass().getName().startswith("scala.collection")


def _is_option(found: Any) -> bool:
    return bool(re.match(r"scala\.(Some|None)", found.getClass().getName())) if hasattr(found, "getClass") else False
