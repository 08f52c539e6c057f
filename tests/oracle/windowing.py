"""Window functions, and the first rows of each group."""

from __future__ import annotations

from .maker import NUMBERS, Column, Maker, Query, Relation
from .registry import CHANGE, GROUP, add, construct

WINDOWS = "Window functions"
SAME = "same"
_BOUNDS = [
    "UNBOUNDED PRECEDING AND CURRENT ROW",
    "1 PRECEDING AND 1 FOLLOWING",
    "2 PRECEDING AND 1 PRECEDING",
    "1 FOLLOWING AND 2 FOLLOWING",
    "CURRENT ROW AND UNBOUNDED FOLLOWING",
    "UNBOUNDED PRECEDING AND 1 FOLLOWING",
]


def _partition(g: Maker, relation: Relation) -> str:
    columns = g.random.sample(relation.columns, min(len(relation.columns), g.random.choice([0, 1, 1])))
    return f"PARTITION BY {', '.join(each.text for each in columns)} " if columns else ""


def _over(g: Maker, relation: Relation, call: str, whole: bool) -> str:
    """``whole``: where ties would show, every column is in the order."""
    columns = relation.columns if whole else g.random.sample(relation.columns, 1)
    return f"{call} OVER ({_partition(g, relation)}ORDER BY {g.order(columns)})"


def _ranking(call: str, kind: str, whole: bool) -> None:
    def make(g: Maker) -> Query:
        relation = g.exact(g.relation())
        return g.query([*relation.columns, Column(_over(g, relation, call, whole), kind)], relation.text)

    example = f"SELECT id, user, {call} OVER (PARTITION BY user ORDER BY id) AS x FROM orders"
    add(
        call.split("(")[0],
        WINDOWS,
        GROUP,
        example if not whole else example.replace("ORDER BY id", "ORDER BY id, user"),
        make,
    )


_ranking("row_number()", "int", True)
_ranking("ntile(2)", "int", True)
_ranking("rank()", "int", False)
_ranking("dense_rank()", "int", False)
_ranking("percent_rank()", "double", False)
_ranking("cume_dist()", "double", False)


def _neighbour(function: str) -> None:
    def make(g: Maker) -> Query:
        relation = g.exact(g.relation())
        column = g.random.choice(relation.columns)
        default = g.random.choice(["", ", 1", f", 2, {column.text}", f", 1, {column.text}", ", 0", ", -1"])
        nulls = g.random.choice(["", "", " IGNORE NULLS"])
        text = _over(g, relation, f"{function}({column.text}{default}){nulls}", True)
        return g.query([*relation.columns, Column(text, column.kind)], relation.text)

    example = f"SELECT id, user, units, {function}(units) OVER (PARTITION BY user ORDER BY id, units) AS x FROM orders"
    add(function, WINDOWS, GROUP, example, make)


_neighbour("lag")
_neighbour("lead")


def _value(function: str, more: str = "") -> None:
    def make(g: Maker) -> Query:
        relation = g.exact(g.relation())
        column = g.random.choice(relation.columns)
        nulls = g.random.choice(["", " IGNORE NULLS"])
        frame = f"ORDER BY {g.order(relation.columns)} ROWS BETWEEN {g.random.choice(_BOUNDS)}"
        text = f"{function}({column.text}{more}){nulls} OVER ({_partition(g, relation)}{frame})"
        return g.query([*relation.columns, Column(text, column.kind)], relation.text)

    frame = "PARTITION BY user ORDER BY id, units ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"
    add(
        function,
        WINDOWS,
        GROUP,
        f"SELECT id, user, units, {function}(units{more}) OVER ({frame}) AS x FROM orders",
        make,
    )


_value("first_value")
_value("last_value")
_value("nth_value", ", 2")


def _aggregate(g: Maker, relation: Relation) -> Column:
    column = g.random.choice(relation.columns)
    text, kind = column.text, column.kind
    calls = [Column(f"min({text})", kind), Column(f"max({text})", kind), Column(f"count({text})", "bigint")]
    calls.append(Column("count(*)", "bigint"))
    if kind in NUMBERS:
        calls += [Column(f"sum({text})", "bigint" if kind in ("int", "bigint") else None), Column(f"avg({text})", None)]
    if kind == "int":
        calls += [Column(f"stddev({text})", None), Column(f"var_pop({text})", None)]
    return g.random.choice(calls)


