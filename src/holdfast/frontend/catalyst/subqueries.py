"""Subqueries that Spark has turned into joins: rows with a match, without a match, or with one match at most.

``EXISTS`` and ``IN`` are a semi join, ``NOT EXISTS`` an anti join. As a value (under OR, in a select list) they are an
existence join: a left join with the distinct keys, which says whether the row matched. Equalities are keys. Other
conditions that may occur:

- ``x NOT IN (S)`` arrives as ``x = s OR (x = s) IS NULL``, for each of its columns (`_aware`). Keys decide it, too
  (`_possible`).
- A single comparison besides the keys is decided by the least and the greatest value of a group
  (`frontend.exists_by_extremes`).
- Any other condition is decided by pairs of rows, for each combination of values on the left side (`_matched`): rows
  with the same values have the same answer, so each combination is tested once.

A scalar subquery that may have several rows is grouped by its keys and counted; where a row on the left meets a count
above one, its value is Spark's own error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

from holdfast.frontend import exists_by_extremes
from holdfast.frontend.build_nodes import columns, linear
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.column_names import label, unique
from holdfast.frontend.joins import Key, flag, join, join_outer, key_of, signed_parts, used, with_columns
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.join import Join
from holdfast.operators.topk import TopK
from holdfast.operators.window import Window
from holdfast.plan.expression import (
    FALSE,
    TRUE,
    Column,
    SparkExpression,
    Tree,
    choice,
    condition,
    conjunction,
    is_known,
    is_null,
    is_operation,
    negated,
    null,
    number,
    plain,
    renamed,
)
from holdfast.plan.nodes import Linear, Node, Union

TOO_MANY_ROWS = "SCALAR_SUBQUERY_TOO_MANY_ROWS"
_MOST = 3
"""Columns up to which NOT IN is decided by keys: each column doubles the rows that are kept."""


@dataclass
class _Conditions:
    """The conditions that decide whether two rows match. The right side of every key is a column of the right side."""

    keys: list[Key] = field(default_factory=list)
    aware: list[Key] = field(default_factory=list)
    """Equalities that also hold where their result is NULL."""

    others: list[Tree] = field(default_factory=list)


# -- semi, anti and existence joins --------------------------------------------------------------------------------


def matching(left: Node, right: Node, on: Sequence[Tree]) -> Node:
    """Return the rows of ``left`` that match a row of ``right``."""
    found = _read(left, right, on)
    if not found.aware and not found.others:
        return join_outer(left, right, "semi", on)
    if (decided := _by_extremes(left, right, found, "inner")) is not None:
        node, decisive = decided
        return linear(node, decisive, columns(left))
    return join(left, *_matched(left, right, found), "semi")


def lacking(left: Node, right: Node, on: Sequence[Tree]) -> Node:
    """Return the rows of ``left`` that match no row of ``right``."""
    found = _read(left, right, on)
    if found.others or len(found.aware) > _MOST:
        if (decided := _by_extremes(left, right, found, "left")) is not None:
            node, decisive = decided
            return linear(node, negated(decisive), columns(left))
        return join(left, *_matched(left, right, found), "anti")
    if not found.aware:
        return join_outer(left, right, "anti", on)
    for rows, keys in _possible(right, found):
        left = linear(join(left, rows, keys, "anti"), None, columns(left))
    return left


def marked(left: Node, right: Node, on: Sequence[Tree], name: str) -> Node:
    """Return the rows of ``left``, with a column ``name`` that says whether they match a row of ``right``."""
    found = _read(left, right, on)
    node, value = left, None
    if found.others or len(found.aware) > _MOST:
        decided = _by_extremes(left, right, found, "left") or _mark(left, *_matched(left, right, found))
        node, value = decided
    else:
        for rows, keys in _possible(right, found):
            node, one = _mark(node, rows, keys)
            value = one if value is None else condition("or", value, one)
    assert value is not None
    return linear(node, None, [*columns(left), (name, value)])


def _mark(left: Node, right: Node, keys: Sequence[Key]) -> tuple[Node, Tree]:
    """Return ``left`` with a column that is not NULL where ``right`` has a row with equal keys, and that condition."""
    names: list[str] = []
    for key in keys:
        names.append(unique(label(key.right), [*left.columns, *names]))
    exists = flag_name([*left.columns, *names])
    items = [(name, key.right) for name, key in zip(names, keys, strict=True)]
    once = linear(right, None, [*items, (exists, TRUE)])
    once = Aggregate(once, once.columns, ())
    by = [replace(key, right=once.column(name)) for key, name in zip(keys, names, strict=True)]
    joined = join(left, once, by or [Key(TRUE, TRUE, once.column(exists))], "left")
    return joined, is_known(once.column(exists))


def flag_name(taken: Sequence[str]) -> str:
    """A name for the column that says whether a row matches."""
    return unique("exists", taken)


def _read(left: Node, right: Node, on: Sequence[Tree]) -> _Conditions:
    found = _Conditions()
    here, there = set(left.columns), set(right.columns)
    for each in dict.fromkeys(on):
        if (key := key_of(each, here, there)) is not None:
            found.keys.append(key)
        elif (key := _aware(each, here, there)) is not None:
            found.aware.append(key)
        elif used(each) <= here:
            found.keys.append(Key(each, flag(each), TRUE))
        else:
            found.others.append(each)
    return found


def _aware(tree: Tree, here: set[str], there: set[str]) -> Key | None:
    """Return the equality as a key, if the condition says that it holds or is NULL; else None."""
    if not is_operation(tree, "or"):
        return None
    equal, unknown = tree.parts
    return key_of(equal, here, there) if is_operation(equal, "=") and unknown == is_null(equal) else None


def _possible(right: Node, found: _Conditions) -> Iterator[tuple[Node, list[Key]]]:
    """Yield pairs of rows and keys: a row on the left matches if, for one of the pairs, it joins with the rows by the
    keys.

    Without equalities that may be NULL, the only pair is ``right`` with its keys. With some, let s be such a column on
    the right and x its partner on the left. A row matches if for each such equality s is NULL, or x is NULL, or both
    are equal. There is a pair for each set of columns s: the rows whose s is NULL exactly in that set. They are joined
    by the other columns, where x is NULL or equal to s. So each row is kept once for every subset of these other
    columns, with NULL in the subset, and x is compared with NULL equal to NULL.
    """
    if not found.aware:
        yield right, found.keys
        return
    names: list[str] = []
    for key in [*found.keys, *found.aware]:
        names.append(unique(label(key.right), names))
    fixed = [replace(key, right=Column(name, key.right.type)) for key, name in zip(found.keys, names, strict=False)]
    values = [key.right for key in found.aware]
    compared = [
        replace(key, right=Column(name, key.right.type), null_safe=True)
        for key, name in zip(found.aware, names[len(fixed) :], strict=True)
    ]
    places = range(len(values))
    for absent in _subsets(places):
        exactly = [is_null(values[place]) if place in absent else is_known(values[place]) for place in places]
        here = [place for place in places if place not in absent]
        variants: list[Node] = []
        for blank in _subsets(here):
            items = [(name, key.right) for name, key in zip(names, found.keys, strict=False)]
            for each in here:
                value = values[each]
                items.append((names[len(fixed) + each], null(value.type) if each in blank else value))
            variants.append(linear(right, conjunction(exactly), items or [("one", number(1))]))
        rows = variants[0] if len(variants) == 1 else Union(tuple(variants))
        yield rows, [*fixed, *(compared[place] for place in here)]


def _subsets(places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(places) + 1):
        yield from combinations(places, size)


# -- conditions that no key can say --------------------------------------------------------------------------------


def _by_extremes(
    left: Node, right: Node, found: _Conditions, how: Literal["inner", "left"]
) -> tuple[Node, Tree] | None:
    """Return ``left`` joined with the extremes of the groups of ``right``, and the condition that then decides the
    match; None if extremes cannot decide it."""
    if found.aware or len(found.others) != 1:
        return None
    compared = exists_by_extremes.between(found.others[0], left, right)
    if compared is None:
        return None
    kind, value, other = compared
    taken = [*left.columns, *right.columns]
    right, held = with_columns(right, [*(key.right for key in found.keys), value], taken)
    names: list[str] = []
    for wanted in [*held[:-1], "least", "greatest", held[-1]]:
        names.append(unique(wanted, [*left.columns, *names]))
    groups, decisive = exists_by_extremes.groups(right, held[:-1], held[-1], kind, names, other)
    by = [replace(key, right=groups.column(name)) for key, name in zip(found.keys, names, strict=False)]
    return join(left, groups, by, how), condition("coalesce", decisive, FALSE) if how == "left" else decisive


def _matched(left: Node, right: Node, found: _Conditions, kept: Sequence[str] = ()) -> tuple[Node, list[Key]]:
    """Return the matching combinations of values on the left, with the columns ``kept`` of each row on the right that
    they match, and the keys by which to join the left side with them."""
    asked: dict[Tree, str] = {}
    wanted = [key.left for key in [*found.keys, *found.aware]]
    wanted += [left.column(name) for each in found.others for name in sorted(used(each) & set(left.columns))]
    # Values that differ only in the sign of a zero are one combination, so what may tell them apart is a value, too.
    signed = signed_parts(found.others, left)
    wanted += signed
    for tree in wanted:
        if tree not in asked:
            asked[tree] = unique(label(tree), [*left.columns, *right.columns, *asked.values()])
    domain = linear(left, None, [(name, tree) for tree, name in asked.items()])
    domain = Aggregate(domain, domain.columns, ())
    pairs = join(domain, right, [replace(key, left=domain.column(asked[key.left])) for key in found.keys])
    names = {own: name for tree, name in asked.items() if (own := plain(tree)) is not None}
    made: dict[Tree, Tree] = {part: domain.column(asked[part]) for part in signed}
    conditions = [renamed(each.transform(made.get), names) for each in found.others]
    for key in found.aware:
        equal = condition("=", domain.column(asked[key.left]), key.right)
        conditions.append(condition("or", equal, is_null(equal)))
    rows = linear(pairs, conjunction(conditions), columns(pairs, [*domain.columns, *kept]))
    return rows, [Key(tree, tree, domain.column(name), null_safe=True) for tree, name in asked.items()]


# -- scalar subqueries ---------------------------------------------------------------------------------------------


def single(left: Node, right: Node, on: Sequence[Tree], statement: Statement) -> Node:
    """Return the rows of ``left``, each with the only matching row of ``right``, or with NULLs. Two matches are Spark's
    error."""
    found = _read(left, right, on)
    wanted = right.columns
    if found.aware or found.others:
        right, keys = _matched(left, right, found, wanted)
    else:
        taken = [*left.columns, *right.columns]
        right, held = with_columns(right, [key.right for key in found.keys], taken)
        keys = [replace(key, right=right.column(name)) for key, name in zip(found.keys, held, strict=True)]
    groups, count = _counted(right, [plain(key.right) or "" for key in keys], wanted)
    joined = join(left, groups, keys, "left")
    values = [(name, _only_one(groups, name, count, statement)) for name in wanted]
    return linear(joined, None, [*columns(left), *values])


def at_most_one(node: Node, statement: Statement) -> Node:
    """Return the one row of a subquery; its values are Spark's error if it has more than one."""
    if _has_one(node):
        return node
    rows, count = _counted(node, (), node.columns)
    return linear(rows, None, [(name, _only_one(rows, name, count, statement)) for name in node.columns])


