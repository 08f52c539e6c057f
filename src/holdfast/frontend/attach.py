"""Subqueries as joins.

While an expression is resolved, a subquery becomes a call that carries the `Sub` it stands for in its argument ``sub``;
its arguments are what it needs of the enclosing query's row. So it can be moved, copied and compared like any other
tree, and a grouping above replaces its arguments by keys. When a `Linear` is built (`frontend.build`), its subqueries
are joined to the rows below it:

- ``EXISTS`` and ``IN`` that a row must satisfy are a semi join, ``NOT EXISTS`` an anti join.
- ``x NOT IN (S)`` is true if nothing in S equals x, and neither x nor anything in S is NULL, or if S is empty. So it is
  two anti joins: one by ``x = s``, and one that drops, where x is NULL, what has any s, and elsewhere what has a NULL.
- EXISTS and IN with one comparison more are decided by the least and greatest value of a group (`frontend.extremes`);
  with other conditions, by the pairs that satisfy them, of each combination of values that the enclosing query has.
- As a value (under OR, in a select list), EXISTS is a left join with the distinct keys, which matched or did not, and
  IN is put together of three of these: is there an equal s, a NULL one, any at all. Where that leaves it unknown, Spark
  does not say NULL but false, for IN and for NOT IN alike: so IN is false there, and true below a NOT.
- A scalar subquery is a left join with its groups, one per value of what it refers to. What an aggregate of no rows is
  comes out of that by itself, NULL, except for counts, which `frontend.subqueries` makes 0. An aggregate that refers to
  nothing has one row always, and is joined as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from holdfast.errors import Unsupported
from holdfast.frontend import extremes
from holdfast.frontend.labels import label, unique
from holdfast.plan.expression import Tree, column, conjunction, conjuncts, quoted, render, replace_columns
from holdfast.plan.nodes import Aggregate, Join, Linear, Named, Node, Union

Item = tuple[str, Tree]


@dataclass(frozen=True)
class Sub:
    """A planned subquery. The call's arguments are: the values left of IN (one for each of ``members``), the enclosing
    query's side of each of ``keys``, and the enclosing query's columns that ``others`` refer to."""

    kind: Literal["exists", "in", "scalar"]
    node: Node
    refused: Callable[[str, str], Unsupported]
    """The error for a use of it that cannot be joined: construct, advice."""

    keys: tuple[tuple[str, bool], ...] = ()
    """The columns of ``node`` to join by, and whether NULL matches NULL there."""

    members: tuple[str, ...] = ()
    """The columns of ``node`` that are compared by IN."""

    value: Tree | None = None
    """What a scalar subquery gives, over the columns of ``node``."""

    others: tuple[Tree, ...] = ()
    """Further conditions, over columns of ``node`` and `outer` columns."""

    outer: tuple[str, ...] = ()
    """The columns of the enclosing query that ``others`` refer to."""


def call(number: int, sub: Sub, arguments: Sequence[Tree]) -> Tree:
    """The tree that stands for a subquery. ``number`` tells it from the others of the statement."""
    return exp.Anonymous(this=f"subquery_{number}", expressions=list(arguments), sub=sub)


def sub_of(tree: Tree) -> Sub | None:
    found = tree.args.get("sub") if isinstance(tree, exp.Anonymous) else None
    return found if isinstance(found, Sub) else None


def has_subquery(tree: Tree) -> bool:
    return any(sub_of(node) is not None for node in tree.walk())


def to_outer(tree: Tree) -> Tree:
    """A column of the enclosing query (or a field of one), as it stands in a subquery's expression."""
    return tree.transform(lambda node: _outer(node.name) if isinstance(node, exp.Column) else node)


def _outer(name: str) -> Tree:
    return exp.Anonymous(this=f"outer {name}", expressions=[], outer=name)


def outer_columns(tree: Tree) -> list[str]:
    """The columns of the enclosing query that a subquery's expression refers to."""
    found = (node.args.get("outer") for node in tree.walk() if isinstance(node, exp.Anonymous))
    return list(dict.fromkeys(name for name in found if isinstance(name, str)))


def from_outer(tree: Tree, names: Mapping[str, str] | None = None) -> Tree:
    """The same expression as the enclosing query has it: with columns (named anew, if ``names`` say so)."""

    def back(node: Tree) -> Tree:
        name = node.args.get("outer") if isinstance(node, exp.Anonymous) else None
        return column(name if names is None else names[name]) if isinstance(name, str) else node

    return tree.transform(back)


