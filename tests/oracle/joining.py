"""Joins and subqueries."""

from __future__ import annotations

from .maker import DOMAINS, EXACT, ORDERED, Column, Maker, Query, Relation
from .registry import CHANGE, GROUP, SIDE, add, construct

JOINS, SUBQUERIES = "Joins", "Subqueries"
_ONE_SIDED = ("LEFT SEMI", "LEFT ANTI")


def _equality(g: Maker, left: Relation, right: Relation, sign: str = "=") -> str:
    a, b = g.shared(left, right)
    return f"{a.text} {sign} {b.text}"


def _joined(g: Maker, kind: str, left: Relation, right: Relation, on: str) -> Query:
    shown = g.some(left) + ([] if kind in _ONE_SIDED else g.some(right))
    return g.query(shown, f"{left.text} {kind} JOIN {right.text}{on}", g.where(left, 0.15))


def _join(kind: str) -> None:
    columns = "o.id, o.user" if kind in _ONE_SIDED else "o.id, o.user, u.city"

    def plain(g: Maker) -> Query:
        left, right = g.pair()
        return _joined(g, kind, left, right, f" ON {_equality(g, left, right)}")

    def several(g: Maker) -> Query:
        left, right = g.pair()
        on = f" ON {_equality(g, left, right)} AND {_equality(g, left, right)}"
        return _joined(g, kind, left, right, on)

    def safe(g: Maker) -> Query:
        left, right = g.pair()
        return _joined(g, kind, left, right, f" ON {_equality(g, left, right, '<=>')}")

    def residual(g: Maker) -> Query:
        left, right = g.pair()
        side = g.random.choice([left, right])
        rest = g.random.choice([g.unequal(left, right), g.unequal(left, right), g.predicate(side)])
        return _joined(g, kind, left, right, f" ON {_equality(g, left, right)} AND {rest}")

    def unequal(g: Maker) -> Query:
        left, right = g.pair()
        return _joined(g, kind, left, right, f" ON {g.unequal(left, right)}")

    start = f"SELECT {columns} FROM orders o {kind} JOIN users u ON"
    add(f"{kind} JOIN", JOINS, CHANGE, f"{start} o.user = u.name", plain)
    add(f"{kind} JOIN by several columns", JOINS, CHANGE, f"{start} o.user = u.name AND o.id = u.id", several)
    add(f"{kind} JOIN by <=>", JOINS, CHANGE, f"{start} o.user <=> u.name", safe)
    add(
        f"{kind} JOIN with a further condition",
        JOINS,
        GROUP,
        f"{start} o.user = u.name AND o.amount > u.score",
        residual,
    )
    add(f"{kind} JOIN without an equality", JOINS, SIDE, f"{start} o.units < u.id", unequal)


for each in ("INNER", "LEFT", "RIGHT", "FULL", *_ONE_SIDED):
    _join(each)


@construct("CROSS JOIN", JOINS, SIDE, "SELECT o.id, u.name FROM orders o CROSS JOIN users u")
def cross(g: Maker) -> Query:
    left, right = g.pair()
    return _joined(g, "CROSS", left, right, "")


@construct("FROM a, b", JOINS, CHANGE, "SELECT o.id, u.city FROM orders o, users u WHERE o.user = u.name AND o.paid")
def comma(g: Maker) -> Query:
    left, right = g.pair()
    tail = f" WHERE {_equality(g, left, right)} AND {g.predicate(right)}"
    return g.query(g.some(left) + g.some(right), f"{left.text}, {right.text}", tail)


@construct("JOIN … USING", JOINS, CHANGE, "SELECT id, user, name FROM orders FULL JOIN users USING (id)")
def using(g: Maker) -> Query:
    left, right = g.pair()
    a, b = g.shared(left, right)
    first = g.query([a, *g.some(left, 2)], left.text)
    second = g.query([b, *g.some(right, 2)], right.text)
    kind = g.random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    text = f"({first.sql}) a {kind} ({second.sql}) b USING (x0)"
    items = [Column("x0", a.kind if a.kind == b.kind else "bigint")]
    items += [Column("a.x1", first.columns[1].kind), Column("b.x1", second.columns[1].kind)]
    return g.query(items, text)


