"""Window functions: from ``f(x) OVER (PARTITION BY … ORDER BY … ROWS …)`` to a `Window` of the plan.

While an expression is resolved, such a call becomes a call of ``over``: its operands are the arguments, the partition's
expressions, the order's, and the values to which a frame reaches; it carries all else (`_Shape`) in its argument
``window``. It is a tree like any other: aggregates among its operands are grouped as elsewhere, so that
``sum(sum(x)) OVER (…)`` is a window over groups; it can be copied, moved and compared. When the select list is planned,
`plan_windows` makes `Window` nodes of all of them: one for each partition and order, innermost first, each over a
`Linear` that computes the operands. So no ``over`` ever reaches an expression of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend import functions
from holdfast.frontend.build import drawn, linear
from holdfast.frontend.labels import label, unique
from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree, bare, column, render
from holdfast.plan.nodes import Frame, Node, Order, Reach, Window, WindowCall
from holdfast.plan.windows import NEIGHBOURS, RANKINGS, VALUES

_RUNNING = Frame(False, None, 0)
_WHOLE = Frame(True, None, None)
# first(x, true) ignores nulls; so many arguments have those that can be told so, as PySpark calls them.
_WITH_NULLS = {"first_value": 2, "last_value": 2, "nth_value": 3, "lag": 4, "lead": 4}
_NULLS = (exp.IgnoreNulls, exp.RespectNulls)


@dataclass(frozen=True)
class _Shape:
    """What an ``over`` is, besides its operands: so many arguments, then so many of the partition, then the order."""

    function: str
    number: int
    frame: Frame | None
    ignore_nulls: bool
    arguments: int
    partition: int
    order: tuple[tuple[bool, bool], ...]
    """Descending, nulls first."""

    reach: tuple[str | None, str | None] = (None, None)
    """The frame's ends by value, as the user put them; each has an operand behind the order."""


@dataclass(frozen=True)
class _End:
    """An end of a frame by value: ``5 PRECEDING``, ``INTERVAL 1 DAY FOLLOWING``."""

    offset: Tree
    preceding: bool

    @property
    def text(self) -> str:
        return f"{render(self.offset)} {'PRECEDING' if self.preceding else 'FOLLOWING'}"

    def value(self, order: Tree, descending: bool) -> Tree:
        """The outermost value of ``order`` in a row's frame: that of the row, and the offset."""
        return (exp.Add if self.preceding == descending else exp.Sub)(this=order.copy(), expression=self.offset.copy())


@dataclass(frozen=True)
class WindowTree:
    """A window function as the user wrote it, checked; its operands are not resolved yet."""

    call: exp.Anonymous
    function: str
    arguments: Sequence[Tree]
    number: int
    partition: Sequence[Tree]
    order: Sequence[Tree]
    directions: tuple[tuple[bool, bool], ...]
    frame: Frame | None
    ignore_nulls: bool
    ends: tuple[_End | None, _End | None]

    def tree(self, arguments: Sequence[Tree], partition: Sequence[Tree], order: Sequence[Tree]) -> Tree:
        """The call of ``over`` with these resolved operands."""
        start, end = (None if each is None else each.text for each in self.ends)
        shape = _Shape(
            self.function, self.number, self.frame, self.ignore_nulls, len(arguments), len(partition), self.directions,
            (start, end),
        )  # fmt: skip
        reach = [each.value(order[0], self.directions[0][0]) for each in self.ends if each is not None]
        return exp.Anonymous(this="over", expressions=[*arguments, *partition, *order, *reach], window=shape)


def shape_of(tree: Tree) -> _Shape | None:
    found = tree.args.get("window") if isinstance(tree, exp.Anonymous) else None
    return found if isinstance(found, _Shape) else None


def has_window(tree: Tree) -> bool:
    """Is there a window function in this (resolved) tree?"""
    return any(shape_of(node) is not None for node in tree.walk())


# -- reading ------------------------------------------------------------------------------------------------------


def with_windows(select: exp.Select, text: Text) -> exp.Select:
    """The query with its named windows (``WINDOW w AS (…)``) written where they are used."""
    named: dict[str, exp.Window] = {}
    if not select.args.get("windows"):
        return select
    select = select.copy()
    for each in select.args["windows"]:
        if each.this.name.lower() in named:
            raise text.error(SqlError, f"window {each.this.name!r} is defined twice", each, name=each.this.name)
        named[each.this.name.lower()] = each
    places = [*select.expressions, *(select.args[key] for key in ("order", "qualify") if select.args.get(key))]
    walks = (place.walk(prune=lambda node: isinstance(node, exp.Query)) for place in places)
    for tree in [node for walk in walks for node in walk if isinstance(node, exp.Window)]:
        seen: set[str] = set()
        while (alias := tree.args.get("alias")) is not None and alias.name.lower() in named:
            meant = named[alias.name.lower()]
            if alias.name.lower() in seen:
                raise text.error(SqlError, f"window {alias.name!r} is defined by itself", alias, name=alias.name)
            seen.add(alias.name.lower())
            for key in ("partition_by", "order", "spec", "alias"):
                value = meant.args.get(key)
                tree.set(key, [each.copy() for each in value] if isinstance(value, list) else value and value.copy())
    select.set("windows", None)
    return select


