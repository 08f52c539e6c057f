"""PySpark's verbs for missing values: ``fillna``, ``dropna`` and ``replace``.

What they do to a column depends on its type: a number fills numbers, NaN counts as missing in doubles. Types are
Spark's to tell, and no Spark is asked when a flow is declared; so they work on columns that come straight from sources,
whose types are known, and leave those alone whose types do not fit. Others are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import linear
from holdfast.plan.expression import Tree, column, conjunction
from holdfast.plan.nodes import Node
from holdfast.plan.rewrites.push_filter import source_type

if TYPE_CHECKING:
    from holdfast.frontend.verbs import Table

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_FLOATS = ("float", "double")


class Missing:
    """A table's missing values: ``table.na``."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def fill(self, value: Any, subset: str | Sequence[str] | None = None) -> Table:
        values = value if isinstance(value, Mapping) else dict.fromkeys(self._names("fillna", subset), value)
        if isinstance(value, Mapping):
            self._names("fillna", list(value))

        def filled(name: str, kind: str) -> Tree | None:
            found = next((each for key, each in values.items() if key.lower() == name.lower()), None)
            if found is None or not _fits(found, kind):
                return None
            tree: Tree = column(name)
            if kind in _FLOATS:
                tree = exp.Anonymous(this="nanvl", expressions=[tree, exp.null()])
            return exp.Anonymous(this="coalesce", expressions=[tree, self._constant(found, kind, "fillna")])

        return self._changed("fillna", list(values), filled)

    def drop(self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> Table:
        text = self._table._text("dropna")
        if how not in ("any", "all"):
            raise text.error(SqlError, f"how must be 'any' or 'all', not {how!r}")
        plan, names = self._table.plan, self._names("dropna", subset)
        there: list[Tree] = []
        for name in _own(plan, names):
            known = exp.Not(this=exp.Is(this=column(name), expression=exp.null()))
            if self._kind("dropna", plan, name) in _FLOATS:
                number = exp.Not(this=exp.Anonymous(this="isnan", expressions=[column(name)]))
                there.append(exp.And(this=known, expression=number))
            else:
                there.append(known)
        least = thresh if thresh is not None else len(there) if how == "any" else 1
        if least >= len(there):
            kept = conjunction(there) if least == len(there) else exp.false()
        else:
            one, none = exp.Literal.number(1), exp.Literal.number(0)
            flags = [exp.Anonymous(this="if", expressions=[each, one.copy(), none.copy()]) for each in there]
            total: Tree = flags[0]
            for flag in flags[1:]:
                total = exp.Add(this=total, expression=flag)
            kept = exp.GTE(this=total, expression=exp.Literal.number(least))
        return self._table._derived(linear(plan, kept, [(name, column(name)) for name in plan.columns]), "")

    def replace(self, to_replace: Any, value: Any = None, subset: str | Sequence[str] | None = None) -> Table:
        if isinstance(to_replace, Mapping):
            pairs = list(to_replace.items())
        else:
            old = list(to_replace) if isinstance(to_replace, (list, tuple)) else [to_replace]
            new = list(value) if isinstance(value, (list, tuple)) else [value] * len(old)
            if len(old) != len(new):
                message = f"{len(old)} values to be replaced by {len(new)}"
                raise self._table._text("replace").error(SqlError, message)
            pairs = list(zip(old, new, strict=True))

        def replaced(name: str, kind: str) -> Tree | None:
            mine = [(old, new) for old, new in pairs if old is not None and _fits(old, kind)]
            if not mine:
                return None
            branches = [
                exp.If(
                    this=exp.EQ(this=column(name), expression=self._constant(old, kind, "replace")),
                    true=exp.null() if new is None else self._constant(new, kind, "replace"),
                )
                for old, new in mine
            ]
            return exp.Case(ifs=branches, default=column(name))

        return self._changed("replace", self._names("replace", subset), replaced)

    def _changed(self, verb: str, names: Sequence[str], change: Callable[[str, str], Tree | None]) -> Table:
        plan = self._table.plan
        own = _own(plan, names)
        made = {name: change(name, self._kind(verb, plan, name)) for name in own}
        items = [(name, made.get(name) or column(name)) for name in plan.columns]
        return self._table._derived(linear(plan, None, items), self._table._state.name)

    def _names(self, verb: str, subset: str | Sequence[str] | None) -> list[str]:
        if subset is None:
            return list(self._table.columns)
        names = [subset] if isinstance(subset, str) else list(subset)
        for name in names:
            self._table._column(name, self._table._state.scope, self._table._text(verb))
        return names

    def _kind(self, verb: str, plan: Node, name: str) -> str:
        kind = source_type(plan, name)
        if kind is None:
            advice = "its type is not known yet; name the columns that come from sources, or write it in SQL"
            raise self._table._text(verb).unsupported(f"{verb} of the computed column {name!r}", None, advice)
        return kind

    def _constant(self, value: Any, kind: str, verb: str) -> Tree:
        match value:
            case bool():
                tree: Tree = exp.Boolean(this=value)
            case int() | float():
                number = exp.Literal.number(repr(abs(value)))
                tree = exp.Neg(this=number) if value < 0 else number
            case _:
                tree = exp.Literal.string(value)
        return exp.Cast(this=tree, to=exp.DataType.build(kind, dialect="spark"))


def _own(plan: Node, names: Sequence[str]) -> list[str]:
    wanted = {name.lower() for name in names}
    return [name for name in plan.columns if name.lower() in wanted]


def _fits(value: Any, kind: str) -> bool:
    """Is the value of the column's kind, as PySpark sees it?"""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, (int, float)):
        return kind in _NUMBERS or kind.startswith("decimal")
    return isinstance(value, str) and kind == "string"