# -- joining -----------------------------------------------------------------------------------------------------------


def attach(node: Node, predicate: Tree | None, items: Sequence[Item]) -> tuple[Node, Tree | None, list[Item]]:
    """``node`` joined with the subqueries of ``predicate`` and ``items``, and these without subqueries."""
    parts = [] if predicate is None else conjuncts(predicate)
    # What asks no subquery comes first: fewer rows are joined, also those of which a subquery is asked.
    if plain := conjunction([part for part in parts if not has_subquery(part)]):
        node = _only(node, render(plain))
    filters = [part for part in parts if _decides(part)]
    rest = [part for part in parts if has_subquery(part) and not _decides(part)]
    trees = [tree for _, tree in items]
    while found := _innermost([*rest, *trees, *(each for part in filters for each in _bare(part).expressions)]):
        known: dict[Tree, Tree] = {}
        for tree in found:
            node, known[tree] = _value(node, tree)
        rest, trees = [_granted(part, known) for part in rest], [_granted(tree, known) for tree in trees]
        filters = [_granted_inside(part, known) for part in filters]
    for part in filters:
        node = _filter(node, part)
    return node, conjunction(rest), [(name, tree) for (name, _), tree in zip(items, trees, strict=True)]


def _bare(part: Tree) -> Tree:
    return part.this if isinstance(part, exp.Not) else part


def _decides(part: Tree) -> bool:
    """Is the condition nothing but [NOT] EXISTS or [NOT] IN?"""
    sub = sub_of(_bare(part))
    return sub is not None and sub.kind != "scalar"


def _innermost(trees: Sequence[Tree]) -> list[Tree]:
    found = (node for tree in trees for node in tree.walk(bfs=False) if sub_of(node) is not None)
    return list(dict.fromkeys(node for node in found if not any(has_subquery(each) for each in node.expressions)))


def _granted(tree: Tree, known: Mapping[Tree, Tree]) -> Tree:
    """``tree`` with the values of its subqueries in their places."""
    tree = tree.copy()
    for node in list(tree.walk(bfs=False)):
        sub = sub_of(node)
        if sub is None or node not in known:
            continue
        value = known[node].copy()
        if sub.kind == "in":
            value = exp.Anonymous(this="coalesce", expressions=[value, exp.true() if _negated(node) else exp.false()])
        if node is tree:
            return value
        node.replace(value)
    return tree


def _negated(node: Tree) -> bool:
    """Does a condition hold only where ``node`` does not, as far as AND, OR and NOT go above it?"""
    negated = False
    while isinstance(node.parent, (exp.And, exp.Or, exp.Not, exp.Paren)):
        node = node.parent
        negated ^= isinstance(node, exp.Not)
    return negated


def _granted_inside(part: Tree, known: Mapping[Tree, Tree]) -> Tree:
    """A condition that is a subquery itself, with those in its arguments replaced."""
    result = part.copy()
    inner = _bare(result)
    inner.set("expressions", [_granted(each, known) for each in inner.expressions])
    return result


def _split(tree: Tree, sub: Sub) -> tuple[list[Tree], list[Tree], list[Tree]]:
    """The call's arguments: of IN, of the keys, of other conditions."""
    one, two = len(sub.members), len(sub.members) + len(sub.keys)
    return tree.expressions[:one], tree.expressions[one:two], tree.expressions[two:]


