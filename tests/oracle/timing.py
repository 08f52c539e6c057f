"""Time: windows, sessions, and rows that come and go as time passes."""

from __future__ import annotations

from .maker import Column, Maker, Query
from .registry import CHANGE, GROUP, construct

TIME = "Time"
_COUNT = Column("count(*)", "bigint")


def _windowed(g: Maker, window: str, name: str) -> Query:
    """Groups by a key and a window; the window's start and end."""
    relation = g.relation()
    moment, key = g.pick(relation, "timestamp"), g.pick(relation, "string", "int", "boolean")
    whole = window.format(moment.text)
    keys = [key.text, whole] if g.random.random() < 0.6 else [whole]
    ends = [Column(f"{name}.start", "timestamp"), Column(f"{name}.end", "timestamp")]
    items = [*([key] if len(keys) == 2 else []), *ends, _COUNT, Column(f"max({key.text})", key.kind)]
    return g.query(items, relation.text, f"{g.where(relation)} GROUP BY {', '.join(keys)}")


@construct(
    "window: tumbling", TIME, CHANGE,
    "SELECT user, window.start, window.end, count(*) AS n FROM orders GROUP BY user, window(ts, '10 minutes')",
)  # fmt: skip
def tumbling(g: Maker) -> Query:
    return _windowed(g, g.random.choice(["window({}, '10 minutes')", "window({}, '1 hour')"]), "window")


@construct(
    "window: sliding", TIME, CHANGE,
    "SELECT window.start, sum(units) AS s FROM orders GROUP BY window(ts, '10 minutes', '5 minutes')",
)  # fmt: skip
def sliding(g: Maker) -> Query:
    return _windowed(g, "window({}, '10 minutes', '4 minutes')", "window")


@construct(
    "window: shifted", TIME, CHANGE,
    "SELECT window.start, count(*) AS n FROM orders GROUP BY window(ts, '10 minutes', '10 minutes', '2 minutes')",
)  # fmt: skip
def shifted(g: Maker) -> Query:
    return _windowed(g, "window({}, '10 minutes', '10 minutes', '3 minutes')", "window")


@construct("window in SELECT", TIME, CHANGE, "SELECT id, window(ts, '10 minutes').start AS s FROM orders")
def selected(g: Maker) -> Query:
    relation = g.relation()
    moment = g.pick(relation, "timestamp")
    inner = g.query([*g.some(relation, 2), Column(f"window({moment.text}, '10 minutes')", None)], relation.text)
    *rest, window = inner.columns
    return g.query([*rest, Column(f"{window.text}.start", "timestamp")], f"({inner.sql})")


@construct(
    "session_window", TIME, GROUP,
    "SELECT user, session_window.start, session_window.end, count(*) AS n FROM orders "
    "GROUP BY user, session_window(ts, '5 minutes')",
)  # fmt: skip
def session(g: Maker) -> Query:
    return _windowed(g, "session_window({}, '5 minutes')", "session_window")


@construct(
    "session_window with a gap of the row's", TIME, GROUP,
    "SELECT session_window.start, count(*) AS n FROM orders "
    "GROUP BY session_window(ts, CASE WHEN paid THEN '2 minutes' ELSE '20 minutes' END)",
)  # fmt: skip
def own_gap(g: Maker) -> Query:
    return _windowed(
        g, "session_window({0}, CASE WHEN minute({0}) > 32 THEN '1 minute' ELSE '20 minutes' END)", "session_window"
    )


@construct(
    "window_time", TIME, CHANGE,
    "SELECT max(window_time(w)) AS last, sum(n) AS n FROM "
    "(SELECT window(ts, '5 minutes') AS w, count(*) AS n FROM orders GROUP BY 1) GROUP BY window(w, '1 hour')",
)  # fmt: skip
def window_time(g: Maker) -> Query:
    relation = g.relation()
    moment = g.pick(relation, "timestamp")
    inner = f"SELECT window({moment.text}, '5 minutes') AS w, count(*) AS n FROM {relation.text} GROUP BY 1"
    items = [Column("max(window_time(w))", "timestamp"), Column("sum(n)", "bigint")]
    return g.query(items, f"({inner})", " GROUP BY window(w, '1 hour')")


@construct("now() in WHERE", TIME, CHANGE, "SELECT id, ts FROM orders WHERE ts > now() - INTERVAL 10 MINUTES")
def recent(g: Maker) -> Query:
    relation = g.relation()
    moment = g.pick(relation, "timestamp")
    sign, minutes = (
        g.random.choice(["> now() -", ">= now() -", "< now() -", "<= now() +"]),
        g.random.choice([5, 10, 20]),
    )
    rest = f" AND {g.predicate(relation)}" if g.random.random() < 0.3 else ""
    return g.query(g.some(relation, 4), relation.text, f" WHERE {moment.text} {sign} INTERVAL {minutes} MINUTES{rest}")


@construct(
    "now() between two columns", TIME, CHANGE,
    "SELECT id FROM orders WHERE now() BETWEEN ts AND ts + INTERVAL 15 MINUTES",
)  # fmt: skip
def between(g: Maker) -> Query:
    relation = g.relation()
    first, last = g.pick(relation, "timestamp"), g.pick(relation, "timestamp")
    tail = f" WHERE now() BETWEEN {first.text} AND {last.text} + INTERVAL 15 MINUTES"
    return g.query(g.some(relation, 4), relation.text, tail)


@construct(
    "now() in HAVING", TIME, CHANGE,
    "SELECT user, max(ts) AS m FROM orders GROUP BY user HAVING max(ts) > now() - INTERVAL 10 MINUTES",
)  # fmt: skip
def lively(g: Maker) -> Query:
    relation = g.relation()
    moment, key = g.pick(relation, "timestamp"), g.expression(relation)
    items = [key, Column(f"max({moment.text})", "timestamp"), _COUNT]
    tail = f" GROUP BY {key.text} HAVING max({moment.text}) > now() - INTERVAL 12 MINUTES"
    return g.query(items, relation.text, tail)


@construct(
    "now() in ON", TIME, CHANGE,
    "SELECT o.id, u.city FROM orders o JOIN users u ON o.user = u.name AND o.ts > now() - INTERVAL 10 MINUTES",
)  # fmt: skip
def joined(g: Maker) -> Query:
    left, right = g.pair()
    (a, b), moment = g.shared(left, right), g.pick(left, "timestamp")
    on = f" ON {a.text} = {b.text} AND {moment.text} > now() - INTERVAL 10 MINUTES"
    return g.query(g.some(left) + g.some(right), f"{left.text} JOIN {right.text}{on}")
