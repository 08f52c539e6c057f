"""Recursive statements written by hand, as no generator of ours writes them, and what they mean.

Each has, beside its text, the definitions as plain queries for DuckDB. `fixpoint` runs these round by round, from
nothing, until no table changes any more: no recursion, no incremental step, nothing of Spark's or Holdfast's. Where
Spark takes the statement itself (UNION ALL), Spark says what it means.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from holdfast.plan.schema import parse_schema
from holdfast.plan.types import arrow_type

from .in_process import Bag, hashable

SCHEMAS = {
    "edges": "a long, b long",
    "starts": "node long",
    "tree": "p long, c long, w int",
    "roads": "a string, b string, w double",
    "points": "x double, y double",
    "staff": "id int, boss int, pay decimal(10,2), since date",
}
NODES = [None, 0, 1, 2, 3, 4, 5]
NAMES = [None, "", " a", "a", "A", "ä", "it's", "x,y"]
REALS = [None, math.nan, -0.0, 0.0, 1.5, math.inf]
MONEY = [None, Decimal("0.00"), Decimal("1.50"), Decimal("-3.25")]
DAYS = [None, date(1969, 12, 31), date(2024, 2, 29), date(2024, 3, 1)]


def row(table: str, dice: random.Random) -> tuple[Any, ...]:
    """A random row, often one that is there already."""
    match table:
        case "edges":
            return dice.choice(NODES), dice.choice(NODES)
        case "starts":
            return (dice.choice(NODES),)
        case "tree":
            upper, lower = sorted(dice.sample(range(8), 2))
            return upper, lower, dice.choice([None, 1, 2, 5])
        case "roads":
            return dice.choice(NAMES), dice.choice(NAMES), dice.choice([None, math.nan, 0.0, 0.5, 1.0, 4.0])
        case "points":
            return dice.choice(REALS), dice.choice(REALS)
    return dice.randrange(6), dice.choice([None, *range(6)]), dice.choice(MONEY), dice.choice(DAYS)


class Tables:
    """All tables, while rows come and go."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(f"written {seed}")
        self.rows: dict[str, Bag] = {name: Counter() for name in SCHEMAS}

    def change(self) -> dict[str, Bag]:
        """The changes of an epoch: more rows come than go at first, then about as many."""
        dice, found = self._dice, {}
        for name, rows in self.rows.items():
            come: Bag = Counter(hashable(row(name, dice)) for _ in range(dice.choice([0, 2, 4])))
            gone: Bag = Counter({each: dice.randint(1, n) for each, n in rows.items() if dice.random() < 0.3})
            self.rows[name] = rows - gone + come
            come.subtract(gone)
            found[name] = Counter({each: diff for each, diff in come.items() if diff})
        return found

    def tables(self) -> dict[str, pa.Table]:
        return {name: arrow(name, bag) for name, bag in self.rows.items()}


def arrow(name: str, bag: Bag) -> pa.Table:
    fields = parse_schema(SCHEMAS[name], subject=name)
    rows = list(bag.elements())
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [pa.array(values, arrow_type(each.type)) for values, each in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=[each.name for each in fields])


@dataclass(frozen=True)
class Written:
    """A statement; its definitions (name and columns → a query without recursion), and the query over them. Without
    definitions, Spark says what the statement means."""

    text: str
    definitions: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    bound: int = 100


def fixpoint(written: Written, tables: Mapping[str, pa.Table]) -> Bag:
    """The rows of a statement, by plain iteration."""
    database = duckdb.connect()
    for name, table in tables.items():
        # DuckDB compares what it reads of Arrow as IEEE has it, and its own as Spark does: NaN is the greatest.
        database.register("given", table)
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    names = [each.partition("(")[0] for each in written.definitions]
    kinds = _columns(database, written)
    now: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(written.bound + 2):
        for name in names:
            _keep(database, name, now[name][0] if now[name] else kinds[name])
        found = {}
        for each, name in zip(written.definitions, names, strict=True):
            table = database.execute(f"SELECT * FROM ({written.definitions[each]})").to_arrow_table()
            found[name] = table.rename_columns(kinds[name].column_names).cast(kinds[name].schema)
        same = all(_bag(found[name]) == (_bag(now[name][0]) if now[name] else Counter()) for name in names)
        now = {name: [found[name]] for name in names}
        if same:
            for name in names:
                _keep(database, name, found[name])
            return _bag(database.execute(written.query).to_arrow_table())
    raise AssertionError(f"the fixpoint is not reached: {written.text}")