def _counted(node: Node, keys: Sequence[str], wanted: Sequence[str]) -> tuple[Node, str]:
    """Return the groups of ``node`` by ``keys``, with the columns ``wanted`` of any row of each group, and the name of
    the column with the number of rows."""
    keys = tuple(dict.fromkeys(keys))
    count = unique("rows", [*keys, *wanted])
    values = [name for name in wanted if name not in keys]
    rows = linear(node, None, columns(node, [*keys, *values]))
    calls = [Call(name, "any_value", (name,), node.types[name]) for name in values]
    return Aggregate(rows, keys, (*calls, Call(count, "count", (), "bigint"))), count


def _only_one(groups: Node, name: str, count: str, statement: Statement) -> Tree:
    many = condition(">", groups.column(count), number(1, "bigint"))
    value = groups.column(name)
    return choice(many, SparkExpression(statement.catalyst.raised(TOO_MANY_ROWS), (), value.type), value)


def _has_one(node: Node) -> bool:
    """Whether the plan provably has one row at most."""
    match node:
        case Linear() | Window():
            return _has_one(node.input)
        case Aggregate():
            return not node.keys
        case TopK():
            return node.limit <= 1
        case Join(how="full"):
            return False  # two rows that do not match are two
        case Join():
            return _has_one(node.left) and (node.how in ("semi", "anti") or _has_one(node.right))
    return False


def is_true(tree: Tree) -> bool:
    return tree == TRUE
