"""What each variable of a program may point to: an analysis of programs, as SQL, kept up to date while one is edited.

This is Andersen's analysis for four kinds of statements. Two facts define each other: what a variable may point to, and
what the fields of an object may hold. So it is one loop with two variables, which Spark's own SQL cannot say.

    p = new C()      points_to(p, C)
    p = q            points_to(p, o) if points_to(q, o)
    p.f = q          holds(o, f, x) if points_to(p, o), points_to(q, x)
    p = q.f          points_to(p, x) if points_to(q, o), holds(o, f, x)
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import holdfast as hf

POINTS_TO = """
WITH RECURSIVE
points_to(var, obj) AS (
  SELECT var, obj FROM news
  UNION
  (SELECT m.var, p.obj FROM moves m JOIN points_to p ON p.var = m.source
   UNION ALL
   SELECT l.var, h.obj
   FROM loads l JOIN points_to p ON p.var = l.source JOIN holds h ON h.owner = p.obj AND h.field = l.field)
),
holds(owner, field, obj) AS (
  SELECT CAST(NULL AS STRING), CAST(NULL AS STRING), CAST(NULL AS STRING) WHERE false
  UNION
  SELECT p.obj, s.field, x.obj
  FROM stores s JOIN points_to p ON p.var = s.var JOIN points_to x ON x.var = s.source
)
SELECT var, obj FROM points_to
"""
PROGRAM = """
list = new List
node = new Node
list.head = node
item = new Item
node.value = item
cursor = list.head
found = cursor.value
"""
EDITS = [("+", "other = new Item2"), ("+", "node.value = other"), ("-", "cursor = list.head"), ("+", "cursor = node")]
Statement = tuple[str, tuple[str, ...]]


def parsed(line: str) -> Statement:
    """A statement as the relation that it belongs to, and its row."""
    left, right = (part.strip() for part in line.split("="))
    if right.startswith("new "):
        return "news", (left, right.removeprefix("new "))
    if "." in left:
        return "stores", (*left.split("."), right)
    if "." in right:
        return "loads", (left, *right.split("."))
    return "moves", (left, right)


def declare(flow: hf.Flow) -> dict[str, hf.Input]:
    """Declare the statements of a program, by kind, and what its variables may point to."""
    columns = {
        "news": "var string, obj string",
        "moves": "var string, source string",
        "stores": "var string, field string, source string",
        "loads": "var string, source string, field string",
    }
    inputs = {name: flow.input(name, schema=schema) for name, schema in columns.items()}
    flow.view("points_to", POINTS_TO)
    return inputs


def edit(inputs: dict[str, hf.Input], sign: str, line: str) -> None:
    """Add a statement to the program, or take one out."""
    kind, row = parsed(line)
    (inputs[kind].insert if sign == "+" else inputs[kind].delete)([row])


def expected(program: Iterable[Statement]) -> set[tuple[str, str]]:
    """The same as a plain fixpoint."""
    points: set[tuple[str, ...]] = set()
    holds: set[tuple[str, ...]] = set()
    program = list(program)
    while True:
        more: set[tuple[str, ...]] = set()
        fields: set[tuple[str, ...]] = set()
        for kind, row in program:
            if kind == "news":
                more.add(row)
            elif kind == "moves":
                more |= {(row[0], obj) for var, obj in points if var == row[1]}
            elif kind == "stores":
                owners = [obj for var, obj in points if var == row[0]]
                fields |= {(owner, row[1], obj) for owner in owners for var, obj in points if var == row[2]}
            else:
                owners = [obj for var, obj in points if var == row[1]]
                more |= {(row[0], obj) for owner, field, obj in holds if owner in owners and field == row[2]}
        if more <= points and fields <= holds:
            return {(var, obj) for var, obj in points}
        points |= more
        holds |= fields


def main(**options: Any) -> None:
    table = Table("edit", "found may be", "cursor may be", title="What a program's variables may point to")
    with tempfile.TemporaryDirectory() as root, hf.Flow("points-to", log=Path(root) / "log", **options) as flow:
        inputs = declare(flow)
        for line in PROGRAM.strip().splitlines():
            edit(inputs, "+", line)
        for sign, line in [("", "the program"), *EDITS]:
            if sign:
                edit(inputs, sign, line)
            flow.step()
            rows = [tuple(row) for row in flow.read("points_to").collect()]
            shown = [", ".join(sorted(obj for var, obj in rows if var == name)) for name in ("found", "cursor")]
            table.add_row(f"{sign} {line}".strip(), *shown)
    Console().print(table)


if __name__ == "__main__":
    main()