def _filter(node: Node, part: Tree) -> Node:
    """The rows of ``node`` for which a condition that `_decides` holds."""
    negated, tree = isinstance(part, exp.Not), _bare(part)
    sub = sub_of(tree)
    assert sub is not None
    values, keys, _ = _split(tree, sub)
    if sub.others:
        if sub.kind == "in" and negated:
            raise sub.refused("NOT IN with a correlated condition that is not an equality", "use NOT EXISTS")
        if (found := _by_extremes(node, tree, sub, "left" if negated else "inner")) is not None:
            joined, condition = found
            wanted = exp.Not(this=condition) if negated else condition
            return Linear(joined, render(wanted), tuple(Named(name, quoted(name)) for name in node.columns))
        return _join(node, *_matched(node, tree, sub), "anti" if negated else "semi")
    pairs = [(key, name, safe) for key, (name, safe) in zip(keys, sub.keys, strict=True)]
    equal = [(value, name, False) for value, name in zip(values, sub.members, strict=True)]
    if not negated or sub.kind == "exists":
        return _join(node, sub.node, pairs + equal, "anti" if negated else "semi")
    if len(values) > 1:
        raise sub.refused("NOT IN with several columns", "use NOT EXISTS")
    (value, member, _), safes = equal[0], tuple(safe for _, _, safe in pairs)
    node = _join(node, sub.node, [*pairs, *equal], "anti")
    names = [name for name, _ in sub.keys]
    kinds = unique("null", names)
    unknown: list[Node] = [
        Linear(sub.node, predicate, (*(Named(name, quoted(name)) for name in names), Named(kinds, flag)))
        for predicate, flag in ((None, "TRUE"), (f"{quoted(member)} IS NULL", "FALSE"))
    ]
    null = exp.Is(this=value.copy(), expression=exp.null())
    by = [(key, name, safe) for key, name, safe in zip(keys, names, safes, strict=True)]
    return _join(node, Union(tuple(unknown)), [*by, (null, kinds, False)], "anti")


def _matched(node: Node, tree: Tree, sub: Sub) -> tuple[Node, list[tuple[Tree, str, bool]]]:
    """Where more than equalities decides: the arguments of the call that match, and what to join by: all of them.

    Rows with the same arguments have the same answer, so each combination is asked once."""
    values, keys, outer = _split(tree, sub)
    asked: dict[Tree, str] = {}
    for argument in tree.expressions:
        if argument not in asked:
            asked[argument] = unique(label(argument), [*node.columns, *asked.values()])
    domain: Node = Linear(node, None, tuple(Named(name, render(argument)) for argument, name in asked.items()))
    domain = Aggregate(domain, domain.columns, ())
    names = _apart(sub.node, [*node.columns, *domain.columns])
    pairs: list[tuple[Tree, str, bool]] = [
        (column(asked[key]), names[name], safe) for key, (name, safe) in zip(keys, sub.keys, strict=True)
    ]
    pairs += [(column(asked[value]), names[name], False) for value, name in zip(values, sub.members, strict=True)]
    joined = _join(domain, _renamed(sub.node, names), pairs, "inner")
    arguments = {name: column(asked[argument]) for name, argument in zip(sub.outer, outer, strict=True)}
    conditions = [_with_arguments(each, names, arguments) for each in sub.others]
    outputs = tuple(Named(name, quoted(name)) for name in domain.columns)
    matched = Linear(joined, _text(conjunction(conditions)), outputs)
    return matched, [(argument, name, True) for argument, name in asked.items()]


def _by_extremes(node: Node, tree: Tree, sub: Sub, how: Literal["inner", "left"]) -> tuple[Node, Tree] | None:
    """``node`` joined with the extremes of the subquery's groups, and the condition that decides, if these can."""
    found = extremes.compared(sub.others[0]) if len(sub.others) == 1 else None
    if found is None:
        return None
    values, keys, outer = _split(tree, sub)
    kind, value, name = found
    other = dict(zip(sub.outer, outer, strict=True))[name]
    if not extremes.same_type(sub.node, value, node, other):
        return None
    pairs = [(key, old, safe) for key, (old, safe) in zip(keys, sub.keys, strict=True)]
    pairs += [(each, old, False) for each, old in zip(values, sub.members, strict=True)]
    names: list[str] = []
    for wanted in [*(old for _, old, _ in pairs), "least", "greatest", value]:
        names.append(unique(wanted, [*node.columns, *names]))
    right, condition = extremes.groups(sub.node, [old for _, old, _ in pairs], value, kind, names, other)
    by = [(key, new, safe) for (key, _, safe), new in zip(pairs, names, strict=False)]
    if how == "left":
        condition = exp.Anonymous(this="coalesce", expressions=[condition, exp.false()])
    return _join(node, right, by, how), condition


def _with_arguments(tree: Tree, names: Mapping[str, str], arguments: Mapping[str, exp.Column]) -> Tree:
    tree = replace_columns(tree.copy(), {old: column(new) for old, new in names.items()})

    def back(node: Tree) -> Tree:
        name = node.args.get("outer") if isinstance(node, exp.Anonymous) else None
        return arguments[name].copy() if isinstance(name, str) else node

    return tree.transform(back)


