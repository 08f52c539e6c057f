"""``*``, ``t.*`` and ``* EXCEPT (a, b)`` to the columns they stand for."""

from __future__ import annotations

from sqlglot import exp

from holdfast.errors import UnknownName
from holdfast.frontend.build import Item
from holdfast.frontend.names import Scope
from holdfast.frontend.nearest import did_you_mean
from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree, column


def expand(expression: Tree, scope: Scope, text: Text) -> list[Item] | None:
    """The columns of a starred select item; None if it is not one."""
    star = expression.this if isinstance(expression, exp.Column) else expression
    if not isinstance(star, exp.Star):
        return None
    for key in ("replace", "rename", "ilike"):
        if star.args.get(key):
            raise text.unsupported(f"* {key.upper()}", expression)
    pairs = scope.visible()
    if isinstance(expression, exp.Column):
        names = [part.name for part in expression.parts[:-1]]
        called = scope.called(names[0]) if len(names) == 1 else []
        if not called:
            if scope.candidates(names[0]):
                raise text.unsupported("expanding a struct with *", expression, "name its fields")
            aliases = [each.alias for each in scope.relations if each.alias]
            hint = did_you_mean(names[0], aliases)
            message = f"table {'.'.join(names)!r} of {'.'.join(names)}.* not found in FROM{hint}"
            raise text.error(UnknownName, message, expression, name=names[0], candidates=aliases)
        pairs = [pair for each in called for pair in scope.visible(each)]
    left_out = {each.name.lower(): each for each in star.args.get("except_") or ()}
    for name, tree in left_out.items():
        if all(shown.lower() != name for shown, _ in pairs):
            hint = did_you_mean(name, [shown for shown, _ in pairs])
            raise text.error(UnknownName, f"column {tree.name!r} of EXCEPT not found{hint}", tree, name=tree.name)
    return [(shown, column(inner)) for shown, inner in pairs if shown.lower() not in left_out]
