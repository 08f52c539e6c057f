"""Aggregates, alone and with DISTINCT and FILTER, and the ways to group."""

from __future__ import annotations

from .maker import NUMBERS, ORDERED, WHOLE, Column, Maker, Query, Relation
from .registry import CHANGE, GROUP, add, construct

AGGREGATES, GROUPING = "Aggregates", "Grouping"
_ALL = (*sorted(NUMBERS | ORDERED), "struct<a:int,b:string>", "array<int>")
_COMPARED = tuple(sorted(ORDERED))
_NUMBERS = tuple(sorted(NUMBERS))
_SETS = tuple(sorted(ORDERED - {"double", "float"}))
SAME, LIST = "same", None

# Function → the kinds it is asked of, its text, the kind of its result (SAME: its argument's), the cost, an example.
_CALLS: dict[str, tuple[tuple[str, ...], str, str | None, str, str]] = {
    "count(*)": (_ALL, "count(*)", "bigint", CHANGE, "count(*)"),
    "count": (_ALL, "count({})", "bigint", CHANGE, "count(amount)"),
    "sum of whole numbers": (WHOLE, "sum({})", "bigint", CHANGE, "sum(units)"),
    "sum of doubles and decimals": (
        ("double", "float", "decimal(12,2)", "decimal(30,4)"), "sum({})", None, CHANGE, "sum(amount)",
    ),
    "avg, mean": (_NUMBERS, "avg({})", None, CHANGE, "avg(amount)"),
    "min": (_COMPARED, "min({})", SAME, CHANGE, "min(day)"),
    "max": (_COMPARED, "max({})", SAME, CHANGE, "max(price)"),
    "stddev, stddev_samp": (("int",), "stddev({})", None, CHANGE, "stddev(units)"),
    "stddev_pop": (("int",), "stddev_pop({})", None, CHANGE, "stddev_pop(units)"),
    "variance, var_samp": (("int",), "variance({})", None, CHANGE, "variance(units)"),
    "var_pop": (("int",), "var_pop({})", None, CHANGE, "var_pop(units)"),
    "skewness": (("int",), "skewness({})", None, CHANGE, "skewness(units)"),
    "kurtosis": (("int",), "kurtosis({})", None, CHANGE, "kurtosis(units)"),
    "covar_pop": (("int",), "covar_pop({0}, {0} * {0} + 1)", None, CHANGE, "covar_pop(units, length(user))"),
    "covar_samp": (("int",), "covar_samp({0}, coalesce({0}, 3))", None, CHANGE, "covar_samp(units, length(user))"),
    # Documented as the least value, so that a replay gives the same; Spark's batch result is asked for that.
    "any_value, first, last": (_COMPARED, "any_value({})", SAME, CHANGE, "any_value(day)"),
    "count_if": (_ALL, "count_if({} IS NULL)", "bigint", CHANGE, "count_if(units > 1)"),
    "bool_and, every": (("boolean",), "bool_and({})", "boolean", CHANGE, "bool_and(paid)"),
    "bool_or, any, some": (("boolean",), "bool_or({})", "boolean", CHANGE, "bool_or(paid)"),
    "bit_and": (WHOLE, "bit_and({})", SAME, GROUP, "bit_and(units)"),
    "bit_or": (WHOLE, "bit_or({})", SAME, GROUP, "bit_or(units)"),
    "bit_xor": (WHOLE, "bit_xor({})", SAME, GROUP, "bit_xor(units)"),
    # The value breaks the ties of the order, so that Spark has but one answer.
    "max_by": (
        _COMPARED, "max_by({0}, named_struct('o', {1}, 'v', {0}))", SAME, CHANGE, "max_by(id, struct(amount, id))",
    ),
    "min_by": (
        _COMPARED, "min_by({0}, named_struct('o', {1}, 'v', {0}))", SAME, CHANGE, "min_by(id, struct(amount, id))",
    ),
    "collect_list, array_agg": (
        _COMPARED, "sort_array(collect_list({}))", LIST, GROUP, "sort_array(collect_list(id))",
    ),
    "collect_set": (_SETS, "sort_array(collect_set({}))", LIST, GROUP, "sort_array(collect_set(id))"),
    "median": (_NUMBERS, "median({})", None, GROUP, "median(amount)"),
    "percentile": (_NUMBERS, "percentile({}, 0.3)", None, GROUP, "percentile(amount, 0.3)"),
    "percentile_cont": (
        _NUMBERS, "percentile_cont(0.25) WITHIN GROUP (ORDER BY {} DESC)", None, GROUP,
        "percentile_cont(0.25) WITHIN GROUP (ORDER BY amount)",
    ),
    "mode": (WHOLE, "mode() WITHIN GROUP (ORDER BY {})", SAME, GROUP, "mode() WITHIN GROUP (ORDER BY units)"),
}  # fmt: skip
_ADDITIVE = ("count(*)", "count", "sum of whole numbers", "avg, mean", "min", "max", "count_if")


