"""Names for output columns that the user did not name: as Spark names them, for what people write without a name."""

from __future__ import annotations

from sqlglot import exp

from holdfast.frontend.names import Scope, parts
from holdfast.plan.expression import Tree, bare, render


def output_name(written: Tree, resolved: Tree, scope: Scope) -> str:
    """The name of ``written`` as an output column: a column's declared name, ``sum(amount)``, ``(a + 1)``."""
    while isinstance(written, exp.Paren):
        written = written.this
    names = parts(written)
    if names is not None:
        if isinstance(resolved, exp.Column):
            for relation in scope.relations:
                for shown, inner in zip(relation.columns, relation.internal, strict=True):
                    if inner == resolved.name:
                        return shown
        return names[-1].name
    if isinstance(written, exp.Cast):
        return output_name(written.this, written.this, scope) if parts(written.this) else _text(written)
    if isinstance(written, exp.Dot) and isinstance(written.expression, exp.Identifier):
        return f"{_text(written.this)}.{written.expression.name}"
    return _text(written)


def _text(tree: Tree) -> str:
    root = exp.Tuple(expressions=[bare(tree.copy())])
    for node in list(root.walk(bfs=False)):
        match node:
            case exp.Column() if not isinstance(node.this, exp.Star):
                node.replace(exp.Var(this=node.name))
            case exp.Star():
                node.replace(exp.Literal.number(1))
            case exp.Literal() if node.is_string:
                node.replace(exp.Var(this=node.name))
    for binary in list(root.find_all(exp.Binary)):
        if not isinstance(binary, exp.Dot):
            binary.replace(exp.Anonymous(this="", expressions=[binary.copy()]))
    return render(root.expressions[0]).replace("`", "")
