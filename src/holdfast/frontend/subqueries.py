"""Subqueries of expressions, planned: what they join by, and what they give (`frontend.attach` joins them).

A subquery may refer to the enclosing query in its WHERE. An equality between something of the enclosing query and
something of its own is a key to join by. Any other such condition is one that EXISTS and IN can still be decided by,
row by row, but an aggregate cannot. A subquery that refers to nothing outside may be any query, but as a scalar it must
have one row at most, and be seen to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeGuard

from sqlglot import exp

from holdfast.errors import SqlError, Unsupported
from holdfast.frontend import functions
from holdfast.frontend.attach import Sub, call, from_outer, outer_columns
from holdfast.frontend.build import Item, linear
from holdfast.frontend.draws import check_timeless
from holdfast.frontend.grouping import Grouping
from holdfast.frontend.joins import join_all
from holdfast.frontend.labels import label, unique
from holdfast.frontend.moments import check_temporal
from holdfast.frontend.names import Relation, Scope
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import Aliases, resolve
from holdfast.frontend.select import select_items
from holdfast.plan.expression import Tree, column, conjunction, conjuncts
from holdfast.plan.nodes import Aggregate, Join, Linear, Node, TopK, Window

From = Callable[[exp.Select, Scope], tuple[Scope, list[Relation], list[Tree]]]
Whole = Callable[[Tree, Scope], Node]


class _Linked:
    """The FROM and WHERE of a subquery: its rows, and the conditions that tie them to the enclosing query."""

    def __init__(self, select: exp.Select, outer: Scope, from_: From, text: Text) -> None:
        self.scope, units, conditions = from_(select, outer)
        where = select.args.get("where")
        if where is not None:
            tree = resolve(where.this, self.scope, text, aggregates="WHERE", windows="WHERE")
            for part in conjuncts(tree):
                (check_timeless if outer_columns(part) else check_temporal)(part, "WHERE", text)
            conditions += conjuncts(tree)
        conditions = [each for each in conditions if not (isinstance(each, exp.Boolean) and each.this)]
        own = [each for each in conditions if not outer_columns(each)]
        self.node, self.rest = join_all([one.node for one in units], own)
        self.keys: list[tuple[Tree, Tree, bool]] = []
        """(the enclosing query's side, our side, whether NULL matches NULL)"""
        self.others: list[Tree] = []
        for condition in (each for each in conditions if outer_columns(each)):
            key = _key(condition)
            self.keys += [] if key is None else [key]
            self.others += [condition] if key is None else []

    @property
    def predicate(self) -> Tree | None:
        return conjunction(self.rest)


def _key(condition: Tree) -> tuple[Tree, Tree, bool] | None:
    if not isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
        return None
    for theirs, ours in ((condition.this, condition.expression), (condition.expression, condition.this)):
        if outer_columns(theirs) and not theirs.find(exp.Column) and ours.find(exp.Column) and not outer_columns(ours):
            return from_outer(theirs), ours, isinstance(condition, exp.NullSafeEQ)
    return None


class SubqueryPlanner:
    """Plans the subqueries of one query's expressions."""

    def __init__(self, text: Text, from_: From, whole: Whole) -> None:
        self.text, self._from, self._whole = text, from_, whole

    def exists(self, written: Tree, outer: Scope) -> Tree:
        """EXISTS (query)"""
        select = _plain(written.this, limited=True)
        if select is None:
            return self._call(Sub("exists", self._whole(written.this, outer), self._refused(written)), [])
        return self._linked("exists", select, [], written, outer)

    def within(self, values: list[Tree], written: Tree, outer: Scope) -> Tree:
        """values IN (query)"""
        query = written.args["query"]
        select = _plain(query)
        if select is not None:
            return self._linked("in", select, values, written, outer)
        node = self._whole(_unwrapped(query), outer)
        self._check_count(len(values), len(node.columns), written)
        return self._call(Sub("in", node, self._refused(written), members=node.columns), values)

    def scalar(self, written: Tree, outer: Scope) -> Tree:
        """(query) as a value"""
        query = _unwrapped(written)
        if _is_total(query):
            return self._total(query, written, outer)
        node = self._whole(query, outer)
        if len(node.columns) != 1:
            message = f"a scalar subquery gives one column, found {len(node.columns)} ({', '.join(node.columns)})"
            raise self.text.error(SqlError, message, written)
        if not _at_most_one(node):
            advice = "aggregate it (max(…), any_value(…)) or put LIMIT 1 behind it"
            raise self.text.unsupported("a scalar subquery that may have several rows", written, advice, "SELECT")
        return self._call(Sub("scalar", node, self._refused(written), value=column(node.columns[0])), [])

    def _linked(self, kind: str, select: exp.Select, values: list[Tree], written: Tree, outer: Scope) -> Tree:
        """EXISTS and IN of a plain SELECT, which may refer to ``outer``."""
        linked = _Linked(select, outer, self._from, self.text)
        items: list[Item] = []

        def named(tree: Tree) -> str:
            name = unique(label(tree), [each for each, _ in items])
            items.append((name, tree))
            return name

        members: list[str] = []
        if kind == "in":
            given, places = select_items(select, linked.scope, self.text)
            self._check_count(len(values), len(given), written)
            for (_, tree), place in zip(given, places, strict=True):
                self._check_inner(tree, place)
                members.append(named(tree))
        keys = tuple((named(ours), safe) for _, ours, safe in linked.keys)
        used = dict.fromkeys(node.name for each in linked.others for node in each.find_all(exp.Column))
        names = {name: named(column(name)) for name in used}
        others = tuple(
            each.transform(lambda node: column(names[node.name]) if isinstance(node, exp.Column) else node)
            for each in linked.others
        )
        outside = tuple(dict.fromkeys(name for each in others for name in outer_columns(each)))
        if not items:
            items.append(("one", exp.Literal.number(1)))
        node = linear(linked.node, linked.predicate, items)
        sub = Sub(
            "in" if kind == "in" else "exists",
            node,
            self._refused(written),
            keys,
            tuple(members),
            others=others,
            outer=outside,
        )
        return self._call(
            sub, [*values, *(theirs for theirs, _, _ in linked.keys), *(column(each) for each in outside)]
        )

    def _total(self, select: exp.Select, written: Tree, outer: Scope) -> Tree:
        """A scalar subquery whose select list is an aggregate of all its rows."""
        linked = _Linked(select, outer, self._from, self.text)
        if linked.others:
            construct = "a scalar subquery with a correlated condition that is not an equality"
            raise self.text.unsupported(construct, written, "join and group instead", "SELECT")
        given, places = select_items(select, linked.scope, self.text)
        if len(given) != 1:
            raise self.text.error(SqlError, f"a scalar subquery gives one column, found {len(given)}", written)
        ((name, tree),) = given
        having = select.args.get("having")
        aliases = Aliases({name.lower(): tree}, first=True)
        condition = None
        if having is not None:
            condition = resolve(having.this, linked.scope, self.text, aliases, windows="HAVING")
        used = [tree] + ([] if condition is None else [condition])
        for each in used:
            self._check_inner(each, places[0])
        grouping = Grouping([ours for _, ours, _ in linked.keys], [], used, self.text)
        node = grouping.plan(linked.node, linked.predicate)
        counts = {each.name for each in grouping.calls if each.function == "count"} if linked.keys else set()
        value = _counted(grouping.above(tree, places[0]), counts)
        if condition is not None:
            kept = _counted(grouping.above(condition, having), counts)
            value = exp.Anonymous(this="if", expressions=[kept, value, exp.null()])
        keys = tuple((grouping.results[ours], safe) for _, ours, safe in linked.keys)
        sub = Sub("scalar", node, self._refused(written), keys, value=value)
        return self._call(sub, [theirs for theirs, _, _ in linked.keys])

    def _call(self, sub: Sub, arguments: list[Tree]) -> Tree:
        return call(self.text.next_subquery(), sub, arguments)

    def _refused(self, written: Tree) -> Callable[[str, str], Unsupported]:
        return lambda construct, advice: self.text.unsupported(construct, written, advice)

    def _check_inner(self, tree: Tree, place: Tree) -> None:
        if outer_columns(tree):
            construct = "a reference to the enclosing query in a subquery's select list"
            raise self.text.unsupported(construct, place, "compute it outside of the subquery")

    def _check_count(self, values: int, columns: int, written: Tree) -> None:
        if values != columns:
            message = f"IN compares {values} value{'s' * (values != 1)} with {columns} columns"
            raise self.text.error(SqlError, message, written, expected=values, found=columns)


def _unwrapped(query: Tree) -> Tree:
    """A query without the parentheses around it."""
    while isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query) and _clauses(query) <= {"this"}:
        query = query.this
    return query


