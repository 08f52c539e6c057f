"""A source whose rows expire: the collection without the rows whose time is over.

``expires="ts + INTERVAL 1 DAY"`` says of each row when it goes; NULL is never. Whatever reads the source reads what is
left, and sees a row that goes as one that is deleted; a row that comes too late is not seen at all.
"""

from __future__ import annotations

from sqlglot import exp

from holdfast.errors import DeclarationError
from holdfast.frontend.build import linear
from holdfast.frontend.draws import has_wish
from holdfast.frontend.labels import unique
from holdfast.frontend.names import Relation, Scope
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import resolve
from holdfast.plan.expression import column
from holdfast.plan.nodes import Node, Source, Temporal


def expiring(source: Source, expires: str) -> Node:
    """The rows of ``source`` until the moment that the SQL expression ``expires`` gives for each."""
    subject = f"source '{source.name}', expires"
    if not isinstance(expires, str) or not expires.strip():
        raise DeclarationError(f"{subject}: expected a SQL expression such as 'ts + INTERVAL 1 DAY', found {expires!r}")
    text = Text(f"SELECT {expires}", subject, placed=False)
    select = text.parse()
    only = isinstance(select, exp.Select) and not any(
        select.args.get(key) for key in select.args if key != "expressions"
    )
    if not only or len(select.expressions) != 1:
        raise DeclarationError(f"{subject}: expected one SQL expression, found {expires!r}", source=source.name)
    scope = Scope((Relation(source.name, source, source.columns, source.columns),), {})
    tree = resolve(select.expressions[0], scope, text, aggregates="expires", windows="expires")
    if has_wish(tree):
        raise text.unsupported("a nondeterministic function here", None, "a row must say by itself when it goes")
    until = unique("expires", source.columns)
    kept = [(name, column(name)) for name in source.columns]
    return linear(Temporal(linear(source, None, [*kept, (until, tree)]), None, until), None, kept)
