"""Subqueries turned into joins, by Spark's own rules.

Spark's optimiser applies these rules to a plan and to the plans of its subqueries. A subquery that refers to nothing
outside itself stays an expression. `decorrelated` does the same in the same order: conditions of a subquery on the
enclosing query are pulled out of it, then the subqueries inside it are rewritten, then it becomes a join itself.

The rules look only at the plan, not at statistics, nor at whether an input is empty. So a view's plan is the same
whatever its inputs hold.

``NULL IN (S)`` is folded before, as Spark does: it is NULL if S has rows. The join that it would become says FALSE.

If a NOT has an IN below it, NOT is moved inwards first, as Spark does: ``NOT (a OR x IN (S))`` becomes ``x NOT IN
(S)``, which has another answer where something is NULL.
"""

from __future__ import annotations

from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from holdfast.spark.jvm import CATALYST, java_class, jvm_class, kept, scala_object
from holdfast.spark.lateral_subqueries import without_laterals

_FIRST = ("optimizer.PullOutGroupingExpressions", "optimizer.PullupCorrelatedPredicates")
_THEN = (
    "optimizer.RewriteCorrelatedScalarSubquery",
    "optimizer.RewriteLateralSubquery",
    "optimizer.RewritePredicateSubquery",
)
_INWARDS = "optimizer.BooleanSimplification"
_FOLDING = ("optimizer.ConstantFolding", "optimizer.NullPropagation")


def decorrelated(session: SparkSession, plan: Any) -> Any:
    """Return the analysed plan with its correlated subqueries turned into joins."""
    rules = _Rules(session)
    return rules.applied(rules.inlined(plan))


class _Rules:
    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._subquery = self._pattern("PLAN_EXPRESSION")

    def inlined(self, plan: Any) -> Any:
        """If a correlated subquery of the plan has a WITH of its own, return the plan with the statement's definitions
        inlined where they are used, because the rules pull no condition out of a definition. Otherwise return it
        unchanged."""
        if not plan.containsPattern(self._subquery) or not self._has_with(plan, False):
            return plan
        return jvm_class(self._session, f"{CATALYST}.optimizer.InlineCTE")(False, False, False).apply(plan)

    def _has_with(self, plan: Any, correlated: bool) -> bool:
        """Whether a correlated subquery in ``plan`` has a WITH. ``correlated``: ``plan`` itself is in a correlated
        subquery."""
        if not plan.containsPattern(self._pattern("CTE")):
            return False
        if correlated and plan.nodeName() == "WithCTE":
            return True
        for subquery in _each(plan.subqueries()):
            if self._has_with(subquery, subquery.containsPattern(self._pattern("OUTER_REFERENCE"))):
                return True
        return any(self._has_with(child, correlated) for child in _each(plan.children()))

    def applied(self, plan: Any) -> Any:
        plan = without_laterals(self._session, plan)
        for rule in _FIRST:
            plan = self._rule(rule, plan)
        if not plan.containsPattern(self._subquery):
            return plan
        ensure_callback_server_started(self._session.sparkContext._gateway)
        plan = self._inside(plan)
        while plan.containsPattern(self._pattern("IN_SUBQUERY")) and plan.containsPattern(self._pattern("NOT")):
            before, plan = plan, self._rule(_INWARDS, plan)
            if plan.fastEquals(before):
                break
        for rule in _THEN:
            plan = self._rule(rule, plan)
        return plan

    def _rule(self, name: str, plan: Any) -> Any:
        return scala_object(self._session, f"{CATALYST}.{name}").apply(plan)

    def _pattern(self, name: str) -> Any:
        patterns = jvm_class(self._session, f"{CATALYST}.trees.TreePattern")
        return kept(self._session, f"pattern {name}", lambda: getattr(patterns, name)())

    def _inside(self, plan: Any) -> Any:
        """Return the plan with the plans of its subqueries rewritten."""
        if not plan.containsPattern(self._subquery):
            return plan
        plan = plan.withNewChildren(self._sequence([self._inside(child) for child in _each(plan.children())]))
        return plan.mapExpressions(_Function(self._expression)) if not plan.subqueries().isEmpty() else plan

    def _expression(self, expression: Any) -> Any:
        if not expression.containsPattern(self._subquery):
            return expression
        children = [self._expression(child) for child in _each(expression.children())]
        expression = expression.withNewChildren(self._sequence(children))
        kind = java_class(self._session, f"{CATALYST}.expressions.PlanExpression")
        if kind.isInstance(expression):
            return expression.withNewPlan(self.applied(expression.plan()))
        return self._folded(expression) if _is_in_of_constant(expression) else expression

    def _folded(self, expression: Any) -> Any:
        logical = f"{CATALYST}.plans.logical"
        nothing = jvm_class(self._session, f"{logical}.OneRowRelation")()
        plan = jvm_class(self._session, f"{logical}.Filter")(expression, nothing)
        for rule in _FOLDING:
            plan = self._rule(rule, plan)
        return plan.condition()

    def _sequence(self, values: list[Any]) -> Any:
        return jvm_class(self._session, "PythonUtils").toSeq(values)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _is_in_of_constant(expression: Any) -> bool:
    """Whether it is ``x IN (S)`` of a constant ``x``."""
    if expression.getClass().getSimpleName() != "InSubquery":
        return False
    values = expression.values()
    return bool(values.size() == 1 and values.apply(0).foldable())


class _Function:
    """A Scala function that calls a Python function."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def apply(self, argument: Any) -> Any:
        return self._function(argument)

    class Java:
        implements = ("scala.Function1",)
