"""PySpark's GroupedData on a plan: what ``groupBy`` and its kin give, waiting for their aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.pivot import Chosen, condition, literal, spread
from holdfast.plan.expression import Tree, quoted

if TYPE_CHECKING:
    from holdfast.frontend.verbs import Table


class GroupedTable:
    """The groups of a table, waiting for their aggregates."""

    def __init__(
        self,
        table: Table,
        keys: list[Tree],
        sets: Callable[[list[Tree]], Tree] | None = None,
        chosen: list[Chosen] | None = None,
    ) -> None:
        """``sets`` makes the one element of GROUP BY of the keys, if they are grouped by several sets of them."""
        self._table, self._keys, self._sets, self._chosen = table, keys, sets, chosen

    def agg(self, *expressions: Any) -> Table:
        """One row per group: the keys, then the aggregates (``"sum(amount) AS total"``, or ``{"amount": "sum"}``)."""
        texts: list[Any] = []
        for each in flat(expressions):
            if isinstance(each, Mapping):
                texts += [f"{function}({name if name == '*' else quoted(name)})" for name, function in each.items()]
            else:
                texts.append(each)
        calls = self._table._expressions("agg", texts)
        if not calls:
            raise self._table._text("agg").error(SqlError, "it needs an aggregate")
        if self._chosen is not None:
            calls = spread(calls, self._chosen, self._table._state.scope, self._table._text("pivot"))
        group: list[Tree] | None = [unaliased(key).copy() for key in self._keys] if self._keys else None
        if group is not None and self._sets is not None:
            group = [self._sets(group)]
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
        return self.agg(*(f"{function}({quoted(name)})" for name in flat(columns)))


def flat(values: Sequence[Any]) -> list[Any]:
    """PySpark takes columns one by one or as one list."""
    return list(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else list(values)


def unaliased(tree: Tree) -> Tree:
    return tree.this if isinstance(tree, exp.Alias) else tree