def _frame(name: str, example: str, frame: str) -> None:
    def make(g: Maker) -> Query:
        relation = g.exact(g.relation())
        call = _aggregate(g, relation)
        some, every = g.order(g.random.sample(relation.columns, 1)), g.order(relation.columns)
        bounds, by = g.random.choice(_BOUNDS), _partition(g, relation)
        near = g.pick(relation, "int", "bigint")
        direction = g.random.choice(["", " DESC", " NULLS LAST"])
        over = frame.format(some=some, every=every, bounds=bounds, near=f"{near.text}{direction}")
        return g.query([*relation.columns, Column(f"{call.text} OVER ({by}{over})", call.kind)], relation.text)

    add(name, WINDOWS, GROUP, f"SELECT id, user, units, sum(units) OVER ({example}) AS x FROM orders", make)


_frame("aggregates over the partition", "PARTITION BY user", "")
_frame("running aggregates", "PARTITION BY user ORDER BY id", "ORDER BY {some}")
_frame(
    "sliding aggregates: ROWS", "PARTITION BY user ORDER BY id, units ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ORDER BY {every} ROWS BETWEEN {bounds}",
)  # fmt: skip
_frame(
    "sliding aggregates: RANGE", "PARTITION BY user ORDER BY units RANGE BETWEEN 2 PRECEDING AND CURRENT ROW",
    "ORDER BY {near} RANGE BETWEEN {bounds}",
)  # fmt: skip


@construct(
    "WINDOW", WINDOWS, GROUP,
    "SELECT id, rank() OVER w AS r, sum(units) OVER w AS s FROM orders WINDOW w AS (PARTITION BY user ORDER BY id)",
)  # fmt: skip
def named(g: Maker) -> Query:
    relation = g.exact(g.relation())
    call, order = _aggregate(g, relation), g.order(g.random.sample(relation.columns, 1))
    items = [*relation.columns, Column("dense_rank() OVER w", "int"), Column(f"{call.text} OVER w", call.kind)]
    return g.query(items, relation.text, f" WINDOW w AS ({_partition(g, relation)}ORDER BY {order})")


def _first(g: Maker, relation: Relation) -> Column:
    call = g.random.choice(["row_number()", "row_number()", "rank()", "dense_rank()"])
    return Column(_over(g, relation, call, call == "row_number()"), "int")


@construct(
    "QUALIFY: the first rows of each group", WINDOWS, CHANGE,
    "SELECT id, user FROM orders QUALIFY row_number() OVER (PARTITION BY user ORDER BY id) <= 2",
)  # fmt: skip
def qualify(g: Maker) -> Query:
    relation = g.exact(g.relation())
    tail = f" QUALIFY {_first(g, relation).text} {g.random.choice(['<= 2', '= 1', '< 3', '<= 3'])}"
    return g.query(relation.columns, relation.text, tail)


@construct(
    "WHERE rn <= n: the first rows of each group", WINDOWS, CHANGE,
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY user ORDER BY id) AS rn FROM orders) WHERE rn <= 2",
)  # fmt: skip
def first_rows(g: Maker) -> Query:
    relation = g.exact(g.relation())
    inner = g.query([*relation.columns, _first(g, relation)], relation.text)
    place = inner.columns[-1].text
    condition = g.random.choice([f"{place} <= 2", f"{place} = 1", f"3 > {place}"])
    return g.query(list(inner.columns), f"({inner.sql})", f" WHERE {condition}")


@construct(
    "a window over aggregates", WINDOWS, GROUP,
    "SELECT user, sum(units) AS s, rank() OVER (ORDER BY sum(units) DESC) AS r FROM orders GROUP BY user",
)  # fmt: skip
def over_groups(g: Maker) -> Query:
    relation = g.relation()
    key, value = g.pick(relation, "string", "int", "date"), g.pick(relation, "int", "bigint")
    order = f"sum({value.text}){g.random.choice(['', ' DESC'])}"
    rank = Column(f"{g.random.choice(['rank', 'dense_rank'])}() OVER (ORDER BY {order})", "int")
    items = [key, Column(f"sum({value.text})", "bigint"), rank]
    return g.query(items, relation.text, f"{g.where(relation)} GROUP BY {key.text}")
