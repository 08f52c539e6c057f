"""Catalyst's expressions as trees of the plan.

An expression of a class in `_NATIVE` is written out, every cast in its place: Holdfast may compute it by itself
(`operators.reading`). Any other is *foreign*: a call of a function that stands for Spark's own expression object, over
the parts of it that Spark does not compute (columns, draws, users' functions, subqueries). So what is not native
crosses as the very expression that Spark made.

AND, OR, NOT and comparisons are always written out, since joins, keys and temporal filters look into them. Below them
an expression is native as a whole or foreign as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from sqlglot import exp

from holdfast.errors import Unsupported
from holdfast.frontend.attach import Sub, call
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import Expression, Operator
from holdfast.frontend.draws import CLOCK
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Drawn, Function, Node

_BINARY: dict[str, type[exp.Binary]] = {
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
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_WIDTH = {name: place for place, name in enumerate(_NUMBERS)}
_TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_DATE_PARTS = {"Year": "YEAR", "Month": "MONTH", "DayOfMonth": "DAY"}


class Foreign(Exception):
    """The expression is not one that is written out."""


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

    def tree(self, expression: Expression) -> Tree:
        """The expression as a tree of the plan."""
        kind = expression.kind
        if kind == "Alias" or ("replacement" in expression.parameters and not _is_try(expression)):
            return self.tree(expression.children[0])
        if kind in _COMPARISONS or kind in _LOGIC:
            left, right = map(self.tree, expression.children)
            return {**_COMPARISONS, **_LOGIC}[kind](this=left, expression=right)
        if kind == "Not":
            return exp.Not(this=self.tree(expression.children[0]))
        if kind == "IsNull":
            return exp.Is(this=self.tree(expression.children[0]), expression=exp.null())
        if kind == "IsNotNull":
            return exp.Not(this=exp.Is(this=self.tree(expression.children[0]), expression=exp.null()))
        if is_hole(expression):
            return self._hole(expression)
        try:
            return self._native(expression)
        except Foreign:
            return self._foreign(expression)

    def _foreign(self, expression: Expression) -> Tree:
        holes: list[Expression] = []
        found: list[Tree] = []

        def visit(part: Expression) -> None:
            if is_hole(part):
                tree = self._hole(part)
                holes.append(part)
                found.append(tree)
                return
            for child in part.children:
                visit(child)

        visit(expression)
        name = self.statement.catalyst.foreign(expression, holes)
        return exp.Anonymous(this=name, expressions=found)

    # -- what Spark does not compute ----------------------------------------------------------------------------------

    def _hole(self, expression: Expression) -> Tree:
        match expression.kind:
            case "AttributeReference":
                return column(self.names[expression.id])
            case "CurrentTimestamp" | "Now":
                return _clock()
            case "CurrentDate":
                return _cast(_clock(), "date")
            case "LocalTimestamp":
                return _cast(_clock(), "timestamp_ntz")
            case "Rand" | "Randn" | "Uuid":
                return self._random(expression)
            case "PythonUDF" | "PythonUDAF":
                return self._call(expression)
            case "ScalarSubquery" | "Exists" if not expression.children:
                return self._subquery(expression)
        raise self.statement.unsupported(_shown(expression), expression)

    def _random(self, expression: Expression) -> Tree:
        function = expression.kind.lower()
        parameters = expression.parameters
        if function == "uuid":
            # Spark gives uuid() a seed of its own when it analyses it.
            return _wish("uuid", Drawn("", "uuid", (), "string", self.statement.next_draw()))
        if parameters.get("hideSeed"):
            salt = self.statement.next_draw()
        else:
            seed = expression.children[0]
            while seed.kind in ("Cast", "UnaryMinus"):
                seed = seed.children[0]
            if seed.kind != "Literal":
                raise self.statement.unsupported(
                    f"{function} with a seed that is not a number", expression, "write the number"
                )
            salt = f"seed {expression.children[0].parameters.get('value', seed.parameters['value'])}"
        return _wish(function, Drawn("", function, (), "double", salt))

    def _call(self, expression: Expression) -> Tree:
        function = self.statement.catalyst.function(expression)
        arguments = [self.tree(child) for child in expression.children]
        if isinstance(function, Function):
            return exp.Anonymous(this=function.name, expressions=arguments, draw=function)
        drawn = Drawn("", f"udf:{function.name}", (), function.returns, self.statement.next_draw(), function)
        return exp.Anonymous(this=function.name, expressions=arguments, draw=drawn)

    def _subquery(self, expression: Expression) -> Tree:
        node = self._rows(expression.parameters["plan"], expression)

        def refused(construct: str, advice: str) -> Unsupported:
            return self.statement.unsupported(construct, expression, advice)

        sub = Sub("exists", node, refused)
        if expression.kind == "ScalarSubquery":
            sub = Sub("scalar", node, refused, value=column(node.columns[0]))
        return call(self.statement.next_subquery(), sub, [])

    # -- what is written out ------------------------------------------------------------------------------------------

    def _native(self, expression: Expression) -> Tree:
        kind, children = expression.kind, expression.children
        if kind == "Alias" or ("replacement" in expression.parameters and not _is_try(expression)):
            return self._native(children[0])
        if is_hole(expression):
            return self._hole(expression)
        if kind == "Literal":
            return literal(expression)
        if kind in _BINARY or kind in _COMPARISONS or kind in _LOGIC:
            left, right = map(self._native, children)
            return {**_BINARY, **_COMPARISONS, **_LOGIC}[kind](this=left, expression=right)
        match kind:
            case "Not":
                return exp.Not(this=self._native(children[0]))
            case "UnaryMinus":
                return exp.Neg(this=self._native(children[0]))
            case "IsNull":
                return exp.Is(this=self._native(children[0]), expression=exp.null())
            case "IsNotNull":
                return exp.Not(this=exp.Is(this=self._native(children[0]), expression=exp.null()))
            case "IsNaN":
                return exp.Anonymous(this="isnan", expressions=[self._native(children[0])])
            case "Cast":
                return self._cast(expression)
            case "In":
                value, *choices = map(self._native, children)
                return exp.In(this=value, expressions=choices)
            case "Like" if expression.parameters.get("escapeChar", "\\") == "\\":
                left, right = map(self._native, children)
                return exp.Like(this=left, expression=right)
            case "If":
                return exp.Anonymous(this="if", expressions=[self._native(child) for child in children])
            case "CaseWhen":
                return self._case(expression)
            case "Coalesce":
                return exp.Anonymous(this="coalesce", expressions=[self._native(child) for child in children])
            case "Substring":
                return exp.Anonymous(this="substring", expressions=[self._native(child) for child in children])
            case "Year" | "Month" | "DayOfMonth" if self._type(children[0]) == "date":
                inner = self._native(children[0])
                return exp.Extract(this=exp.Var(this=_DATE_PARTS[kind]), expression=inner)
        raise Foreign(kind)

    def _case(self, expression: Expression) -> Tree:
        parts = [self._native(child) for child in expression.children]
        default = parts.pop() if len(parts) % 2 else None
        ifs = [exp.If(this=parts[place], true=parts[place + 1]) for place in range(0, len(parts), 2)]
        return exp.Case(ifs=ifs, default=default)

    def _cast(self, expression: Expression) -> Tree:
        """A cast that cannot fail, so that the mode in which it was asked for makes no difference."""
        wanted, inner = expression.parameters["dataType"], expression.children[0]
        have = self._type(inner)
        if not isinstance(wanted, str) or not isinstance(have, str):
            raise Foreign("a cast of structures")
        if not (_widens(have, wanted) or _is_moment_cast(have, wanted, inner)):
            raise Foreign(f"a cast from {have} to {wanted}")
        return _cast(self._native(inner), _TYPES.get(wanted, wanted))

    def _type(self, expression: Expression) -> object:
        """The type of an expression, as the JSON of a plan spells it."""
        kind = expression.kind
        if "dataType" in expression.parameters:
            return expression.parameters["dataType"]
        if kind in _COMPARISONS or kind in _LOGIC or kind in ("Not", "IsNull", "IsNotNull", "In", "Like", "IsNaN"):
            return "boolean"
        if kind in ("CurrentTimestamp", "Now"):
            return "timestamp"
        if kind == "CurrentDate":
            return "date"
        found = self.statement.catalyst.type_of(expression)
        return {value: key for key, value in _TYPES.items()}.get(found, found)


def is_hole(expression: Expression) -> bool:
    """Whether Holdfast gives the value of this part of an expression, and not Spark."""
    return expression.kind in _HOLES


CLOCKS = ("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp")
_HOLES = frozenset((
    "AttributeReference", "CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "Rand", "Randn", "Uuid",
    "PythonUDF", "AggregateExpression", "ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery",
    "OuterReference",
))  # fmt: skip


def literal(expression: Expression) -> Tree:
    """A literal of a type that has a text of its own."""
    value, kind = expression.parameters.get("value"), expression.parameters["dataType"]
    if not isinstance(kind, str):
        raise Foreign("a literal of a structure")
    if value is None:
        return exp.null() if kind == "void" else _cast(exp.null(), _TYPES.get(kind, kind))
    if kind in ("integer", "long", "short", "byte"):
        number: Tree = exp.Literal.number(value.lstrip("-"))
        number = number if kind == "integer" else _cast(number, _TYPES[kind])
        return exp.Neg(this=number) if value.startswith("-") else number
    if kind == "double" and value not in ("NaN", "Infinity", "-Infinity"):
        number = _cast(exp.Literal.number(value.lstrip("-")), "double")
        return exp.Neg(this=number) if value.startswith("-") else number
    if kind == "boolean":
        return exp.true() if value == "true" else exp.false()
    if kind == "string" and "\\" not in value:
        return exp.Literal.string(value)
    if kind == "date":
        return _cast(exp.Literal.string(value), "date")
    if kind.startswith("decimal("):
        precision, scale = map(int, kind[8:-1].split(","))
        digits = Decimal(value).as_tuple()
        exponent = digits.exponent
        plain = f"{abs(Decimal(value)):f}"
        least = max(len(digits.digits), scale)
        if exponent == -scale and least == precision and scale:
            number = exp.Literal.number(plain)
            return exp.Neg(this=number) if value.startswith("-") else number
        whole = exp.Literal.number(plain if scale else f"{plain}BD")
        raise Foreign(f"a decimal literal {whole}")
    raise Foreign(f"a literal of type {kind}")


def _widens(have: str, wanted: str) -> bool:
    if have == wanted or have == "void":
        return True
    if have in _WIDTH and wanted in _WIDTH:
        return _WIDTH[have] < _WIDTH[wanted] and wanted != "float"
    if wanted.startswith("decimal("):
        precision, scale = map(int, wanted[8:-1].split(","))
        if have in _DIGITS:
            return precision - scale >= _DIGITS[have]
        if have.startswith("decimal("):
            own, below = map(int, have[8:-1].split(","))
            return precision - scale >= own - below and scale >= below
    return False


def _is_moment_cast(have: str, wanted: str, inner: Expression) -> bool:
    return {have, wanted} <= {"date", "timestamp", "timestamp_ntz"}


def _is_try(expression: Expression) -> bool:
    return expression.kind.startswith("Try")


def _cast(tree: Tree, kind: str) -> Tree:
    return exp.Cast(this=tree, to=exp.DataType.build(kind, dialect="spark"))


def _clock() -> Tree:
    return _wish("current_timestamp", CLOCK)


def _wish(name: str, drawn: Drawn) -> Tree:
    return exp.Anonymous(this=name, expressions=[], draw=drawn)


def _shown(expression: Expression) -> str:
    return str(expression.parameters.get("name") or expression.kind)
