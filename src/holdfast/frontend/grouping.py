"""Grouping: from expressions with aggregates to an `Aggregate` with a `Linear` below and one above.

Below, a `Linear` computes the keys and the arguments, each once, and nothing else. Above, what the user asked for is
computed from keys and results: in each expression, a part that equals a key becomes that key's column, an aggregate
becomes its result's column (equal aggregates are one), and a column that is then left over is neither.

With several sets of keys (GROUPING SETS), each row goes into the `Aggregate` once per set: with the keys that are not
in the set NULL, and the number of the set as one more key, since a key may be NULL by itself. ``grouping`` and
``grouping_id`` are read off that number. Arguments that are keys too keep their values, in columns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import Item, extend, linear, over
from holdfast.frontend.labels import label, unique
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import is_aggregate, is_grouping
from holdfast.frontend.sessions import Session, by_session
from holdfast.frontend.sets import Set
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Aggregate, Call, Node, Union


class Grouping:
    """The aggregation of ``node``'s rows (those that ``predicate`` keeps) by ``keys``.

    ``named`` are the output columns the user asked for: a key or aggregate that is one of them takes its name.
    ``sets``: the sets of keys to group by, if not by all of them once. ``session``: the rows' sessions, whose column
    must be a key then.
    """

    def __init__(
        self,
        keys: Sequence[Tree],
        named: Sequence[Item],
        used: Sequence[Tree],
        text: Text,
        sets: Sequence[Set] | None = None,
        session: Session | None = None,
    ) -> None:
        self.text, self.sets = text, sets
        self._session = None if session is None else column(session.column)
        if session is not None and (sets is not None or self._session not in keys):
            where = "with GROUPING SETS" if sets is not None else "that is not a key of GROUP BY by itself"
            raise text.unsupported(f"session_window {where}", session.call, "group by it and by plain keys")
        self._wanted = {tree: name for name, tree in reversed(named)}
        self._taken: list[str] = [name for name, _ in named]
        self.inputs: dict[Tree, str] = {}
        self.keys = [self._input(key, self._wanted.get(key)) for key in dict.fromkeys(keys)]
        self.results: dict[Tree, str] = {key: name for key, name in zip(dict.fromkeys(keys), self.keys, strict=True)}
        self.calls: list[Call] = []
        self._copies: dict[str, str] = {}
        self._flags: list[Item] = []
        self._set = unique("grouping set", [*self._taken, *self.keys])
        self._taken.append(self._set)
        for tree in used:
            for node in tree.walk(bfs=False):
                if is_aggregate(node) and node not in self.results:
                    self._call(node)
                elif is_grouping(node) and node not in self.results:
                    self._flag(node)

    def _name(self, tree: Tree, wanted: str | None) -> str:
        if wanted is not None:
            return wanted
        name = unique(label(tree), self._taken)
        self._taken.append(name)
        return name

    def _input(self, tree: Tree, wanted: str | None = None) -> str:
        """The column below the `Aggregate` that holds ``tree``."""
        if tree not in self.inputs:
            name = tree.name if wanted is None and isinstance(tree, exp.Column) else self._name(tree, wanted)
            lower = {each.lower() for each in self.inputs.values()}
            self.inputs[tree] = name if name.lower() not in lower else unique(name, [*lower, *self._taken])
        return self.inputs[tree]

    def _call(self, tree: Tree) -> None:
        arguments = list(tree.expressions)
        if self._session is not None and self._session in tree.find_all(exp.Column):
            raise self.text.unsupported(
                "session_window inside an aggregate", None, "it is the same in all of the group"
            )
        constants = tuple(each.name for each in arguments[1:]) if tree.name == "percentile" else ()
        arguments = arguments[:1] if constants else arguments
        distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        elif arguments and isinstance(arguments[0], exp.Star):
            arguments = []
        columns = tuple(self._argument(argument) for argument in arguments)
        name = self._name(tree, self._wanted.get(tree))
        if name.lower() in {each.lower() for each in self.keys}:
            name = unique(name, [*self.keys, *self._taken])
        self.results[tree] = name
        self.calls.append(Call(name, tree.name, columns, distinct, constants))

    def _argument(self, tree: Tree) -> str:
        """The column of an argument. One that is a key, which some sets make NULL, is copied."""
        name = self._input(tree)
        if self.sets is None or name not in self.keys:
            return name
        if name not in self._copies:
            self._copies[name] = unique(name, [*self.inputs.values(), *self._taken])
            self._taken.append(self._copies[name])
        return self._copies[name]

    def _flag(self, tree: Tree) -> None:
        """A call of grouping or grouping_id: for each set, which keys are not in it, as bits."""
        keys = list(tree.expressions)
        known = list(self.results)[: len(self.keys)]
        if self.sets is None:
            message = f"{tree.name} needs GROUP BY with GROUPING SETS, ROLLUP or CUBE"
            raise self.text.error(SqlError, message, name=tree.name)
        if tree.name == "grouping_id":
            right, keys, kind = not keys or keys == known, known, "bigint"
        else:
            right, kind = len(keys) == 1 and keys[0] in known, "tinyint"
        if not right:
            expected = "no argument, or all of the keys in their order" if tree.name == "grouping_id" else "one key"
            raise self.text.error(SqlError, f"{tree.name} takes {expected}", name=tree.name)
        branches = []
        for number, chosen in enumerate(self.sets):
            bits = sum((key not in chosen) << place for place, key in enumerate(reversed(keys)))
            is_this = exp.EQ(this=column(self._set), expression=exp.Literal.number(number))
            branches.append(exp.If(this=is_this, true=_typed(bits, kind)))
        self.results[tree] = self._name(tree, None)
        self._flags.append((self.results[tree], exp.Case(ifs=branches)))

    def plan(self, node: Node, predicate: Tree | None) -> Node:
        below = linear(node, predicate, [(name, tree) for tree, name in self.inputs.items()])
        if self._session is not None:
            return by_session(below, self.keys, self.results[self._session], self.calls)
        if self.sets is None:
            return Aggregate(below, tuple(self.keys), tuple(self.calls))
        copies: list[Item] = [(copy, column(name)) for name, copy in self._copies.items()]
        others: list[Item] = [(name, column(name)) for name in self.inputs.values() if name not in self.keys]
        expanded = []
        for number, chosen in enumerate(self.sets):
            inside = {self.results[key] for key in chosen}
            keys: list[Item] = [(name, column(name) if name in inside else _null_like(name)) for name in self.keys]
            expanded.append(linear(below, None, [*keys, (self._set, exp.Literal.number(number)), *others, *copies]))
        rows = Union(tuple(expanded)) if len(expanded) > 1 else expanded[0]
        return extend(Aggregate(rows, (*self.keys, self._set), tuple(self.calls)), self._flags)

    def above(self, tree: Tree, written: Tree | None) -> Tree:
        """``tree`` over the columns of the `Aggregate`; ``written`` is what the user wrote, for the error."""

        def left_over(node: exp.Column) -> SqlError:
            advice = f"add it to GROUP BY, or take any_value({node.name})"
            message = f"column {node.name!r} is neither grouped nor aggregated; {advice}"
            return self.text.error(SqlError, message, written, name=node.name)

        return over(tree, self.results, left_over)


def _null_like(name: str) -> Tree:
    """NULL, of the type of a column."""
    return exp.Case(ifs=[exp.If(this=exp.Boolean(this=False), true=column(name))])


def _typed(number: int, kind: str) -> Tree:
    return exp.Cast(this=exp.Literal.number(number), to=exp.DataType.build(kind, dialect="spark"))
