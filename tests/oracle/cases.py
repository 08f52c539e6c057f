"""The cases of the oracle, by number: each construct alone, then one over another, pair by pair.

A number says everything: case 1234 is the same views over the same changes in every run. With N constructs the first N
cases are the examples of the registry, as they are printed in docs/sql.md. The next N·N are all pairs, in rounds: in a
round each construct is once the outer and once the inner one, so that any prefix is spread evenly. After them come the
constructs alone and the pairs again, with other choices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd
from random import Random
from typing import Any

from ..amounts import times
from . import aggregating, generating, joining, relational, timing, verbs, windowing
from .maker import Maker, Query
from .registry import CONSTRUCTS, Construct

FAMILIES = (relational, joining, aggregating, windowing, timing, generating, verbs)
"""The modules that fill the registry."""

CASES, MANY = 380, times(1_000)
"""How many are run (each construct alone, once over another and once under another), and how many in the long run."""

View = str | Callable[[Callable[[str], Any]], Any]
"""SQL, or verbs on the tables that a function gives by name."""


@dataclass
class Case:
    """One or two views, the last of which is what is meant."""

    number: int
    constructs: tuple[Construct, ...]
    views: dict[str, View] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{view} = {_shown(query)}" for view, query in self.views.items()]
        return "\n  ".join([f"case {self.number}: {' over '.join(each.name for each in self.constructs)}", *lines])


def chosen(number: int) -> tuple[Construct, ...]:
    """The constructs of a case, the outer one first."""
    count = len(CONSTRUCTS)
    turn, place = divmod(number, count)
    turn %= count + 1
    if turn == 0:
        return (CONSTRUCTS[place],)
    step = next(each for each in range(count * 5 // 8, 2 * count) if gcd(each, count) == 1)
    inner = Random("inner").sample(CONSTRUCTS, count)  # so that a round mixes the families
    return CONSTRUCTS[place], inner[(place + turn * step) % count]


def make(number: int) -> Case:
    """The views of a case."""
    random = Random(f"case {number}")
    case = Case(number, chosen(number))
    outer, *below = case.constructs
    inner = _inner(case, random, below[0]) if below else None
    name = f"c{number}"
    if outer.verbs is not None:
        orders = "orders"
        if inner is not None:
            orders = f"{name}_orders"
            case.views[orders] = verbs.adapted(Maker(random, inner)).sql
        case.views[name] = _verbs(outer, orders)
    elif number < len(CONSTRUCTS):
        case.views[name] = outer.example
    else:
        assert outer.make is not None
        case.views[name] = outer.make(Maker(random, inner)).sql
    return case


def _inner(case: Case, random: Random, construct: Construct) -> Query:
    """The inner query: in parentheses, or as a view of its own."""
    name = f"c{case.number}_in"
    if construct.verbs is not None:
        case.views[name] = _verbs(construct, "orders")
        return Query("", construct.outputs, name)
    assert construct.make is not None
    query = construct.make(Maker(random))
    if random.random() < 0.6:
        return query
    case.views[name] = query.sql
    return Query(query.sql, query.columns, name)


class _Verbs:
    """Verbs, to be run on a flow's tables or on Spark's."""

    def __init__(self, construct: Construct, orders: str) -> None:
        self.construct, self.orders = construct, orders

    def __call__(self, table: Callable[[str], Any]) -> Any:
        assert self.construct.verbs is not None
        return self.construct.verbs(table(self.orders), table("users"))

    def __str__(self) -> str:
        return f"{self.construct.example}, orders being {self.orders}"


def _verbs(construct: Construct, orders: str) -> _Verbs:
    return _Verbs(construct, orders)


def _shown(query: View) -> str:
    return str(query)