def read_window(tree: exp.Window, text: Text) -> WindowTree:
    """The parts of a window function, in one form, whichever way they were written."""
    if (alias := tree.args.get("alias")) is not None:
        raise text.error(SqlError, f"window {alias.name!r} is not defined; add WINDOW {alias.name} AS (…)", alias)
    call, ignore_nulls = tree.this, isinstance(tree.this, exp.IgnoreNulls)
    if isinstance(call, _NULLS):
        call = call.this
    function = functions.OVER.get(call.name.lower()) if isinstance(call, exp.Anonymous) else None
    if function is None:
        raise text.error(SqlError, f"{call.name or call.key} is neither a window function nor an aggregate", call)
    arguments = list(call.expressions)
    if arguments and isinstance(arguments[0], _NULLS):
        ignore_nulls = isinstance(arguments[0], exp.IgnoreNulls)
        arguments[0] = arguments[0].this
    if arguments and isinstance(arguments[0], exp.Distinct):
        raise text.error(SqlError, f"DISTINCT in the window function {call.name.lower()}, where none may be", call)
    if len(arguments) == _WITH_NULLS.get(function) and isinstance(arguments[-1], exp.Boolean):
        ignore_nulls = bool(arguments.pop().this)
    if ignore_nulls and function not in NEIGHBOURS | VALUES:
        raise text.error(SqlError, f"IGNORE NULLS does not belong behind {call.name.lower()}", call)
    arguments, number = _arguments(function, call, arguments, text)
    order = tree.args["order"].expressions if tree.args.get("order") is not None else []
    if not order and function in RANKINGS | NEIGHBOURS:
        raise text.error(SqlError, f"{call.name.lower()} needs an ORDER BY in its window", call)
    frame, ends = _frame(tree, function, len(order), text)
    return WindowTree(
        call,
        function,
        arguments,
        number,
        tree.args.get("partition_by") or [],
        [each.this for each in order],
        tuple((bool(each.args.get("desc")), bool(each.args.get("nulls_first"))) for each in order),
        frame,
        ignore_nulls,
        ends,
    )


def _arguments(function: str, call: exp.Anonymous, arguments: list[Tree], text: Text) -> tuple[list[Tree], int]:
    """The arguments that are computed for each row, and the number that is fixed."""
    fixed: Tree | None = None
    least, most = 1, 1
    if function in RANKINGS:
        least, most = 0, int(function == "ntile")
        fixed = arguments.pop() if most and len(arguments) == 1 else None
    elif function == "count":
        most = len(arguments)
    elif function == "nth_value":
        least = most = 1
        fixed = arguments.pop(1) if len(arguments) == 2 else exp.Null()
    elif function in NEIGHBOURS:
        most = 2
        fixed = arguments.pop(1) if len(arguments) in (2, 3) else None
        if len(arguments) == 2 and isinstance(arguments[1], exp.Null):
            arguments.pop()
    if not least <= len(arguments) <= most:
        raise text.error(SqlError, f"{call.name.lower()} cannot have {len(call.expressions)} arguments", call)
    if fixed is None:
        return arguments, 1
    number = _whole(fixed)
    if number is None:
        raise text.unsupported(f"{call.name.lower()} with a number that is not written as one", call)
    if number < 1 and function not in NEIGHBOURS:
        raise text.error(SqlError, f"{call.name.lower()} needs a number above 0, found {number}", call)
    return arguments, number


def _whole(tree: Tree) -> int | None:
    """The value of a whole number as it is written: ``2``, ``-1``, ``3L``."""
    if isinstance(tree, exp.Paren):
        return _whole(tree.this)
    if isinstance(tree, exp.Neg):
        number = _whole(tree.this)
        return None if number is None else -number
    inner = tree.this if isinstance(tree, exp.Cast) else tree
    return int(inner.name) if isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdigit() else None


def _frame(
    tree: exp.Window, function: str, orders: int, text: Text
) -> tuple[Frame | None, tuple[_End | None, _End | None]]:
    """The frame, and its ends where they go by value."""
    spec, none = tree.args.get("spec"), (None, None)
    if spec is None:
        return None if function in RANKINGS | NEIGHBOURS else _RUNNING if orders else _WHOLE, none
    if spec.args.get("exclude"):
        raise text.unsupported("EXCLUDE in a frame", tree, keyword="EXCLUDE", after=True)
    rows = str(spec.args.get("kind")).upper() == "ROWS"
    start = _bound(spec.args.get("start"), spec.args.get("start_side"), "PRECEDING", rows, tree, text)
    end = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), "FOLLOWING", rows, tree, text)
    if function in NEIGHBOURS or (function in RANKINGS and (start, end) != (None, 0)):
        raise text.error(SqlError, f"{function} has a frame of its own, and takes no other", tree)
    if function in RANKINGS:
        return None, none
    ends = (start if isinstance(start, _End) else None, end if isinstance(end, _End) else None)
    if ends != none and orders != 1:
        raise text.error(SqlError, f"RANGE with an offset needs one ORDER BY expression, found {orders}", tree)
    first, last = (0 if isinstance(each, _End) else each for each in (start, end))
    if first is not None and last is not None and first > last:
        raise text.error(SqlError, "the frame's lower bound lies above its upper bound", tree)
    return Frame(rows, first, last), ends


