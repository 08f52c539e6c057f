"""Generators, values with parts, variants, and users' functions."""

from __future__ import annotations

from .maker import Column, Maker, Query
from .registry import CHANGE, construct

ROWS = "Generators and nested values"
_JSON = """concat('{{"a":', coalesce({0}, 0), ',"b":[1,', coalesce({0}, 7), ']}}')"""
"""A text with JSON in it, made of a whole number."""


def shout(text: str | None, times: int | None) -> str | None:
    """A user's function."""
    return None if text is None else text.upper() + "!" * (times or 0)


FUNCTIONS = {"shout": (shout, "string")}


@construct("LATERAL VIEW explode", ROWS, CHANGE, "SELECT id, t FROM orders LATERAL VIEW explode(tags) x AS t")
def lateral_view(g: Maker) -> Query:
    relation = g.relation()
    array = g.pick(relation, "array<int>")
    return g.query(
        [*g.some(relation, 2), Column("t", "int")], f"{relation.text} LATERAL VIEW explode({array.text}) x AS t"
    )


@construct(
    "LATERAL VIEW OUTER posexplode", ROWS, CHANGE,
    "SELECT id, p, t FROM orders LATERAL VIEW OUTER posexplode(tags) x AS p, t",
)  # fmt: skip
def lateral_outer(g: Maker) -> Query:
    relation = g.relation()
    array = g.pick(relation, "array<int>")
    items = [*g.some(relation, 2), Column("p", "int"), Column("t", "int")]
    return g.query(items, f"{relation.text} LATERAL VIEW OUTER posexplode({array.text}) x AS p, t", g.where(relation))


@construct("explode in SELECT", ROWS, CHANGE, "SELECT id, explode(tags) AS t FROM orders")
def explode(g: Maker) -> Query:
    relation = g.relation()
    array = g.pick(relation, "array<int>")
    call = g.random.choice(["explode", "explode_outer"])
    return g.query([*g.some(relation, 2), Column(f"{call}({array.text})", "int")], relation.text, g.where(relation))


@construct("LATERAL explode(…)", ROWS, CHANGE, "SELECT o.id, x.t FROM orders o, LATERAL explode(o.tags) AS x(t)")
def lateral(g: Maker) -> Query:
    relation = g.relation()
    array = g.pick(relation, "array<int>")
    return g.query(
        [*g.some(relation, 2), Column("x.t", "int")], f"{relation.text}, LATERAL explode({array.text}) AS x(t)"
    )


@construct("inline", ROWS, CHANGE, "SELECT id, a, b FROM orders LATERAL VIEW inline(array(place)) x AS a, b")
def inline(g: Maker) -> Query:
    relation = g.relation()
    struct = g.pick(relation, "struct<a:int,b:string>")
    items = [*g.some(relation, 2), Column("a", "int"), Column("b", "string")]
    return g.query(items, f"{relation.text} LATERAL VIEW inline(array({struct.text})) x AS a, b")


@construct("stack", ROWS, CHANGE, "SELECT id, v FROM orders LATERAL VIEW stack(2, units, units + 1) x AS v")
def stack(g: Maker) -> Query:
    relation = g.relation()
    number = g.pick(relation, "int")
    text = f"{relation.text} LATERAL VIEW stack(2, {number.text}, coalesce({number.text}, 9)) x AS v"
    return g.query([*g.some(relation, 2), Column("v", "int")], text)


@construct(
    "explode(split(…))", ROWS, CHANGE,
    "SELECT w, count(*) AS n FROM orders LATERAL VIEW explode(split(user, ' ')) x AS w GROUP BY w",
)  # fmt: skip
def split(g: Maker) -> Query:
    relation = g.relation()
    text = g.pick(relation, "string")
    items = [Column("w", "string"), Column("count(*)", "bigint")]
    return g.query(items, f"{relation.text} LATERAL VIEW explode(split({text.text}, ' ')) x AS w", " GROUP BY w")


@construct(
    "explode of a map", ROWS, CHANGE,
    "SELECT id, k, v FROM orders LATERAL VIEW explode(map('a', units, 'b', 2)) x AS k, v",
)  # fmt: skip
def explode_map(g: Maker) -> Query:
    relation = g.relation()
    number = g.pick(relation, "int")
    text = f"{relation.text} LATERAL VIEW explode(map('a', {number.text}, 'b', 2)) x AS k, v"
    return g.query([*g.some(relation, 2), Column("k", "string"), Column("v", "int")], text)


