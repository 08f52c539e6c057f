"""LATERAL VIEW and JOIN LATERAL: relations that a generator makes of the rows before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.chain import Chain
from holdfast.frontend.generators import Generator, generated, is_generator, read_generator
from holdfast.frontend.joins import How, as_one
from holdfast.frontend.labels import unique
from holdfast.frontend.names import Relation, Scope
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import resolve
from holdfast.plan.expression import Tree, conjuncts
from holdfast.plan.nodes import Node

_CLAUSES = frozenset(
    [
        "JOIN",
        ",",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "MINUS",
        "LATERAL",
        "WINDOW",
    ]
)


class LateralViews:
    """The LATERAL VIEWs of a SELECT, over the scope of its FROM."""

    def __init__(self, select: exp.Select, scope: Scope, text: Text) -> None:
        self.scope = scope
        self._generators: list[Generator] = []
        laterals: list[exp.Lateral] = select.args.get("laterals") or []
        for lateral in laterals:
            generator, relation = read_lateral(lateral, self.scope, text, "LATERAL VIEW")
            self._generators.append(generator)
            self.scope = replace(self.scope, relations=(*self.scope.relations, relation))

    def over(self, node: Node) -> Node:
        """``node`` with the columns of all of them."""
        for generator in self._generators:
            node, names = generated(node, None, generator)
            assert names == generator.names  # `read_lateral` chose names that are free
        return node


def check_order(select: exp.Select, text: Text) -> None:
    """Refuse a join behind LATERAL VIEW, which Spark does not read and sqlglot would put before it."""
    laterals = select.args.get("laterals") or ()
    place = text.offset(laterals[0]) if laterals else None
    for join in select.args.get("joins") or ():
        behind = text.offset(join.this)
        if place is not None and behind is not None and behind > place:
            advice = "write the join before it, or use JOIN LATERAL"
            raise text.unsupported("a join behind LATERAL VIEW", join.this, advice)


def read_lateral(lateral: exp.Lateral, scope: Scope, text: Text, clause: str) -> tuple[Generator, Relation]:
    """The generator with names that are free in the plan, and the relation that its columns are."""
    call = lateral.this
    if not (isinstance(call, exp.Anonymous) and is_generator(call)):
        if isinstance(call, (exp.Subquery, exp.Query)):
            raise text.unsupported("a LATERAL subquery", lateral, "write it as a join", "LATERAL")
        raise text.unsupported(f"{clause} of something that is no generator", lateral, keyword="LATERAL")
    alias = lateral.args.get("alias")
    table = alias.name if isinstance(alias, exp.TableAlias) and alias.this is not None else ""
    given = [each.name for each in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if table and scope.called(table):
        message = f"table {table!r} appears twice in FROM; give each its own alias"
        raise text.error(SqlError, message, lateral, name=table)
    generator = read_generator(call, given, scope, text, clause=clause)
    outer = generator.outer or bool(lateral.args.get("outer"))
    taken = [name for each in scope.relations for name in (*each.internal, *each.node.columns)]
    inner: list[str] = []
    for name in generator.names:
        inner.append(unique(f"{table}.{name}" if table else name, [*taken, *inner]))
    relation = Relation(table, scope.relations[0].node, generator.names, tuple(inner))
    return Generator(generator.call, tuple(inner), outer), relation


def join_lateral(
    chains: list[Chain], join: exp.Join, how: How, outer: Scope | None, comma: bool, text: Text
) -> list[Chain]:
    """The chains with ``join``, a JOIN LATERAL of a generator, in them.

    The generator goes over the one unit that it reads, so that what it makes can be a key of further joins.
    """
    lateral = join.this
    if how not in ("inner", "left"):
        raise text.unsupported(f"{how.upper()} JOIN LATERAL", lateral, keyword="LATERAL")
    chain = Chain([each for one in chains for each in one.relations])
    chain.units = [unit for one in chains for unit in one.units]
    chain.conditions = [each for one in chains for each in one.conditions]
    chain.merged = {hidden: shown for one in chains for hidden, shown in one.merged.items()}
    chain.after_comma = comma or any(one.after_comma for one in chains)
    generator, relation = read_lateral(lateral, replace(chain.scope, outer=outer), text, "LATERAL")
    on = join.args.get("on")
    if how == "left" and not _has_on(lateral, text):
        # Spark drops the rows without elements then, which nobody means.
        raise text.unsupported("LEFT JOIN LATERAL without ON", lateral, "write ON true", "LATERAL")
    conditions: list[Tree] = []
    if on is not None and not (isinstance(on, exp.Boolean) and on.this):
        if how == "left":
            raise text.unsupported("a condition on LEFT JOIN LATERAL", lateral, "filter in a subquery", "LATERAL")
        scope = replace(chain.scope, relations=(*chain.relations, relation))
        conditions = conjuncts(resolve(on, scope, text, aggregates="ON", windows="ON"))
    if join.args.get("using"):
        raise text.unsupported("USING with LATERAL", lateral, keyword="LATERAL")
    generator = Generator(generator.call, generator.names, generator.outer or how == "left")
    chain.units = _over_one(chain, generator)
    chain.relations = [*chain.relations, relation]
    chain.conditions += conditions
    return [chain]


def _has_on(lateral: exp.Lateral, text: Text) -> bool:
    """Does ON follow? sqlglot reads a JOIN without ON as one ON TRUE."""
    start, depth = text.offset(lateral) or 0, 0
    for token in text.tokens:
        if token.start <= start:
            continue
        word = token.text.upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth < 0 or (depth == 0 and word in _CLAUSES):
            return False
        if depth == 0 and word == "ON":
            return True
    return False


def _over_one(chain: Chain, generator: Generator) -> list[Relation]:
    used = {node.name for node in generator.call.find_all(exp.Column)}
    place = next((place for place, unit in enumerate(chain.units) if used <= set(unit.internal)), None)
    units: Sequence[Relation] = chain.units
    if place is None:
        units, place = [as_one(chain.settled())], 0
    node, names = generated(units[place].node, None, generator)
    assert names == generator.names  # `read_lateral` chose names that are free
    return [*units[:place], as_one(node), *units[place + 1 :]]