def _keep(database: Any, name: str, table: pa.Table) -> None:
    database.register("given", table)
    database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")


def _columns(database: Any, written: Written) -> dict[str, pa.Table]:
    """An empty table for each definition: ``name(column type, …)``."""
    found = {}
    for each in written.definitions:
        name, _, columns = each.partition("(")
        database.execute(f"CREATE OR REPLACE TEMP TABLE shape ({columns}")
        found[name] = database.execute("SELECT * FROM shape").to_arrow_table()
    return found


def _bag(table: pa.Table) -> Bag:
    return Counter(hashable(tuple(each.values())) for each in table.to_pylist())


_STARTS = "SELECT node FROM starts UNION "
_STEP = "SELECT e.b FROM r JOIN edges e ON e.a = r.n"
_R = {"r(n BIGINT)": _STARTS + _STEP}
_ALL_R = "SELECT n FROM r"


def reach(text: str) -> Written:
    """Another way of saying: what is reached from the starts."""
    return Written(text, _R, _ALL_R)


WRITTEN: dict[str, Written] = {
    # -- spellings of one query --------------------------------------------------------------------------------------
    "small letters, comments, back-quotes": reach(
        "-- first\nwith/**/recursive `r`(`n`)as(select`node`from`starts`union/* it's ; -- */select`e`.`b`from`r`join "
        "`edges`as`e`on`e`.`a`=`r`.`n`)-- last\nselect`n`from`r`"
    ),
    "odd names": reach(
        "WITH RECURSIVE `a b``c` (`select`) AS (SELECT node FROM starts UNION SELECT e.b FROM `a b``c` JOIN edges e "
        "ON e.a = `a b``c`.`select`) SELECT `select` AS n FROM `a b``c`"
    ),
    "hints": reach(
        "WITH RECURSIVE r(n) AS (SELECT /*+ COALESCE(1) */ node FROM starts UNION SELECT /*+ BROADCAST(e), MERGE(r) */ "
        "e.b FROM r JOIN edges e ON e.a = r.n) SELECT /*+ REPARTITION(3) */ n FROM r"
    ),
    "another case of letters": reach(
        "WITH RECURSIVE Reached(N) AS (SELECT NODE FROM STARTS UNION SELECT E.B FROM REACHED JOIN Edges e ON e.A = n) "
        "SELECT rEaChEd.n FROM rEaChEd"
    ),
    "no list of columns": reach(
        "WITH RECURSIVE r AS (SELECT node AS n FROM starts UNION SELECT b AS other FROM r, edges WHERE a = n) TABLE r"
    ),
    "UNION DISTINCT": reach(f"WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION DISTINCT {_STEP}) {_ALL_R}"),
    "the name on the right": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT e.b FROM edges AS e INNER JOIN r AS x ON "
        "x.n = e.a AND x.n <= e.a) SELECT x.n FROM r x"
    ),
    "USING": reach(
        "WITH RECURSIVE r(a) AS (SELECT node FROM starts UNION SELECT b FROM r JOIN edges USING (a)) SELECT a AS n "
        "FROM r"
    ),
    "NATURAL JOIN": reach(
        "WITH RECURSIVE r(a) AS (SELECT node FROM starts UNION SELECT b FROM edges NATURAL JOIN r) SELECT a AS n FROM r"
    ),
    "IN": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT b FROM edges WHERE a IN (SELECT n FROM r)) "
        "SELECT n FROM r"
    ),
    "EXISTS": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT b FROM edges e WHERE EXISTS (SELECT 1 FROM r "
        "WHERE r.n = e.a)) SELECT n FROM r"
    ),
    "LEFT SEMI JOIN": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT b FROM edges LEFT SEMI JOIN r ON n = a) "
        "SELECT n FROM r"
    ),
    "pipes": reach(
        "WITH RECURSIVE r(n) AS (FROM starts |> SELECT node UNION (FROM r |> JOIN edges e ON e.a = n |> SELECT b)) "
        "FROM r |> WHERE true |> SELECT n"
    ),
    "parentheses": reach(
        f"WITH RECURSIVE r(n) AS (((SELECT node FROM starts)) UNION (({_STEP}))) ((SELECT n FROM ((r))))"
    ),
    "the recursive term first": reach(f"WITH RECURSIVE r(n) AS ({_STEP} UNION SELECT node FROM starts) {_ALL_R}"),
    "a WITH in the term": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION (WITH told AS (SELECT e.b FROM r JOIN edges e "
        "ON e.a = r.n), again AS (TABLE told) SELECT b FROM again)) SELECT n FROM r"
    ),
    "a definition between": reach(
        "WITH RECURSIVE links AS (SELECT a, b FROM edges), r(n) AS (SELECT node FROM starts UNION SELECT b FROM r JOIN "
        "links ON a = n), unused AS (SELECT 1 / 0), late AS (SELECT n FROM r) SELECT n FROM late"
    ),
    "terms in a subquery": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT m FROM (SELECT * FROM (SELECT r.n AS k FROM r) "
        "JOIN (SELECT a AS k, b AS m FROM edges) USING (k))) SELECT n FROM r"
    ),
    "LATERAL": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT t.b FROM r, LATERAL (SELECT b FROM edges WHERE "
        "a = r.n) t) SELECT n FROM r"
    ),
    "three terms": reach(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT e.b FROM r JOIN edges e ON e.a = r.n WHERE e.b "
        "> 2 UNION SELECT e.b FROM r JOIN edges e ON e.a = r.n WHERE NOT (e.b > 2) OR e.b IS NULL) SELECT n FROM r"
    ),
    # -- NULL, NaN, zeros, types of keys -----------------------------------------------------------------------------
    "NULL joins NULL": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT e.b FROM r JOIN edges e ON e.a <=> r.n) TABLE r",
        {"r(n BIGINT)": _STARTS + "SELECT e.b FROM r JOIN edges e ON e.a IS NOT DISTINCT FROM r.n"},
        _ALL_R,
    ),
    "NaN and zeros are keys": Written(
        "WITH RECURSIVE r(x) AS (SELECT x FROM points WHERE y = 0 UNION SELECT p.y FROM r JOIN points p ON p.x = r.x) "
        "SELECT x FROM r",
        {"r(x DOUBLE)": "SELECT x + 0 FROM points WHERE y = 0 UNION SELECT p.y + 0 FROM r JOIN points p ON p.x = r.x"},
        "SELECT x FROM r",
    ),
    "texts": Written(
        "WITH RECURSIVE r(n) AS (SELECT a FROM roads WHERE w > 1 UNION SELECT b FROM r JOIN roads ON a = n) TABLE r",
        {"r(n VARCHAR)": "SELECT a FROM roads WHERE w > 1 UNION SELECT b FROM r JOIN roads ON a = n"},
        _ALL_R,
    ),
    "a key of several types": Written(
        "WITH RECURSIVE r(i, m, d) AS (SELECT id, pay, since FROM staff WHERE boss IS NULL UNION SELECT s.id, s.pay, "
        "s.since FROM r JOIN staff s ON s.boss = r.i AND s.pay <=> r.m AND s.since IS NOT DISTINCT FROM r.d) TABLE r",
        {
            "r(i INT, m DECIMAL(10,2), d DATE)": "SELECT id, pay, since FROM staff WHERE boss IS NULL UNION SELECT "
            "s.id, s.pay, s.since FROM r JOIN staff s ON s.boss = r.i AND s.pay IS NOT DISTINCT FROM r.m AND s.since "
            "IS NOT DISTINCT FROM r.d"
        },
        "SELECT * FROM r",
    ),
    "columns become wider": Written(
        "WITH RECURSIVE r(n) AS (SELECT id FROM staff UNION SELECT b FROM r JOIN edges ON a = n) SELECT n FROM r",
        {"r(n BIGINT)": "SELECT id FROM staff UNION SELECT b FROM r JOIN edges ON a = n"},
        _ALL_R,
    ),
    # -- several definitions -----------------------------------------------------------------------------------------
    "three that refer to each other": Written(
        "WITH RECURSIVE c(n) AS (SELECT e.b FROM b JOIN edges e ON e.a = b.n), a(n) AS (SELECT node FROM starts UNION "
        "SELECT e.b FROM c JOIN edges e ON e.a = c.n), b(n) AS (SELECT DISTINCT e.b FROM a JOIN edges e ON e.a = a.n) "
        "SELECT 1 AS t, n FROM a UNION ALL SELECT 2, n FROM b UNION ALL SELECT DISTINCT 3, n FROM c",
        {
            "a(n BIGINT)": _STARTS + "SELECT e.b FROM c JOIN edges e ON e.a = c.n",
            "b(n BIGINT)": "SELECT DISTINCT e.b FROM a JOIN edges e ON e.a = a.n",
            "c(n BIGINT)": "SELECT e.b FROM b JOIN edges e ON e.a = b.n",
        },
        "SELECT 1, n FROM a UNION ALL SELECT 2, n FROM b UNION ALL SELECT DISTINCT 3, n FROM c",
    ),
    "a recursion over a recursion, both used twice": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT e.b FROM r JOIN edges e ON e.a = r.n), "
        "q(m) AS (SELECT max(n) FROM r UNION SELECT e.a FROM q JOIN edges e ON e.b = q.m JOIN r ON r.n = e.a) "
        "SELECT x.m, y.n FROM q x JOIN r y ON y.n >= x.m WHERE x.m IN (SELECT m FROM q) AND y.n IN (SELECT n FROM r)",
        {
            **_R,
            "q(m BIGINT)": "SELECT max(n) FROM r UNION SELECT e.a FROM q JOIN edges e ON e.b = q.m JOIN r ON r.n = e.a",
        },
        "SELECT x.m, y.n FROM q x JOIN r y ON y.n >= x.m",
    ),
    "three times the name": Written(
        "WITH RECURSIVE t(a, b) AS (SELECT a, b FROM edges UNION SELECT x.a, z.b FROM t x JOIN t y ON x.b = y.a JOIN t "
        "z ON y.b = z.a) SELECT a, b FROM t",
        {
            "t(a BIGINT, b BIGINT)": "SELECT a, b FROM edges UNION SELECT x.a, z.b FROM t x JOIN t y ON x.b = y.a JOIN "
            "t z ON y.b = z.a"
        },
        "SELECT a, b FROM t",
    ),
    # -- aggregates, windows, set operations, outer joins in the loop ------------------------------------------------
    "ways, counted": Written(
        "WITH RECURSIVE ways(n, k) AS (SELECT node, 1L FROM starts WHERE node IS NOT NULL UNION SELECT c, sum(k) FROM "
        "ways JOIN tree ON p = n GROUP BY c) SELECT n, k FROM ways",
        {
            "ways(n BIGINT, k BIGINT)": "SELECT node, 1 FROM starts WHERE node IS NOT NULL UNION SELECT c, sum(k) FROM "
            "ways JOIN tree ON p = n GROUP BY c"
        },
        "SELECT n, k FROM ways",
    ),
    "the least and the greatest": Written(
        "WITH RECURSIVE far(n, lo, hi) AS (SELECT DISTINCT p, 0, 0 FROM tree WHERE p < 3 UNION SELECT c, min(lo + w), "
        "max(hi + coalesce(w, 10)) FROM far, tree WHERE p = n GROUP BY c HAVING count(DISTINCT p) < 3) SELECT n, "
        "min(lo), max(hi) FROM far GROUP BY n",
        {
            "far(n BIGINT, lo INT, hi INT)": "SELECT DISTINCT p, 0, 0 FROM tree WHERE p < 3 UNION SELECT c, min(lo + "
            "w), max(hi + coalesce(w, 10)) FROM far, tree WHERE p = n GROUP BY c HAVING count(DISTINCT p) < 3"
        },
        "SELECT n, min(lo), max(hi) FROM far GROUP BY n",
    ),
    "roads with NaN and NULL": Written(
        "WITH RECURSIVE far(n, w) AS (SELECT a, 0D FROM roads WHERE b = 'a' UNION SELECT r.b, min(far.w + r.w) FROM "
        "far JOIN roads r ON r.a = far.n GROUP BY r.b) SELECT n, min(w) FROM far GROUP BY n",
        {
            "far(n VARCHAR, w DOUBLE)": "SELECT a, 0 FROM roads WHERE b = 'a' UNION SELECT r.b, min(far.w + r.w) FROM "
            "far JOIN roads r ON r.a = far.n GROUP BY r.b"
        },
        "SELECT n, min(w) FROM far GROUP BY n",
    ),
    "the first by a window": Written(
        "WITH RECURSIVE r(n, k) AS (SELECT node, node FROM starts UNION SELECT b, k FROM (SELECT b, r.k, row_number() "
        "OVER (PARTITION BY a, r.k ORDER BY b DESC) AS place FROM r JOIN edges ON a = n) WHERE place = 1) "
        "SELECT n, k FROM r",
        {
            "r(n BIGINT, k BIGINT)": "SELECT node, node FROM starts UNION SELECT b, k FROM (SELECT b, r.k, "
            "row_number() OVER (PARTITION BY a, r.k ORDER BY b DESC NULLS LAST) AS place FROM r JOIN edges ON a = n) "
            "WHERE place = 1"
        },
        "SELECT n, k FROM r",
    ),
    "EXCEPT and INTERSECT": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION ((SELECT e.b FROM r JOIN edges e ON e.a = r.n EXCEPT "
        "SELECT c FROM tree) INTERSECT SELECT b FROM edges)) SELECT n FROM r",
        {
            "r(n BIGINT)": "SELECT node FROM starts UNION ((SELECT e.b FROM r JOIN edges e ON e.a = r.n EXCEPT SELECT "
            "c FROM tree) INTERSECT SELECT b FROM edges)"
        },
        _ALL_R,
    ),
    "LEFT JOIN in the term": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT coalesce(e.b, -1L) FROM r LEFT JOIN edges e ON "
        "e.a = r.n AND e.b <> e.a) SELECT n FROM r",
        {
            "r(n BIGINT)": "SELECT node FROM starts UNION SELECT coalesce(e.b, -1) FROM r LEFT JOIN edges e ON e.a = "
            "r.n AND e.b <> e.a"
        },
        _ALL_R,
    ),
    "NOT IN and NOT EXISTS": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT e.b FROM r JOIN edges e ON e.a = r.n WHERE e.b "
        "NOT IN (SELECT c FROM tree) AND NOT EXISTS (SELECT 1 FROM staff WHERE id = e.b AND pay < 0)) SELECT n FROM r",
        {
            "r(n BIGINT)": "SELECT node FROM starts UNION SELECT e.b FROM r JOIN edges e ON e.a = r.n WHERE e.b NOT IN "
            "(SELECT c FROM tree) AND NOT EXISTS (SELECT 1 FROM staff WHERE id = e.b AND pay < 0)"
        },
        _ALL_R,
    ),
    "a value of another table": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT r.n + 1 FROM r WHERE r.n < (SELECT max(c) FROM "
        "tree)) SELECT n FROM r",
        {"r(n BIGINT)": "SELECT node FROM starts UNION SELECT r.n + 1 FROM r WHERE r.n < (SELECT max(c) FROM tree)"},
        _ALL_R,
    ),
    "a value of its own": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT r.n + 1 FROM r WHERE 3 > (SELECT max(n) FROM r)) "
        "SELECT n FROM r",
        {"r(n BIGINT)": "SELECT node FROM starts UNION SELECT r.n + 1 FROM r WHERE 3 > (SELECT max(n) FROM r)"},
        _ALL_R,
    ),
    "the first two of each round": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts WHERE node < 3 UNION (SELECT DISTINCT e.b FROM r JOIN edges e "
        "ON e.a = r.n WHERE e.b > e.a ORDER BY e.b DESC LIMIT 2)) SELECT n FROM r",
        {
            "r(n BIGINT)": "SELECT node FROM starts WHERE node < 3 UNION (SELECT DISTINCT e.b FROM r JOIN edges e ON "
            "e.a = r.n WHERE e.b > e.a ORDER BY e.b DESC LIMIT 2)"
        },
        _ALL_R,
    ),
    "no equality": Written(
        "WITH RECURSIVE r(n) AS (SELECT min(node) FROM starts UNION SELECT e.b FROM r JOIN edges e ON e.a BETWEEN "
        "r.n - 1 AND r.n + 1) SELECT n FROM r",
        {
            "r(n BIGINT)": "SELECT min(node) FROM starts UNION SELECT e.b FROM r JOIN edges e ON e.a BETWEEN r.n - 1 "
            "AND r.n + 1"
        },
        _ALL_R,
    ),
    "grouping sets above, a cube inside": Written(
        "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges UNION SELECT r.b, max(e.b) FROM r JOIN edges e ON e.a = r.b "
        "GROUP BY ROLLUP (r.b)) SELECT a, count(*) FROM r GROUP BY CUBE (a)",
        {
            "r(a BIGINT, b BIGINT)": "SELECT a, b FROM edges UNION SELECT r.b, max(e.b) FROM r JOIN edges e ON e.a = "
            "r.b GROUP BY ROLLUP (r.b) HAVING count(*) > 0"
        },
        "SELECT a, count(*) FROM r GROUP BY CUBE (a) HAVING count(*) > 0",
    ),
    # -- UNION ALL: Spark says ---------------------------------------------------------------------------------------
    "levels": Written(
        "with recursive w(n, k) as (select node, 0 from starts union all select c, k + 1 from w join tree on p = n) "
        "select n, k, count(*) from w group by n, k"
    ),
    "levels with a bound": Written(
        "WITH RECURSIVE w(n) MAX RECURSION LEVEL 9 AS (SELECT p FROM tree UNION ALL SELECT n - 1 FROM w WHERE n > 0) "
        "SELECT n FROM w"
    ),
    "levels over levels": Written(
        "WITH RECURSIVE w(n) AS (SELECT p FROM tree UNION ALL SELECT c FROM w JOIN tree ON p = n), v AS (SELECT n FROM "
        "w WHERE n > 5 UNION ALL SELECT n - 2L FROM v WHERE n > 2) SELECT n, count(*) FROM v GROUP BY n"
    ),
}

