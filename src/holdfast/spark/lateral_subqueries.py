"""Lateral subqueries that compute from one row: ``FROM t, LATERAL explode(t.xs)``, ``LATERAL (SELECT t.a + 1 AS b)``.

Spark turns a lateral subquery into a join with the distinct values of the columns that it refers to. A subquery that
reads nothing but the outer row (its leaf is a single empty row) needs no join: with the outer row in the place of that
leaf, it is a projection, a filter or a generator. So its arguments may be of a type that cannot be a join key, such as
a variant.

Uses Spark's internals, through py4j: `LateralJoin`, `Generate`, `OuterReference`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from holdfast.spark.jvm import CATALYST, jvm_class, kept


def without_laterals(session: SparkSession, plan: Any) -> Any:
    """Return the plan with the lateral joins of such subqueries replaced."""
    patterns = jvm_class(session, f"{CATALYST}.trees.TreePattern")
    pattern = kept(session, "pattern LATERAL_JOIN", patterns.LATERAL_JOIN)
    return _Laterals(session.sparkContext._jvm).replaced(plan) if plan.containsPattern(pattern) else plan


class _Laterals:
    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._plans = jvm.org.apache.spark.sql.catalyst.plans.logical

    def replaced(self, plan: Any) -> Any:
        children = plan.children()
        if children.isEmpty():
            return plan
        made = [self.replaced(children.apply(place)) for place in range(children.size())]
        plan = plan.withNewChildren(self._jvm.PythonUtils.toSeq(made))
        if _kind(plan) != "LateralJoin":
            return plan
        found = self._beside(plan)
        return plan if found is None else found

    def _beside(self, join: Any) -> Any | None:
        """Return a plan of the left rows extended with the subquery's columns; None if the subquery needs a join."""
        outer = _kind(join.joinType()) == "LeftOuter$"
        referred = join.right().outerAttrs()
        for place in range(referred.size()):
            if not referred.apply(place).references().subsetOf(join.left().outputSet()):
                return None
        kinds = []
        plan = join.right().plan()
        while (kind := _kind(plan)) != "OneRowRelation":
            if kind not in ("SubqueryAlias", "Project", "Filter", "Generate"):
                return None
            kinds.append(kind)
            plan = plan.children().apply(0)
        if not outer and _kind(join.joinType()) not in ("Inner$", "Cross$"):
            return None
        # An outer join keeps a left row for which the subquery makes no row. Only a plan of a single generator can do
        # so.
        condition = join.condition().get() if join.condition().isDefined() else None
        if condition is not None and str(condition.toString()) == "true":
            condition = None
        if outer and ("Filter" in kinds or condition is not None or kinds.count("Generate") > 1):
            return None
        if outer and not self._is_generated(join.right().plan()):
            return None
        made = self._over(join.right().plan(), join.left(), outer)
        return made if condition is None else self._plans.Filter(condition, made)

    def _is_generated(self, plan: Any) -> bool:
        """Whether all columns are the generator's, under any names: only those are NULL where the generator makes no
        row. (A constant, or an expression over them, may not be NULL.)"""
        projects = []
        while (kind := _kind(plan)) != "Generate":
            if kind == "OneRowRelation":
                return True  # it always makes one row
            projects += [plan] if kind == "Project" else []
            plan = plan.children().apply(0)
        made = {int(each.exprId().id()) for each in _listed(plan.generatorOutput())}
        for project in reversed(projects):
            passed = set()
            for item in _listed(project.projectList()):
                value = item.child() if _kind(item) == "Alias" else item
                if _kind(value) != "AttributeReference" or int(value.exprId().id()) not in made:
                    return False
                passed.add(int(item.exprId().id()))
            made = passed
        return True

    def _over(self, plan: Any, left: Any, outer: bool) -> Any:
        """Return the subquery's operators over the rows of ``left``, whose columns they keep."""
        kind = _kind(plan)
        if kind == "OneRowRelation":
            return left
        child = self._over(plan.children().apply(0), left, outer)
        if kind == "SubqueryAlias":
            return child
        if kind == "Filter":
            return self._plans.Filter(self._own(plan.condition()), child)
        if kind == "Project":
            items = plan.projectList()
            kept = [left.output().apply(place) for place in range(left.output().size())]
            made = [self._own(items.apply(place)) for place in range(items.size())]
            return self._plans.Project(self._jvm.PythonUtils.toSeq([*kept, *made]), child)
        return self._plans.Generate(
            self._own(plan.generator()),
            plan.unrequiredChildIndex(),
            outer or plan.outer(),
            plan.qualifier(),
            plan.generatorOutput(),
            child,
        )

    def _own(self, expression: Any) -> Any:
        """Return the expression with references to the outer row as references to its own input."""
        if _kind(expression) == "OuterReference":
            return expression.e()
        children = expression.children()
        if children.isEmpty():
            return expression
        made = [self._own(children.apply(place)) for place in range(children.size())]
        return expression.withNewChildren(self._jvm.PythonUtils.toSeq(made))


def _listed(found: Any) -> list[Any]:
    return [found.apply(place) for place in range(found.size())]


def _kind(found: Any) -> str:
    return str(found.getClass().getSimpleName())
