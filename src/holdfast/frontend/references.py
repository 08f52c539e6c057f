"""Which views a view's SQL names, as far as its text says so: what must be planned before it, and what reads what."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp

from holdfast.errors import HoldfastError, ViewCycle
from holdfast.frontend.place import Text


def tables_named(name: str, sql: str) -> set[str]:
    """The tables that the SQL of view ``name`` reads, in small letters; none if it does not parse."""
    try:
        statement = Text(sql, f"view {name!r}", name).parse()
    except (HoldfastError, RecursionError):
        return set()
    shadowing = {each.alias.lower() for each in statement.find_all(exp.CTE)}
    found = set()
    for table in statement.find_all(exp.Table):
        called = table.name.lower()
        # Inside of a WITH query of its own name a table is the one outside.
        if not table.db and (called not in shadowing or _inside(table, called)):
            found.add(called)
    return found


def _inside(table: exp.Expression, name: str) -> bool:
    around = table.find_ancestor(exp.CTE)
    while around is not None:
        if around.alias.lower() == name:
            return True
        around = around.find_ancestor(exp.CTE)
    return False


def in_order(reads: Mapping[str, Collection[str]]) -> list[str]:
    """The views, each behind those that it reads and otherwise as they were declared. Raises `ViewCycle`."""
    called = {name.lower(): name for name in reads}
    ordered: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in ordered:
            return
        if name in path:
            raise _cycle((*path[path.index(name) :], name))
        for each in sorted(reads[name]):
            if each in called:
                visit(called[each], (*path, name))
        ordered[name] = None

    for name in reads:
        visit(name, ())
    return list(ordered)


def _cycle(path: tuple[str, ...]) -> ViewCycle:
    chain = " reads ".join(f"'{name}'" for name in path)
    what = "it reads itself" if len(path) == 2 else f"it would read itself: {chain}"
    return ViewCycle(
        f"view '{path[0]}': {what}; a view can read sources, and views that do not depend on it",
        view=path[0],
        cycle=list(path),
    )
