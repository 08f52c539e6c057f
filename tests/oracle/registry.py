"""The constructs that the oracle runs: each with an example, what an epoch of it costs, and how to make queries of it.

An example is a view over the tables of `data`; it is run as it stands, and printed in docs/sql.md. ``make`` makes a
query whose input may be any other construct's query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .maker import Column, Maker, Query

CHANGE, GROUP, SIDE = "of the change", "of the group", "of a side"
Make = Callable[[Maker], Query]
Verbs = Callable[[Any, Any], Any]
"""The same calls on Holdfast's tables and on PySpark's DataFrames: the first input, and the table of users."""


@dataclass(frozen=True)
class Construct:
    """``example`` is SQL, or for DataFrame verbs the text that ``verbs`` runs; these give ``outputs``."""

    name: str
    family: str
    cost: str
    example: str
    make: Make | None = None
    verbs: Verbs | None = None
    outputs: tuple[Column, ...] = ()


CONSTRUCTS: list[Construct] = []


def construct(name: str, family: str, cost: str, example: str) -> Callable[[Make], Make]:
    """Register a function that makes queries of a construct."""

    def register(make: Make) -> Make:
        add(name, family, cost, example, make)
        return make

    return register


def add(name: str, family: str, cost: str, example: str, make: Make) -> None:
    CONSTRUCTS.append(Construct(name, family, cost, example, make))


def add_verb(name: str, cost: str, example: str, verbs: Verbs, outputs: tuple[Column, ...]) -> None:
    CONSTRUCTS.append(Construct(name, "DataFrame verbs", cost, example, verbs=verbs, outputs=outputs))