def _clauses(query: Tree) -> set[str]:
    return {key for key, value in query.args.items() if value}


def _plain(query: Tree, limited: bool = False) -> exp.Select | None:
    """The query, if it is a SELECT of rows as they are: whether it has a row is decided row by row."""
    query = _unwrapped(query)
    plain = {"expressions", "from_", "joins", "where", "distinct", "order", "hint"}
    if not isinstance(query, exp.Select) or _has_aggregate(query) or _has_window(query):
        return None
    if limited and (limit := query.args.get("limit")) is not None and str(limit.expression) not in ("0", "None"):
        plain.add("limit")  # one row is as good as any
    return query if _clauses(query) <= plain and "from_" in _clauses(query) else None


def _is_total(query: Tree) -> TypeGuard[exp.Select]:
    """Is it a SELECT of aggregates over all its rows, which is one row?"""
    plain = {"expressions", "from_", "joins", "where", "having", "order", "hint"}
    if not isinstance(query, exp.Select) or _has_window(query):
        return False
    return _has_aggregate(query) and _clauses(query) <= plain


def _has_aggregate(select: exp.Select) -> bool:
    calls = (node for node in _listed(select) if isinstance(node, exp.Anonymous))
    return any(node.name.lower() in functions.AGGREGATES for node in calls)


def _has_window(select: exp.Select) -> bool:
    return any(isinstance(node, exp.Window) for node in _listed(select))


def _listed(select: exp.Select) -> Iterator[Tree]:
    """All that stands in the select list, besides what is in subqueries."""
    for each in select.expressions:
        yield from each.walk(prune=lambda node: isinstance(node, exp.Query))


def _counted(tree: Tree, counts: set[str]) -> Tree:
    """``tree`` with 0 for the count of a group that is not there."""

    def zero(node: Tree) -> Tree:
        if isinstance(node, exp.Column) and node.name in counts:
            return exp.Anonymous(this="coalesce", expressions=[node.copy(), exp.Literal.number(0)])
        return node

    return tree.transform(zero)


def _at_most_one(node: Node) -> bool:
    """Can the plan be seen to have one row at most?"""
    match node:
        case Linear() | Window():
            return _at_most_one(node.input)
        case Aggregate():
            return not node.keys
        case TopK():
            return node.limit <= 1
        case Join():
            return _at_most_one(node.left) and (node.how in ("semi", "anti") or _at_most_one(node.right))
    return False
