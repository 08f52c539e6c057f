"""Expressions of a plan: typed values over the columns of a node's input.

Representation: a tree of frozen values. Each has a type, which Spark gave it when it analysed the view. All casts are
explicit, so the operands of an operation have the types that it needs. An `Operation` is one of the closed set listed
below. A `SparkExpression` is any other expression: it stands for the object that Spark made (`spark.spark_expressions`
keeps it), over operands that Holdfast computes. Two trees are equal if they have the same structure.

A tree has a text in two forms: `sql` for Spark's own queries, and `readable` for people. No text is ever parsed.

Operations, by name: ``+ - * / %``, ``negative``; ``= <=> < <= > >=``, ``in``, ``like``, ``is null``, ``isnan``;
``and or not``; ``cast``; ``case`` (condition, value, …, value otherwise), ``coalesce``; ``field`` (of a struct, or of
each struct of an array); ``timestampadd`` (adds elapsed microseconds). Any other name is a function's in Spark SQL.

The file is long because the set of expressions is closed: it has every kind, with both of its texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as member
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from holdfast.plan.types import ddl_type

Value = bool | int | float | Decimal | str | bytes | None
"""The value of a literal. A date is a number of days, a timestamp a number of microseconds, both since 1970; an
interval is a number of microseconds or of months."""

BOOLEAN = "boolean"
MONTHS = "interval month"
SPAN = "interval day to second"
DAY = 86_400_000_000
"""A day, in microseconds."""


class Tree:
    """An expression. ``type`` is its Spark type, spelled as in `plan.nodes.Field`."""

    type: str

    @property
    def parts(self) -> tuple[Tree, ...]:
        """The expressions directly below this one."""
        return ()

    def over(self, parts: tuple[Tree, ...]) -> Tree:
        """The same expression with other parts."""
        return self

    @property
    def label(self) -> str:
        """The name that texts show for an expression that is not an operation."""
        return type(self).__name__.lower()

    def walk(self) -> Iterator[Tree]:
        """This expression and all expressions below it, in pre-order."""
        waiting: list[Tree] = [self]
        while waiting:
            each = waiting.pop()
            yield each
            waiting += reversed(each.parts)

    def transform(self, change: Callable[[Tree], Tree | None]) -> Tree:
        """Replace expressions of the tree, from the top: where ``change`` returns an expression, it takes the old one's
        place; where it returns None, the parts are transformed."""
        if (found := change(self)) is not None:
            return found
        parts = self.parts
        changed = tuple([each.transform(change) for each in parts])
        return self if all(new is old for new, old in zip(changed, parts, strict=True)) else self.over(changed)


@dataclass(frozen=True)
class Column(Tree):
    """A column of the input."""

    name: str
    type: str


@dataclass(frozen=True)
class Literal(Tree):
    """A constant. Never NaN or -0.0: Python's equality does not work for NaN, and does not tell -0.0 from 0.0."""

    value: Value
    type: str


@dataclass(frozen=True)
class Operation(Tree):
    """An operation, identified by its name (see the list above)."""

    name: str
    operands: tuple[Tree, ...]
    type: str

    @property
    def parts(self) -> tuple[Tree, ...]:
        return self.operands

    def over(self, parts: tuple[Tree, ...]) -> Tree:
        return replace(self, operands=parts)


@dataclass(frozen=True)
class SparkExpression(Tree):
    """An expression of Spark's own, over the values of its holes. ``name`` has a hash of its whole meaning.

    ``written``: the same expression as operations over columns named by `hole_name`. Loops use it, since Spark cannot
    compute an expression inside a loop. None if there is no such form, because of the Spark function ``lacking``.
    """

    name: str
    holes: tuple[Tree, ...]
    type: str
    written: Tree | None = member(default=None, compare=False, repr=False)
    lacking: str = member(default="", compare=False, repr=False)

    @property
    def label(self) -> str:
        known = FOREIGN.fullmatch(self.name)
        return self.name if known is None else known[1]

    @property
    def parts(self) -> tuple[Tree, ...]:
        return self.holes

    def over(self, parts: tuple[Tree, ...]) -> Tree:
        return replace(self, holes=parts)

    def in_operations(self) -> Tree | None:
        """This expression as operations over its holes; None if it cannot be written so."""
        if self.written is None:
            return None
        return substitute(self.written, {hole_name(place): each for place, each in enumerate(self.holes)})


