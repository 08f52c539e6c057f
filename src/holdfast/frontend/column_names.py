"""Names for columns that the user did not name."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.plan.expression import Tree, readable


def unique(name: str, taken: Iterable[str]) -> str:
    """Return ``name``, or ``name`` with a number, so that it differs (ignoring case) from all names in ``taken``."""
    lower = {each.lower() for each in taken}
    result, number = name, 2
    while result.lower() in lower:
        result, number = f"{name}_{number}", number + 1
    return result


def label(tree: Tree) -> str:
    """A readable name for an expression: its text without backticks, cut to 60 characters."""
    text = readable(tree).replace("`", "")
    return text if len(text) <= 60 else text[:59] + "…"
