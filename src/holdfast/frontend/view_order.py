"""The order in which views are planned: each after the views that it reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.errors import ViewCycle


def in_order(reads: Mapping[str, Collection[str]]) -> list[str]:
    """Return the views, each after the views that it reads, otherwise in the order of declaration. Raises
    `ViewCycle`."""
    ordered: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in ordered:
            return
        if name in path:
            raise in_a_cycle((*path[path.index(name) :], name))
        for each in sorted(reads[name]):
            if each in reads:
                visit(each, (*path, name))
        ordered[name] = None

    for name in reads:
        visit(name, ())
    return list(ordered)


def in_a_cycle(path: tuple[str, ...]) -> ViewCycle:
    """Return the error for views that read each other. ``path``: the views, with the first one again at the end."""
    chain = " reads ".join(f"'{name}'" for name in path)
    what = "it reads itself" if len(path) == 2 else f"it would read itself: {chain}"
    return ViewCycle(
        f"view '{path[0]}': {what}; a view can read sources, and views that do not depend on it",
        view=path[0],
        cycle=list(path),
    )