def hole_name(place: int) -> str:
    """The column name of a hole in `SparkExpression.written`."""
    return f"hole {place}"


@dataclass(frozen=True)
class Variable(Tree):
    """A variable of a `Lambda`."""

    name: str
    type: str


@dataclass(frozen=True)
class Lambda(Tree):
    """A function that an array operation calls for each element."""

    variables: tuple[Variable, ...]
    body: Tree

    @property
    def type(self) -> str:  # type: ignore[override]  # that of its results
        return self.body.type

    @property
    def parts(self) -> tuple[Tree, ...]:
        return (self.body,)

    def over(self, parts: tuple[Tree, ...]) -> Tree:
        return replace(self, body=parts[0])


# -- making trees -----------------------------------------------------------------------------------------------------

TRUE, FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)


def null(kind: str) -> Tree:
    return Literal(None, kind)


def text(value: str) -> Tree:
    return Literal(value, "string")


def number(value: int, kind: str = "int") -> Tree:
    return Literal(value, kind)


def condition(name: str, *operands: Tree) -> Tree:
    """A comparison or another operation that gives a boolean."""
    return Operation(name, operands, BOOLEAN)


def negated(tree: Tree) -> Tree:
    return condition("not", tree)


def is_null(tree: Tree) -> Tree:
    return condition("is null", tree)


def is_known(tree: Tree) -> Tree:
    return negated(is_null(tree))


def cast(tree: Tree, kind: str) -> Tree:
    """The value cast to another type; the tree itself if it has that type."""
    return tree if tree.type == kind else Operation("cast", (tree,), kind)


def choice(*parts: Tree) -> Tree:
    """CASE: conditions and values in turn, then an optional value for when no condition holds (default NULL)."""
    otherwise = () if len(parts) % 2 else (null(parts[1].type),)
    return Operation("case", (*parts, *otherwise), parts[1].type)


def field(tree: Tree, name: str, kind: str) -> Tree:
    """A field of a struct."""
    return Operation("field", (tree, text(name)), kind)


def struct(**fields: Tree) -> Tree:
    """A struct of fields with simple names."""
    kind = f"struct<{','.join(f'{name}:{tree.type}' for name, tree in fields.items())}>"
    pairs = tuple(part for name, tree in fields.items() for part in (text(name), tree))
    return Operation("named_struct", pairs, kind)


def plus(tree: Tree, amount: int, kind: str = SPAN) -> Tree:
    """A timestamp plus an interval of ``amount`` microseconds or, by ``kind``, months. Days are calendar days."""
    return Operation("+", (tree, Literal(amount, kind)), tree.type)


def conjuncts(tree: Tree | None) -> list[Tree]:
    """The conditions that AND connects; empty for None."""
    parts: list[Tree] = []
    waiting = [] if tree is None else [tree]
    while waiting:
        part = waiting.pop()
        if is_operation(part, "and"):
            waiting += reversed(part.parts)
        else:
            parts.append(part)
    return parts


def conjunction(parts: Sequence[Tree]) -> Tree | None:
    """AND of all parts; None if there are none."""
    return chained("and", parts) if parts else None


def chained(name: str, parts: Sequence[Tree]) -> Tree:
    """AND or OR (``name``) of at least one part."""
    result = parts[0]
    for part in parts[1:]:
        result = condition(name, result, part)
    return result


# -- looking at trees -------------------------------------------------------------------------------------------------


def is_operation(tree: Tree, *names: str) -> bool:
    """Whether the expression is one of these operations."""
    return isinstance(tree, Operation) and tree.name in names


