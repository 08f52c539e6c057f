"""Catalyst's expressions as expressions of the plan.

An expression whose classes are all known to `Expressions._native` is written out, every cast in its place: Holdfast may
compute it itself (`operators.expressions.compile_term`). Any other is a `SparkExpression`: Spark's own expression
object, with *holes* for the parts that Spark does not compute (columns, draws, users' functions, subqueries). So an
expression that is not native crosses as Spark's own expression.

AND, OR, NOT and comparisons are always written out, since joins, keys and temporal filters look into them. Below them
an expression is native as a whole or foreign as a whole. An expression without any hole is a constant, which Spark's
own optimiser computes.

An operation that can fail is written out only if it fails as ANSI SQL does, because Spark's own queries are also read
and computed in ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from holdfast.frontend.catalyst.certain_casts import WIDTHS, is_certain
from holdfast.frontend.catalyst.clock import CLOCKS, beside_clock, clock, has_clock
from holdfast.frontend.catalyst.literals import NotNative, digits, folded, interval_of, literal
from holdfast.frontend.catalyst.repeatable import check_repeatable
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator, sql_type
from holdfast.frontend.placeholders import Placeholder
from holdfast.frontend.uncorrelated_subqueries import Subquery
from holdfast.operators.draw import Drawn
from holdfast.plan.expression import (
    BOOLEAN,
    Column,
    Operation,
    SparkExpression,
    Tree,
    cast,
    choice,
    condition,
    is_known,
    is_null,
    negated,
    null,
    plus,
)
from holdfast.plan.nodes import Function, Node

_ARITHMETIC = {"Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Remainder": "%"}
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_LOGIC = {"And": "and", "Or": "or"}
_BOOLEAN = frozenset((*_COMPARISONS, *_LOGIC, "Not", "IsNull", "IsNotNull", "In", "Like", "IsNaN"))
_FUNCTIONS = {
    "Coalesce": "coalesce",
    "Substring": "substring",
    "IsNaN": "isnan",
    "Year": "year",
    "Month": "month",
    "DayOfMonth": "day",
}
_DATE_PARTS = ("Year", "Month", "DayOfMonth")
_LAMBDA = "LambdaFunction"
NAMED_ARGUMENT = "NamedArgumentExpression"

_HOLES = CLOCKS | frozenset((
    "AttributeReference", "Rand", "Randn", "Uuid", "PythonUDF", "PythonUDAF", "AggregateExpression",
    "WindowExpression", "ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery",
    "CommonExpressionRef", "OuterReference",
))  # fmt: skip


def is_hole(expression: CatalystExpression) -> bool:
    """Whether Holdfast, not Spark, computes the value of this part of an expression."""
    return expression.kind in _HOLES


class Expressions:
    """Converts expressions over columns: ``names`` maps the ids of Spark's attributes to the plan's columns."""

    def __init__(
        self,
        statement: Statement,
        names: Mapping[int, str],
        rows: Callable[[CatalystOperator, CatalystExpression], Node],
    ) -> None:
        """``rows``: converts the plan of a subquery."""
        self.statement, self.names, self.rows = statement, names, rows
        self._common: list[tuple[str, Tree]] = []
        """Parts that a `With` names, by Spark's id, while its expression is converted."""

    def tree(self, expression: CatalystExpression) -> Tree:
        """Convert an expression to a tree of the plan."""
        kind, children = expression.kind, expression.children
        if _is_transparent(expression):
            return self.tree(children[0])
        if kind == "With":
            return self._with(expression, self.tree)
        if kind in _COMPARISONS:
            return self._compared(expression)
        if kind in _LOGIC:
            return condition(_LOGIC[kind], *map(self.tree, children))
        if kind == "Not":
            return negated(self.tree(children[0]))
        if kind == "IsNull":
            return is_null(self.tree(children[0]))
        if kind == "IsNotNull":
            return is_known(self.tree(children[0]))
        if is_hole(expression):
            return self._hole(expression)
        try:
            return self._native(expression)
        except NotNative:
            return self._foreign(expression)

    def _compared(self, expression: CatalystExpression) -> Tree:
        sides = expression.children
        timed = [has_clock(side) for side in sides]
        name = _COMPARISONS[expression.kind]
        if timed.count(True) == 1:
            try:
                left, right = beside_clock(sides, timed.index(True), self.tree, self.constant)
            except NotNative:
                pass
            else:
                return condition(name, left, right)
        return condition(name, *map(self.comparable, sides))

    def comparable(self, expression: CatalystExpression) -> Tree:
        """The value by which an expression is compared, grouped and sorted: for a text with a collation, its collation
        key."""
        tree, collation = self.tree(expression), self.collation(expression)
        if collation is None:
            return tree
        return SparkExpression(self.statement.catalyst.collation_key(collation), (tree,), "binary")

    def collation(self, expression: CatalystExpression) -> str | None:
        """The collation of a text, if texts of different bytes can be equal by it; else None."""
        if not self.statement.catalyst.has_collations:
            return None
        kind = self.type_of(expression)
        if kind.startswith("string collate "):
            return kind.removeprefix("string collate ")
        if "collate " in kind:
            advice = "compare the texts in it one by one"
            raise self.statement.unsupported("a collation inside of a struct, an array or a map", expression, advice)
        return None

    def _with(self, expression: CatalystExpression, convert: Callable[[CatalystExpression], Tree]) -> Tree:
        """Convert a `With`, with each named part in the places where it is used."""
        inner, *definitions = expression.children
        before = len(self._common)
        for each in definitions:
            self._common.append((self.statement.catalyst.hidden(each, "id"), convert(each.children[0])))
        try:
            return convert(inner)
        finally:
            del self._common[before:]

    def _foreign(self, expression: CatalystExpression) -> Tree:
        holes: list[CatalystExpression] = []
        found: list[Tree] = []

        def visit(part: CatalystExpression, within: bool) -> None:
            if part.kind == "CommonExpressionRef" and self._defined(part) is None:
                return  # it belongs to a With that is foreign as a whole
            if is_hole(part):
                if within and part.kind not in CLOCKS and part.kind != "AttributeReference":
                    advice = "compute it outside of the lambda, once for each row"
                    raise self.statement.unsupported(f"{shown(part)} in a lambda function", part, advice)
                found.append(self._hole(part))
                holes.append(part)
                return
            for child in part.children:
                visit(child, within or part.kind == _LAMBDA)

        visit(expression, False)
        check_repeatable(expression, self.statement, is_hole)
        name = self.statement.catalyst.foreign(expression, holes)
        written, lacking = self._written(expression, holes) if self.statement.in_loop else (None, "")
        return SparkExpression(name, tuple(found), self.type_of(expression), written, lacking)

    def _written(self, expression: CatalystExpression, holes: list[CatalystExpression]) -> tuple[Tree | None, str]:
        """Return (the expression as operations over its holes, ""), or (None, the part that no operation expresses)."""
        from holdfast.frontend.catalyst.written_out import written_out  # which is made of this class

        return written_out(self, expression, holes)

    # -- what Spark does not compute ------------------------------------------------------------------------------

    def _hole(self, expression: CatalystExpression) -> Tree:
        match expression.kind:
            case "AttributeReference":
                return Column(self.names[expression.id], self.type_of(expression))
            case kind if kind in CLOCKS:
                return clock(expression)
            case "CommonExpressionRef":
                found = self._defined(expression)
                assert found is not None, "a reference to what was not defined"
                return found
            case "Rand" | "Randn" | "Uuid":
                return self._random(expression)
            case "PythonUDF":
                return self._call(expression)
            case "ScalarSubquery" | "Exists" if not expression.children:
                return self._subquery(expression)
        raise self.statement.unsupported(shown(expression), expression)

    def _defined(self, reference: CatalystExpression) -> Tree | None:
        if not self._common:
            return None
        id = self.statement.catalyst.hidden(reference, "id")
        return next((tree for known, tree in self._common if known == id), None)

    def _random(self, expression: CatalystExpression) -> Tree:
        function = expression.kind.lower()
        parameters = expression.parameters
        if function == "uuid":
            # Spark gives each uuid() a seed when it analyses the query.
            return Placeholder(
                Drawn("", "uuid", (), "string", self.statement.draw(expression, parameters.get("randomSeed")))
            )
        seed = self.constant(expression.children[0])
        if parameters.get("hideSeed"):
            salt = self.statement.draw(expression, None if seed is None else seed.parameters.get("value"))
        else:
            if seed is None:
                raise self.statement.unsupported(
                    f"{function} with a seed that is not a number", expression, "write the number"
                )
            salt = self.statement.draws.seeded(int(seed.parameters.get("value") or 0))
        return Placeholder(Drawn("", function, (), "double", salt))

    def _call(self, expression: CatalystExpression) -> Tree:
        function = self.statement.catalyst.function(expression)
        given = [each.children[0] if each.kind == NAMED_ARGUMENT else each for each in expression.children]
        arguments = tuple(map(self.tree, given))
        if isinstance(function, Function):
            return Placeholder(function, arguments)
        salt = self.statement.draw(expression, expression.parameters.get("resultId"))
        return Placeholder(Drawn("", f"udf:{function.name}", (), function.returns, salt, function), arguments)

    def _subquery(self, expression: CatalystExpression) -> Tree:
        node = self.rows(expression.parameters["plan"], expression)
        kind: Literal["exists", "scalar"] = "scalar" if expression.kind == "ScalarSubquery" else "exists"
        return Subquery(kind, self.statement.next_subquery(), node)

    # -- what is written out --------------------------------------------------------------------------------------

    def _native(self, expression: CatalystExpression) -> Tree:
        kind, children = expression.kind, expression.children
        if _is_transparent(expression):
            return self._native(children[0])
        if kind == "With":
            return self._with(expression, self._native)
        if is_hole(expression):
            return self._hole(expression)
        if not _varies(expression):
            constant = self.constant(expression)
            if constant is None:
                raise NotNative("a constant that Spark does not compute ahead")
            return literal(constant)
        if kind in (*_COMPARISONS, "In", "Like") and any(self.collation(child) for child in children):
            raise NotNative("a comparison by a collation")
        if kind in _DATE_PARTS and self.type_of(children[0]) != "date":
            raise NotNative("a part of a time")
        match kind:
            case "Add" | "Subtract" | "Multiply" | "Divide" | "Remainder" if self._is_ansi(expression):
                return self._made(_ARITHMETIC[kind], expression)
            case "UnaryMinus" if expression.parameters.get("failOnError") and self.type_of(expression) in WIDTHS:
                return self._made("negative", expression)
            case "Like" if self.statement.catalyst.hidden(expression, "escapeChar") == "\\":
                return self._made("like", expression)
            case "Not" | "In":
                return self._made(kind.lower(), expression)
            case "IsNull":
                return self._made("is null", expression)
            case "IsNotNull":
                return is_known(self._native(children[0]))
            case "Cast":
                return self._cast(expression)
            case "If" | "CaseWhen":
                return choice(*map(self._native, children))
            case "NullIfResult":
                test, value = map(self._native, children)
                return choice(test, null(value.type), value)
            case "TimestampAddInterval":
                return self._shifted(expression)
        name = _COMPARISONS.get(kind) or _LOGIC.get(kind) or _FUNCTIONS.get(kind)
        if name is None:
            raise NotNative(kind)
        return self._made(name, expression)

    def _made(self, name: str, expression: CatalystExpression) -> Tree:
        return Operation(name, tuple(map(self._native, expression.children)), self.type_of(expression))

    def _shifted(self, expression: CatalystExpression) -> Tree:
        """Convert a timestamp plus a constant interval."""
        moment, by = expression.children
        constant = None if _varies(by) else self.constant(by)
        span = None if constant is None else interval_of(constant)
        if span is None:
            raise NotNative("an interval that is not constant")
        return plus(self._native(moment), *span)

    def _cast(self, expression: CatalystExpression) -> Tree:
        """Convert a cast that cannot fail, for which the mode makes no difference."""
        inner = expression.children[0]
        wanted, have = self.type_of(expression), self.type_of(inner)
        if not is_certain(have, wanted):
            raise NotNative(f"a cast from {have} to {wanted}")
        return cast(self._native(inner), wanted)

    def type_of(self, expression: CatalystExpression) -> str:
        """The type of an expression."""
        kind, children = expression.kind, expression.children
        if "dataType" in expression.parameters and (found := sql_type(expression.parameters["dataType"])) is not None:
            return found
        if kind in _BOOLEAN:
            return BOOLEAN
        if kind in _DATE_PARTS:
            return "int"
        if kind in ("Alias", "UnaryMinus", "Coalesce"):
            return self.type_of(children[0])
        if kind in _ARITHMETIC:
            # Both operands have one type, which the result has too, unless they are decimals.
            first = self.type_of(children[0])
            if digits(first) is None:
                return first
        return self.statement.catalyst.type_of(expression)

    def _is_ansi(self, expression: CatalystExpression) -> bool:
        catalyst = self.statement.catalyst
        return catalyst.is_ansi(expression) or catalyst.mode(expression) == "ANSI"

    def constant(self, expression: CatalystExpression) -> CatalystExpression | None:
        """Return the literal that an expression without holes equals; None if Spark does not compute it ahead."""
        found = folded(expression)
        if found is not None and not _is_literal_of_spark(found):
            return found
        return self.statement.catalyst.literal(expression)