def _value(node: Node, tree: Tree) -> tuple[Node, Tree]:
    """``node`` joined with a subquery, and what the subquery's value is on its rows."""
    sub = sub_of(tree)
    assert sub is not None
    values, keys, _ = _split(tree, sub)
    if sub.others:
        if sub.kind == "in":
            construct = "IN with a correlated condition that is not an equality, as a value"
            raise sub.refused(construct, "use EXISTS")
        return _by_extremes(node, tree, sub, "left") or _mark(node, *_matched(node, tree, sub))
    pairs = [(key, name, safe) for key, (name, safe) in zip(keys, sub.keys, strict=True)]
    if sub.value is not None:
        names = _apart(sub.node, node.columns)
        by = [(key, names[name], safe) for key, name, safe in pairs]
        joined = _join(node, _renamed(sub.node, names), by, "inner" if _is_one_row(sub.node) else "left")
        return joined, replace_columns(sub.value.copy(), {old: column(new) for old, new in names.items()})
    if sub.kind == "exists":
        return _mark(node, sub.node, pairs)
    if len(values) > 1:
        raise sub.refused("IN with several columns as a value", "use EXISTS")
    (value,), (member,) = values, sub.members
    node, equal = _mark(node, sub.node, [*pairs, (value, member, False)])
    node, unknown = _mark(node, _only(sub.node, f"{quoted(member)} IS NULL"), pairs)
    node, some = _mark(node, sub.node, pairs)
    null = exp.And(this=exp.Is(this=value.copy(), expression=exp.null()), expression=some)
    open_ = _if(exp.Or(this=unknown, expression=null), exp.null(), exp.false())
    return node, _if(equal, exp.true(), open_)


def _mark(node: Node, right: Node, pairs: list[tuple[Tree, str, bool]]) -> tuple[Node, Tree]:
    """``node`` with a column that is not NULL where ``right`` has a row that agrees; and the condition that it does."""
    taken = list(node.columns)
    names = []
    for _, name, _ in pairs:
        names.append(unique(name, taken))
        taken.append(names[-1])
    flag = unique("exists", taken)
    keys = tuple(Named(new, quoted(old)) for new, (_, old, _) in zip(names, pairs, strict=True))
    once: Node = Linear(right, None, (*keys, Named(flag, "TRUE")))
    once = Aggregate(once, once.columns, ())
    by = [(key, name, safe) for (key, _, safe), name in zip(pairs, names, strict=True)]
    joined = _join(node, once, by or [(exp.true(), flag, False)], "left")
    return joined, exp.Not(this=exp.Is(this=column(flag), expression=exp.null()))


def _join(
    left: Node, right: Node, pairs: list[tuple[Tree, str, bool]], how: Literal["inner", "left", "semi", "anti"]
) -> Node:
    """The join by (expression of the left side, column of the right side, whether NULL matches NULL)."""
    names: list[str] = []
    added: list[Named] = []
    taken = [*left.columns, *right.columns]
    for tree, _, _ in pairs:
        if isinstance(tree, exp.Column):
            names.append(tree.name)
            continue
        names.append(unique(label(tree), taken))
        taken.append(names[-1])
        added.append(Named(names[-1], render(tree)))
    if added:
        left = Linear(left, None, (*(Named(name, quoted(name)) for name in left.columns), *added))
    flags = tuple(safe for _, _, safe in pairs)
    return Join(left, right, tuple(names), tuple(name for _, name, _ in pairs), how, flags if any(flags) else ())


def _is_one_row(node: Node) -> bool:
    """Has the plan one row, always?"""
    while isinstance(node, Linear) and node.predicate is None:
        node = node.input
    return isinstance(node, Aggregate) and not node.keys


def _apart(node: Node, taken: Sequence[str]) -> dict[str, str]:
    """New names for the columns of ``node``, none of them taken."""
    names: dict[str, str] = {}
    for name in node.columns:
        names[name] = unique(name, [*taken, *names.values()])
    return names


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    return Linear(node, None, tuple(Named(names[name], quoted(name)) for name in node.columns))


def _only(node: Node, predicate: str) -> Node:
    return Linear(node, predicate, tuple(Named(name, quoted(name)) for name in node.columns))


def _text(tree: Tree | None) -> str | None:
    return None if tree is None else render(tree)


def _if(condition: Tree, one: Tree, other: Tree) -> Tree:
    return exp.Anonymous(this="if", expressions=[condition, one, other])
