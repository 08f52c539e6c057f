"""The simulated flows: their sources, their views, and what the views must hold, in plain Python.

Two sources: ``orders`` (rows are inserted and deleted) and ``users`` (rows are only inserted). Together the flows have
every kind of keyed operator: an aggregate, a join, an aggregate after an exchange of the join, a distinct, a top-k, a
loop, draws, and rows that come and go as time passes, over a source whose rows expire. A run has one flow.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from holdfast.errors import HoldfastError
from holdfast.operators.aggregate import Aggregate, Call
from holdfast.operators.draw import Draw, Drawn
from holdfast.operators.join import Join
from holdfast.operators.loops.body import LoopLeaf
from holdfast.operators.loops.building import Recursion, loop_of
from holdfast.operators.rewrites import rewrite
from holdfast.operators.temporal import Temporal
from holdfast.operators.topk import TopK
from holdfast.plan.expression import Literal, Operation, Tree, condition
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Field, Linear, Named, Node, Order, Outside, Source, Union, same

ORDERS = (Field("id", "bigint"), Field("user", "bigint"), Field("amount", "bigint"))
USERS = (Field("user", "bigint"), Field("city", "bigint"))
SOURCES = {"orders": ORDERS, "users": USERS}

VIEWS = {
    "spend": "SELECT user, sum(amount) AS total, count(*) AS orders FROM orders GROUP BY user",
    "placed": "SELECT o.id, o.amount, u.city FROM orders o JOIN users u ON o.user = u.user",
    "cities": "SELECT city, sum(amount) AS total, max(amount) AS most FROM placed GROUP BY city",
    "buyers": "SELECT DISTINCT user FROM orders",
    "top": "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 3",
    "linked": "the least user from whom each is reached, where an order leads from its user to the user id % 12",
    "drawn": "SELECT id, user, amount, rand(), uuid(), current_timestamp(), ask(id) FROM orders",
    "live": "orders while their time is, from since until until",
    "lively": "SELECT user, sum(amount) AS total, count(*) AS orders FROM live GROUP BY user",
}
"""Descriptions of the views, for people. Their plans (`_plan`) are built of nodes, so that a simulation needs no Spark
to read SQL."""

EDITIONS = 3
"""The number of plans between which ``spend``, and with it ``top``, may be edited. (Released input can be had again
from the log only for a source whose rows are also deleted, so views over ``users`` are not edited.)"""

FLOWS = (("spend", "top"), ("placed", "cities"), ("buyers", "spend"), ("live", "lively"))
"""The views of each flow; all of them have sinks."""

LOOP = "linked"
"""A recursive view, which some flows have in addition."""

DRAWN = "drawn"
"""A view with drawn values and an outside function that never gives the same answer twice. Some flows have it in
addition."""

START = 1_700_000_000_000_000
"""The time at which a simulation begins, in microseconds since 1970. It lasts a minute or two of simulated time."""

LIFE = 40_000_000
"""Microseconds after its start at which an order expires, in flows with expiring orders. Moments are numbers here, so
that no Spark is needed to read them."""

Row = tuple[int, ...]
Bag = Counter[Row]


@cache
def left(flow: tuple[str, ...]) -> dict[str, Node]:
    """Source → the plan of its rows that have not expired, for sources whose rows expire."""
    if "live" not in flow:
        return {}
    orders = Source("orders", ORDERS)
    until = _computed(orders, expires=_moment(START + LIFE, orders.column("id")))
    return {"orders": _columns(Temporal(until, None, "expires"), *orders.columns)}


@cache
def plans(flow: tuple[str, ...], edition: int = 0) -> dict[str, Node]:
    """Return the plans of a flow's views."""
    catalog: dict[str, Node] = {name: Source(name, fields) for name, fields in SOURCES.items()}
    catalog |= left(flow)
    views: dict[str, Node] = {}
    for name in flow:
        node = _plan(name, {**catalog, **views}, edition)
        views[name] = rewrite(node, keep=[*left(flow).values(), *views.values()])
    return views


def _plan(view: str, tables: Mapping[str, Node], edition: int) -> Node:
    """Return the plan of a view over the plans of the collections that it reads."""
    match view:
        case "spend":  # per user: amount and number of orders; other editions filter by amount > 0, or double it
            amount = tables["orders"].column("amount")
            rows = _computed(tables["orders"], spent=_made("*", amount, _long(2)) if edition == 2 else amount)
            rows = Linear(rows, condition(">", amount, _long(0)), same(rows)) if edition == 1 else rows
            return Aggregate(rows, ("user",), (_sum("spent"), _COUNT))
        case "placed":  # orders with the city of their user
            user, city = map(tables["users"].column, ("user", "city"))
            users = Linear(tables["users"], None, (Named("u.user", user), Named("city", city)))
            return _columns(Join(tables["orders"], users, ("user",), ("u.user",)), "id", "amount", "city")
        case "cities":
            calls = (_sum("amount"), Call("most", "max", ("amount",), "bigint"))
            return Aggregate(tables["placed"], ("city",), calls)
        case "buyers":
            return Aggregate(_columns(tables["orders"], "user"), ("user",), ())
        case "linked":  # a recursive view: labels travel along orders, and each user keeps the least
            return _linked(tables["orders"])
        case "drawn":
            return _drawn(tables["orders"])
        case "top":
            order = (Order("total", descending=True, nulls_first=False), Order("user", False, nulls_first=True))
            return TopK(_columns(tables["spend"], "user", "total"), order, 3)
        case "live":  # orders between their two moments
            orders = tables["orders"]
            number, user = orders.column("id"), orders.column("user")
            until = _moment(START, _made("+", number, _made("*", user, _long(50))))
            return Temporal(_computed(orders, since=_moment(START, number), until=until), "since", "until")
        case "lively":
            return Aggregate(tables["live"], ("user",), (_sum("amount"), _COUNT))
    raise HoldfastError(f"the simulator has no view {view!r}")