COMPUTED: dict[str, Written] = {
    # -- what is computed in the loop, and before it: there Spark does ----------------------------------------------
    "ways as arrays": Written(
        "WITH RECURSIVE w(n, way) AS (SELECT node, array(node) FROM starts UNION SELECT b, array_append(way, b) FROM w "
        "JOIN edges ON a = n WHERE NOT array_contains(way, b) AND size(way) + 1 < 5) SELECT n, way, element_at(way, "
        "-1) FROM w",
        {
            "w(n BIGINT, way BIGINT[])": "SELECT node, [node] FROM starts UNION SELECT b, list_append(way, b) FROM w "
            "JOIN edges ON a = n WHERE b IS NOT NULL AND NOT list_contains(way, b) AND len(way) + 1 < 5 AND NOT "
            "list_bool_or(list_transform(way, lambda x: x IS NULL))"
        },
        "SELECT n, way, way[-1] FROM w",
    ),
    "ways as texts": Written(
        "WITH RECURSIVE w(n, way) AS (SELECT node, concat('/', node, '/') FROM starts UNION SELECT b, way || b || '/' "
        "FROM w JOIN edges ON a = n WHERE way NOT LIKE '%/' || b || '/%' AND length(way) + 1 < 12) SELECT n, way FROM "
        "w",
        {
            "w(n BIGINT, way VARCHAR)": "SELECT node, '/' || node || '/' FROM starts UNION SELECT b, way || b || '/' "
            "FROM w JOIN edges ON a = n WHERE way NOT LIKE '%/' || b || '/%' AND length(way) + 1 < 12"
        },
        "SELECT n, way FROM w",
    ),
    "halves and triples": Written(
        "WITH RECURSIVE c(n, k) AS (SELECT id, id FROM staff WHERE id > 0 UNION SELECT CASE WHEN n % 2 = 0 THEN CAST(n "
        "DIV 2 AS INT) ELSE 3 * n + 1 END, k FROM c WHERE n > 1 AND abs(n) + k < 1000) SELECT n, k FROM c",
        {
            "c(n INT, k INT)": "SELECT id, id FROM staff WHERE id > 0 UNION SELECT CASE WHEN n % 2 = 0 THEN n // 2 "
            "ELSE 3 * n + 1 END, k FROM c WHERE n > 1 AND abs(n) + k < 1000"
        },
        "SELECT n, k FROM c",
    ),
    "days": Written(
        "WITH RECURSIVE d(day, id) AS (SELECT since, id FROM staff UNION SELECT day + INTERVAL '1' DAY, id FROM d "
        "WHERE datediff(DATE'2024-03-05', day) BETWEEN 1 AND 20) SELECT id, day FROM d",
        {
            "d(day DATE, id INT)": "SELECT since, id FROM staff UNION SELECT day + 1, id FROM d WHERE DATE'2024-03-05' "
            "- day BETWEEN 1 AND 20"
        },
        "SELECT id, day FROM d",
    ),
    "the narrowest and the widest": Written(
        "WITH RECURSIVE w(n, lo, hi) AS (SELECT a, least(a, b), greatest(a, b) FROM edges UNION SELECT e.b, least(lo, "
        "e.a), greatest(hi, e.b) FROM w JOIN edges e ON e.a = w.n) SELECT n, lo, hi FROM w",
        {
            "w(n BIGINT, lo BIGINT, hi BIGINT)": "SELECT a, least(a, b), greatest(a, b) FROM edges UNION SELECT e.b, "
            "least(lo, e.a), greatest(hi, e.b) FROM w JOIN edges e ON e.a = w.n"
        },
        "SELECT n, lo, hi FROM w",
    ),
    "texts, taken apart": Written(
        "WITH RECURSIVE s(part, rest) AS (SELECT '', a || ',' FROM roads UNION SELECT left(rest, instr(rest, ',') - "
        "1), substring(rest, instr(rest, ',') + 1) FROM s WHERE rest <> '') SELECT part FROM s",
        {
            "s(part VARCHAR, rest VARCHAR)": "SELECT '', a || ',' FROM roads UNION SELECT rest[:instr(rest, ',') - 1], "
            "substring(rest, instr(rest, ',') + 1) FROM s WHERE rest <> ''"
        },
        "SELECT part FROM s",
    ),
    "one that explodes": Written(
        "WITH RECURSIVE r(n) AS (SELECT node FROM starts UNION SELECT m FROM r LATERAL VIEW explode(array(n - 1, n DIV "
        "2)) AS m WHERE n > 0) SELECT n FROM r",
        {
            "r(n BIGINT)": "SELECT node FROM starts UNION SELECT n - 1 FROM r WHERE n > 0 UNION SELECT n // 2 FROM r "
            "WHERE n > 0"
        },
        _ALL_R,
    ),
    "one that explodes a constant": Written(
        "WITH RECURSIVE r(n, step) AS (SELECT node, 0 FROM starts UNION SELECT n + m, m FROM r LATERAL VIEW "
        "explode(array(1, 3)) AS m WHERE n < 12) SELECT n, step, array_contains(array(1, 2), step) FROM r",
        {
            "r(n BIGINT, step INT)": "SELECT node, 0 FROM starts UNION SELECT n + 1, 1 FROM r WHERE n < 12 UNION "
            "SELECT n + 3, 3 FROM r WHERE n < 12"
        },
        "SELECT n, step, step IN (1, 2) FROM r",
    ),
    "bits": Written(
        "WITH RECURSIVE v(n, seen) AS (SELECT node, shiftleft(1L, CAST(node AS INT)) FROM starts UNION SELECT b, seen "
        "| shiftleft(1L, CAST(b AS INT)) FROM v JOIN edges ON a = n WHERE (seen & shiftleft(1L, CAST(b AS INT))) = 0) "
        "SELECT n, seen FROM v",
        {
            "v(n BIGINT, seen BIGINT)": "SELECT node, 1::BIGINT << node FROM starts UNION SELECT b, seen | (1::BIGINT "
            "<< b) FROM v JOIN edges ON a = n WHERE (seen & (1::BIGINT << b)) = 0"
        },
        "SELECT n, seen FROM v",
    ),
    "structs": Written(
        "WITH RECURSIVE r(s) AS (SELECT s FROM (SELECT struct(a, b) AS s FROM edges) WHERE s.a = 1 UNION SELECT e.s "
        "FROM r JOIN (SELECT struct(a, b) AS s, a FROM edges) e ON e.a = r.s.b) SELECT s.a, s.b FROM r",
        {
            "r(a BIGINT, b BIGINT)": "SELECT a, b FROM edges WHERE a = 1 UNION SELECT e.a, e.b FROM r JOIN edges e "
            "ON e.a = r.b"
        },
        "SELECT a, b FROM r",
    ),
    "rows of no table": Written(
        "WITH RECURSIVE w(n, x) AS (VALUES (1, 'a'), (2, NULL) UNION ALL SELECT n + 1, x FROM w WHERE n < 4) SELECT * "
        "FROM w JOIN starts ON node = n"
    ),
}
