"""order_joins: inner joins are put into the order in which a change costs least.

Only the plan is known. (The number of rows of a source is known later, and changes; an order that depended on it could
change the fingerprints of views at every restart, and their state would be lost.) So sizes are estimated:

* A source with more columns is assumed to have more rows: tables of events are wide, the tables they refer to narrow.
* A condition keeps a share of the rows: one in fifty for an equality with a constant, one in three for any other.
* An aggregate has a tenth of the rows.
* An equi-join has rows(left) · rows(right) / values. The number of values of a class of equal columns is estimated as
  the unfiltered size of the smallest relation with a column of the class, which is assumed to have each value once.

Only relations that an equality connects are joined (all rows with all rows only if no equality connects them). Of all
such trees, the best one is chosen by these criteria, in this order:

1. the fewest many-to-many joins (joins with more rows than each of their sides, conditions apart);
2. the fewest rows in the traces, to within about a factor of ten, since the estimates are no better than that;
3. the fewest exchanges on the longest path (`plan/placement.py`: a join above a join by the same columns needs none);
4. the fewest rows in the traces, exactly; then the order of FROM.

Trees may be bushy: small dimension tables (a nation, its region) are joined with each other first, and a change of the
large table is joined with the result once.

Exact for up to 9 relations: for each connected set of relations, the best tree over all ways to cut the set in two,
O(3^n). A larger region is not reordered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from holdfast.operators.join import Join
from holdfast.operators.rewrites.region import Region, Shape, region, roots
from holdfast.plan.expression import condition, conjunction
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.placement import Placement, placement
from holdfast.plan.walk import Kept, reachable, readers, rewrite_up

_MOST = 9


def order_joins(node: Node, kept: Kept) -> Node:
    shared = {each for each, count in readers(node).items() if count > 1}
    closed = {*kept, *shared}
    tops = roots(reachable(node, kept), closed)

    def change(new: Node, old: Node) -> Node:
        result = _ordered(new, closed) if id(old) in tops else new
        if id(old) in shared:
            closed.add(id(result))
        return result

    return rewrite_up(node, change, kept)


def _ordered(node: Node, closed: set[int]) -> Node:
    found = region(node, closed)
    if not 3 <= len(found.leaves) <= _MOST:
        return node
    classes = found.classes()
    owner = found.owner()
    members = tuple(tuple((name, owner[name]) for name in sorted(group)) for group in classes)
    leaves = tuple((size(leaf), base(leaf), placement(leaf)) for leaf in found.leaves)
    wanted = _best(leaves, members)
    if _same(found.shape, wanted, classes):
        return node
    return _built(found, wanted, classes)


# -- estimates --------------------------------------------------------------------------------------------------------


def size(node: Node) -> float:
    """The estimated number of rows of a relation."""
    return node.guessed_rows(*map(size, node.inputs))


def base(node: Node) -> float:
    """The estimated number of rows of a relation without its own conditions."""
    while isinstance(node, Linear):
        node = node.input
    return size(node)


# -- the best tree ----------------------------------------------------------------------------------------------------

Members = tuple[tuple[tuple[str, int], ...], ...]
"""For each class, its columns, each with the index of its leaf."""


@dataclass(frozen=True)
class _Tree:
    """A tree of joins over a set of leaves: its costs, and the placement of its rows."""

    shape: Shape
    rows: float
    """The estimated number of rows."""

    bare: float
    """The estimated number of rows without conditions."""

    many: int
    """The number of many-to-many joins."""

    kept: float
    """The estimated number of rows in all traces of its joins."""

    place: Placement
    order: tuple[int, ...]
    """The indices of its leaves, from left to right."""

    @property
    def cost(self) -> tuple[int, int, int, float, tuple[int, ...]]:
        magnitude = 0 if self.kept < 1 else round(math.log10(self.kept))
        return self.many, magnitude, self.place.stage, round(self.kept, 3), self.order


@lru_cache(maxsize=256)
def _best(leaves: tuple[tuple[float, float, Placement], ...], members: Members) -> Shape:
    count = len(leaves)
    touch = [sum(1 << leaf for leaf in {leaf for _, leaf in group}) for group in members]
    values = [min(leaves[leaf][1] for _, leaf in group) for group in members]
    best: dict[int, _Tree] = {
        1 << index: _Tree(index, rows, bare, 0, 0.0, where, (index,))
        for index, (rows, bare, where) in enumerate(leaves)
    }
    for whole in range(1, 1 << count):
        if whole & (whole - 1) == 0:
            continue
        part = (whole - 1) & whole
        while part:
            rest = whole ^ part
            # Try each pair of parts once: the part with the first leaf is on the left.
            if part & (whole & -whole) and part in best and rest in best:
                shared = [number for number, mask in enumerate(touch) if mask & part and mask & rest]
                if shared:
                    tree = _joined(best[part], best[rest], part, rest, shared, members, values)
                    if whole not in best or tree.cost < best[whole].cost:
                        best[whole] = tree
            part = (part - 1) & whole
    return _all(best, count)


def _joined(
    left: _Tree, right: _Tree, part: int, rest: int, shared: list[int], members: Members, values: Sequence[float]
) -> _Tree:
    keys = [_key(side, shared, members) for side in (part, rest)]
    distinct = float(math.prod(values[number] for number in shared))
    rows, bare = max(1.0, left.rows * right.rows / distinct), max(1.0, left.bare * right.bare / distinct)
    stage = max(left.place.needed(keys[0]), right.place.needed(keys[1]))
    return _Tree(
        (left.shape, right.shape, frozenset(frozenset(name for name, _ in members[number]) for number in shared)),
        rows,
        bare,
        left.many + right.many + (bare > 1.01 * max(left.bare, right.bare)),
        left.kept + right.kept + left.rows + right.rows,
        Placement(stage, frozenset(keys)),
        left.order + right.order,
    )


def _key(side: int, shared: list[int], members: Members) -> tuple[str, ...]:
    """The key columns of a side: its first column of each class. Rows that are spread by a class are spread by the
    first column of the class, since that is the first one of one of the sides."""
    return tuple(next(name for name, leaf in members[number] if side >> leaf & 1) for number in shared)


def _all(best: dict[int, _Tree], count: int) -> Shape:
    """The best tree of all leaves. Sets of leaves that no equality connects are joined one after the other."""
    left = (1 << count) - 1
    shape: Shape | None = None
    while left:
        # The largest connected set with the first of the remaining leaves.
        mask = max((each for each in best if each & left == each and each & (left & -left)), key=int.bit_count)
        shape = best[mask].shape if shape is None else (shape, best[mask].shape, frozenset())
        left ^= mask
    assert shape is not None
    return shape


# -- between plans and shapes -----------------------------------------------------------------------------------------


def _same(now: Shape, wanted: Shape, classes: Sequence[frozenset[str]]) -> bool:
    """Whether the leaves are already joined in the wanted way. Which columns of a class are the keys does not
    matter."""
    if isinstance(now, int) or isinstance(wanted, int):
        return now == wanted
    used = {group for pair in now[2] for group in classes if pair <= group}
    if used != set(wanted[2]) or len(used) != len(now[2]):
        return False
    return any(_same(now[0], one, classes) and _same(now[1], other, classes) for one, other in _ways(wanted))


def _ways(shape: tuple[Shape, Shape, frozenset[frozenset[str]]]) -> list[tuple[Shape, Shape]]:
    return [(shape[0], shape[1]), (shape[1], shape[0])]


def _built(found: Region, wanted: Shape, classes: Sequence[frozenset[str]]) -> Node:
    conditions = [*found.conditions, *found.inside(classes)]

    def build(shape: Shape) -> Node:
        if isinstance(shape, int):
            return found.leaves[shape]
        left, right = build(shape[0]), build(shape[1])
        ours: list[str] = []
        theirs: list[str] = []
        for group in classes:
            if group not in shape[2]:
                continue
            one, other = (next(name for name in sorted(group) if name in side.columns) for side in (left, right))
            if one in ours or other in theirs:
                # A column can be a key only once.
                conditions.append(condition("=", left.column(one), right.column(other)))
            else:
                ours.append(one)
                theirs.append(other)
        return Join(left, right, tuple(ours), tuple(theirs))

    tree = build(wanted)
    return Linear(tree, conjunction(list(dict.fromkeys(conditions))), found.outputs)
