"""Reachability and connected components of a graph that changes.

Both are recursive views. An edge that is inserted or deleted costs what it changes, also where deleting it unravels a
cycle: a node is only kept while something outside of the cycle still leads to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import holdfast as hf

REACHED = """
WITH RECURSIVE reached(node) AS (
  SELECT node FROM starts
  UNION
  SELECT e.b FROM reached r JOIN edges e ON e.a = r.node
) SELECT node FROM reached
"""
COMPONENTS = """
WITH RECURSIVE labels(node, label) AS (
  SELECT DISTINCT a, a FROM both
  UNION
  SELECT e.b, min(l.label) FROM labels l JOIN both e ON e.a = l.node GROUP BY e.b
) SELECT node, min(label) AS component FROM labels GROUP BY node
"""
FIRST = [("ada", "bob"), ("bob", "cyd"), ("cyd", "bob"), ("dan", "eve"), ("eve", "fay"), ("fay", "dan")]
CHANGES: list[tuple[str, list[tuple[str, str]], list[tuple[str, str]]]] = [
    ("ada, bob, cyd; dan, eve, fay", FIRST, []),
    ("cyd meets dan", [("cyd", "dan")], []),
    ("ada forgets bob: a cycle is cut off", [], [("ada", "bob")]),
    ("ada meets eve", [("ada", "eve")], []),
]


def run(flow: hf.Flow) -> Iterator[tuple[str, list[str], dict[str, list[str]]]]:
    """After each change: what it was, who can be reached from ada, and the components."""
    edges = flow.input("edges", schema="a string, b string")
    starts = flow.input("starts", schema="node string")
    flow.view("both", "SELECT a, b FROM edges UNION ALL SELECT b, a FROM edges")
    flow.view("reached", REACHED)
    flow.view("components", COMPONENTS)
    starts.insert([("ada",)])
    for what, come, gone in CHANGES:
        edges.insert(come)
        edges.delete(gone)
        flow.step()
        components: dict[str, list[str]] = {}
        for row in sorted(flow.read("components").collect()):
            components.setdefault(row.component, []).append(row.node)
        yield what, sorted(row.node for row in flow.read("reached").collect()), components


def main(**options: Any) -> None:
    table = Table("change", "reached from ada", "components", title="A graph that changes")
    with tempfile.TemporaryDirectory() as root, hf.Flow("graph", log=Path(root) / "log", **options) as flow:
        for what, reached, components in run(flow):
            table.add_row(what, ", ".join(reached), " | ".join(", ".join(each) for each in components.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
