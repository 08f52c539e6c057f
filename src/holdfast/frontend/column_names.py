"""Names for columns that the user did not name."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.plan.expression import Tree, readable


def unique(name: str, taken: Iterable[str]) -> str:
    """``name``, or ``name`` with a number that makes it differ (ignoring case) from all that are taken."""
    lower = {each.lower() for each in taken}
    result, number = name, 2
    while result.lower() in lower:
        result, number = f"{name}_{number}", number + 1
    return result


def label(tree: Tree) -> str:
    """A readable name for an expression: its text, without backticks, cut to a bearable length."""
    text = readable(tree).replace("`", "")
    return text if len(text) <= 60 else text[:59] + "…"
