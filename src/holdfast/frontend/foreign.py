"""What sqlglot reads and Spark does not: words of other dialects, which would be dropped in silence if nobody looked.

For each node that a query is planned from, the parts that are planned are listed. Whatever else a text has in such a
place is refused by its name.
"""

from __future__ import annotations

from sqlglot import exp

from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree

_PARTS: dict[type[exp.Expr], set[str]] = {
    exp.Limit: {"this", "expression"},
    exp.Ordered: {"this", "desc", "nulls_first"},
    exp.Group: {"expressions", "grouping_sets", "cube", "rollup", "all"},
    exp.CTE: {"this", "alias"},
    exp.With: {"expressions", "recursive"},
}
_NAMES = {
    "limit_options": "LIMIT … PERCENT",
    "with_fill": "WITH FILL",
    "totals": "WITH TOTALS",
    "materialized": "MATERIALIZED",
}


def check_foreign(statement: Tree, text: Text) -> None:
    """Refuse the parts of a query that are not Spark's."""
    for node in statement.walk():
        match node:
            case exp.Fetch():
                raise text.unsupported("FETCH", node, "write LIMIT", "FETCH")
            case exp.WindowSpec() if str(node.args.get("kind") or "ROWS").upper() not in ("ROWS", "RANGE"):
                raise text.unsupported(
                    f"a frame by {node.args['kind']}", node, "write ROWS or RANGE", node.args["kind"]
                )
            case exp.Order() if isinstance(node.this, exp.Expr):
                raise text.unsupported("ORDER BY inside a call", node.this, keyword="ORDER", after=True)
        for key in node.args.keys() - _PARTS.get(type(node), node.args.keys()):
            if node.args[key]:
                construct = "LIMIT … BY" if isinstance(node, exp.Limit) and key == "expressions" else None
                name = construct or _NAMES.get(key, key.strip("_").upper().replace("_", " "))
                raise text.unsupported(name, node)
