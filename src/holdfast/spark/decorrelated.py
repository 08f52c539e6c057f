"""Subqueries to joins, by Spark's own rules.

Spark's optimiser applies these rules to a plan and to the plans of its subqueries, of which some stay what they are: a
subquery that refers to nothing outside of it is an expression still. `decorrelated` does so too, in the same order:
what a subquery says of the enclosing query is pulled out of it, then the subqueries inside it are rewritten, then it
becomes a join itself.

The rules look at nothing but the plan: not at statistics, nor at whether an input is empty, so that a view's plan is
the same whatever its inputs hold.

NOT is moved inwards first where there is IN below it, as Spark does: ``NOT (a OR x IN (S))`` asks for ``x NOT IN (S)``,
which is another question where something is NULL.
"""

from __future__ import annotations

from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from holdfast.spark.laterals import without_laterals

_CATALYST = "org.apache.spark.sql.catalyst"
_FIRST = ("optimizer.PullOutGroupingExpressions", "optimizer.PullupCorrelatedPredicates")
_THEN = (
    "optimizer.RewriteCorrelatedScalarSubquery",
    "optimizer.RewriteLateralSubquery",
    "optimizer.RewritePredicateSubquery",
)
_INWARDS = "optimizer.BooleanSimplification"


def decorrelated(session: SparkSession, plan: Any) -> Any:
    """An analysed plan whose correlated subqueries are joins."""
    return _Rules(session).applied(plan)


class _Rules:
    def __init__(self, session: SparkSession) -> None:
        self._jvm: Any = session.sparkContext._jvm
        ensure_callback_server_started(session.sparkContext._gateway)
        self._plan_expression = self._jvm.java.lang.Class.forName(f"{_CATALYST}.expressions.PlanExpression")
        patterns = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        self._subquery, self._in, self._not = patterns.PLAN_EXPRESSION(), patterns.IN_SUBQUERY(), patterns.NOT()

    def applied(self, plan: Any) -> Any:
        plan = without_laterals(self._jvm, plan)
        for rule in _FIRST:
            plan = self._rule(rule, plan)
        if not plan.containsPattern(self._subquery):
            return plan
        plan = self._inside(plan)
        while plan.containsPattern(self._in) and plan.containsPattern(self._not):
            before, plan = plan, self._rule(_INWARDS, plan)
            if plan.fastEquals(before):
                break
        for rule in _THEN:
            plan = self._rule(rule, plan)
        return plan

    def _rule(self, name: str, plan: Any) -> Any:
        found = self._jvm
        for part in f"{_CATALYST}.{name}$".split("."):
            found = getattr(found, part)
        return getattr(found, "MODULE$").apply(plan)

    def _inside(self, plan: Any) -> Any:
        """The plan with the plans of its subqueries rewritten."""
        if not plan.containsPattern(self._subquery):
            return plan
        plan = plan.withNewChildren(self._sequence([self._inside(child) for child in _each(plan.children())]))
        return plan.mapExpressions(_Function(self._expression)) if not plan.subqueries().isEmpty() else plan

    def _expression(self, expression: Any) -> Any:
        if not expression.containsPattern(self._subquery):
            return expression
        children = [self._expression(child) for child in _each(expression.children())]
        expression = expression.withNewChildren(self._sequence(children))
        is_subquery = self._plan_expression.isInstance(expression)
        return expression.withNewPlan(self.applied(expression.plan())) if is_subquery else expression

    def _sequence(self, values: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(values)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


class _Function:
    """A Scala function."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def apply(self, argument: Any) -> Any:
        return self._function(argument)

    class Java:
        implements = ("scala.Function1",)
