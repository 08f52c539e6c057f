"""From what the user wrote to a bare tree over the plan's columns.

Resolving replaces every reference by the plan's column, gives lambda variables names of their own (``_v0``, so that
no column can be mistaken for one), spells out the field names that Spark would take from column names (``struct(a)``
becomes ``struct(`o.a` AS `a`)``), and brings aggregates into one form (`frontend.aggregates`). A nondeterministic call
becomes a wish (`frontend.draws`), a window function a call of ``over`` (`frontend.windows`). The result mentions no
name of the user's any more, so that it can be moved and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend import functions
from holdfast.frontend.aggregates import aggregate, within_group
from holdfast.frontend.attach import to_outer
from holdfast.frontend.draws import check_timeless, is_clock, is_drawn, wish
from holdfast.frontend.names import Scope, Subqueries, fields_of, look_up, parts, unknown_column
from holdfast.frontend.place import Text
from holdfast.frontend.refuse import check_expression, nondeterministic
from holdfast.frontend.windows import has_window, read_window
from holdfast.plan.expression import NAME_SENSITIVE, Tree, column

_CHAINS = (exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.DPipe)

# Names that are no references: a field, an alias, a collation, a unit, the name of a named argument.
_NO_REFERENCE: dict[type[Tree], str] = {
    exp.Dot: "expression",
    exp.Alias: "alias",
    exp.Collate: "expression",
    exp.Interval: "unit",
    exp.Kwarg: "this",
}


@dataclass(frozen=True)
class Aliases:
    """Names of the select list and what they stand for.

    They go behind the columns of the inputs (GROUP BY, the select list itself) or, if ``first``, before them (ORDER BY,
    HAVING), but never before a column that is one of the group ``keys`` (HAVING).
    """

    trees: Mapping[str, Tree] = field(default_factory=dict)
    first: bool = False
    keys: Sequence[Tree] = ()


def is_aggregate(tree: Tree) -> bool:
    """Is this (resolved) node an aggregate call?"""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in functions.AGGREGATES


def has_aggregate(tree: Tree) -> bool:
    return any(is_aggregate(node) for node in tree.walk())


def is_grouping(tree: Tree) -> bool:
    """Is this (resolved) node a call of grouping or grouping_id?"""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in functions.GROUPING


def has_grouping(tree: Tree) -> bool:
    return any(is_grouping(node) for node in tree.walk())


def resolve(
    tree: Tree, scope: Scope, text: Text, aliases: Aliases | None = None, aggregates: str = "", windows: str = ""
) -> Tree:
    """The bare tree of an expression. ``aggregates`` names the clause if there may be none in it (``WHERE``), and so
    does ``windows``."""
    check_expression(tree, text, subqueries=scope.subqueries is not None)
    result = _Resolver(scope, text, aliases or Aliases()).visit(tree, {}, False)
    if aggregates and has_aggregate(result):
        call = next(node for node in tree.walk() if is_aggregate(node))
        raise text.error(SqlError, f"aggregate {call.name.lower()} in {aggregates}, where none may be", call)
    if windows and has_window(result):
        advice = "compute it in a subquery, or filter with QUALIFY"
        raise text.error(SqlError, f"window function in {windows}, where none may be; {advice}", tree)
    return result


class _Resolver:
    def __init__(self, scope: Scope, text: Text, aliases: Aliases) -> None:
        self.scope, self.text, self.aliases = scope, text, aliases
        self.taken = {inner.lower() for relation in scope.relations for inner in relation.internal}

    def visit(self, tree: Tree, variables: Mapping[str, str], inside: bool) -> Tree:
        """``variables``: lambda variables in reach; ``inside``: in an aggregate's argument."""
        match tree:
            case exp.Paren():
                return self.visit(tree.this, variables, inside)
            case exp.Column(this=exp.Star()):
                raise self.text.unsupported("* inside an expression", tree)
            case exp.Star():
                raise self.text.unsupported("* inside an expression", tree)
            case exp.Lambda():
                return self._lambda(tree, variables, inside)
            case exp.Exists() | exp.Query():
                return self._subquery(tree, variables)
            case exp.In() if tree.args.get("query"):
                return self._within(tree, variables, inside)
            case exp.IgnoreNulls() | exp.RespectNulls():
                return self._nulls(tree, variables, inside)
            case exp.Filter():
                return self._filtered(tree, variables, inside)
            case exp.WithinGroup():
                return self._aggregate(within_group(tree, self.text), variables, inside)
            case exp.Window():
                return self._window(tree, variables, inside)
            case exp.Anonymous():
                return self._call(tree, variables, inside)
            case exp.CurrentDate():
                return wish("current_date", (), self.text, tree)
            case exp.CurrentTimestamp():
                return wish("current_timestamp", (), self.text, tree)
            case exp.Tuple():
                return exp.Tuple(expressions=[self._named(each, variables, inside, None) for each in tree.expressions])
            case exp.RawString():
                return exp.Literal.string(tree.name)  # sqlglot compares raw strings without case
            case exp.DataType() | exp.Var() | exp.Literal():
                return tree.copy()
        if isinstance(tree, _CHAINS):
            return self._chain(tree, variables, inside)
        if (names := parts(tree)) is not None:
            return self._reference(names, variables, inside)
        return self._rebuild(tree, variables, inside)

    def _chain(self, tree: Tree, variables: Mapping[str, str], inside: bool) -> Tree:
        """``a OR b OR c …`` without a call for each: generated conditions are long."""
        links: list[Tree] = []
        while isinstance(tree, _CHAINS):
            links.append(tree)
            tree = tree.this
        result = self.visit(tree, variables, inside)
        for link in reversed(links):
            result = type(link)(this=result, expression=self.visit(link.expression, variables, inside))
        return result

    def _rebuild(self, tree: Tree, variables: Mapping[str, str], inside: bool) -> Tree:
        kept = _NO_REFERENCE.get(type(tree))

        def part(key: str, value: object) -> object:
            if not isinstance(value, exp.Expr):
                return value
            if key == kept:
                fixed = isinstance(tree, (exp.Dot, exp.Alias)) and isinstance(value, exp.Identifier)
                return exp.Identifier(this=value.name, quoted=True) if fixed else value.copy()
            return self.visit(value, variables, inside)

        arguments = {
            key: [part(key, each) for each in value] if isinstance(value, list) else part(key, value)
            for key, value in tree.args.items()
        }
        return type(tree)(**arguments)

    def _reference(self, names: list[exp.Identifier], variables: Mapping[str, str], inside: bool) -> Tree:
        first = names[0].name.lower()
        if first in variables:
            return fields_of(exp.Identifier(this=variables[first], quoted=False), names[1:])
        alias = self.aliases.trees.get(first)
        if alias is not None and inside and has_aggregate(alias):
            alias = None
        qualified = len(names) > 1 and self.scope.called(first)
        if alias is not None and self.aliases.first and not inside and not qualified:
            columns = [column(inner) for _, inner in self.scope.candidates(names[0].name)]
            key = columns[0] if len(columns) == 1 and columns[0] in self.aliases.keys else None
            return fields_of(alias.copy() if key is None else key, names[1:])
        found = look_up(self.scope, names, self.text)
        if found is None and alias is not None:
            found = fields_of(alias.copy(), names[1:])
        found = self._outer(names) if found is None else found
        if found is not None:
            return found
        if len(names) == 1 and first in functions.BARE_CALLS:
            if is_drawn(first, 0):
                return wish(first, (), self.text, names[0])
            raise nondeterministic(first, names[0], self.text)
        raise unknown_column(self.scope, names, self.text, tuple(self.aliases.trees))

    def _outer(self, names: list[exp.Identifier]) -> Tree | None:
        """A column of the enclosing query."""
        outer = self.scope.outer
        found = None if outer is None else look_up(outer, names, self.text)
        if found is not None and not self.scope.linked:
            raise self.text.unsupported(
                f"the reference {'.'.join(name.name for name in names)!r} to the enclosing query in this place",
                names[0],
                "a subquery may refer to it in its WHERE, if it is a plain SELECT or one with aggregates alone",
            )
        if found is None and outer is not None and outer.outer is not None and look_up(outer.outer, names, self.text):
            raise self.text.unsupported("a reference to a query further out than the enclosing one", names[0])
        return None if found is None else to_outer(found)

    def _subquery(self, tree: Tree, variables: Mapping[str, str]) -> Tree:
        planner = self._planner(tree, variables)
        return planner.exists(tree, self.scope) if isinstance(tree, exp.Exists) else planner.scalar(tree, self.scope)

    def _within(self, tree: exp.In, variables: Mapping[str, str], inside: bool) -> Tree:
        given = tree.this.this if isinstance(tree.this, exp.Paren) else tree.this
        values = given.expressions if isinstance(given, exp.Tuple) else [given]
        visited = [self.visit(each, variables, inside) for each in values]
        return self._planner(tree, variables).within(visited, tree, self.scope)

    def _planner(self, tree: Tree, variables: Mapping[str, str]) -> Subqueries:
        if variables:
            raise self.text.unsupported("a subquery inside a lambda function", tree)
        assert self.scope.subqueries is not None  # check_expression refuses subqueries elsewhere
        return self.scope.subqueries

    def _lambda(self, tree: exp.Lambda, variables: Mapping[str, str], inside: bool) -> Tree:
        number = len(set(variables.values()))
        reach, own = dict(variables), []
        for variable in tree.expressions:
            while f"_v{number}" in self.taken:
                number += 1
            reach[variable.name.lower()] = f"_v{number}"
            own.append(exp.Identifier(this=f"_v{number}", quoted=False))
            number += 1
        return exp.Lambda(this=self.visit(tree.this, reach, inside), expressions=own)

    def _named(self, tree: Tree, variables: Mapping[str, str], inside: bool, place: int | None) -> Tree:
        """An argument whose name becomes a field's name (``place``: its number, if it has a name even without one)."""
        names = parts(tree)
        value = self.visit(tree, variables, inside)
        if isinstance(tree, exp.Alias):
            return value
        name = names[-1].name if names else (f"col{place}" if place is not None else None)
        return value if name is None else exp.Alias(this=value, alias=exp.Identifier(this=name, quoted=True))

    def _call(self, call: exp.Anonymous, variables: Mapping[str, str], inside: bool) -> Tree:
        name = call.name.lower()
        if name in self.text.functions or is_drawn(name, len(call.expressions)):
            return self._wish(call, variables, inside)
        if name in functions.AGGREGATES:
            return self._aggregate(call, variables, inside)
        arguments = list(call.expressions)
        if name == "window_time":
            return self._window_time(call, variables, inside)
        for each in arguments:
            if isinstance(each, exp.Distinct):
                raise self.text.error(SqlError, f"DISTINCT in {name}, which is not an aggregate", call)
        if name == "struct":
            visited = [self._named(each, variables, inside, place) for place, each in enumerate(arguments, 1)]
        else:
            visited = []
            for place, each in enumerate(arguments):
                if place == 0 and len(arguments) == 3 and name in functions.UNIT_FIRST and (unit := parts(each)):
                    visited.append(exp.Var(this=unit[-1].name.upper()))
                else:
                    visited.append(self.visit(each, variables, inside))
        if name in NAME_SENSITIVE:
            self._check_names(call, visited)
        this = call.this.copy() if isinstance(call.this, exp.Expr) else name
        return exp.Anonymous(this=this, expressions=visited)

    def _window_time(self, call: exp.Anonymous, variables: Mapping[str, str], inside: bool) -> Tree:
        """The last moment of a time window: its end is the first that is not in it."""
        if len(call.expressions) != 1:
            raise self.text.error(
                SqlError, f"window_time takes a window, found {len(call.expressions)} arguments", call
            )
        end = fields_of(self.visit(call.expressions[0], variables, inside), [exp.to_identifier("end")])
        least = exp.Interval(this=exp.Literal.string("0.000001"), unit=exp.Var(this="SECOND"))
        return exp.Sub(this=end, expression=least)

    def _wish(self, call: exp.Anonymous, variables: Mapping[str, str], inside: bool) -> Tree:
        name = call.name.lower()
        tree = wish(name, [self.visit(each, variables, inside) for each in call.expressions], self.text, call)
        if variables and not is_clock(tree):
            advice = "it is computed once for each row; call it outside of the lambda function"
            raise self.text.unsupported(f"{name} inside a lambda function", call, advice)
        return tree

    def _check_names(self, call: exp.Anonymous, visited: list[Tree]) -> None:
        for written, each in zip(call.expressions, visited, strict=True):
            names = parts(written)
            if names and isinstance(each, exp.Column) and each.name.lower() != names[-1].name.lower():
                advice = "it takes field names from column names, which a join qualifies; use it in a view of its own"
                raise self.text.unsupported(f"{call.name.lower()} over a join", call, advice)

    def _nulls(self, tree: Tree, variables: Mapping[str, str], inside: bool) -> Tree:
        inner = tree.this
        if isinstance(inner, exp.Anonymous) and functions.AGGREGATES.get(inner.name.lower()) == "any_value":
            return self.visit(inner, variables, inside)  # any_value passes over NULLs anyway
        raise self.text.error(SqlError, "IGNORE NULLS belongs behind first, last or any_value", tree)

    def _filtered(self, tree: exp.Filter, variables: Mapping[str, str], inside: bool) -> Tree:
        call, condition = tree.this, tree.expression.this
        call = call.this if isinstance(call, (exp.IgnoreNulls, exp.RespectNulls)) else call
        call = within_group(call, self.text) if isinstance(call, exp.WithinGroup) else call
        if not is_aggregate(call):
            raise self.text.error(SqlError, "FILTER belongs behind an aggregate", tree, "FILTER", after=True)
        resolved = self.visit(condition, variables, True)
        check_timeless(resolved, "FILTER", self.text)
        return self._aggregate(call, variables, inside, resolved)

    def _aggregate(
        self, call: exp.Anonymous, variables: Mapping[str, str], inside: bool, condition: Tree | None = None
    ) -> Tree:
        written, function = call.name.lower(), functions.AGGREGATES[call.name.lower()]
        if inside:
            raise self.text.error(SqlError, f"aggregate {written} inside another aggregate", call)
        if variables:
            raise self.text.error(SqlError, f"aggregate {written} inside a lambda function", call)
        nulls = (exp.IgnoreNulls, exp.RespectNulls)
        arguments = [each.this if isinstance(each, nulls) else each for each in call.expressions]
        distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = [*arguments[0].expressions, *arguments[1:]]
        if function == "any_value" and len(arguments) == 2 and isinstance(arguments[1], exp.Boolean):
            arguments = arguments[:1]  # first(x, true): ignore nulls
        if function == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            if distinct:
                # To Spark this is count(DISTINCT a, b, …): rows with a NULL in any column do not count.
                raise self.text.unsupported("count(DISTINCT *)", call, "name the columns")
            return aggregate(call, arguments, False, condition, self.text)
        visited = [self.visit(each, variables, True) for each in arguments]
        return aggregate(call, visited, distinct, condition, self.text)

    def _window(self, tree: exp.Window, variables: Mapping[str, str], inside: bool) -> Tree:
        if inside or variables:
            where = "an aggregate" if inside else "a lambda function"
            raise self.text.error(SqlError, f"window function inside {where}", tree)
        window = read_window(tree, self.text)
        arguments = list(window.arguments)
        if window.function == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        visited = [self.visit(each, {}, False) for each in arguments]
        if window.function == "count" and visited:
            counted = aggregate(window.call, visited, False, None, self.text).expressions
            visited = [each for each in counted if not isinstance(each, exp.Star)]
        partition, order = (
            [self.visit(each, {}, False) for each in trees] for trees in (window.partition, window.order)
        )
        return window.tree(visited, partition, order)