def references(*trees: Tree | None) -> tuple[str, ...]:
    """The names of the columns that expressions read, each once, in the order of first use."""
    found = (each for tree in trees if tree is not None for each in tree.walk())
    return tuple(dict.fromkeys(each.name for each in found if isinstance(each, Column)))


def plain(tree: Tree) -> str | None:
    """The column's name if the expression is just a column, else None."""
    return tree.name if isinstance(tree, Column) else None


def substitute(tree: Tree, replacement: Mapping[str, Tree]) -> Tree:
    """The expression with columns replaced by expressions; columns that are not in ``replacement`` stay."""
    return tree.transform(lambda each: replacement.get(each.name, each) if isinstance(each, Column) else None)


def renamed(tree: Tree, names: Mapping[str, str]) -> Tree:
    """The expression with its columns renamed; columns that are not in ``names`` stay."""
    return tree.transform(
        lambda each: Column(names.get(each.name, each.name), each.type) if isinstance(each, Column) else None
    )


# -- texts ------------------------------------------------------------------------------------------------------------

# How tightly an operation binds in Spark's grammar. Operations that are not listed are atomic.
_LEVELS: dict[str, int] = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("=", "<=>", "<", "<=", ">", ">=", "in", "like", "is null"), 4),
    **dict.fromkeys(("+", "-"), 6),
    **dict.fromkeys(("*", "/", "%"), 7),
    "negative": 8,
}
_ATOM = 9
_CHAINS = frozenset(("and", "or", "+", "*"))
"""Operations whose left operand needs no parentheses if it is the same operation: a + b + c."""

_SUFFIX = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L", "float": "F", "double": "D"}
_UNITS = ((DAY, "DAY"), (3_600_000_000, "HOUR"), (60_000_000, "MINUTE"), (1_000_000, "SECOND"))
FOREIGN = re.compile(r"\b_hf_([a-z0-9_]+)_[0-9a-f]{16}\b")
"""Matches the names of `SparkExpression` expressions; the group is the name that Spark gives them."""


def quoted(name: str) -> str:
    """A name in back-quotes, as in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def foreign_name(function: str, meaning: str) -> str:
    """The name of a `SparkExpression`: Spark's name of the expression, for people, and the hash ``meaning``."""
    return f"_hf_{re.sub('[^a-z0-9]+', '_', function.lower()).strip('_') or 'expression'}_{meaning}"


def sql(tree: Tree, row: str = "") -> str:
    """The text of an expression for Spark. ``row``: the struct that has the columns as fields; empty if there is
    none."""
    return _Writer(f"{row}." if row else "", exact=True).text(tree)


def readable(tree: Tree) -> str:
    """The text of an expression for people, with Spark's names for its own expressions."""
    return _Writer("", exact=False).text(tree)


