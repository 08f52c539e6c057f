"""Recursive views over changing graphs, and what they hold, in plain Python.

A case is a graph that changes for 20 epochs, and a chain of views over it: views below the loop, which make the links
that it follows, the loop, and views above it, another loop maybe among them. Each has its twin in Python. A chain is
spelled as views over views or as one statement, in several ways of writing SQL.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .in_process import Bag
from .spelling import SPELLINGS

SCHEMAS = {"edges": "a long, b long", "starts": "node long", "nodes": "node long, kind long"}
GRAPHS = 5
"""So many graphs each chain of views is run over, side by side: they have no node in common."""

EPOCHS = 20
Tables = Mapping[str, Bag]
Twin = Callable[[Bag, Tables], Bag]
"""What a view holds, given what the view before it holds, and the tables; those before the loop hold ``links``."""


# -- below the loop: from links to links -------------------------------------------------------------------------------


def _joined(links: Bag, tables: Tables) -> Bag:
    found: Bag = Counter()
    for (a, b), copies in links.items():
        for (node, kind), others in tables["nodes"].items():
            if node == b and kind < 2:
                found[a, b] += copies * others
    return found


def _furthest(links: Bag, _: Tables) -> Bag:
    most: dict[int, int] = {}
    for a, b in links:
        most[a] = max(most.get(a, b), b)
    return Counter(most.items())


def _first_two(links: Bag, _: Tables) -> Bag:
    of: dict[int, list[int]] = defaultdict(list)
    for a, b in links.elements():
        of[a].append(b)
    return Counter((a, b) for a, some in of.items() for b in sorted(some)[:2])


def _both(links: Bag, _: Tables) -> Bag:
    return links + Counter({(b, a): copies for (a, b), copies in links.items()})


BELOW: dict[str, Twin] = {
    "SELECT a, b FROM {0}": lambda links, _: links,
    "SELECT a, b FROM {0} WHERE a <> b": lambda links, _: Counter({e: n for e, n in links.items() if e[0] != e[1]}),
    "SELECT e.a, e.b FROM {0} e JOIN nodes k ON k.node = e.b WHERE k.kind < 2": _joined,
    "SELECT a, max(b) AS b FROM {0} GROUP BY a": _furthest,
    "SELECT a, b FROM {0} GROUP BY a, b HAVING count(*) < 2": lambda links, _: Counter(
        {e: 1 for e, n in links.items() if n < 2}
    ),
    "SELECT a, b FROM (SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) AS place FROM {0}) "
    "WHERE place <= 2": _first_two,
    "SELECT a, b FROM {0} UNION ALL SELECT b, a FROM {0}": _both,
}


# -- loops: from links to rows (n, v) ----------------------------------------------------------------------------------


def _reached(links: Bag, starts: set[int]) -> set[int]:
    found = set(starts)
    while more := {b for a, b in links if a in found} - found:
        found |= more
    return found


def _starts(tables: Tables) -> set[int]:
    return {node for (node,) in tables["starts"]}


def _rows(pairs: Any) -> Bag:
    return Counter(dict.fromkeys(pairs, 1))


def _reach(links: Bag, tables: Tables) -> Bag:
    return _rows((n, 0) for n in _reached(links, _starts(tables)))


def _closed(links: Bag, _: Tables) -> Bag:
    return _rows((a, b) for a, c in set(links) for b in _reached(links, {c}))


def _least(links: Bag, tables: Tables) -> Bag:
    """The least node from which each is reached."""
    nodes = {node for edge in links for node in edge} | _starts(tables)
    least: dict[int, int] = {}
    for node in sorted(nodes, reverse=True):
        least |= dict.fromkeys(_reached(links, {node}), node)
    return _rows(least.items())


def _distances(links: Bag, tables: Tables) -> Bag:
    far = dict.fromkeys(_starts(tables), 0)
    frontier = set(far)
    while frontier:
        frontier = {b for a, b in links if a in frontier} - far.keys()
        far |= dict.fromkeys(frontier, max(far.values()) + 1)
    return _rows(far.items())


def _parities(links: Bag, tables: Tables) -> Bag:
    even, odd = _starts(tables), set[int]()
    while True:
        following = even | {b for a, b in links if a in odd}, {b for a, b in links if a in even}
        if following == (even, odd):
            return _rows([(n, 0) for n in even] + [(n, 1) for n in odd])
        even, odd = following


def _walks(links: Bag, tables: Tables) -> Bag:
    level: Bag = Counter({(node, 0): copies for (node,), copies in tables["starts"].items()})
    found = Counter(level)
    for _ in range(3):
        following: Bag = Counter()
        for (n, v), copies in level.items():
            for (a, b), others in links.items():
                if a == n:
                    following[b, v + 1] += copies * others
        level = following
        found += level
    return found


def _same_generation(links: Bag, _: Tables) -> Bag:
    edges = set(links)
    found = {(x, y) for a, x in edges for b, y in edges if a == b}
    while more := {(x, y) for p, q in found for a, x in edges if a == p for b, y in edges if b == q} - found:
        found |= more
    return _rows(found)


def _avoiding(links: Bag, tables: Tables) -> Bag:
    shut = {node for node, kind in tables["nodes"] if kind == 0}
    open_ones = Counter({edge: 1 for edge in links if edge[1] not in shut})
    return _rows((n, 1) for n in _reached(open_ones, _starts(tables)))


def _there_and_back(links: Bag, tables: Tables) -> Bag:
    back = Counter({(b, a): 1 for a, b in links})
    forth, home = _reached(links, _starts(tables)), _reached(back, _starts(tables))
    return _rows((n, int(n in home)) for n in forth)


def _least_of_reached(links: Bag, tables: Tables) -> Bag:
    reached = _reached(links, _starts(tables))
    least: dict[int, int] = {}
    for node in sorted(reached, reverse=True):
        least |= dict.fromkeys(_reached(links, {node}), node)
    return _rows(least.items())


def _least_start(links: Bag, tables: Tables) -> Bag:
    """The least start from which each is reached."""
    least: dict[int, int] = {}
    for start in sorted(_starts(tables), reverse=True):
        least |= dict.fromkeys(_reached(links, {start}), start)
    return _rows(least.items())


@dataclass(frozen=True)
class Looped:
    """A recursive query over ``links``: its definitions, the query behind them, and its twin."""

    definitions: str
    query: str
    twin: Twin


_REACH = "r(n) AS (SELECT node FROM starts UNION SELECT l.b FROM r JOIN links l ON l.a = r.n)"
LOOPS = {
    "reach": Looped(_REACH, "SELECT n, 0L AS v FROM r", _reach),
    "closure": Looped(
        "t(n, v) AS (SELECT a, b FROM links UNION SELECT t.n, l.b FROM t JOIN links l ON l.a = t.v)",
        "SELECT n, v FROM t",
        _closed,
    ),
    "closure, squared": Looped(
        "t(n, v) AS (SELECT a, b FROM links UNION SELECT x.n, y.v FROM t x JOIN t y ON x.v = y.n)",
        "SELECT n, v FROM t",
        _closed,
    ),
    "least label": Looped(
        "t(n, v) AS (SELECT a, a FROM links UNION SELECT b, b FROM links UNION SELECT node, node FROM starts UNION "
        "SELECT l.b, min(t.v) FROM t JOIN links l ON l.a = t.n GROUP BY l.b)",
        "SELECT n, min(v) AS v FROM t GROUP BY n",
        _least,
    ),
    "distances": Looped(
        "t(n, v) AS (SELECT node, 0L FROM starts UNION SELECT l.b, min(t.v + 1) FROM t JOIN links l ON l.a = t.n "
        "GROUP BY l.b)",
        "SELECT n, min(v) AS v FROM t GROUP BY n",
        _distances,
    ),
    "parities": Looped(
        "even(n) AS (SELECT node FROM starts UNION SELECT l.b FROM odd JOIN links l ON l.a = odd.n), "
        "odd(n) AS (SELECT DISTINCT l.b FROM even JOIN links l ON l.a = even.n)",
        "SELECT n, 0L AS v FROM even UNION ALL SELECT n, 1L FROM odd",
        _parities,
    ),
    "walks": Looped(
        "w(n, v) AS (SELECT node, 0L FROM starts UNION ALL SELECT l.b, w.v + 1 FROM w JOIN links l ON l.a = w.n "
        "WHERE w.v < 3)",
        "SELECT n, v FROM w",
        _walks,
    ),
    "same generation": Looped(
        "g(n, v) AS (SELECT x.b, y.b FROM links x JOIN links y ON x.a = y.a UNION SELECT x.b, y.b FROM g "
        "JOIN links x ON x.a = g.n JOIN links y ON y.a = g.v)",
        "SELECT n, v FROM g",
        _same_generation,
    ),
    "avoiding": Looped(
        "r(n) AS (SELECT node FROM starts UNION SELECT l.b FROM r JOIN links l ON l.a = r.n WHERE NOT EXISTS "
        "(SELECT 1 FROM nodes k WHERE k.node = l.b AND k.kind = 0))",
        "SELECT n, 1L AS v FROM r",
        _avoiding,
    ),
    "two loops": Looped(
        f"{_REACH}, h(m) AS (SELECT node FROM starts UNION SELECT l.a FROM h JOIN links l ON l.b = h.m)",
        "SELECT r.n, CASE WHEN h.m IS NULL THEN 0L ELSE 1L END AS v FROM r LEFT JOIN h ON h.m = r.n",
        _there_and_back,
    ),
    "a loop over a loop": Looped(
        f"{_REACH}, t(n, v) AS (SELECT n, n FROM r UNION SELECT l.b, min(t.v) FROM t JOIN links l ON l.a = t.n "
        "GROUP BY l.b)",
        "SELECT n, min(v) AS v FROM t GROUP BY n",
        _least_of_reached,
    ),
    "a loop in a loop": Looped(
        "s(n) AS (SELECT node FROM starts UNION SELECT n FROM (WITH RECURSIVE near(n, v) AS (SELECT n, 0L FROM s UNION "
        "ALL SELECT l.b, near.v + 1 FROM near JOIN links l ON l.a = near.n WHERE near.v < 2) SELECT n FROM near))",
        "SELECT n, 0L AS v FROM s",
        _reach,
    ),
    "aggregates in a loop in a loop": Looped(
        "t(n, v) AS (SELECT node, node FROM starts UNION SELECT n, min(v) FROM (WITH RECURSIVE f(n, v) AS (SELECT n, v "
        "FROM t UNION SELECT l.b, min(f.v) FROM f JOIN links l ON l.a = f.n GROUP BY l.b) SELECT n, v FROM f) "
        "GROUP BY n)",
        "SELECT n, min(v) AS v FROM t GROUP BY n",
        _least_start,
    ),
}


# -- above the loop: from rows (n, v) to rows (n, v) -------------------------------------------------------------------


def _kinds(rows: Bag, tables: Tables) -> Bag:
    found: Bag = Counter()
    for (n, _), copies in rows.items():
        for (node, kind), others in tables["nodes"].items():
            if node == n:
                found[n, kind] += copies * others
    return found


def _maybe_kinds(rows: Bag, tables: Tables) -> Bag:
    found = _kinds(rows, tables)
    known = {node for node, _ in tables["nodes"]}
    for (n, _), copies in rows.items():
        if n not in known:
            found[n, -1] += copies
    return found


def _counted(rows: Bag, _: Tables) -> Bag:
    many: Counter[int] = Counter()
    for (_, v), copies in rows.items():
        many[v] += copies
    return _rows(many.items())


def _ranked(rows: Bag, _: Tables) -> Bag:
    return Counter((n, 1 + sum(1 for m, w in rows.elements() if w == v and m < n)) for n, v in rows.elements())


def _running(rows: Bag, _: Tables) -> Bag:
    return Counter((n, sum(w for m, w in rows.elements() if m <= n)) for n, _ in rows.elements())


def _top(rows: Bag, _: Tables) -> Bag:
    return Counter(sorted(rows.elements(), key=lambda row: (-row[1], row[0]))[:3])


def _beside(rows: Bag, tables: Tables) -> Bag:
    return _rows({(n, n) for n in _starts(tables)} - set(rows))


def followed(rows: Bag, tables: Tables) -> Bag:
    """The twin of the view above a loop that is a loop itself."""
    found = set(rows)
    while more := {(b, v) for n, v in found for a, b in tables["edges"] if a == n} - found:
        found |= more
    return _rows(found)


ABOVE: dict[str, Twin] = {
    "SELECT n, v FROM {0}": lambda rows, _: rows,
    "SELECT x.n, k.kind AS v FROM {0} x JOIN nodes k ON k.node = x.n": _kinds,
    "SELECT x.n, coalesce(k.kind, -1L) AS v FROM {0} x LEFT JOIN nodes k ON k.node = x.n": _maybe_kinds,
    "SELECT v AS n, count(*) AS v FROM {0} GROUP BY v": _counted,
    "SELECT n, CAST(rank() OVER (PARTITION BY v ORDER BY n) AS BIGINT) AS v FROM {0}": _ranked,
    "SELECT n, sum(v) OVER (ORDER BY n) AS v FROM {0}": _running,
    "SELECT n, v FROM {0} ORDER BY v DESC, n LIMIT 3": _top,
    "SELECT node AS n, node AS v FROM starts EXCEPT SELECT n, v FROM {0}": _beside,
    "WITH RECURSIVE f(n, v) AS (SELECT n, v FROM {0} UNION SELECT e.b, f.v FROM f JOIN edges e ON e.a = f.n) "
    "SELECT n, v FROM f": followed,
}


# -- recursions that do not begin their statement: each gives the rows (n, v) of "reach" -------------------------------

_R = f"with recursive {_REACH}"
INSIDE = {
    "in a subquery": f"SELECT n, 0L AS v FROM ({_R} SELECT n FROM r)",
    "in parentheses, sorted": f"({_R} SELECT n, 0L AS v FROM r) ORDER BY n LIMIT 1000",
    "behind comments": f"/* one */ -- two\n WiTh /* three */ ReCuRsIvE {_REACH} SELECT n, 0L AS v FROM r",
    "in a definition": f"WITH x AS ({_R} SELECT n FROM r), y AS (SELECT n AS m FROM x) SELECT m AS n, 0L AS v FROM y",
    "behind a definition that it uses": "WITH first AS (SELECT node FROM starts), x AS (WITH RECURSIVE r(n) AS (SELECT "
    "node FROM first UNION SELECT l.b FROM r JOIN links l ON l.a = r.n) SELECT n FROM r) SELECT n, 0L AS v FROM x",
    "in a definition of another": f"WITH RECURSIVE s(n) AS ({_R} SELECT n FROM r UNION SELECT n FROM s) "
    "SELECT n, 0L AS v FROM s",
    "in the term of another": "WITH RECURSIVE s(n) AS (SELECT node FROM starts UNION SELECT n FROM (WITH RECURSIVE r(n)"
    " AS (SELECT n FROM s UNION SELECT l.b FROM r JOIN links l ON l.a = r.n) SELECT n FROM r)) "
    "SELECT n, 0L AS v FROM s",
    "beside one of Spark's kind": "WITH RECURSIVE s(n, k) AS (SELECT node, 0 FROM starts WHERE false UNION ALL SELECT "
    f"n, k + 1 FROM s WHERE k < 0), z AS ({_R} SELECT n FROM r) SELECT n, 0L AS v FROM z UNION ALL SELECT n, 1L FROM s",
    "in one arm of a union": f"SELECT n, 0L AS v FROM ({_R} SELECT n FROM r) UNION "
    f"({_R.replace('node FROM starts', 'node FROM starts WHERE node < 3')} SELECT n, 0L AS v FROM r)",
    "in EXISTS": "SELECT n, 0L AS v FROM "
    f"({_R} SELECT n FROM r) WHERE EXISTS ({_R.replace('links', 'edges')} SELECT 1 FROM r WHERE n < 1000)",
    "in IN": f"SELECT m AS n, 0L AS v FROM (SELECT b AS m FROM links UNION SELECT node FROM starts) "
    f"WHERE m IN ({_R} SELECT n FROM r)",
    "in EXISTS, correlated": f"SELECT m AS n, 0L AS v FROM (SELECT b AS m FROM links UNION SELECT node FROM starts) o "
    f"WHERE EXISTS ({_R} SELECT 1 FROM r WHERE r.n = o.m)",
    "as a value": f"SELECT r.n, ({_R} SELECT count(*) - count(*) FROM r) AS v FROM ({_R} SELECT n FROM r) r",
    "lateral": f"SELECT n, v FROM (SELECT count(*) - count(*) AS v FROM links), LATERAL ({_R} SELECT n FROM r)",
    "names used again": f"WITH RECURSIVE r(n) AS ({_R} SELECT n FROM r), t AS ({_R}, t AS (SELECT n FROM r) SELECT n "
    "FROM t) SELECT r.n, 0L AS v FROM r JOIN t ON t.n = r.n",
    "in pipes": f"FROM ({_R} FROM r |> SELECT n) |> EXTEND 0L AS v |> SELECT n, v",
    "joined in pipes": f"FROM (SELECT count(*) - count(*) AS v FROM links) "
    f"|> CROSS JOIN ({_R} SELECT n FROM r) |> SELECT n, v",
}


# -- cases -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """Views, each over those before it, and what the last one holds."""

    views: dict[str, str]
    twins: tuple[Twin, ...]

    @property
    def last(self) -> str:
        return list(self.views)[-1]

    def meant(self, tables: Tables) -> Bag:
        rows = tables["edges"]
        for twin in self.twins:
            rows = +twin(rows, tables)
        return rows


def chain(number: int) -> Chain:
    """The views of a number. The first numbers have every loop in them, with the simplest views around it."""
    dice = random.Random(f"chain {number}")
    names, plain = list(LOOPS), number < len(LOOPS)
    loop = LOOPS[names[number % len(names)]]
    below = [next(iter(BELOW))] if plain else dice.choices(list(BELOW), k=dice.choice([1, 1, 2]))
    above = [] if plain else dice.choices(list(ABOVE), k=dice.choice([0, 1, 1, 2, 2]))
    views: dict[str, str] = {}
    table = "edges"
    for place, text in enumerate(below):
        name = "links" if place == len(below) - 1 else f"below{place}"
        views[name], table = text.format(table), name
    if number % 3 == 1:  # one statement
        defined = ", ".join(f"{name} AS ({text})" for name, text in views.items())
        views = {"looped": f"WITH RECURSIVE {defined}, {loop.definitions} {loop.query}"}
    else:
        views["looped"] = f"WITH RECURSIVE {loop.definitions} {loop.query}"
    table = "looped"
    for place, text in enumerate(above):
        views[f"above{place}"], table = text.format(table), f"above{place}"
    spell = list(SPELLINGS.values())[number % len(SPELLINGS)]
    twins = (*(BELOW[text] for text in below), loop.twin, *(ABOVE[text] for text in above))
    return Chain({name: spell(text) for name, text in views.items()}, twins)


class Graph:
    """Tables over a few nodes, which change at random: cycles, self loops, copies, parts that are not connected. The
    last of a chain's graphs begins as a long chain."""

    def __init__(self, number: int, place: int) -> None:
        self._dice = random.Random(f"graph {number} {place}")
        self._first = 100 * place
        self._long = place == GRAPHS - 1
        self._nodes = 15 if self._long else self._dice.choice([3, 5, 8])
        self.tables: dict[str, Bag] = {name: Counter() for name in SCHEMAS}

    def change(self, epoch: int) -> dict[str, Bag]:
        """What comes and goes in an epoch."""
        dice = self._dice
        found: dict[str, Bag] = {}
        for name, rows in self.tables.items():
            come = Counter(self._row(name) for _ in range(dice.choice([0, 1, 1, 3])))
            if self._long and epoch == 0 and name == "edges":
                come = Counter((self._first + each, self._first + each + 1) for each in range(self._nodes - 1))
            gone = Counter({row: dice.randint(1, copies) for row, copies in rows.items() if dice.random() < 0.25})
            self.tables[name] = rows - gone + come
            come.subtract(gone)
            found[name] = Counter({row: diff for row, diff in come.items() if diff})
        return found

    def _row(self, name: str) -> tuple[int, ...]:
        dice, first = self._dice, self._first
        node = dice.randrange(self._nodes)
        match name:
            case "starts":
                return (first + node,)
            case "nodes":
                return first + node, dice.randrange(4)
        other = dice.choice([node, node + 1, node - 1]) % self._nodes if self._long else dice.randrange(self._nodes)
        return first + node, first + other


def together(bags: Iterable[Mapping[str, Bag]]) -> dict[str, Bag]:
    """The tables, or changes, of graphs that have no node in common."""
    found: dict[str, Bag] = {name: Counter() for name in SCHEMAS}
    for each in bags:
        for name, bag in each.items():
            found[name].update(bag)
    return found