@construct(
    "joins of several tables", JOINS, CHANGE,
    "SELECT o.id, u.city, v.name FROM orders o LEFT JOIN users u ON o.user = u.name JOIN users v ON v.id = o.id",
)  # fmt: skip
def several_tables(g: Maker) -> Query:
    (left, right), third = g.pair(), g.relation()
    kinds = [g.random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]) for _ in range(2)]
    text = f"{left.text} {kinds[0]} {right.text} ON {_equality(g, left, right)}"
    text += f" {kinds[1]} {third.text} ON {_equality(g, g.random.choice([left, right]), third)}"
    return g.query(g.some(left, 2) + g.some(right, 2) + g.some(third, 2), text)


@construct(
    "a table joined with itself", JOINS, CHANGE,
    "SELECT a.id, b.amount FROM orders a JOIN orders b ON a.user = b.user AND a.units < b.units",
)  # fmt: skip
def itself(g: Maker) -> Query:
    relation = g.relation()
    inner = g.query(g.some(relation, 4), relation.text)
    left = Relation("w a", [Column(f"a.{each.text}", each.kind) for each in inner.columns])
    right = Relation("w b", [Column(f"b.{each.text}", each.kind) for each in inner.columns])
    both = g.query(g.some(left) + g.some(right), f"w a JOIN w b ON {_equality(g, left, right)}")
    return Query(f"WITH w AS ({inner.sql}) {both.sql}", both.columns)


# -- subqueries --------------------------------------------------------------------------------------------------------


def _filtered(g: Maker, relation: Relation, condition: str) -> Query:
    return g.query(g.some(relation, 4), relation.text, f" WHERE {condition}")


def _in(word: str, cost: str, kinds: tuple[str, ...]) -> None:
    start = f"SELECT id, user FROM orders WHERE user {word} (SELECT name FROM users"

    def plain(g: Maker) -> Query:
        outer, inner = g.pair()
        a, b = g.shared(outer, inner, kinds)
        return _filtered(g, outer, f"{a.text} {word} (SELECT {b.text} FROM {inner.text}{g.where(inner, 0.6)})")

    def linked(g: Maker) -> Query:
        outer, inner = g.pair()
        (a, b), (c, d) = g.shared(outer, inner, kinds), g.shared(outer, inner)
        where = f" WHERE {d.text} = {c.text} AND {g.predicate(inner)}"
        return _filtered(g, outer, f"{a.text} {word} (SELECT {b.text} FROM {inner.text}{where})")

    def either(g: Maker) -> Query:
        outer, inner = g.pair()
        a, b = g.shared(outer, inner, kinds)
        condition = f"({a.text} {word} (SELECT {b.text} FROM {inner.text}{g.where(inner)}) OR {g.predicate(outer)})"
        return _filtered(g, outer, condition)

    add(f"{word} (SELECT …)", SUBQUERIES, cost, f"{start} WHERE active)", plain)
    add(f"{word} (SELECT …), correlated", SUBQUERIES, CHANGE, f"{start} WHERE users.id = orders.id)", linked)
    add(f"{word} (SELECT …) under OR", SUBQUERIES, cost, f"{start}) OR units > 1", either)


_in("IN", CHANGE, tuple(DOMAINS))
_in("NOT IN", SIDE, EXACT)  # Spark's NOT IN does not take -0.0 for 0.0, as its joins do


