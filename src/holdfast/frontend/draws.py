"""Nondeterministic calls: what is drawn for a row instead of computed from it.

While an expression is resolved, such a call becomes a *wish*: a call that carries the `Drawn` it stands for, still
without a name, in its argument ``draw``. A wish is a value like any other tree: it can be copied (an alias that is used
twice is drawn once), moved and compared. When a `Linear` is built (`frontend.build`), its wishes become columns of a
`Draw` below it; so no wish ever reaches an expression of the plan.

A call of a user's deterministic function is a wish too, for a column of an `Apply`: its ``draw`` is the `Function`.

All calls of the clock are one wish. Each call of a random function or a user's function is one of its own: its salt is
its number in the query. Those with equal seeds are one again, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sqlglot import exp

from holdfast.errors import SqlError, Unsupported
from holdfast.frontend import functions
from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree, render
from holdfast.plan.nodes import Drawn, Function


class Refusing(Protocol):
    """Refuses a construct, at the place of a tree."""

    def unsupported(self, construct: str, place: Tree | None, advice: str = "") -> Unsupported: ...


CLOCK = Drawn("", "clock", (), "timestamp")
"""What all calls of the clock wish for."""

# What each call of the clock makes of the instant. Days and local times are those of Spark's session.
_TIMES: dict[str, Callable[[Tree], Tree]] = {
    "current_timestamp": lambda now: now,
    "now": lambda now: now,
    "current_date": lambda now: exp.Cast(this=now, to=exp.DataType.build("date", dialect="spark")),
    "curdate": lambda now: exp.Cast(this=now, to=exp.DataType.build("date", dialect="spark")),
    "localtimestamp": lambda now: exp.Cast(this=now, to=exp.DataType.build("timestamp_ntz", dialect="spark")),
    "unix_timestamp": lambda now: exp.Anonymous(this="unix_timestamp", expressions=[now]),
}
_RANDOM = {"rand": "rand", "random": "rand", "randn": "randn", "uuid": "uuid"}


def is_drawn(name: str, arguments: int) -> bool:
    """Is the Spark function ``name`` (lower case), called with so many arguments, one whose values are drawn?"""
    return name in functions.DRAWN and arguments < functions.DETERMINISTIC_FROM.get(name, arguments + 1)


def wish(name: str, arguments: Sequence[Tree], text: Text, place: Tree) -> Tree:
    """The tree of a call that `is_drawn`, or of a user's function. ``place`` is where it stands, for errors."""
    if isinstance(outside := text.functions.get(name), Function):
        return exp.Anonymous(this=outside.name, expressions=list(arguments), draw=outside).update_positions(place)
    if outside is not None:
        drawn = Drawn("", f"udf:{outside.name}", (), outside.returns, text.next_draw(), outside)
        return _wish(outside.name, drawn, arguments, place)
    if name in _TIMES:
        if arguments:
            raise text.error(SqlError, f"{name} takes no arguments, found {len(arguments)}", place)
        return _TIMES[name](_wish("current_timestamp", CLOCK, (), place))
    function = _RANDOM[name]
    salt = f"seed {_seed(name, arguments, text, place)}" if arguments else text.next_draw()
    kind = "string" if function == "uuid" else "double"
    return _wish(name, Drawn("", function, (), kind, salt), (), place)


def _wish(name: str, drawn: Drawn, arguments: Sequence[Tree], place: Tree) -> Tree:
    return exp.Anonymous(this=name, expressions=list(arguments), draw=drawn).update_positions(place)


def _seed(name: str, arguments: Sequence[Tree], text: Text, place: Tree) -> str:
    seed = arguments[0]
    bare = seed.this if isinstance(seed, exp.Neg) else seed
    bare = bare.this if isinstance(bare, exp.Cast) else bare
    if len(arguments) != 1:
        raise text.error(SqlError, f"{name} takes a seed at most, found {len(arguments)} arguments", place)
    if not isinstance(bare, (exp.Literal, exp.Null)):
        raise text.unsupported(f"{name} with a seed that is not a number", place, "write the number")
    return render(seed)


def wished(tree: Tree) -> Drawn | Function | None:
    """What the call draws, or the function that it calls, if this node is a wish."""
    found = tree.args.get("draw") if isinstance(tree, exp.Anonymous) else None
    return found if isinstance(found, (Drawn, Function)) else None


def has_wish(tree: Tree) -> bool:
    return any(wished(node) is not None for node in tree.walk())


def innermost(trees: Sequence[Tree]) -> list[Tree]:
    """The wishes in these trees that hold no other wish, each once, in order."""
    found = (node for tree in trees for node in tree.walk(bfs=False) if wished(node) is not None)
    return list(dict.fromkeys(node for node in found if not any(has_wish(each) for each in node.expressions)))


def is_clock(tree: Tree) -> bool:
    """Does this tree draw nothing but the clock?"""
    return all(wished(node) in (None, CLOCK) for node in tree.walk())


def check_timeless(tree: Tree, clause: str, text: Refusing) -> None:
    """Refuse the clock where a view would have to change without any change of its inputs."""
    for node in tree.walk():
        if wished(node) == CLOCK:
            raise _untimely(node, clause, text)


def _untimely(node: Tree, clause: str, text: Refusing) -> Unsupported:
    if clause == "GROUP BY":
        advice = "name it in a subquery, where it is the time at which each row came, and group by that name"
    else:
        advice = "filter by it in WHERE, in a subquery"
    return text.unsupported(f"the current time in {clause}", node, advice)