@construct(
    "transform, filter, aggregate, exists", ROWS, CHANGE,
    "SELECT id, transform(tags, x -> x + 1) AS a, filter(tags, x -> x > 1) AS b FROM orders",
)  # fmt: skip
def higher_order(g: Maker) -> Query:
    relation = g.relation()
    array = g.pick(relation, "array<int>").text
    items = [
        Column(f"transform({array}, (x, i) -> x + i)", "array<int>"),
        Column(f"filter({array}, x -> x > 1)", "array<int>"),
        Column(f"aggregate({array}, 0, (a, x) -> a + coalesce(x, 0))", "int"),
        Column(f"exists({array}, x -> x = 1)", "boolean"),
    ]
    return g.query([*g.some(relation, 2), *items], relation.text)


@construct(
    "maps", ROWS, CHANGE, "SELECT id, map('a', units)['a'] AS a, map_keys(map(coalesce(user, ''), 1)) AS k FROM orders"
)
def maps(g: Maker) -> Query:
    relation = g.relation()
    number, text = g.pick(relation, "int").text, g.pick(relation, "string").text
    made = f"map('a', {number}, coalesce(concat({text}, '.'), ''), 2)"
    items = [Column(f"{made}['a']", "int"), Column(f"size({made})", "int"), Column(made, None)]
    return g.query([*g.some(relation, 2), *items], relation.text)


@construct(
    "GROUP BY a struct or an array", ROWS, CHANGE, "SELECT place, tags, count(*) AS n FROM orders GROUP BY place, tags"
)
def by_struct(g: Maker) -> Query:
    relation = g.relation()
    keys = [g.pick(relation, "struct<a:int,b:string>"), g.pick(relation, "array<int>")]
    listed = ", ".join(key.text for key in keys)
    return g.query([*keys, Column("count(*)", "bigint")], relation.text, f" GROUP BY {listed}")


@construct(
    "json_tuple", ROWS, CHANGE,
    """SELECT id, a FROM orders LATERAL VIEW json_tuple(concat('{"a":', id, '}'), 'a') x AS a""",
)  # fmt: skip
def json_tuple(g: Maker) -> Query:
    relation = g.relation()
    made = _JSON.format(g.pick(relation, "int").text)
    items = [*g.some(relation, 2), Column("a", "string"), Column("b", "string")]
    return g.query(items, f"{relation.text} LATERAL VIEW json_tuple({made}, 'a', 'b') x AS a, b")


@construct(
    "variants", ROWS, CHANGE,
    """SELECT id, variant_get(parse_json(concat('{"a":', id, '}')), '$.a', 'bigint') AS a FROM orders""",
)  # fmt: skip
def variants(g: Maker) -> Query:
    relation = g.relation()
    made = f"parse_json({_JSON.format(g.pick(relation, 'int').text)})"
    inner = g.query([*g.some(relation, 2), Column(made, None)], relation.text)
    *rest, value = inner.columns
    items = [
        *rest,
        Column(f"try_variant_get({value.text}, '$.b[1]', 'int')", "int"),
        Column(f"to_json({value.text})", "string"),
    ]
    return g.query(items, f"({inner.sql})")


@construct(
    "variant_explode", ROWS, CHANGE,
    "SELECT id, pos, to_json(value) AS v FROM orders, LATERAL variant_explode(parse_json(concat('[', id, ']')))",
)  # fmt: skip
def variant_explode(g: Maker) -> Query:
    relation = g.relation()
    made = f"parse_json({_JSON.format(g.pick(relation, 'int').text)})"
    items = [*g.some(relation, 2), Column("x.pos", "int"), Column("to_json(x.v)", "string")]
    return g.query(items, f"{relation.text}, LATERAL variant_explode({made}) AS x(pos, k, v)")


@construct(
    "functions of yours", ROWS, CHANGE, "SELECT id, shout(user, units) AS s FROM orders WHERE shout(user, 0) <> 'A'"
)
def functions(g: Maker) -> Query:
    relation = g.relation()
    call = f"shout({g.pick(relation, 'string').text}, {g.pick(relation, 'int').text})"
    return g.query([*g.some(relation, 2), Column(call, "string")], relation.text, f" WHERE length({call}) > 0")