def _bound(value: object, side: object, outer: str, rows: bool, tree: Tree, text: Text) -> int | _End | None:
    # sqlglot keeps these words as they are written.
    value, side = (each.upper() if isinstance(each, str) else each for each in (value, side))
    if value == "CURRENT ROW":
        return 0
    if value == "UNBOUNDED":
        if side != outer:
            raise text.error(SqlError, f"a frame cannot be UNBOUNDED {side} at this end", tree)
        return None
    number = _whole(value) if isinstance(value, exp.Expr) else None
    if rows and number is not None:
        return -number if side == "PRECEDING" else number
    if not rows and isinstance(value, exp.Expr) and _is_constant(value):
        return _End(bare(value.copy()), side == "PRECEDING")
    keyword = "ROWS" if rows else "RANGE"
    raise text.unsupported("a frame whose bound is not a number", tree, "write the number", keyword, after=True)


def _is_constant(tree: Tree) -> bool:
    """Is it a number or an interval, as it is written?"""
    if isinstance(tree, (exp.Paren, exp.Neg)):
        return _is_constant(tree.this)
    if isinstance(tree, exp.Interval):
        return isinstance(tree.this, exp.Literal)
    inner = tree.this if isinstance(tree, exp.Cast) else tree
    return isinstance(inner, exp.Literal) and not inner.is_string


# -- planning -----------------------------------------------------------------------------------------------------


def plan_windows(
    node: Node, predicate: Tree | None, names: Sequence[str | None], trees: Sequence[Tree]
) -> tuple[Node, list[Tree]]:
    """The rows of ``node`` that ``predicate`` keeps with the values of all window functions in ``trees``, and the trees
    over them. ``names``: what each tree is called as an output column; a window function that is one takes its name."""
    node, predicate, found = drawn(node, predicate, trees)
    while calls := _innermost(found):
        wanted = {tree: name for tree, name in zip(found, names, strict=True) if name is not None}
        node, known = _windows(node, predicate, calls, wanted)
        predicate = None
        found = [_replaced(tree, known) for tree in found]
    return node, found


def _innermost(trees: Sequence[Tree]) -> list[Tree]:
    """The window functions in these trees that hold no other, each once, in order."""
    found = (node for tree in trees for node in tree.walk(bfs=False) if shape_of(node) is not None)
    return list(dict.fromkeys(node for node in found if not any(has_window(each) for each in node.expressions)))


def _windows(
    node: Node, predicate: Tree | None, calls: Sequence[Tree], wanted: dict[Tree, str]
) -> tuple[Node, dict[Tree, str]]:
    columns: dict[Tree, str] = {column(name): name for name in node.columns}
    for operand in (each for tree in calls for each in tree.expressions):
        if operand not in columns:
            columns[operand] = unique(label(operand), [*columns.values(), *wanted.values()])
    node = linear(node, predicate, [(name, tree) for tree, name in columns.items()])
    known: dict[Tree, str] = {}
    together: dict[tuple[tuple[str, ...], tuple[Order, ...]], list[WindowCall]] = {}
    for tree in calls:
        shape = shape_of(tree)
        assert shape is not None
        operands = [columns[each] for each in tree.expressions]
        behind = shape.arguments + shape.partition
        reach = iter(operands[behind + len(shape.order) :])
        start, end = (None if each is None else Reach(next(reach), each) for each in shape.reach)
        order: dict[str, Order] = {}
        for name, (descending, nulls_first) in zip(operands[behind:], shape.order, strict=False):
            order.setdefault(name, Order(name, descending, nulls_first))
        taken = [*columns.values(), *known.values()]
        name = wanted.get(tree, "")
        if not name or name.lower() in {each.lower() for each in taken}:
            name = unique(name or shape.function, [*taken, *wanted.values()])
        known[tree] = name
        arguments = tuple(operands[: shape.arguments])
        call = WindowCall(name, shape.function, arguments, shape.number, shape.frame, shape.ignore_nulls, (start, end))
        partition = tuple(dict.fromkeys(operands[shape.arguments : behind]))
        together.setdefault((partition, tuple(order.values())), []).append(call)
    for (partition, ordered), found in together.items():
        node = Window(node, partition, ordered, tuple(found))
    return node, known


def _replaced(tree: Tree, known: dict[Tree, str]) -> Tree:
    return tree.transform(lambda node: column(known[node]) if shape_of(node) is not None and node in known else node)