def _exists(word: str) -> None:
    start = f"SELECT id, user FROM orders o WHERE {word} (SELECT 1 FROM users u WHERE"

    def linked(g: Maker) -> Query:
        outer, inner = g.pair()
        rest = f" AND {g.predicate(inner)}" if g.random.random() < 0.5 else ""
        where = f"{_equality(g, inner, outer)}{rest}"
        return _filtered(g, outer, f"{word} (SELECT 1 FROM {inner.text} WHERE {where})")

    def compared(g: Maker) -> Query:
        outer, inner = g.pair()
        where = f"{_equality(g, inner, outer)} AND {g.unequal(inner, outer)}"
        return _filtered(g, outer, f"{word} (SELECT * FROM {inner.text} WHERE {where})")

    def alone(g: Maker) -> Query:
        outer, inner = g.pair()
        return _filtered(g, outer, f"{word} (SELECT 1 FROM {inner.text} WHERE {g.predicate(inner)})")

    def either(g: Maker) -> Query:
        outer, inner = g.pair()
        where = _equality(g, inner, outer)
        condition = f"({word} (SELECT 1 FROM {inner.text} WHERE {where}) OR {g.predicate(outer)})"
        return _filtered(g, outer, condition)

    add(f"{word}, correlated", SUBQUERIES, CHANGE, f"{start} u.name = o.user)", linked)
    add(f"{word} with a comparison", SUBQUERIES, GROUP, f"{start} u.name = o.user AND u.score > o.amount)", compared)
    add(f"{word}, not correlated", SUBQUERIES, SIDE, f"{start} u.age > 2)", alone)
    add(f"{word} under OR", SUBQUERIES, CHANGE, f"{start} u.name = o.user) OR units > 1", either)


_exists("EXISTS")
_exists("NOT EXISTS")


@construct(
    "a scalar subquery in WHERE",
    SUBQUERIES,
    CHANGE,
    "SELECT id, units FROM orders WHERE units >= (SELECT min(id) FROM users)",
)
def scalar_where(g: Maker) -> Query:
    outer, inner = g.pair()
    a, b = g.shared(outer, inner, sorted(ORDERED))
    value = f"(SELECT {g.random.choice(['min', 'max'])}({b.text}) FROM {inner.text}{g.where(inner)})"
    return _filtered(g, outer, f"{a.text} {g.random.choice(['>=', '<', '<>', '='])} {value}")


@construct(
    "a scalar subquery in SELECT",
    SUBQUERIES,
    SIDE,
    "SELECT id, (SELECT count(*) FROM users WHERE active) AS n FROM orders",
)
def scalar_select(g: Maker) -> Query:
    outer, inner = g.pair()
    value = Column(f"(SELECT count(*) FROM {inner.text} WHERE {g.predicate(inner)})", "bigint")
    return g.query([*g.some(outer), value], outer.text)


@construct(
    "a correlated scalar subquery", SUBQUERIES, CHANGE,
    "SELECT o.id, (SELECT count(*) FROM users u WHERE u.name = o.user) AS n FROM orders o",
)  # fmt: skip
def scalar_linked(g: Maker) -> Query:
    outer, inner = g.pair()
    value = g.pick(inner, "int", "bigint", "string", "date")
    function, kind = g.random.choice([("count(*)", "bigint"), (f"max({value.text})", value.kind)])
    rest = f" AND {g.predicate(inner)}" if g.random.random() < 0.3 else ""
    # Spark asks for an equality that has a column of the subquery alone on its side.
    text = f"(SELECT {function} FROM {inner.text} WHERE {_equality(g, inner, outer)}{rest})"
    return g.query([*g.some(outer), Column(text, kind)], outer.text)


@construct(
    "a correlated scalar subquery in WHERE", SUBQUERIES, CHANGE,
    "SELECT o.id FROM orders o WHERE o.amount > (SELECT max(u.score) FROM users u WHERE u.name = o.user)",
)  # fmt: skip
def scalar_linked_where(g: Maker) -> Query:
    outer, inner = g.pair()
    a, b = g.shared(outer, inner, sorted(ORDERED))
    value = f"(SELECT max({b.text}) FROM {inner.text} WHERE {_equality(g, inner, outer)})"
    return _filtered(g, outer, f"{a.text} {g.random.choice(['>=', '<', '<>', '='])} {value}")


@construct(
    "a subquery in HAVING", SUBQUERIES, CHANGE,
    "SELECT user, count(*) AS n FROM orders GROUP BY user HAVING count(*) > (SELECT count(*) FROM users WHERE active)",
)  # fmt: skip
def having(g: Maker) -> Query:
    outer, inner = g.pair()
    key = g.expression(outer)
    value = f"(SELECT count(*) FROM {inner.text} WHERE {g.predicate(inner)})"
    tail = f" GROUP BY {key.text} HAVING count(*) {g.random.choice(['>', '<=', '<>'])} {value}"
    return g.query([key, Column("count(*)", "bigint")], outer.text, tail)