def call(g: Maker, relation: Relation, name: str) -> Column:
    """The aggregate ``name`` of something in ``relation``."""
    kinds, text, result, _, _ = _CALLS[name]
    argument, other = g.pick(relation, *kinds), g.pick(relation, *_COMPARED)
    return Column(text.format(argument.text, other.text), argument.kind if result == SAME else result)


def any_call(g: Maker, relation: Relation) -> Column:
    return call(g, relation, g.random.choice(_ADDITIVE))


def grouped(g: Maker, relation: Relation, calls: list[Column], chance: float = 0.8) -> Query:
    """``calls`` by some keys, or of everything."""
    keys = [g.expression(relation) for _ in range(g.random.choice([1, 1, 2]))] if g.random.random() < chance else []
    group = f" GROUP BY {', '.join(key.text for key in keys)}" if keys else ""
    return g.query([*keys, *calls], relation.text, g.where(relation) + group)


def _function(name: str) -> None:
    *_, cost, example = _CALLS[name]

    def plain(g: Maker) -> Query:
        relation = g.relation()
        return grouped(g, relation, [call(g, relation, name), any_call(g, relation)])

    add(name, AGGREGATES, cost, f"SELECT user, {example} AS x FROM orders GROUP BY user", plain)


for each in _CALLS:
    _function(each)


@construct(
    "FILTER (WHERE …)", AGGREGATES, CHANGE,
    "SELECT user, sum(units) FILTER (WHERE paid) AS s, count(*) FILTER (WHERE id > 1) AS n FROM orders GROUP BY user",
)  # fmt: skip
def filtered(g: Maker) -> Query:
    relation = g.relation()
    calls = []
    for name in g.random.sample([name for name in _CALLS if not _CALLS[name][1].startswith("sort_array")], 2):
        found = call(g, relation, name)
        calls.append(Column(f"{found.text} FILTER (WHERE {g.predicate(relation)})", found.kind))
    return grouped(g, relation, [*calls, any_call(g, relation)])


_DISTINCT = {
    "count": (_ALL, "count(DISTINCT {})", "bigint"),
    "sum": (WHOLE, "sum(DISTINCT {})", "bigint"),
    "avg": (_NUMBERS, "avg(DISTINCT {})", None),
    "stddev": (("int",), "stddev(DISTINCT {})", None),
    "median": (("int",), "median(DISTINCT {})", None),
    "max": (_COMPARED, "max(DISTINCT {})", SAME),
    "bit_xor": (WHOLE, "bit_xor(DISTINCT {})", SAME),
    "array_agg": (_SETS, "sort_array(array_agg(DISTINCT {}))", LIST),
}


def _distinct(name: str) -> None:
    kinds, text, result = _DISTINCT[name]

    def make(g: Maker) -> Query:
        relation = g.relation()
        argument = g.pick(relation, *kinds)
        found = Column(text.format(argument.text), argument.kind if result == SAME else result)
        return grouped(g, relation, [found, any_call(g, relation)])

    cost = GROUP if name in ("median", "bit_xor", "array_agg") else CHANGE
    example = f"SELECT user, {text.format('units')} AS x FROM orders GROUP BY user"
    add(f"{name}(DISTINCT …)", AGGREGATES, cost, example, make)


for each in _DISTINCT:
    _distinct(each)


@construct(
    "count of several columns",
    AGGREGATES,
    CHANGE,
    "SELECT user, count(DISTINCT units, paid) AS n FROM orders GROUP BY user",
)
def count_several(g: Maker) -> Query:
    relation = g.relation()
    listed = f"{g.pick(relation, *_ALL).text}, {g.pick(relation, *_ALL).text}"
    word = g.random.choice(["DISTINCT ", "DISTINCT ", ""])
    return grouped(g, relation, [Column(f"count({word}{listed})", "bigint"), any_call(g, relation)])


@construct("an aggregate without GROUP BY", GROUPING, CHANGE, "SELECT count(*) AS n, sum(amount) AS s FROM orders")
def everything(g: Maker) -> Query:
    relation = g.relation()
    calls = [call(g, relation, name) for name in g.random.sample(sorted(_CALLS), 2)]
    return grouped(g, relation, [*calls, any_call(g, relation)], chance=0)


