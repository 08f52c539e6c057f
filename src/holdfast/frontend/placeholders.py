"""Placeholders of nondeterministic calls, whose values are drawn for a row instead of computed from it.

While an expression is converted, such a call is a `Placeholder`: it holds the `Drawn` for which it stands, still
without a name. A placeholder is a value like any other tree: an alias that is used twice is drawn once. When a `Linear`
is built (`frontend.build_nodes`), its placeholders become columns of a `Draw` below it, so no placeholder ever reaches
an expression of the plan.

A call of a user's deterministic function is a placeholder too, for a column of an `Apply`: it holds the `Function`.

All calls of the clock are one placeholder. Each call of a random function or a user's function is a different one: its
salt is its number in the query. Random calls with equal seeds are the same one, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast.errors import Unsupported
from holdfast.operators.draw import Drawn
from holdfast.plan.expression import Tree
from holdfast.plan.nodes import Function


@dataclass(frozen=True)
class Placeholder(Tree):
    """Stands for a call of a nondeterministic function, or of a user's function."""

    draw: Drawn | Function
    arguments: tuple[Tree, ...] = ()
    place: tuple[int | str, ...] | None = field(default=None, compare=False)
    """The path of the call in Spark's plan, for errors."""

    @property
    def type(self) -> str:  # type: ignore[override]  # that of what is drawn
        return self.draw.type if isinstance(self.draw, Drawn) else self.draw.returns

    @property
    def label(self) -> str:
        if isinstance(self.draw, Function):
            return self.draw.name
        return "current_timestamp" if self.draw == CLOCK else self.draw.function.removeprefix("udf:")

    @property
    def parts(self) -> tuple[Tree, ...]:
        return self.arguments

    def over(self, parts: tuple[Tree, ...]) -> Tree:
        return replace(self, arguments=parts)


class Refusing(Protocol):
    """Refuses a construct, at the place of a placeholder."""

    def unsupported(self, construct: str, place: Placeholder | None, advice: str = "") -> Unsupported: ...


CLOCK = Drawn("", "clock", (), "timestamp")
"""The draw of all calls of the clock."""


def is_clock(tree: Tree) -> bool:
    return isinstance(tree, Placeholder) and tree.draw == CLOCK


def clock_in(tree: Tree) -> Placeholder | None:
    """Return the first call of the clock in an expression; None if there is none."""
    return next((each for each in tree.walk() if isinstance(each, Placeholder) and each.draw == CLOCK), None)


def is_timed(tree: Tree) -> bool:
    """Whether the tree depends on the clock."""
    return clock_in(tree) is not None


def has_placeholder(tree: Tree) -> bool:
    return any(isinstance(each, Placeholder) for each in tree.walk())


def innermost(trees: Sequence[Tree]) -> list[Placeholder]:
    """Return the placeholders in these trees that contain no other placeholder, each once, in order."""
    found = (each for tree in trees for each in tree.walk() if isinstance(each, Placeholder))
    return list(dict.fromkeys(each for each in found if not any(map(has_placeholder, each.arguments))))
