"""Catalyst's expressions as trees of the plan.

An expression whose classes are all known to `Expressions._native` is written out, every cast in its place: Holdfast may
compute it by itself (`operators.reading`). Any other is *foreign*: a call of a function that stands for Spark's own
expression object, over the parts of it that Spark does not compute, its *holes* (columns, draws, users' functions,
subqueries). So what is not native crosses as the very expression that Spark made.

AND, OR, NOT and comparisons are always written out, since joins, keys and temporal filters look into them. Below them
an expression is native as a whole or foreign as a whole. What has no hole at all is a constant, which Spark's own
optimiser computes.

Only what fails as ANSI SQL does is written out: the text is read by a session in ANSI mode, and computed so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from holdfast.frontend.attach import Sub, call
from holdfast.frontend.catalyst.clock import CLOCKS, beside_clock, clock, has_clock
from holdfast.frontend.catalyst.literals import TYPES, Foreign, cast, digits, folded, interval_of, literal, plus
from holdfast.frontend.catalyst.literals import interval as interval_trees
from holdfast.frontend.catalyst.repeatable import check_repeatable
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import Expression, Operator
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Drawn, Function, Node

_ARITHMETIC: dict[str, type[exp.Binary]] = {
    "Add": exp.Add,
    "Subtract": exp.Sub,
    "Multiply": exp.Mul,
    "Divide": exp.Div,
    "Remainder": exp.Mod,
}
_COMPARISONS: dict[str, type[exp.Binary]] = {
    "EqualTo": exp.EQ,
    "EqualNullSafe": exp.NullSafeEQ,
    "LessThan": exp.LT,
    "LessThanOrEqual": exp.LTE,
    "GreaterThan": exp.GT,
    "GreaterThanOrEqual": exp.GTE,
}
_LOGIC: dict[str, type[exp.Connector]] = {"And": exp.And, "Or": exp.Or}
_BOOLEAN = frozenset((*_COMPARISONS, *_LOGIC, "Not", "IsNull", "IsNotNull", "In", "Like", "IsNaN"))
_FUNCTIONS = {"If": "if", "Coalesce": "coalesce", "Substring": "substring", "IsNaN": "isnan"}
_DATE_PARTS = {"Year": "YEAR", "Month": "MONTH", "DayOfMonth": "DAY"}
_MOMENTS = frozenset(("date", "timestamp", "timestamp_ntz"))
_WIDTH = {name: place for place, name in enumerate(("byte", "short", "integer", "long", "float", "double"))}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_NAMES = {sql: name for name, sql in TYPES.items()}
_LAMBDA = "LambdaFunction"
NAMED_ARGUMENT = "NamedArgumentExpression"

_HOLES = CLOCKS | frozenset((
    "AttributeReference", "Rand", "Randn", "Uuid", "PythonUDF", "PythonUDAF", "AggregateExpression",
    "WindowExpression", "ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery",
    "CommonExpressionRef", "OuterReference",
))  # fmt: skip


def is_hole(expression: Expression) -> bool:
    """Whether Holdfast gives the value of this part of an expression, and not Spark."""
    return expression.kind in _HOLES


class Expressions:
    """Converts expressions over columns: ``names`` maps the ids of Spark's attributes to the plan's columns."""

    def __init__(
        self,
        statement: Statement,
        names: Mapping[int, str],
        rows: Callable[[Operator, Expression], Node],
    ) -> None:
        """``rows`` converts the plan of a subquery."""
        self.statement, self.names, self._rows = statement, names, rows
        self._common: list[tuple[str, Tree]] = []
        """What is computed once for several uses (`With`), by Spark's id, while that is converted."""

    def tree(self, expression: Expression) -> Tree:
        """The expression as a tree of the plan."""
        kind, children = expression.kind, expression.children
        if _is_transparent(expression):
            return self.tree(children[0])
        if kind == "With":
            return self._with(expression, self.tree)
        if kind in _COMPARISONS:
            return self._compared(expression)
        if kind in _LOGIC:
            return _LOGIC[kind](this=self.tree(children[0]), expression=self.tree(children[1]))
        if kind == "Not":
            return exp.Not(this=self.tree(children[0]))
        if kind in ("IsNull", "IsNotNull"):
            return _is_null(self.tree(children[0]), kind == "IsNull")
        if is_hole(expression):
            return self._hole(expression)
        try:
            return self._native(expression)
        except Foreign:
            return self._foreign(expression)

    def _compared(self, expression: Expression) -> Tree:
        sides = expression.children
        timed = [has_clock(side) for side in sides]
        made = _COMPARISONS[expression.kind]
        if timed.count(True) == 1:
            try:
                left, right = beside_clock(sides, timed.index(True), self.tree, self.constant)
            except Foreign:
                pass
            else:
                return made(this=left, expression=right)
        return made(this=self.comparable(sides[0]), expression=self.comparable(sides[1]))

    def comparable(self, expression: Expression) -> Tree:
        """What the values of an expression are compared, grouped and sorted by: of a text with a collation, its key."""
        tree, collation = self.tree(expression), self.collation(expression)
        if collation is None:
            return tree
        return exp.Anonymous(this=self.statement.catalyst.collation_key(collation), expressions=[tree])

    def collation(self, expression: Expression) -> str | None:
        """The collation of a text, if it has one by which texts of different bytes are equal."""
        if not self.statement.catalyst.has_collations:
            return None
        kind = self.type_of(expression)
        if isinstance(kind, str) and kind.startswith("string collate "):
            return kind.removeprefix("string collate ")
        if "collate " in str(kind) or "__COLLATIONS" in str(kind):
            advice = "compare the texts in it one by one"
            raise self.statement.unsupported("a collation inside of a struct, an array or a map", expression, advice)
        return None

    def _with(self, expression: Expression, convert: Callable[[Expression], Tree]) -> Tree:
        """An expression in which parts are named: each in its place."""
        inner, *definitions = expression.children
        before = len(self._common)
        for each in definitions:
            self._common.append((self.statement.catalyst.hidden(each, "id"), convert(each.children[0])))
        try:
            return convert(inner)
        finally:
            del self._common[before:]

    def _foreign(self, expression: Expression) -> Tree:
        holes: list[Expression] = []
        found: list[Tree] = []

        def visit(part: Expression, within: bool) -> None:
            if part.kind == "CommonExpressionRef" and self._defined(part) is None:
                return  # it is of a With that is foreign as a whole
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
        return exp.Anonymous(this=name, expressions=found)

    # -- what Spark does not compute ------------------------------------------------------------------------------

    def _hole(self, expression: Expression) -> Tree:
        match expression.kind:
            case "AttributeReference":
                return column(self.names[expression.id])
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

    def _defined(self, reference: Expression) -> Tree | None:
        if not self._common:
            return None
        id = self.statement.catalyst.hidden(reference, "id")
        return next((tree.copy() for known, tree in self._common if known == id), None)

    def _random(self, expression: Expression) -> Tree:
        function = expression.kind.lower()
        parameters = expression.parameters
        if function == "uuid":
            # Spark gives uuid() a seed of its own when it analyses it.
            return _wish("uuid", Drawn("", "uuid", (), "string", self.statement.next_draw()))
        if parameters.get("hideSeed"):
            salt = self.statement.next_draw()
        else:
            seed = self.constant(expression.children[0])
            if seed is None:
                raise self.statement.unsupported(
                    f"{function} with a seed that is not a number", expression, "write the number"
                )
            salt = self.statement.seeded(int(seed.parameters.get("value") or 0))
        return _wish(function, Drawn("", function, (), "double", salt))

    def _call(self, expression: Expression) -> Tree:
        function = self.statement.catalyst.function(expression)
        given = [each.children[0] if each.kind == NAMED_ARGUMENT else each for each in expression.children]
        arguments = [self.tree(each) for each in given]
        if isinstance(function, Function):
            return exp.Anonymous(this=function.name, expressions=arguments, draw=function)
        drawn = Drawn("", f"udf:{function.name}", (), function.returns, self.statement.next_draw(), function)
        return exp.Anonymous(this=function.name, expressions=arguments, draw=drawn)

    def _subquery(self, expression: Expression) -> Tree:
        node = self._rows(expression.parameters["plan"], expression)
        sub = Sub("scalar" if expression.kind == "ScalarSubquery" else "exists", node)
        return call(self.statement.next_subquery(), sub)

    # -- what is written out --------------------------------------------------------------------------------------

    def _native(self, expression: Expression) -> Tree:
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
                raise Foreign("a constant that Spark does not compute ahead")
            return literal(constant)
        if kind in _ARITHMETIC and self._is_ansi(expression):
            return _ARITHMETIC[kind](this=self._native(children[0]), expression=self._native(children[1]))
        if kind in (*_COMPARISONS, "In", "Like") and any(self.collation(child) for child in children):
            raise Foreign("a comparison by a collation")
        if kind in _COMPARISONS or kind in _LOGIC:
            left, right = map(self._native, children)
            return {**_COMPARISONS, **_LOGIC}[kind](this=left, expression=right)
        if kind in _FUNCTIONS:
            return exp.Anonymous(this=_FUNCTIONS[kind], expressions=[self._native(child) for child in children])
        match kind:
            case "Not":
                return exp.Not(this=self._native(children[0]))
            case "UnaryMinus" if expression.parameters.get("failOnError") and self.type_of(expression) in _WIDTH:
                return exp.Neg(this=self._native(children[0]))
            case "IsNull" | "IsNotNull":
                return _is_null(self._native(children[0]), kind == "IsNull")
            case "Cast":
                return self._cast(expression)
            case "In":
                value, *choices = map(self._native, children)
                return exp.In(this=value, expressions=choices)
            case "Like" if self.statement.catalyst.hidden(expression, "escapeChar") == "\\":
                return exp.Like(this=self._native(children[0]), expression=self._native(children[1]))
            case "NullIfResult":
                condition, value = map(self._native, children)
                return exp.Anonymous(this="if", expressions=[condition, exp.null(), value])
            case "CaseWhen":
                return self._case(expression)
            case "Year" | "Month" | "DayOfMonth" if self.type_of(children[0]) == "date":
                return exp.Extract(this=exp.Var(this=_DATE_PARTS[kind]), expression=self._native(children[0]))
            case "TimestampAddInterval":
                return self._shifted(expression)
        raise Foreign(kind)

    def _case(self, expression: Expression) -> Tree:
        parts = [self._native(child) for child in expression.children]
        default = parts.pop() if len(parts) % 2 else None
        ifs = [exp.If(this=parts[place], true=parts[place + 1]) for place in range(0, len(parts), 2)]
        return exp.Case(ifs=ifs, default=default)

    def _shifted(self, expression: Expression) -> Tree:
        """A timestamp plus a constant interval."""
        moment, by = expression.children
        constant = None if _varies(by) else self.constant(by)
        number = None if constant is None else interval_of(constant)
        if number is None:
            raise Foreign("an interval that is not constant")
        return plus(self._native(moment), interval_trees(*number))

    def _cast(self, expression: Expression) -> Tree:
        """A cast that cannot fail, so that the mode in which it was asked for makes no difference."""
        wanted, inner = expression.parameters["dataType"], expression.children[0]
        have = self.type_of(inner)
        if have == wanted:
            return self._native(inner)
        if not isinstance(wanted, str) or not isinstance(have, str):
            raise Foreign("a cast of structures")
        if not (_widens(have, wanted) or (have in _MOMENTS and wanted in _MOMENTS)):
            raise Foreign(f"a cast from {have} to {wanted}")
        return cast(self._native(inner), TYPES.get(wanted, wanted))

    def type_of(self, expression: Expression) -> object:
        """The type of an expression, as the JSON of a plan spells it."""
        kind = expression.kind
        if "dataType" in expression.parameters:
            return expression.parameters["dataType"]
        if kind in _BOOLEAN:
            return "boolean"
        if kind in _DATE_PARTS:
            return "integer"
        if kind == "UnaryMinus" or kind in _ARITHMETIC:
            # Both operands are of one type; but of decimals the result has a type of its own.
            found = self.type_of(expression.children[0])
            if kind == "UnaryMinus" or digits(found) is None:
                return found
        name = self.statement.catalyst.type_of(expression)
        return _NAMES.get(name, name)

    def _is_ansi(self, expression: Expression) -> bool:
        catalyst = self.statement.catalyst
        return catalyst.is_ansi(expression) or catalyst.mode(expression) == "ANSI"

    def constant(self, expression: Expression) -> Expression | None:
        """The literal that an expression without holes stands for; None if Spark does not compute it ahead."""
        found = folded(expression)
        if found is not None and not _is_literal_of_spark(found):
            return found
        return self.statement.catalyst.literal(expression)


