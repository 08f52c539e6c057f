"""Constructs without a state of their own, DISTINCT, set operations and LIMIT."""

from __future__ import annotations

from .maker import Column, Maker, Query, Relation
from .registry import CHANGE, construct

ROWS = "Rows"


@construct("expressions", ROWS, CHANGE, "SELECT id, upper(user) AS u, amount * 2 AS twice FROM orders")
def expressions(g: Maker) -> Query:
    relation = g.relation()
    return g.query([*g.some(relation, 2), g.expression(relation), g.expression(relation)], relation.text)


@construct("WHERE", ROWS, CHANGE, "SELECT id, amount FROM orders WHERE amount > 1 AND user LIKE 'a%'")
def where(g: Maker) -> Query:
    relation = g.relation()
    return g.query(g.some(relation, 4), relation.text, f" WHERE {g.predicate(relation)}")


@construct(
    "CASE, IN (list), BETWEEN", ROWS, CHANGE,
    "SELECT id, CASE WHEN units IN (1, 2) THEN 'few' WHEN units BETWEEN 3 AND 9 THEN 'some' END AS size FROM orders",
)  # fmt: skip
def cases(g: Maker) -> Query:
    relation = g.relation()
    case = Column(f"CASE WHEN {g.predicate(relation)} THEN 'y' WHEN {g.predicate(relation)} THEN 'n' END", "string")
    return g.query([*g.some(relation, 2), case], relation.text, g.where(relation))


@construct("struct fields", ROWS, CHANGE, "SELECT id, place.a AS a FROM orders WHERE place.b = 'x'")
def fields(g: Maker) -> Query:
    relation = g.relation()
    struct = g.pick(relation, "struct<a:int,b:string>")
    items = [Column(f"{struct.text}.a", "int"), Column(f"{struct.text}.b", "string"), struct]
    return g.query([*g.some(relation, 2), *items], relation.text)


@construct(
    "WITH", ROWS, CHANGE,
    "WITH late AS (SELECT id, user FROM orders WHERE NOT paid) SELECT user, id FROM late WHERE id > 0",
)  # fmt: skip
def with_(g: Maker) -> Query:
    relation = g.relation()
    inner = g.query(g.some(relation, 4), relation.text)
    named = Relation("w", list(inner.columns))
    outer = g.query(list(inner.columns), "w", f" WHERE {g.predicate(named)}")
    return Query(f"WITH w AS ({inner.sql}) {outer.sql}", outer.columns)


@construct("a derived table", ROWS, CHANGE, "SELECT n + 1 AS n FROM (SELECT id AS n FROM orders WHERE paid) AS t")
def derived(g: Maker) -> Query:
    relation = g.relation()
    inner = g.query([*g.some(relation, 2), g.expression(relation)], relation.text, g.where(relation))
    named = Relation("d", [Column(f"d.{each.text}", each.kind) for each in inner.columns])
    return g.query([*named.columns, g.expression(named)], f"({inner.sql}) AS d")


@construct("SELECT DISTINCT", ROWS, CHANGE, "SELECT DISTINCT user, paid FROM orders")
def distinct(g: Maker) -> Query:
    relation = g.relation()
    items = [g.expression(relation) for _ in range(g.random.randint(1, 3))]
    return g.query(items, relation.text, g.where(relation), "SELECT DISTINCT")


@construct("ORDER BY … LIMIT", ROWS, CHANGE, "SELECT id, user FROM orders ORDER BY id DESC, user LIMIT 3")
def limit(g: Maker) -> Query:
    relation = g.exact(g.relation())
    tail = f" ORDER BY {g.order(relation.columns)} LIMIT {g.random.randint(1, 4)}"
    return g.query(relation.columns, relation.text, tail)


@construct(
    "ORDER BY … LIMIT … OFFSET", ROWS, CHANGE,
    "SELECT id, user FROM orders ORDER BY id, user NULLS LAST LIMIT 2 OFFSET 1",
)  # fmt: skip
def offset(g: Maker) -> Query:
    relation = g.exact(g.relation())
    tail = f" ORDER BY {g.order(relation.columns)} LIMIT {g.random.randint(1, 4)} OFFSET {g.random.randint(1, 2)}"
    return g.query(relation.columns, relation.text, tail)


def _set_operation(word: str) -> None:
    example = f"SELECT user FROM orders WHERE paid {word} SELECT name FROM users"

    @construct(word, "Set operations", CHANGE, example)
    def make(g: Maker) -> Query:
        left, right = g.pair()
        pairs = [g.shared(left, right) for _ in range(g.random.randint(1, 2))]
        first = g.query([a for a, _ in pairs], left.text, g.where(left))
        second = g.query([b for _, b in pairs], right.text, g.where(right))
        kinds = [a.kind if a.kind == b.kind else "bigint" for a, b in pairs]
        outputs = tuple(Column(f"x{place}", kind) for place, kind in enumerate(kinds))
        return Query(f"{first.sql} {word} {second.sql}", outputs)


for each in ("UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"):
    _set_operation(each)


@construct(
    "set operations mixed", "Set operations", CHANGE,
    "SELECT user FROM orders EXCEPT SELECT name FROM users INTERSECT SELECT city FROM users",
)  # fmt: skip
def mixed(g: Maker) -> Query:
    left, right = g.pair()
    a, b = g.shared(left, right)
    kind = a.kind if a.kind == b.kind else "bigint"
    first, second = g.query([a], left.text).sql, g.query([b], right.text, g.where(right)).sql
    words = [g.random.choice(["UNION ALL", "UNION", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]) for _ in range(2)]
    third = g.query([a], left.text, f" WHERE {g.predicate(left)}").sql
    return Query(f"{first} {words[0]} {second} {words[1]} {third}", (Column("x0", kind),))