@dataclass(frozen=True)
class _Writer:
    """Writes expressions as text. ``exact``: for Spark to read; otherwise for people."""

    row: str
    exact: bool

    def text(self, tree: Tree, level: int = 0) -> str:
        """The text of an expression, in parentheses if it binds less tightly than ``level``."""
        match tree:
            case Column():
                return self.row + quoted(tree.name)
            case Literal():
                found = self._literal(tree.value, tree.type)
                return f"({found})" if found.startswith("-") and level == _ATOM else found
            case Variable():
                return tree.name
            case Lambda():
                return f"({', '.join(each.name for each in tree.variables)}) -> {self.text(tree.body)}"
            case Operation():
                own = _LEVELS.get(tree.name, _ATOM)
                found = self._operation(tree.name, tree.operands, tree.type, own)
                return f"({found})" if own < level else found
            case SparkExpression() if self.exact:
                return f"{tree.name}({self._list(tree.holes)})"
        return f"{tree.label}({self._list(tree.parts)})"

    def _list(self, trees: Iterable[Tree]) -> str:
        return ", ".join([self.text(each) for each in trees])

    def _operation(self, name: str, operands: tuple[Tree, ...], kind: str, own: int) -> str:
        first = operands[0] if operands else TRUE
        match name:
            case "not" if is_operation(first, "is null"):
                return f"{self.text(first.parts[0], own + 2)} IS NOT NULL"
            case "not":
                return f"NOT {self.text(first, own)}"
            case "negative":
                return f"-{self.text(first, _ATOM)}"
            case "is null":
                return f"{self.text(first, own + 1)} IS NULL"
            case "in":
                return f"{self.text(first, own + 1)} IN ({self._list(operands[1:])})"
            case "cast":
                return f"CAST({self.text(first)} AS {ddl_type(kind)})"
            case "case":
                return self._case(operands)
            case "field":
                return f"{self.text(first, _ATOM)}.{quoted(str(_value(operands[1])))}"
            case "timestampadd":
                return f"timestampadd(MICROSECOND, {self.text(operands[1])}, {self.text(first)})"
        if own == _ATOM:
            return f"{name}({self._list(operands)})"
        if name == "+" and isinstance(by := operands[1], Literal) and by.type in (SPAN, MONTHS):
            amount = int(by.value or 0)
            if amount < 0:
                return f"{self.text(first, own + 1)} - {interval_text(-amount, by.type)}"
        left, right = self.text(first, own + (name not in _CHAINS)), self.text(operands[1], own + 1)
        return f"{left} {name.upper()} {right}"

    def _case(self, parts: tuple[Tree, ...]) -> str:
        has_else = not isinstance(parts[-1], Literal) or parts[-1].value is not None
        if has_else and len(parts) == 3:
            return f"if({self._list(parts)})"
        pairs = [f"WHEN {self.text(parts[at])} THEN {self.text(parts[at + 1])}" for at in range(0, len(parts) - 1, 2)]
        otherwise = [f"ELSE {self.text(parts[-1])}"] if has_else else []
        return " ".join(["CASE", *pairs, *otherwise, "END"])

    def _literal(self, value: Value, kind: str) -> str:
        if value is None:
            return f"CAST(NULL AS {ddl_type(kind)})" if self.exact and kind != "void" else "NULL"
        if kind in _SUFFIX:
            return f"{value!r}{_SUFFIX[kind]}"
        if kind in (MONTHS, SPAN):
            return interval_text(int(value), kind)
        match value:
            case bool():
                return str(value).upper()
            case str():
                return self._quoted(value)
            case bytes():
                return f"X'{value.hex().upper()}'"
            case Decimal():
                return f"CAST({value:f}BD AS {kind})" if self.exact else f"{value:f}"
        assert isinstance(value, int)
        if kind == "date":
            return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        zone = "Z" if kind == "timestamp" else ""
        return f"{kind.upper()} '{moment.strftime('%Y-%m-%d %H:%M:%S.%f').zfill(26)}{zone}'"

    def _quoted(self, value: str) -> str:
        """A string literal that Spark reads the same under all its settings for escapes and for ``${…}`` variables."""
        if self.exact and not (value.isprintable() and "\\" not in value and "${" not in value):
            return f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
        return "'" + value.replace("'", "''") + "'"


def _value(tree: Tree) -> Value:
    assert isinstance(tree, Literal)
    return tree.value


def interval_text(amount: int, kind: str) -> str:
    """An interval in SQL: in the largest unit in which it is a whole number, else in seconds, or days to seconds."""
    if kind == MONTHS:
        return f"INTERVAL '{amount}' MONTH"
    for size, unit in _UNITS:
        if amount % size == 0 and (unit == "DAY" or abs(amount) < DAY):
            return f"INTERVAL '{amount // size}' {unit}"
    if abs(amount) < DAY:
        return f"INTERVAL '{Decimal(amount) / 1_000_000:f}' SECOND"
    days, rest = divmod(abs(amount), DAY)
    seconds, micros = divmod(rest, 1_000_000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    return f"INTERVAL '{'-' if amount < 0 else ''}{days} {time}' DAY TO SECOND"
