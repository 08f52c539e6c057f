"""Nondeterministic calls: what is drawn for a row instead of computed from it.

While an expression is converted, such a call is a `Placeholder`: it holds the `Drawn` that it stands for, still without
a name. A wish is a value like any other tree: an alias that is used twice is drawn once. When a `Linear` is built
(`frontend.build_nodes`), its wishes become columns of a `Draw` below it; so no wish ever reaches an expression of the
plan.

A call of a user's deterministic function is a wish too, for a column of an `Apply`: it holds the `Function`.

All calls of the clock are one wish. Each call of a random function or a user's function is one of its own: its salt is
its number in the query. Those with equal seeds are one again, as in Spark.
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
    """A call of what is drawn, or of a user's function."""

    draw: Drawn | Function
    arguments: tuple[Tree, ...] = ()
    place: tuple[int | str, ...] | None = field(default=None, compare=False)
    """Where it stands in Spark's plan, for errors."""

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
    """Refuses a construct, at the place of a wish."""

    def unsupported(self, construct: str, place: Placeholder | None, advice: str = "") -> Unsupported: ...


CLOCK = Drawn("", "clock", (), "timestamp")
"""What all calls of the clock wish for."""


def is_clock(tree: Tree) -> bool:
    return isinstance(tree, Placeholder) and tree.draw == CLOCK


def clock_in(tree: Tree) -> Placeholder | None:
    """The first call of the clock in an expression."""
    return next((each for each in tree.walk() if isinstance(each, Placeholder) and each.draw == CLOCK), None)


def is_timed(tree: Tree) -> bool:
    """Does it depend on the clock?"""
    return clock_in(tree) is not None


def has_placeholder(tree: Tree) -> bool:
    return any(isinstance(each, Placeholder) for each in tree.walk())


def innermost(trees: Sequence[Tree]) -> list[Placeholder]:
    """The wishes in these trees that hold no other wish, each once, in order."""
    found = (each for tree in trees for each in tree.walk() if isinstance(each, Placeholder))
    return list(dict.fromkeys(each for each in found if not any(map(has_placeholder, each.arguments))))