def _linked(orders: Node) -> Node:
    user, number = orders.column("user"), orders.column("id")
    edges = Linear(orders, None, (Named("from", user), Named("to", _made("%", number, _long(_LINKED)))))
    labels = LoopLeaf("labels", (Field("user", "bigint"), Field("least", "bigint")))
    own = Linear(orders, None, (Named("user", user), Named("least", user)))
    met = Join(labels, edges, ("user",), ("from",))
    told = Linear(met, None, (Named("user", met.column("to")), Named("least", met.column("least"))))
    body = Aggregate(Union((own, told)), ("user",), (Call("least", "min", ("least",), "bigint"),))
    return loop_of([Recursion(labels, body)], 0, max_rounds=100)


def _drawn(orders: Node) -> Node:
    outside = Outside("ask", "bigint", "ask", pickle.dumps(ask))
    return Draw(
        orders,
        (
            Drawn("chance", "rand", (), "double"),
            Drawn("ticket", "uuid", (), "string"),
            Drawn("at", "clock", (), "bigint"),
            Drawn("answer", "udf:ask", ("id",), "bigint", outside=outside),
        ),
    )


_ASKED = itertools.count()


def ask(number: int) -> int:
    """The outside function: each call has another answer, so a repeated call is noticed."""
    return next(_ASKED)


_LINKED = 12
"""The number of users."""

_COUNT = Call("orders", "count", (), "bigint")


def _sum(name: str) -> Call:
    return Call("total", "sum", (name,), "bigint")


def _made(operation: str, left: Tree, right: Tree) -> Tree:
    return Operation(operation, (left, right), "bigint")


def _long(value: int) -> Tree:
    return Literal(value, "bigint")


def _moment(start: int, tenths: Tree) -> Tree:
    """The moment ``tenths`` of a second after ``start``."""
    return _made("+", _long(start), _made("*", tenths, _long(100_000)))


def _columns(node: Node, *names: str) -> Node:
    return Linear(node, None, tuple(Named(name, node.column(name)) for name in names))


def _computed(node: Node, **expressions: Tree) -> Node:
    """Return ``node`` with further columns."""
    return Linear(node, None, (*same(node), *(Named(name, tree) for name, tree in expressions.items())))


@cache
def edition_of(log: str) -> int:
    """Return the edition of ``spend`` that a log keeps."""
    fingerprints = [fingerprint(plans(("spend",), number)["spend"]) for number in range(EDITIONS)]
    return fingerprints.index(log.partition("-")[0])


def expected(view: str, orders: Bag, users: Bag, clock: int, edition: int = 0) -> Bag:
    """Return the rows of a view over these inputs at the time ``clock``, without drawn columns."""
    if view == DRAWN:
        return orders
    if view == "live":
        return _live(orders, clock)
    if view == "lively":
        return Counter(_spend(Counter({row[:3]: count for row, count in _live(orders, clock).items()})))
    if view in ("spend", "top") and edition:
        edited: Bag = Counter()
        for (number, user, amount), count in orders.items():
            if edition == 2 or amount > 0:
                edited[number, user, amount * edition] += count
        orders = edited
    if view == "spend":
        return Counter(_spend(orders))
    if view == "placed":
        return _placed(orders, users)
    if view == "cities":
        cities: dict[int, list[int]] = {}
        for (_, amount, city), count in _placed(orders, users).items():
            cities.setdefault(city, []).extend([amount] * count)
        return Counter((city, sum(amounts), max(amounts)) for city, amounts in cities.items())
    if view == "linked":
        return _least_labels(orders)
    if view == "buyers":
        return Counter({(user,) for _, user, _ in orders})
    ranked = sorted(_spend(orders), key=lambda row: (-row[1], row[0]))
    return Counter((user, total) for user, total, _ in ranked[:3])


def _least_labels(orders: Bag) -> Bag:
    least = {user: user for _, user, _ in orders}
    while True:
        before = dict(least)
        for number, user, _ in orders:
            to = number % _LINKED
            least[to] = min(least.get(to, least[user]), least[user])
        if least == before:
            return Counter(least.items())


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


def without_draws(view: str, rows: Bag) -> Bag:
    """Return the rows of a view without drawn columns."""
    if view != DRAWN:
        return rows
    found: Bag = Counter()
    for row, number in rows.items():
        found[row[: len(ORDERS)]] += number
    return Counter({row: number for row, number in found.items() if number})


def flow_of(seed: int) -> tuple[str, ...]:
    """Return the views of a seed's flow; one flow in eight has a loop, another one in eight has draws."""
    flow = FLOWS[seed % len(FLOWS)]
    more = {6: (LOOP,), 1: (DRAWN,)}
    return (*flow, *more.get(seed % 8, ()))