def _is_literal_of_spark(expression: CatalystExpression) -> bool:
    """Whether it is a literal whose value is not in the plan's JSON."""
    return expression.parameters["dataType"] == "timestamp" and expression.parameters.get("value") is not None


def _is_transparent(expression: CatalystExpression) -> bool:
    """Whether the expression stands for its child. A ``try_`` function does not: it gives NULL where the child
    fails."""
    if expression.kind == "Alias":
        return True
    return "replacement" in expression.parameters and not expression.kind.startswith("Try")


def _varies(expression: CatalystExpression) -> bool:
    return any(is_hole(part) for part in expression.walk())


_SHOWN = {
    "AggregateExpression": "an aggregate here",
    "WindowExpression": "a window function here",
    "Exists": "EXISTS here",
    "InSubquery": "IN with a subquery here",
    "ListQuery": "IN with a subquery here",
    "LateralSubquery": "a LATERAL subquery here",
    "PythonUDAF": "an aggregate of the user's",
    "OuterReference": "a reference to the enclosing query here",
    "ScalarSubquery": "a subquery",
    "Rand": "rand",
    "Randn": "randn",
    "Uuid": "uuid",
}


def shown(expression: CatalystExpression) -> str:
    """The name of a hole in messages."""
    return _SHOWN.get(expression.kind) or str(expression.parameters.get("name") or expression.kind)
