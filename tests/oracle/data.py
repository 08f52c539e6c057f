"""The tables of every generated flow, and the changes that are made to them.

Domains are small, so that groups meet, joins match and rows repeat; they hold what breaks systems like this one: NULL,
NaN, -0.0, infinities, empty strings, strings with a common prefix, nested values.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

UTC = datetime.UTC
NOON = datetime.datetime(2024, 2, 29, 12, 25, tzinfo=UTC)
"""When flows begin: among the moments that rows have."""
Row = tuple[Any, ...]

DOMAINS: dict[str, list[Any]] = {
    "bigint": [None, 0, 1, 2, 3, -1, 2**40],
    "int": [None, 0, 1, 2, 3, -5],
    "double": [None, 0.0, -0.0, math.nan, 1.5, -2.25, 0.1, 0.2, 1e10, math.inf, -math.inf],
    "float": [None, 0.0, -0.0, math.nan, 1.5, -2.25],
    "string": [None, "", "a", "b", "ab", "a common prefix 1", "a common prefix 2", "ünïcode", "zero\x00byte"],
    "decimal(12,2)": [None, Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"), Decimal("9999999999.99")],
    "decimal(30,4)": [None, Decimal("0.0000"), Decimal("12345678901234567890.1234"), Decimal("-0.0001")],
    "date": [None, datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)],
    "timestamp": [
        None,
        datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC),
        datetime.datetime(2024, 2, 29, 12, 34, tzinfo=UTC),
        datetime.datetime(2024, 2, 29, 12, 50, 59, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "boolean": [None, True, False],
    "struct<a:int,b:string>": [
        None,
        {"a": 1, "b": "x"},
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        {"a": 2, "b": "x"},
    ],
    "array<int>": [None, [], [1], [1, None], [1, 2], [2, 1]],
}
TABLES: dict[str, list[tuple[str, str]]] = {
    "orders": [
        ("id", "bigint"),
        ("user", "string"),
        ("amount", "double"),
        ("price", "decimal(12,2)"),
        ("units", "int"),
        ("paid", "boolean"),
        ("day", "date"),
        ("ts", "timestamp"),
        ("tags", "array<int>"),
        ("place", "struct<a:int,b:string>"),
    ],
    "users": [
        ("id", "int"),
        ("name", "string"),
        ("city", "string"),
        ("score", "double"),
        ("ratio", "float"),
        ("age", "bigint"),
        ("credit", "decimal(12,2)"),
        ("worth", "decimal(30,4)"),
        ("since", "date"),
        ("active", "boolean"),
    ],
}
SCHEMAS = {table: ", ".join(f"{name} {kind}" for name, kind in columns) for table, columns in TABLES.items()}


@dataclass(frozen=True)
class Change:
    """What happens to a table in an epoch. ``updated``: (a row that is there, what it becomes)."""

    inserted: list[Row]
    deleted: list[Row]
    updated: list[tuple[Row, Row]]


def change(random: Random, table: str, have: list[Row]) -> Change:
    """A change to ``table``, which holds ``have``: new rows, copies of rows that are there, deletions, updates."""
    kinds = [kind for _, kind in TABLES[table]]
    new = [tuple(random.choice(DOMAINS[kind]) for kind in kinds) for _ in range(random.randint(2, 9))]
    if random.random() < 0.5:
        new += random.sample(new, 1)
    touched = random.sample(have, min(len(have), random.randint(0, 7)))
    again, gone = touched[:1], touched[1:]
    updated = []
    for row in gone[:2]:
        place = random.randrange(len(kinds))
        updated.append((row, (*row[:place], random.choice(DOMAINS[kinds[place]]), *row[place + 1 :])))
    return Change(new + again, gone[2:], updated)
