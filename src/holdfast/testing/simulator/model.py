"""The simulated flows: their sources, their views, and what the views must hold, in plain Python.

Two sources: ``orders`` (rows come and go) and ``users`` (rows only come). Between them the flows have every kind of
keyed operator: an aggregate, a join, an aggregate behind an exchange of the join, a distinct, a top-k, and rows that
come and go as time passes, over a source whose rows expire. A run has one flow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from holdfast.errors import HoldfastError
from holdfast.frontend.expiry import expiring
from holdfast.frontend.sql import plan_sql
from holdfast.plan.nodes import Aggregate, Field, Join, Linear, Node, Source, Temporal, TopK, Union
from holdfast.plan.rewrites import rewrite

ORDERS = (Field("id", "bigint"), Field("user", "bigint"), Field("amount", "bigint"))
USERS = (Field("user", "bigint"), Field("city", "bigint"))
SOURCES = {"orders": ORDERS, "users": USERS}

VIEWS = {
    "spend": "SELECT user, sum(amount) AS total, count(*) AS orders FROM orders GROUP BY user",
    "placed": "SELECT o.id, o.amount, u.city FROM orders o JOIN users u ON o.user = u.user",
    "cities": "SELECT city, sum(amount) AS total, max(amount) AS most FROM placed GROUP BY city",
    "buyers": "SELECT DISTINCT user FROM orders",
    "top": "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 3",
    "live": "SELECT id, user, amount, {start} + id * 100000 AS since, {start} + (id + user * 50) * 100000 AS until "
    "FROM orders",
    "lively": "SELECT user, sum(amount) AS total, count(*) AS orders FROM live GROUP BY user",
}

FLOWS = (("spend", "top"), ("placed", "cities"), ("buyers", "spend"), ("live", "lively"))
"""Views that make up a flow; all of them have sinks."""

START = 1_700_000_000_000_000
"""When a simulation begins, in microseconds. It takes a minute or two."""

LIFE = 40_000_000
"""So long after the beginning of its time an order expires, in flows in which orders do. Moments are numbers here: no
Spark is needed to read them."""

Row = tuple[int, ...]
Bag = Counter[Row]


@lru_cache(maxsize=len(FLOWS))
def left(flow: tuple[str, ...]) -> dict[str, Node]:
    """The sources whose rows expire, as what is left of them."""
    if "live" not in flow:
        return {}
    return {"orders": expiring(Source("orders", ORDERS), f"{START + LIFE} + id * 100000")}


@lru_cache(maxsize=len(FLOWS))
def plans(flow: tuple[str, ...]) -> dict[str, Node]:
    """The plans of a flow's views."""
    catalog: dict[str, Node] = {name: Source(name, fields) for name, fields in SOURCES.items()}
    catalog |= left(flow)
    views: dict[str, Node] = {}
    for name in flow:
        node = plan_sql(name, VIEWS[name].format(start=START), {**catalog, **views})
        if name == "live":
            node = Temporal(node, "since", "until")
        views[name] = rewrite(node, keep=[*left(flow).values(), *views.values()])
    return views


@lru_cache(maxsize=len(FLOWS))
def types(flow: tuple[str, ...]) -> dict[Node, tuple[Field, ...]]:
    """The types of all nodes: bigint everywhere, so that no Spark is needed to tell."""
    found: dict[Node, tuple[Field, ...]] = {}

    def settle(node: Node) -> None:
        match node:
            case Linear(input=child) | Aggregate(input=child) | TopK(input=child) | Temporal(input=child):
                settle(child)
            case Join(left=left, right=right):
                settle(left)
                settle(right)
            case Union(inputs=children):
                for each in children:
                    settle(each)
            case Source():
                pass
            case _:
                raise HoldfastError(f"the simulator does not know {type(node).__name__}")
        found[node] = tuple(Field(name, "bigint") for name in node.columns)

    for plan in [*left(flow).values(), *plans(flow).values()]:
        settle(plan)
    for name, fields in SOURCES.items():
        settle(Source(name, fields))
    return found


def expected(view: str, orders: Bag, users: Bag, clock: int) -> Bag:
    """The rows of a view over these inputs, when it is ``clock``."""
    if view == "live":
        return _live(orders, clock)
    if view == "lively":
        return Counter(_spend(Counter({row[:3]: count for row, count in _live(orders, clock).items()})))
    if view == "spend":
        return Counter(_spend(orders))
    if view == "placed":
        return _placed(orders, users)
    if view == "cities":
        cities: dict[int, list[int]] = {}
        for (_, amount, city), count in _placed(orders, users).items():
            cities.setdefault(city, []).extend([amount] * count)
        return Counter((city, sum(amounts), max(amounts)) for city, amounts in cities.items())
    if view == "buyers":
        return Counter({(user,) for _, user, _ in orders})
    ranked = sorted(_spend(orders), key=lambda row: (-row[1], row[0]))
    return Counter((user, total) for user, total, _ in ranked[:3])


def _live(orders: Bag, clock: int) -> Bag:
    found: Bag = Counter()
    for (number, user, amount), count in orders.items():
        since, until = START + number * 100_000, START + (number + user * 50) * 100_000
        if since <= clock < until and clock < since + LIFE:
            found[number, user, amount, since, until] = count
    return found


def _spend(orders: Bag) -> Iterable[Row]:
    totals: dict[int, tuple[int, int]] = {}
    for (_, user, amount), count in orders.items():
        total, number = totals.get(user, (0, 0))
        totals[user] = (total + amount * count, number + count)
    return [(user, total, number) for user, (total, number) in totals.items()]


def _placed(orders: Bag, users: Bag) -> Bag:
    cities: dict[int, list[tuple[int, int]]] = {}
    for (user, city), count in users.items():
        cities.setdefault(user, []).append((city, count))
    found: Bag = Counter()
    for (number, user, amount), count in orders.items():
        for city, times in cities.get(user, ()):
            found[number, amount, city] += count * times
    return found