def _is_literal_of_spark(expression: Expression) -> bool:
    """Is it a literal whose value the plan's JSON does not tell?"""
    return expression.parameters["dataType"] == "timestamp" and expression.parameters.get("value") is not None


def _is_transparent(expression: Expression) -> bool:
    """Does it stand for its child? Not so what gives NULL where the child fails."""
    if expression.kind == "Alias":
        return True
    return "replacement" in expression.parameters and not expression.kind.startswith("Try")


def _varies(expression: Expression) -> bool:
    return any(is_hole(part) for part in expression.walk())


def _is_null(tree: Tree, null: bool) -> Tree:
    found = exp.Is(this=tree, expression=exp.null())
    return found if null else exp.Not(this=found)


def _widens(have: str, wanted: str) -> bool:
    """Does every value of a type have its place in another, or, in double, next to it?"""
    if have == "void":
        return True
    if have in _WIDTH and wanted in _WIDTH:
        return _WIDTH[have] < _WIDTH[wanted] and wanted != "float"
    if (type_digits := digits(wanted)) is None:
        return wanted == "double" and digits(have) is not None
    precision, scale = type_digits
    if have in _DIGITS:
        return precision - scale >= _DIGITS[have]
    own = digits(have)
    return own is not None and precision - scale >= own[0] - own[1] and scale >= own[1]


def _wish(name: str, drawn: Drawn) -> Tree:
    return exp.Anonymous(this=name, expressions=[], draw=drawn)


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


def shown(expression: Expression) -> str:
    """What a hole is called in a message."""
    return _SHOWN.get(expression.kind) or str(expression.parameters.get("name") or expression.kind)


__all__ = ["Expressions", "Foreign", "is_hole", "literal", "shown"]
