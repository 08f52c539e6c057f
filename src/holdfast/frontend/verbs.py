"""PySpark's DataFrame verbs on a plan.

A `Table` is a value: each verb gives a new one. Arguments are names, SQL texts or PySpark `Column`s (which a function
that is passed in turns into text), and everything is resolved and planned by the code that plans SQL, so that both
fronts give the same plan. Aliases stay in reach after a join, as in PySpark: ``a.alias("o").join(b.alias("u"), …)``
can be asked for ``o.id``. An order means something to a following ``limit`` only: a table is a bag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from holdfast.errors import DeclarationError, SqlError
from holdfast.frontend.build import Item, linear
from holdfast.frontend.chain import Chain
from holdfast.frontend.draws import check_timeless
from holdfast.frontend.joins import How, as_one
from holdfast.frontend.labels import unique
from holdfast.frontend.moments import check_temporal
from holdfast.frontend.names import Relation, Scope, look_up, unknown_column
from holdfast.frontend.pivot import Chosen, condition, literal, spread
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import resolve
from holdfast.frontend.select import check_names, check_reserved, finish_select
from holdfast.frontend.windows import has_window, plan_windows
from holdfast.plan.expression import Tree, column, conjunction, conjuncts, quoted
from holdfast.plan.nodes import Aggregate, Node, SetOperation, Source, Union, UserFunction

ColumnSql = Callable[[Any], str]

_HOW: dict[str, How] = {
    "inner": "inner", "cross": "inner", "outer": "full", "full": "full", "fullouter": "full", "left": "left",
    "leftouter": "left", "right": "right", "rightouter": "right", "semi": "semi", "leftsemi": "semi", "anti": "anti",
    "leftanti": "anti",
}  # fmt: skip
"""PySpark's names, without their underscores."""


def _no_columns(value: Any) -> str:
    raise DeclarationError(f"expected a column name or a SQL text, found {value!r}")


@dataclass(frozen=True)
class _State:
    """A table: the rows of ``node``, and what their columns are called (``scope``)."""

    node: Node
    scope: Scope
    column_sql: ColumnSql
    name: str
    order: tuple[Tree, ...] = ()
    blurred: bool = False
    """There was an order, but a verb came after it: ``limit`` could not tell which rows are first."""

    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    """The user's functions that expressions may call, by lower-case name."""


