"""Recursive views. Where Spark refuses the query, it is asked for its levels, each made distinct, and for what they
have in common: edges lead to one of three numbers, so that a few levels reach all of them."""

from __future__ import annotations

from .kept import Kept
from .registry import CHANGE

_EDGES = "(SELECT DISTINCT id AS a, CAST(units AS BIGINT) AS b FROM orders WHERE units > 0)"
_PAID = "SELECT id FROM orders WHERE paid"
_STEP = f"b, level + 1 FROM t JOIN {_EDGES} ON a = n"


def _levels(columns: str, anchor: str, term: str, query: str) -> str:
    """A query over the levels ``t`` of a recursion that Spark takes: ``level`` is each row's."""
    return (
        f"WITH RECURSIVE t({columns}, level) AS (SELECT DISTINCT *, 0 FROM ({anchor}) UNION ALL "
        f"SELECT DISTINCT {term} AND level < 3) {query}"
    )


RECURSION = [
    Kept(
        "WITH RECURSIVE … UNION ALL",
        "WITH RECURSIVE t(n, steps) AS (SELECT id, 0 FROM orders WHERE paid UNION ALL SELECT o.id, steps + 1 FROM t "
        "JOIN orders o ON o.units = t.n WHERE steps < 2) SELECT n, steps, count(*) AS ways FROM t GROUP BY n, steps",
        "the rows of each level",
        CHANGE,
    ),
    Kept(
        "… that counts",
        "WITH RECURSIVE t(n) AS (SELECT units FROM orders WHERE units > 0 UNION ALL SELECT n + 1 FROM t WHERE n < 3) "
        "SELECT n FROM t",
        "the rows of each level",
        CHANGE,
    ),
    Kept(
        "… MAX RECURSION LEVEL",
        "WITH RECURSIVE t(n) MAX RECURSION LEVEL 5 AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) "
        "SELECT o.id, t.n FROM orders o JOIN t ON t.n = o.units",
        "rows that do not change",
        CHANGE,
    ),
    Kept(
        "WITH RECURSIVE … UNION",
        f"WITH RECURSIVE t(n) AS (SELECT id FROM orders WHERE paid UNION SELECT b FROM t JOIN {_EDGES} ON a = n) "
        "SELECT n FROM t",
        "the fixpoint, and the round in which each row came",
        CHANGE,
        _levels("n", _PAID, _STEP, "SELECT DISTINCT n FROM t"),
    ),
    Kept(
        "… joined with itself",
        f"WITH RECURSIVE t(a, b) AS (SELECT a, b FROM {_EDGES} UNION SELECT x.a, y.b FROM t x JOIN t y ON x.b = y.a) "
        "SELECT a, b FROM t",
        "the fixpoint, and the round in which each row came",
        CHANGE,
        _levels(
            "a, b",
            f"SELECT a, b FROM {_EDGES}",
            f"t.a, e.b, level + 1 FROM t JOIN {_EDGES} e ON t.b = e.a",
            "SELECT DISTINCT a, b FROM t",
        ),
    ),
    Kept(
        "… with an aggregate",
        f"WITH RECURSIVE t(n, least) AS (SELECT id, id FROM orders UNION SELECT b, min(least) FROM t JOIN {_EDGES} "
        "ON a = n GROUP BY b) SELECT n, min(least) AS least FROM t GROUP BY n",
        "the fixpoint, and the round in which each row came",
        CHANGE,
        _levels(
            "n, least",
            "SELECT id, id FROM orders",
            f"b, least, level + 1 FROM t JOIN {_EDGES} ON a = n",
            "SELECT n, min(least) AS least FROM t GROUP BY n",
        ),
    ),
    Kept(
        "… of definitions that refer to each other",
        "WITH RECURSIVE even(n) AS (SELECT id FROM orders WHERE id = 0 UNION SELECT n + 1 FROM odd), "
        "odd(n) AS (SELECT n + 1 FROM even WHERE n < 4) SELECT n FROM odd",
        "the fixpoint, and the round in which each row came",
        CHANGE,
        "SELECT DISTINCT explode(array(1L, 3L)) AS n FROM orders WHERE id = 0",
    ),
]
