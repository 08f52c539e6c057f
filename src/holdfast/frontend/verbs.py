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
from holdfast.frontend.generators import has_generated, is_generator, output_columns, plan_generated, read_generator
from holdfast.frontend.grouped import GroupedTable, flat, unaliased
from holdfast.frontend.joined import joined
from holdfast.frontend.labels import unique
from holdfast.frontend.missing import Missing
from holdfast.frontend.moments import check_temporal
from holdfast.frontend.names import Relation, Scope, look_up, unknown_column
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import resolve
from holdfast.frontend.select import check_names, check_reserved, finish_select
from holdfast.frontend.windows import has_window, plan_windows
from holdfast.plan.expression import Tree, column, conjunction, conjuncts, quoted
from holdfast.plan.nodes import Aggregate, Node, Order, SetOperation, Source, Union, UserFunction, Window, WindowCall

ColumnSql = Callable[[Any], str]


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

    offset: int = 0
    """Rows to pass over: for a following ``limit``."""

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
        return self._select("select", self._expressions("select", flat(columns)))

    def selectExpr(self, *expressions: str) -> Table:
        """The given SQL expressions."""
        return self._select("selectExpr", self._expressions("selectExpr", flat(expressions)))

    def withColumn(self, colName: str, col: Any) -> Table:
        """This table with column ``colName`` added, or replaced if there is one of that name."""
        return self._with_columns("withColumn", {colName: col})

    def withColumns(self, *colsMap: Mapping[str, Any]) -> Table:
        """This table with the given columns added or replaced. All are computed from the columns as they were."""
        (columns,) = colsMap
        return self._with_columns("withColumns", columns)

    def withColumnRenamed(self, existing: str, new: str) -> Table:
        """This table with a column renamed; unchanged if there is no such column."""
        return self._renamed("withColumnRenamed", {existing: new})

    def withColumnsRenamed(self, colsMap: Mapping[str, str]) -> Table:
        """This table with columns renamed (old name: new name); names that it does not have are ignored."""
        return self._renamed("withColumnsRenamed", colsMap)

    def toDF(self, *cols: str) -> Table:
        """This table with all columns renamed, in order."""
        names, pairs = flat(cols), self._visible()
        if len(names) != len(pairs):
            message = f"{len(names)} names for {len(pairs)} columns ({', '.join(self.columns)})"
            raise self._text("toDF").error(SqlError, message)
        return self._items("toDF", [(new, column(inner)) for new, (_, inner) in zip(names, pairs, strict=True)])

    def drop(self, *cols: Any) -> Table:
        """This table without the given columns; names that it does not have are ignored."""
        given = [each if isinstance(each, str) else unaliased(self._expression("drop", each)).name for each in cols]
        gone = {name.lower() for name in given}
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
        """Each row once or, with a ``subset`` of the columns, one row of all that agree in them: always the first in
        the order of the whole row, so that the choice is the same in every replay. (Spark takes any of them.)"""
        if subset is None:
            return self.distinct()
        text, plan = self._text("dropDuplicates"), self.plan
        scope = Scope((Relation("", plan, plan.columns, plan.columns),), {})
        keys = tuple(dict.fromkeys(self._column(name, scope, text).name for name in flat((subset,))))
        if not keys:
            return self.limit(1)
        number = unique("row_number", plan.columns)
        # Within a group the keys leave everything open, and a window breaks ties by the whole row.
        order = tuple(Order(key, descending=False, nulls_first=True) for key in keys)
        numbered = Window(plan, keys, order, (WindowCall(number, "row_number"),))
        first = exp.LTE(this=column(number), expression=exp.Literal.number(1))
        node = linear(numbered, first, [(name, column(name)) for name in plan.columns])
        return self._derived(node, self._state.name)

    drop_duplicates = dropDuplicates

    def union(self, other: Table) -> Table:
        """The rows of both (UNION ALL); columns go by position."""
        left, right = self._sides("union", other)
        inputs = left.inputs if isinstance(left, Union) else (left,)
        return self._derived(Union((*inputs, right)), "")

    unionAll = union

    def unionByName(self, other: Table, allowMissingColumns: bool = False) -> Table:
        """The rows of both (UNION ALL); columns go by name. With ``allowMissingColumns``, one that a side does not have
        is NULL there; otherwise both must have the same."""
        left, right = self.plan, other.plan
        ours = {name.lower(): name for name in left.columns}
        theirs = {name.lower(): name for name in right.columns}
        for side, opposite in ((ours, theirs), (theirs, ours)):
            lacking = [name for key, name in side.items() if key not in opposite]
            if lacking and not allowMissingColumns:
                message = f"column {lacking[0]!r} is in one side only; allowMissingColumns=True makes it NULL"
                raise self._text("unionByName").error(SqlError, message, name=lacking[0])
        names = [*left.columns, *(name for key, name in theirs.items() if key not in ours)]
        sides = [
            linear(
                side,
                None,
                [(name, column(known[name.lower()]) if name.lower() in known else exp.null()) for name in names],
            )
            for side, known in ((left, ours), (right, theirs))
        ]
        return self._derived(Union(tuple(sides)), "")

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
        given = flat(columns)
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
        if self._state.offset:
            select.set("offset", exp.Offset(expression=exp.Literal.number(self._state.offset)))
        if self._state.order:
            select.set("order", exp.Order(expressions=[each.copy() for each in self._state.order]))
        node = finish_select(select, self._state.scope, self._state.node, None, self._text("limit"))
        return self._derived(node, self._state.name)

    def offset(self, num: int) -> Table:
        """The rows behind the first ``num`` of the order. A ``limit`` must follow: a view of all but a few rows would
        change with every row."""
        if not isinstance(num, int) or isinstance(num, bool) or num < 0:
            raise self._text("offset").error(SqlError, f"expected a number of rows, found {num!r}")
        return Table._of(replace(self._state, offset=num))

    def transform(self, func: Callable[..., Table], *args: Any, **kwargs: Any) -> Table:
        """What ``func`` makes of this table: ``orders.transform(cleaned).transform(priced, rate=2)``."""
        result = func(self, *args, **kwargs)
        if not isinstance(result, Table):
            found = type(result).__name__
            raise self._text("transform").error(SqlError, f"expected the function to give a table, found {found}")
        return result

    # -- missing values -----------------------------------------------------------------------------------------

    @property
    def na(self) -> Missing:
        """``fill``, ``drop`` and ``replace``, as PySpark has them."""
        return Missing(self)

    def fillna(self, value: Any, subset: str | Sequence[str] | None = None) -> Table:
        """NULLs (and NaNs) of columns of the value's kind replaced by it; a dict says which value for which column."""
        return self.na.fill(value, subset)

    def dropna(self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> Table:
        """The rows without NULLs (and NaNs) in any, or in all, of the columns, or with ``thresh`` values at least."""
        return self.na.drop(how, thresh, subset)

    def replace(self, to_replace: Any, value: Any = None, subset: str | Sequence[str] | None = None) -> Table:
        """Values replaced by others, in columns of their kind: ``replace({"a": "b"})``, ``replace([1, 2], 3)``."""
        return self.na.replace(to_replace, value, subset)

    # -- groups -----------------------------------------------------------------------------------------------------

    def groupBy(self, *columns: Any) -> GroupedTable:
        """Groups of rows that agree in the given columns or expressions; follow it with ``agg`` or the like."""
        return GroupedTable(self, self._expressions("groupBy", flat(columns)))

    groupby = groupBy

    def rollup(self, *columns: Any) -> GroupedTable:
        """Groups by all of the columns, by all but the last, and so on, down to one group of all rows."""
        return GroupedTable(self, self._expressions("rollup", flat(columns)), lambda keys: exp.Rollup(expressions=keys))

    def cube(self, *columns: Any) -> GroupedTable:
        """Groups by every choice of the columns."""
        return GroupedTable(self, self._expressions("cube", flat(columns)), lambda keys: exp.Cube(expressions=keys))

    def groupingSets(self, groupingSets: Sequence[Sequence[Any]], *cols: Any) -> GroupedTable:
        """Groups by each of the given sets of columns; ``cols`` are the columns that the result has."""
        sets = [self._expressions("groupingSets", flat((each,))) for each in groupingSets]
        tuples = [exp.Tuple(expressions=[unaliased(key) for key in each]) for each in sets]
        keys = self._expressions("groupingSets", flat(cols) if cols else [])
        return GroupedTable(self, keys, lambda _: exp.GroupingSets(expressions=[each.copy() for each in tuples]))

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
        node, scope = joined(self, other, on, how)
        return Table._of(_State(node, scope, self._state.column_sql, "", functions=self._state.functions))

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
        if self._state.offset and verb not in ("limit", "offset"):
            plain = Table._of(replace(self._state, offset=0))
            raise plain._text("offset").unsupported(
                "offset without a limit behind it", None, "call limit directly after it"
            )
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

    def _with_columns(self, verb: str, columns: Mapping[str, Any]) -> Table:
        text = self._text(verb)
        made: dict[str, Item] = {}
        for number, (name, value) in enumerate(columns.items()):
            written = unaliased(self._expression(verb, value))
            if isinstance(written, exp.Anonymous) and is_generator(written):
                ((_, tree),) = output_columns(
                    read_generator(written, [name], self._state.scope, text, clause=verb), number
                )
            else:
                tree = resolve(written, self._state.scope, text, aggregates=verb)
            made[name.lower()] = (name, tree)
        items = [
            (shown, made[shown.lower()][1] if shown.lower() in made else column(inner))
            for shown, inner in self._visible()
        ]
        return self._items(verb, [*items, *(item for key, item in made.items() if not self._has(key))])

    def _renamed(self, verb: str, names: Mapping[str, str]) -> Table:
        new = {old.lower(): name for old, name in names.items()}
        return self._items(verb, [(new.get(shown.lower(), shown), column(inner)) for shown, inner in self._visible()])

    def _items(self, verb: str, items: list[Item]) -> Table:
        check_names(items, [exp.Star()] * len(items), self._text(verb))
        node = self._state.node
        if any(has_generated(tree) for _, tree in items):
            node, trees = plan_generated(node, None, [name for name, _ in items], [tree for _, tree in items])
            items = [(name, tree) for (name, _), tree in zip(items, trees, strict=True)]
        if any(has_window(tree) for _, tree in items):
            node, trees = plan_windows(node, None, [name for name, _ in items], [tree for _, tree in items])
            items = [(name, tree) for (name, _), tree in zip(items, trees, strict=True)]
        return self._blur(self._derived(linear(node, None, items), self._state.name))