class Table:
    """A collection under PySpark's verbs. ``flow.table(name)`` gives one; give the result to ``flow.view``."""

    def __init__(
        self,
        plan: Node,
        *,
        column_sql: ColumnSql = _no_columns,
        name: str | None = None,
        functions: Mapping[str, UserFunction] | None = None,
    ) -> None:
        name = name if name is not None else plan.name if isinstance(plan, Source) else ""
        scope = Scope((Relation(name, plan, plan.columns, plan.columns),), {})
        self._state = _State(plan, scope, column_sql, name, functions=functions or {})

    @staticmethod
    def _of(state: _State) -> Table:
        table = Table.__new__(Table)
        table._state = state
        return table

    @property
    def plan(self) -> Node:
        """The plan of this table."""
        items: list[Item] = [(shown, column(inner)) for shown, inner in self._state.scope.visible()]
        text = self._text("plan")
        check_names(items, [exp.Star()] * len(items), text)
        check_reserved([name for name, _ in items], text)
        return linear(self._state.node, None, items)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return [shown for shown, _ in self._state.scope.visible()]

    def __repr__(self) -> str:
        return f"Table({', '.join(self.columns)})"

    # -- columns ----------------------------------------------------------------------------------------------------

    def select(self, *columns: Any) -> Table:
        """The given columns and expressions (``"id"``, ``"amount * 2 AS double"``, ``F.col("id")``, ``"*"``)."""
        return self._select("select", self._expressions("select", _flat(columns)))

    def selectExpr(self, *expressions: str) -> Table:
        """The given SQL expressions."""
        return self._select("selectExpr", self._expressions("selectExpr", _flat(expressions)))

    def withColumn(self, name: str, value: Any) -> Table:
        """This table with column ``name`` added, or replaced if there is one of that name."""
        text = self._text("withColumn")
        value = _unaliased(self._expression("withColumn", value))
        tree = resolve(value, self._state.scope, text, aggregates="withColumn")
        items = [(shown, tree if shown.lower() == name.lower() else column(inner)) for shown, inner in self._visible()]
        return self._items("withColumn", items if self._has(name) else [*items, (name, tree)])

    def withColumnRenamed(self, existing: str, new: str) -> Table:
        """This table with a column renamed; unchanged if there is no such column."""
        names = [(new if shown.lower() == existing.lower() else shown, inner) for shown, inner in self._visible()]
        return self._items("withColumnRenamed", [(name, column(inner)) for name, inner in names])

    def drop(self, *names: str) -> Table:
        """This table without the given columns; names that it does not have are ignored."""
        gone = {name.lower() for name in names}
        items: list[Item] = [(shown, column(inner)) for shown, inner in self._visible() if shown.lower() not in gone]
        if not items:
            raise self._text("drop").error(SqlError, "no column would be left")
        return self._items("drop", items)

    def alias(self, name: str) -> Table:
        """This table under another name, by which its columns can be qualified."""
        plan = self.plan
        scope = Scope((Relation(name, plan, plan.columns, plan.columns),), {})
        return Table._of(replace(self._state, node=plan, scope=scope, name=name, order=(), blurred=self._ordered))

    # -- rows -------------------------------------------------------------------------------------------------------

    def where(self, condition: Any) -> Table:
        """The rows for which the condition is true."""
        text = self._text("where")
        tree = resolve(
            self._expression("where", condition),
            self._state.scope,
            text,
            aggregates="a condition",
            windows="a condition",
        )
        check_temporal(tree, "a condition", text)
        node = self._state.node
        node = linear(node, conjunction(conjuncts(tree)), [(name, column(name)) for name in node.columns])
        return Table._of(replace(self._state, node=node, order=(), blurred=self._ordered))

    filter = where

    def distinct(self) -> Table:
        """Each row once."""
        plan = self.plan
        return self._derived(Aggregate(plan, plan.columns, ()), self._state.name)

    def dropDuplicates(self, subset: Sequence[str] | None = None) -> Table:
        """Each row once."""
        if subset is not None:
            advice = "use groupBy(…).agg(any_value(…)) for one row per key"
            raise self._text("dropDuplicates").unsupported("dropDuplicates with a subset of the columns", None, advice)
        return self.distinct()

    def union(self, other: Table) -> Table:
        """The rows of both (UNION ALL); columns go by position."""
        left, right = self._sides("union", other)
        inputs = left.inputs if isinstance(left, Union) else (left,)
        return self._derived(Union((*inputs, right)), "")

    unionAll = union

    def intersect(self, other: Table) -> Table:
        """The rows that both have, each once; columns go by position."""
        return self._set_operation("intersect", other, "intersect", all=False)

    def intersectAll(self, other: Table) -> Table:
        """The rows that both have, each as often as both have it."""
        return self._set_operation("intersectAll", other, "intersect", all=True)

    def subtract(self, other: Table) -> Table:
        """The rows that the other does not have, each once (EXCEPT); columns go by position."""
        return self._set_operation("subtract", other, "except", all=False)

    def exceptAll(self, other: Table) -> Table:
        """The rows that are left when each row of the other takes one copy away (EXCEPT ALL)."""
        return self._set_operation("exceptAll", other, "except", all=True)

    def orderBy(self, *columns: Any, ascending: bool | Sequence[bool] = True) -> Table:
        """An order for a following ``limit``. Columns as ``"total"``, ``"total DESC"`` or ``F.desc("total")``."""
        given = _flat(columns)
        directions = [ascending] * len(given) if isinstance(ascending, bool) else list(ascending)
        if not given or len(directions) != len(given):
            message = f"{len(given)} columns with {len(directions)} directions" if given else "it needs a column"
            raise self._text("orderBy").error(SqlError, message)
        order = []
        for value, upwards in zip(given, directions, strict=True):
            query = self._parse("orderBy", f"SELECT 1 ORDER BY {self._sql(value)}")
            (ordered,) = query.args["order"].expressions
            if not upwards:
                ordered.set("desc", True)
                ordered.set("nulls_first", False)
            order.append(ordered)
        return Table._of(replace(self._state, order=tuple(order), blurred=False))

    sort = orderBy

    def limit(self, count: int) -> Table:
        """The first ``count`` rows of the order; without one, of the order of the whole row."""
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise self._text("limit").error(SqlError, f"expected a number of rows, found {count!r}")
        if self._state.blurred:
            advice = "call limit directly after orderBy"
            raise self._text("limit").unsupported("limit with another verb between it and orderBy", None, advice)
        select = exp.Select(expressions=[exp.Star()], limit=exp.Limit(expression=exp.Literal.number(count)))
        if self._state.order:
            select.set("order", exp.Order(expressions=[each.copy() for each in self._state.order]))
        node = finish_select(select, self._state.scope, self._state.node, None, self._text("limit"))
        return self._derived(node, self._state.name)

    # -- groups -----------------------------------------------------------------------------------------------------

    def groupBy(self, *columns: Any) -> GroupedTable:
        """Groups of rows that agree in the given columns or expressions; follow it with ``agg`` or the like."""
        return GroupedTable(self, self._expressions("groupBy", _flat(columns)))

    groupby = groupBy

    def rollup(self, *columns: Any) -> GroupedTable:
        """Groups by all of the columns, by all but the last, and so on, down to one group of all rows."""
        return GroupedTable(self, self._expressions("rollup", _flat(columns)), exp.Rollup)

    def cube(self, *columns: Any) -> GroupedTable:
        """Groups by every choice of the columns."""
        return GroupedTable(self, self._expressions("cube", _flat(columns)), exp.Cube)

    def agg(self, *expressions: Any) -> Table:
        """Aggregates over all rows: one row."""
        return GroupedTable(self, []).agg(*expressions)

    # -- joins ------------------------------------------------------------------------------------------------------

    def join(self, other: Table, on: Any = None, how: str = "inner") -> Table:
        """The pairs of rows that agree, and with ``how`` (PySpark's names: ``left``, ``full_outer``, ``left_anti``, …)
        the rows that agree with nothing.

        ``on`` is a column name or a list of them (both sides have them, the result once), or a condition, or a list
        of conditions. Without it every row is paired with every row.
        """
        text = self._text("join")
        kind = _HOW.get(how.lower().replace("_", ""))
        if kind is None:
            raise text.error(SqlError, f"how={how!r} is not a kind of join; known are {', '.join(_HOW)}", name=how)
        given = _flat((on,)) if on is not None else []
        node, relations, merged = _apart(self._state, [])
        other_node, other_relations, other_merged = _apart(other._state, node.columns)
        left, right = Scope(relations, merged), Scope(other_relations, other_merged)
        chain = Chain([as_one(node)], {**merged, **other_merged} if kind not in ("semi", "anti") else merged)
        chain.relations = list(relations)
        using: list[tuple[Tree, Tree]] = []
        conditions: list[Tree] = []
        for value in given:
            if isinstance(value, str) and (self._has(value) or other._has(value)):
                using.append((self._column(value, left, text), self._column(value, right, text)))
                conditions.append(exp.EQ(this=using[-1][0], expression=using[-1][1]))
            else:
                both = {**merged, **other_merged, **{hidden.name: shown.name for shown, hidden in using}}
                scope = Scope(relations + other_relations, both)
                tree = resolve(
                    self._expression("join", value),
                    scope,
                    text,
                    aggregates="a join condition",
                    windows="a join condition",
                )
                (check_temporal if kind == "inner" else check_timeless)(tree, "a join condition", text)
                conditions += conjuncts(tree)
        chain.join(as_one(other_node), other_relations, kind, conditions, using)
        return Table._of(
            _State(chain.settled(), chain.scope, self._state.column_sql, "", functions=self._state.functions)
        )

    def crossJoin(self, other: Table) -> Table:
        """Every row with every row of ``other``."""
        return self.join(other)

    # -- how --------------------------------------------------------------------------------------------------------

    @property
    def _ordered(self) -> bool:
        return bool(self._state.order) or self._state.blurred

    def _blur(self, table: Table) -> Table:
        return Table._of(replace(table._state, order=(), blurred=self._ordered))

    def _visible(self) -> list[tuple[str, str]]:
        return self._state.scope.visible()

    def _has(self, name: str) -> bool:
        return any(shown.lower() == name.lower() for shown, _ in self._visible())

    def _text(self, verb: str) -> Text:
        name = f"table {self._state.name!r}" if self._state.name else "table"
        return Text("", f"{name}: {verb}", placed=False, functions=self._state.functions)

    def _derived(self, node: Node, name: str) -> Table:
        return Table(node, column_sql=self._state.column_sql, name=name, functions=self._state.functions)

    def _sides(self, verb: str, other: Table) -> tuple[Node, Node]:
        """The plans of this and the other; they must have as many columns."""
        left, right = self.plan, other.plan
        if len(left.columns) != len(right.columns):
            sizes = " with ".join(f"{len(each.columns)} columns ({', '.join(each.columns)})" for each in (left, right))
            raise self._text(verb).error(SqlError, sizes)
        return left, right

    def _set_operation(self, verb: str, other: Table, kind: str, *, all: bool) -> Table:
        left, right = self._sides(verb, other)
        return self._derived(SetOperation(left, right, kind, all), "")

    @staticmethod
    def _column(name: str, scope: Scope, text: Text) -> Tree:
        """The column that a join names; both sides must have it."""
        names = [exp.to_identifier(name, quoted=True)]
        found = look_up(scope, names, text)
        if found is None:
            raise unknown_column(scope, names, text)
        return found

    def _sql(self, value: Any) -> str:
        if not isinstance(value, str):
            return self._state.column_sql(value)
        return quoted(value) if self._has(value) else value

    def _parse(self, verb: str, sql: str) -> Tree:
        text = self._text(verb)
        text.sql = sql
        return text.parse()

    def _expression(self, verb: str, value: Any) -> Tree:
        sql = self._sql(value)
        select = self._parse(verb, f"SELECT {sql}")
        if len(select.expressions) != 1 or any(select.args.get(key) for key in select.args if key != "expressions"):
            raise self._text(verb).error(SqlError, f"expected one expression, found {sql!r}")
        found: Tree = select.expressions[0]
        return found

    def _expressions(self, verb: str, values: Sequence[Any]) -> list[Tree]:
        return [self._expression(verb, value) for value in values]

    def _select(self, verb: str, expressions: list[Tree], group: list[Tree] | None = None) -> Table:
        text = self._text(verb)
        if not expressions:
            raise text.error(SqlError, "it needs a column")
        select = exp.Select(expressions=expressions)
        if group is not None:
            select.set("group", exp.Group(expressions=group))
        return self._blur(self._derived(finish_select(select, self._state.scope, self._state.node, None, text), ""))

    def _items(self, verb: str, items: list[Item]) -> Table:
        check_names(items, [exp.Star()] * len(items), self._text(verb))
        node = self._state.node
        if any(has_window(tree) for _, tree in items):
            node, trees = plan_windows(node, None, [name for name, _ in items], [tree for _, tree in items])
            items = [(name, tree) for (name, _), tree in zip(items, trees, strict=True)]
        return self._blur(self._derived(linear(node, None, items), self._state.name))