@construct(
    "GROUP BY an expression, an alias, a place", GROUPING, CHANGE,
    "SELECT upper(user) AS u, year(day) AS y, count(*) AS n FROM orders GROUP BY u, 2",
)  # fmt: skip
def keys(g: Maker) -> Query:
    relation = g.relation()
    items = [g.expression(relation), g.expression(relation), any_call(g, relation)]
    # An alias that no column of the input has: Spark would take the column.
    listed = ", ".join(f"{each.text} AS g{place}" for place, each in enumerate(items))
    grouped = f"(SELECT {listed} FROM {relation.text}{g.where(relation)} GROUP BY g0, 2)"
    return g.query([Column(f"g{place}", each.kind) for place, each in enumerate(items)], grouped)


@construct("GROUP BY ALL", GROUPING, CHANGE, "SELECT user, paid, count(*) AS n FROM orders GROUP BY ALL")
def group_by_all(g: Maker) -> Query:
    relation = g.relation()
    items = [g.expression(relation), g.expression(relation), any_call(g, relation)]
    return g.query(items, relation.text, g.where(relation) + " GROUP BY ALL")


@construct("HAVING", GROUPING, CHANGE, "SELECT user, sum(units) AS s FROM orders GROUP BY user HAVING count(*) > 1")
def having(g: Maker) -> Query:
    relation = g.relation()
    key = g.expression(relation)
    condition = f"count(*) {g.random.choice(['> 1', '<= 2', '<> 2'])}"
    items = [key, any_call(g, relation), any_call(g, relation)]
    return g.query(items, relation.text, f"{g.where(relation)} GROUP BY {key.text} HAVING {condition}")


def _sets(name: str, example: str, group: str) -> None:
    def make(g: Maker) -> Query:
        relation = g.exact(g.relation(), most=4, least=2)
        first, second, *_ = relation.columns
        text = group.format(first.text, second.text)
        marks = [Column(f"CAST(grouping({first.text}) AS int)", "int"), Column("grouping_id()", "bigint")]
        items = [first, second, g.random.choice(marks), any_call(g, relation), any_call(g, relation)]
        return g.query(items, relation.text, f" GROUP BY {text}")

    add(name, GROUPING, CHANGE, f"SELECT user, paid, count(*) AS n FROM orders GROUP BY {example}", make)


_sets("ROLLUP", "ROLLUP (user, paid)", "ROLLUP ({0}, {1})")
_sets("CUBE", "CUBE (user, paid)", "CUBE ({0}, {1})")
_sets("GROUPING SETS", "GROUPING SETS ((user, paid), user, ())", "GROUPING SETS (({0}, {1}), ({1}), ())")
_sets("WITH ROLLUP, WITH CUBE", "user, paid WITH CUBE", "{0}, {1} WITH CUBE")
_sets("GROUP BY keys and sets", "user, ROLLUP (paid)", "{0}, ROLLUP ({1})")


def _pivot(name: str, example: str, calls: str) -> None:
    by = {"bigint": ["1", "2"], "int": ["0", "1", "3"], "string": ["'a'", "'b'", "NULL"], "boolean": ["true", "false"]}

    def make(g: Maker) -> Query:
        relation = g.relation()
        key, of, value = g.expression(relation), g.pick(relation, *by), g.pick(relation, *_NUMBERS)
        inner = g.query([key], relation.text, g.where(relation)).sql.replace(
            " FROM ", f", {of.text} AS p, {value.text} AS v FROM ", 1
        )
        values = [f"{each} AS y{place}" for place, each in enumerate(by[of.kind or ""])]
        functions = g.random.choice(calls.split("; "))
        sql = f"SELECT * FROM ({inner}) PIVOT ({functions} FOR p IN ({', '.join(values)}))"
        several = functions.count("(v) AS")
        suffixes = [f"_{each}" for each in "ab"] if several else [""]
        names = [f"y{place}{suffix}" for place in range(len(values)) for suffix in suffixes]
        return Query(sql, (Column("x0", key.kind), *(Column(each, None) for each in names)))

    add(name, GROUPING, CHANGE, example, make)


_pivot(
    "PIVOT",
    "SELECT * FROM (SELECT user, paid, units FROM orders) PIVOT (sum(units) FOR paid IN (true AS y, false AS n))",
    "sum(v); count(v); max(v); avg(v)",
)
_pivot(
    "PIVOT of several aggregates",
    "SELECT * FROM (SELECT user, paid, units FROM orders) PIVOT (sum(units) AS s, max(units) AS m FOR paid IN (true))",
    "sum(v) AS a, count(v) AS b; min(v) AS a, avg(v) AS b",
)