class GroupedTable:
    """The groups of a table, waiting for their aggregates."""

    def __init__(
        self,
        table: Table,
        keys: list[Tree],
        sets: type[exp.Rollup | exp.Cube] | None = None,
        chosen: list[Chosen] | None = None,
    ) -> None:
        self._table, self._keys, self._sets, self._chosen = table, keys, sets, chosen

    def agg(self, *expressions: Any) -> Table:
        """One row per group: the keys, then the aggregates (``"sum(amount) AS total"``, or ``{"amount": "sum"}``)."""
        texts: list[Any] = []
        for each in _flat(expressions):
            if isinstance(each, Mapping):
                texts += [f"{function}({name if name == '*' else quoted(name)})" for name, function in each.items()]
            else:
                texts.append(each)
        calls = self._table._expressions("agg", texts)
        if not calls:
            raise self._table._text("agg").error(SqlError, "it needs an aggregate")
        if self._chosen is not None:
            calls = spread(calls, self._chosen, self._table._state.scope, self._table._text("pivot"))
        group: list[Tree] | None = [_unaliased(key).copy() for key in self._keys] if self._keys else None
        if group is not None and self._sets is not None:
            group = [self._sets(expressions=group)]
        return self._table._select("agg", [key.copy() for key in self._keys] + calls, group)

    def pivot(self, column: str, values: Sequence[Any] | None = None) -> GroupedTable:
        """A column per value of ``column`` (and aggregate) in what ``agg`` gives. The values must be listed."""
        text = self._table._text("pivot")
        if values is None:
            advice = "list the values: a view's columns do not change with its data"
            raise text.unsupported("pivot without values", None, advice)
        if self._chosen is not None:
            raise text.error(SqlError, "one pivot is enough")
        of = self._table._expression("pivot", column)
        given = [literal(value, text) for value in values]
        chosen = [Chosen(each.name, condition(of, each.condition)) for each in given]
        return GroupedTable(self._table, self._keys, self._sets, chosen)

    def count(self) -> Table:
        """How many rows each group has, as column ``count``."""
        return self.agg("count(*) AS `count`")

    def sum(self, *columns: str) -> Table:
        return self._each("sum", columns)

    def avg(self, *columns: str) -> Table:
        return self._each("avg", columns)

    mean = avg

    def min(self, *columns: str) -> Table:
        return self._each("min", columns)

    def max(self, *columns: str) -> Table:
        return self._each("max", columns)

    def _each(self, function: str, columns: Sequence[str]) -> Table:
        return self.agg(*(f"{function}({quoted(name)})" for name in _flat(columns)))


def _flat(values: Sequence[Any]) -> list[Any]:
    """PySpark takes columns one by one or as one list."""
    return list(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else list(values)


def _unaliased(tree: Tree) -> Tree:
    return tree.this if isinstance(tree, exp.Alias) else tree


def _apart(state: _State, taken: Sequence[str]) -> tuple[Node, tuple[Relation, ...], dict[str, str]]:
    """A side of a join with columns named ``alias.column``: its node, relations, and what USING merged in it."""
    names: dict[str, str] = {}
    relations: list[Relation] = []
    for relation in state.scope.relations:
        inner: list[str] = []
        for shown, old in zip(relation.columns, relation.internal, strict=True):
            wanted = f"{relation.alias}.{shown}" if relation.alias else shown
            names[old] = unique(wanted, [*taken, *names.values()])
            inner.append(names[old])
        relations.append(Relation(relation.alias, relation.node, relation.columns, tuple(inner)))
    node = linear(state.node, None, [(names[old], column(old)) for old in state.node.columns if old in names])
    merged = {names[hidden]: names[shown] for hidden, shown in state.scope.merged.items()}
    return node, tuple(relations), merged
