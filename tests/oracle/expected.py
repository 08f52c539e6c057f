"""What a Spark user expects of SQL beyond the generated cases: one small view for each construct.

A view that is `Kept` is run, and compared with Spark's batch result after every epoch. One that is `Refused` is refused
when it is declared, for the reason given. `test_documentation` prints both in docs/sql.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from .kept import Kept
from .recursing import RECURSION
from .registry import CHANGE, GROUP, SIDE

EXACT = "(SELECT DISTINCT id, user, units, paid, day, ts FROM orders)"
"""Rows whose order is certain: no two are equal, and equal values are the same value."""


@dataclass(frozen=True)
class Refused:
    """``marked``: SQL, with the mark ^ before the place that the error names (no mark: there is no place). ``why`` is
    in the message."""

    name: str
    marked: str
    why: str

    @property
    def sql(self) -> str:
        return self.marked.replace("^", "", 1)


ROW = "row by row"
"""Nothing is kept: each row that changes is computed by itself."""

_SELECT = [
    Kept(
        "lateral column aliases",
        "SELECT units * 2 AS twice, twice + 1 AS more, more % 3 AS left FROM orders",
        ROW,
        CHANGE,
    ),
    Kept(
        "… of an aggregate",
        "SELECT user, sum(units) AS s, s * 2 AS d FROM orders GROUP BY user",
        "the aggregate; the rest is computed from it",
        CHANGE,
    ),
    Kept(
        "… in WHERE of a query around it",
        "SELECT * FROM (SELECT id, units + 1 AS a, a * 2 AS b FROM orders) WHERE b > 4",
        ROW,
        CHANGE,
    ),
    Kept("SELECT * EXCEPT", "SELECT * EXCEPT (tags, place, amount) FROM orders", ROW, CHANGE),
    Kept("SELECT t.* EXCEPT", "SELECT o.* EXCEPT (o.place.b, tags), 1 AS one FROM orders o", ROW, CHANGE),
    Kept("struct.*", "SELECT id, place.* FROM orders", ROW, CHANGE),
    Kept("FROM first", "FROM orders SELECT id, user", ROW, CHANGE),
    Kept("TABLE", "TABLE users", "as it is", CHANGE),
    Kept("IDENTIFIER", "SELECT IDENTIFIER('id') AS i FROM IDENTIFIER('orders')", ROW, CHANGE),
    Kept(
        "::, int(…), !=, <=>",
        "select id::string as a, int(id % 100) as b, user <=> null as c from orders where id != 1",
        ROW,
        CHANGE,
    ),
    Kept("IS DISTINCT FROM", "SELECT id FROM orders WHERE units IS DISTINCT FROM 1", ROW, CHANGE),
    Kept(
        "LIKE ANY, RLIKE, ILIKE",
        "SELECT id FROM orders WHERE user LIKE ANY ('a%', '%b') OR user RLIKE '^z' OR user ILIKE 'AB'",
        ROW,
        CHANGE,
    ),
    Kept(
        "comments, hints and odd spaces",
        "select /*+ broadcast(u) */ o.id,\tu.city from orders o /* with a city */ join users u\r\n on o.user=u.name",
        "a join by the user",
        CHANGE,
    ),
    Kept(
        "ORDER BY without LIMIT",
        "SELECT id, user FROM orders ORDER BY ALL",
        "a view has no order: as without it",
        CHANGE,
    ),
    Kept(
        "LIMIT of an expression",
        "SELECT id, user, units FROM orders ORDER BY id, user, units LIMIT 1 + 2",
        "the first rows, in order",
        CHANGE,
    ),
    Kept(
        "OFFSET",
        "SELECT id, user, units FROM orders ORDER BY id, user, units LIMIT 3 OFFSET 2",
        "the first rows, in order",
        CHANGE,
    ),
    Kept(
        "DISTRIBUTE BY, SORT BY, CLUSTER BY",
        "SELECT id FROM orders DISTRIBUTE BY user SORT BY id",
        "a view has no order: as without it",
        CHANGE,
    ),
    Kept("SELECT without FROM", "SELECT 1 AS one, 'a' AS a", "a row that does not change", CHANGE),
    Kept("VALUES", "VALUES (1, 'one'), (2, 'two'), (2, 'two')", "rows that do not change", CHANGE),
    Kept(
        "VALUES in a join",
        "SELECT o.id, v.label FROM orders o JOIN (VALUES (1, 'one'), (2, 'two')) AS v(n, label) ON o.units = v.n",
        "a join by the number",
        CHANGE,
    ),
    Kept(
        "range",
        "SELECT o.user, r.id AS n FROM orders o JOIN range(3) r ON r.id < o.units",
        "a join without a key",
        SIDE,
    ),
]

_JOINS = [
    Kept(
        "NATURAL JOIN",
        "SELECT * FROM (SELECT id, user FROM orders) NATURAL JOIN (SELECT id, city FROM users)",
        "a join by the columns of the same name",
        CHANGE,
    ),
    Kept(
        "NATURAL FULL JOIN",
        "SELECT * FROM (SELECT id, user FROM orders) NATURAL FULL JOIN (SELECT id, city FROM users)",
        "a join by the columns of the same name",
        CHANGE,
    ),
    Kept(
        "JOIN USING",
        "SELECT * FROM (SELECT id, user FROM orders) JOIN (SELECT id, city FROM users) USING (id)",
        "a join by them",
        CHANGE,
    ),
    Kept("LEFT JOIN USING", "SELECT id, user, city FROM orders LEFT JOIN users USING (id)", "a join by them", CHANGE),
    Kept("FULL JOIN USING", "SELECT id, user, city FROM orders FULL JOIN users USING (id)", "a join by them", CHANGE),
    Kept(
        "LEFT SEMI JOIN USING",
        "select * from users left semi join (select user as name, id as n from orders) o using (name)",
        "a semi join by them",
        CHANGE,
    ),
    Kept(
        "LEFT ANTI JOIN USING",
        "select * from users left anti join (select user as name, id as n from orders) o using (name)",
        "a semi join by them",
        CHANGE,
    ),
    Kept(
        "a join in parentheses",
        "SELECT o.id, u.city FROM (orders o JOIN users u ON o.user = u.name) LEFT JOIN users v ON v.id = o.units",
        "two joins",
        CHANGE,
    ),
    Kept(
        "LATERAL subquery",
        "SELECT o.id, x.city FROM orders o, LATERAL (SELECT u.city FROM users u WHERE u.name = o.user AND u.id > 0) x",
        "a join by the correlated equality",
        CHANGE,
    ),
    Kept(
        "LATERAL subquery with an aggregate",
        "SELECT o.id, x.n FROM orders o, LATERAL (SELECT count(*) AS n FROM users u WHERE u.name = o.user) x",
        "the aggregate by the correlated columns, joined",
        CHANGE,
    ),
    Kept(
        "LEFT JOIN LATERAL",
        "SELECT o.id, x.city FROM orders o LEFT JOIN LATERAL (SELECT u.city FROM users u WHERE u.name "
        "= o.user) x ON true",
        "a left join by the correlated equality",
        CHANGE,
    ),
    Kept(
        "LATERAL subquery with ORDER BY … LIMIT",
        "SELECT o.id, x.id AS u FROM orders o, LATERAL (SELECT u.id FROM users u WHERE u.name = "
        "o.user ORDER BY u.id LIMIT 1) x",
        "the first rows by the correlated columns, joined",
        GROUP,
    ),
    Kept(
        "WITH in a correlated subquery",
        "SELECT o.id FROM orders o WHERE o.units > (WITH t AS (SELECT id, name FROM users WHERE age > 1) "
        "SELECT min(id) FROM t WHERE t.name = o.user)",
        "its definition written out, then as the subquery without it",
        CHANGE,
    ),
    Kept(
        "WITH in a correlated subquery, used twice, over a WITH around it",
        "WITH g AS (SELECT name, max(id) AS m FROM users GROUP BY name) SELECT o.id, (WITH t AS (SELECT m FROM g "
        "WHERE g.name = o.user) SELECT max(x.m + y.m) FROM t x JOIN t y ON x.m = y.m) AS s FROM orders o",
        "its definitions written out, then as the subquery without them",
        CHANGE,
    ),
    Kept(
        "LATERAL subquery of the row alone",
        "SELECT o.id, x.v FROM orders o, LATERAL (SELECT o.units + 1 AS v) x",
        ROW,
        CHANGE,
    ),
    Kept(
        "row-valued IN",
        "SELECT id, user FROM orders WHERE (id, user) IN (SELECT id, name FROM users)",
        "a semi join by both",
        CHANGE,
    ),
    Kept(
        "row-valued NOT IN",
        "SELECT id, user FROM orders WHERE (units, paid) NOT IN (SELECT id, active FROM users WHERE "
        "id > 0 AND active IS NOT NULL)",
        "an anti join; rows with NULL by a comparison",
        SIDE,
    ),
    Kept(
        "row-valued IN of constants",
        "SELECT id FROM orders WHERE (units, paid) IN ((1, true), (2, false))",
        ROW,
        CHANGE,
    ),
    Kept(
        "a subquery in ON",
        "SELECT o.id, u.city FROM orders o JOIN users u ON o.user = u.name AND o.units IN (SELECT id FROM users)",
        "a join, and a semi join",
        CHANGE,
    ),
]

_GROUPS = [
    Kept("HAVING alone", "SELECT count(*) AS n FROM orders HAVING count(*) > 7", "one group", CHANGE),
    Kept(
        "HAVING alone, and no aggregate selected",
        "SELECT 'many' AS word FROM orders HAVING max(units) > 2",
        "one group",
        CHANGE,
    ),
    Kept(
        "GROUP BY ALL",
        "SELECT user, paid, count(*) AS n, max(id) AS m FROM orders GROUP BY ALL",
        "groups by what is not aggregated",
        CHANGE,
    ),
    Kept("GROUP BY ALL of all columns", "SELECT user, paid FROM orders GROUP BY ALL", "distinct rows", CHANGE),
    Kept(
        "GROUP BY a position or an alias",
        "SELECT upper(user) AS u, paid, count(*) AS n FROM orders GROUP BY u, 2",
        "groups",
        CHANGE,
    ),
    Kept(
        "PIVOT of several aggregates",
        "SELECT * FROM (SELECT user, paid, units FROM orders) PIVOT (sum(units) AS s, count(*) AS n "
        "FOR paid IN (true AS yes, false AS no))",
        "the aggregates by key and value",
        CHANGE,
    ),
    Kept(
        "PIVOT by several columns",
        "SELECT * FROM (SELECT user, paid, units, id FROM orders) PIVOT (max(id) FOR (paid, units) IN "
        "((true, 1) AS a, (false, 2) AS b))",
        "the aggregates by key and value",
        CHANGE,
    ),
    Kept(
        "UNPIVOT",
        "SELECT * FROM (SELECT name, age, id FROM users) UNPIVOT (v FOR n IN (age, id AS number))",
        ROW,
        CHANGE,
    ),
    Kept(
        "UNPIVOT INCLUDE NULLS",
        "SELECT * FROM (SELECT name, age, id FROM users) UNPIVOT INCLUDE NULLS (v FOR n IN (age, id))",
        ROW,
        CHANGE,
    ),
    Kept(
        "UNPIVOT of several columns",
        "SELECT * FROM (SELECT name, age, id, city FROM users) UNPIVOT ((v, w) FOR n IN ((age, city) "
        "AS a, (id, name) AS b))",
        ROW,
        CHANGE,
    ),
    Kept(
        "count(a, b)",
        "SELECT user, count(units, paid) AS n FROM orders GROUP BY user",
        "how many have neither NULL",
        CHANGE,
    ),
    Kept(
        "count(DISTINCT a, b)",
        "SELECT count(DISTINCT user, id) AS n FROM orders",
        "the pairs, each with its count",
        CHANGE,
    ),
    Kept(
        "count(DISTINCT *)",
        "SELECT count(DISTINCT *) AS n FROM (SELECT user, paid FROM orders)",
        "the rows, each with its count",
        CHANGE,
    ),
    Kept(
        "listagg",
        "SELECT paid, listagg(user, ',') WITHIN GROUP (ORDER BY user) AS l FROM orders GROUP BY paid",
        "the values of the group, in order",
        GROUP,
    ),
    Kept(
        "listagg(DISTINCT …), string_agg",
        "SELECT paid, string_agg(DISTINCT user, '-') WITHIN GROUP (ORDER BY user DESC) AS l FROM orders GROUP BY paid",
        "the values of the group, in order",
        GROUP,
    ),
    Kept(
        "first, last … IGNORE NULLS",
        "SELECT user, first(units) IGNORE NULLS AS f, last(units, true) AS l FROM orders GROUP BY user",
        "the least value that is not NULL, so that a replay gives the same",
        CHANGE,
        asked="SELECT user, min(units) AS f, min(units) AS l FROM orders GROUP BY user",
    ),
    Kept(
        "approx_count_distinct",
        "SELECT paid, approx_count_distinct(user) AS n FROM orders GROUP BY paid",
        "exactly: the values, each with its count",
        CHANGE,
    ),
    Kept(
        "approx_percentile, percentile_approx",
        "SELECT paid, approx_percentile(units, 0.5) AS p, percentile_approx(id, array(0.2, 0.9)) AS q "
        "FROM orders GROUP BY paid",
        "exactly: the values of the group, in order",
        GROUP,
    ),
    Kept(
        "try_sum, try_avg",
        "SELECT user, try_sum(units) AS s, try_avg(id) AS a FROM orders GROUP BY user",
        "the sums and the counts",
        CHANGE,
    ),
    Kept(
        "corr, regr_slope",
        "SELECT paid, corr(units, length(user)) AS c, regr_slope(units, length(user)) AS s FROM orders GROUP BY paid",
        "sums of powers",
        CHANGE,
    ),
    Kept(
        "grouping_id of ROLLUP",
        "SELECT user, paid, grouping(paid) AS g, grouping_id() AS i, count(*) AS n FROM orders GROUP "
        "BY ROLLUP (user, paid)",
        "an aggregate of each set of keys",
        CHANGE,
    ),
]

_PIPES = [
    Kept(
        "|> WHERE, EXTEND, SET, DROP, AS",
        "FROM orders |> SELECT id, units, user |> WHERE units > 0 |> EXTEND units * 2 AS d |> SET "
        "units = d + 1 |> DROP d |> AS q |> SELECT q.id, units",
        ROW,
        CHANGE,
    ),
    Kept(
        "|> AGGREGATE",
        "FROM orders |> AGGREGATE sum(units) AS s, count(*) AS n GROUP BY user |> WHERE n > 1",
        "groups",
        CHANGE,
    ),
    Kept(
        "|> JOIN",
        "FROM orders |> AS o |> LEFT JOIN users u ON o.user = u.name |> SELECT o.id, u.city",
        "a join",
        CHANGE,
    ),
    Kept(
        "|> ORDER BY, LIMIT",
        "FROM orders |> SELECT id, user, units |> ORDER BY id DESC, user, units |> LIMIT 3",
        "the first rows, in order",
        CHANGE,
    ),
    Kept(
        "|> UNION ALL, PIVOT",
        "FROM orders |> SELECT user, paid |> UNION ALL SELECT name, active FROM users |> PIVOT "
        "(count(*) FOR paid IN (true, false))",
        "the aggregates by key and value",
        CHANGE,
    ),
]

_VALUES = [
    Kept(
        "transform, filter, exists, forall",
        "SELECT id, transform(tags, (x, i) -> x + i) AS a, filter(tags, x -> x > 1) AS b, "
        "exists(tags, x -> x = units) AS c, forall(tags, x -> x > 0) AS d FROM orders",
        ROW,
        CHANGE,
    ),
    Kept(
        "aggregate, reduce, zip_with",
        "SELECT id, aggregate(tags, 0, (a, x) -> a + coalesce(x, 0), a -> a * 10) AS a, "
        "zip_with(tags, array(1, 2), (x, y) -> x * y) AS b FROM orders",
        ROW,
        CHANGE,
    ),
    Kept(
        "lambdas of maps",
        "SELECT id, map_filter(map('a', units, 'b', 2), (k, v) -> v > 1) AS a, "
        "transform_values(map('a', units), (k, v) -> concat(k, v)) AS b FROM orders",
        ROW,
        CHANGE,
    ),
    Kept(
        "array_sort with a comparison",
        "SELECT id, array_sort(tags, (a, b) -> CASE WHEN a < b THEN 1 WHEN a > b THEN -1 ELSE 0 END) "
        "AS s FROM orders WHERE NOT exists(tags, x -> x IS NULL)",
        ROW,
        CHANGE,
    ),
    Kept(
        "collations, comparisons",
        "SELECT id, user FROM orders WHERE user COLLATE UTF8_LCASE = 'A' OR contains(user COLLATE "
        "UNICODE_CI, 'PREFIX')",
        ROW,
        CHANGE,
    ),
    Kept(
        "intervals of days and seconds, as values",
        "SELECT id, ts - TIMESTAMP'2024-02-29 12:00:00' AS i, make_dt_interval(units) AS j FROM orders",
        ROW,
        CHANGE,
    ),
    Kept(
        "intervals of days and seconds, as keys",
        "SELECT make_dt_interval(units) AS i, count(*) AS n FROM orders GROUP BY i",
        "groups",
        CHANGE,
    ),
    Kept(
        "sums and extremes of intervals",
        "SELECT user, sum(make_dt_interval(units)) AS s, max(make_dt_interval(units)) AS m FROM orders GROUP BY user",
        "the sum; the extremes",
        CHANGE,
    ),
    Kept(
        "dates and intervals",
        "SELECT id, day + INTERVAL 1 MONTH AS a, ts + make_dt_interval(1, units) AS b, "
        "add_months(day, units) AS c FROM orders",
        ROW,
        CHANGE,
    ),
    Kept(
        "variant, as values",
        """SELECT id, parse_json(concat('{"a":', coalesce(units, 0), '}')) AS v FROM orders""",
        ROW,
        CHANGE,
        asked="""SELECT id, parse_json(concat('{"a":', coalesce(units, 0), '}')) AS v FROM orders""",
    ),
    Kept(
        "variant, its parts as keys",
        """SELECT v:a::int AS k, count(*) AS n FROM (SELECT parse_json(concat('{"a":', units, '}')) AS """
        """v FROM orders) GROUP BY k""",
        "groups",
        CHANGE,
    ),
    Kept(
        "timestamp_ntz, as values",
        "SELECT id, CAST(ts AS TIMESTAMP_NTZ) AS t, TIMESTAMP_NTZ'2024-01-01 10:00:00' AS c FROM orders",
        ROW,
        CHANGE,
    ),
    Kept(
        "timestamp_ntz, as keys",
        "SELECT CAST(ts AS TIMESTAMP_NTZ) AS t, count(*) AS n, max(CAST(ts AS TIMESTAMP_NTZ)) AS m "
        "FROM orders GROUP BY t",
        "groups",
        CHANGE,
    ),
    Kept(
        "timestamp_ntz, in joins",
        "SELECT o.id, u.id AS u FROM orders o JOIN users u ON date_trunc('DAY', CAST(o.ts AS "
        "TIMESTAMP_NTZ)) = CAST(u.since AS TIMESTAMP_NTZ)",
        "a join",
        CHANGE,
    ),
    Kept("binary, as keys", "SELECT CAST(user AS binary) AS b, count(*) AS n FROM orders GROUP BY b", "groups", CHANGE),
    Kept(
        "SQL functions",
        "SELECT id, hf_twice(units) AS t FROM orders WHERE hf_twice(units) > 2",
        "as it was when the view was declared",
        CHANGE,
    ),
    Kept(
        "session variables",
        "SELECT id FROM orders WHERE units >= hf_least",
        "the value that it had when the view was declared",
        CHANGE,
        asked="SELECT id FROM orders WHERE units >= 2",
    ),
]

_WINDOWS = [
    Kept(
        "rows between 1 preceding and 1 following",
        "select id, sum(units) over (partition by paid order by id, user, units, day, ts rows between "
        f"1 preceding and 1 following) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "rows between unbounded preceding and current row",
        "select id, sum(units) over (partition by paid order by id, user, units, day, ts rows between "
        f"unbounded preceding and current row) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "rows unbounded preceding",
        "select id, count(units) over (partition by paid order by id, user, units, day, ts rows "
        f"unbounded preceding) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "Rows 2 Preceding",
        "select id, Sum(units) Over (Partition By paid Order By id, user, units, day, ts Rows 2 "
        f"Preceding) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "SELECT id, min(units) OVER (PARTITION BY paid ORDER BY id, user, units, day, ts ROWS BETWEEN "
        f"CURRENT ROW AND UNBOUNDED FOLLOWING) AS z FROM {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "rows between 2 preceding and 1 preceding",
        "select id, avg(units) over (partition by paid order by id, user, units, day, ts rows between "
        f"2 preceding and 1 preceding) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "rows between 1 following and 2 following",
        "select id, max(units) over (partition by paid order by id, user, units, day, ts rows between "
        f"1 following and 2 following) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "a bound that is an expression",
        "select id, sum(units) over (partition by paid order by id, user, units, day, ts rows between "
        f"1 + 1 preceding and current row) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "range between interval 10 days preceding and current row",
        "select id, count(*) over (partition by paid order by day range between interval 10 days "
        f"preceding and current row) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "range between interval … and interval … following",
        "select id, count(*) over (order by ts range between interval 5 minutes preceding and "
        f"interval '10' minute following) as z from {EXACT}",
        "all rows, in order",
        GROUP,
    ),
    Kept(
        "range between 1 preceding and 1 following",
        "select id, sum(units) over (partition by paid order by units range between 1 preceding and 1 "
        f"following) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "range unbounded preceding",
        "select id, sum(units) over (partition by paid order by units desc range unbounded preceding) "
        f"as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "range between current row and unbounded following",
        "select id, sum(units) over (partition by paid order by units nulls last range between "
        f"current row and unbounded following) as z from {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "between unbounded preceding and unbounded following",
        "select id, sum(units) over (partition by paid order by id range between unbounded preceding "
        f"and unbounded following) as z from {EXACT}",
        "an aggregate of the partition, joined",
        GROUP,
    ),
    Kept("OVER ()", f"SELECT id, count(*) OVER () AS n FROM {EXACT}", "an aggregate of all rows", SIDE),
    Kept(
        "WINDOW w AS",
        f"select id, rank() over w as r, sum(units) over w as z from {EXACT} window w as (partition by "
        "paid order by id, user, units, day, ts)",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "lag, lead … IGNORE NULLS",
        "SELECT id, lag(units) IGNORE NULLS OVER (PARTITION BY paid ORDER BY id, user, units, day, "
        "ts) AS a, lead(units, 2, -1) IGNORE NULLS OVER (PARTITION BY paid ORDER BY id, user, units, "
        f"day, ts) AS b FROM {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "first_value, last_value, nth_value … IGNORE NULLS",
        "SELECT id, last_value(units) IGNORE NULLS OVER (PARTITION BY paid ORDER BY id, user, units, "
        "day, ts ROWS UNBOUNDED PRECEDING) AS a, nth_value(units, 2) IGNORE NULLS OVER (PARTITION BY "
        f"paid ORDER BY id, user, units, day, ts) AS b FROM {EXACT}",
        "the partition, in order",
        GROUP,
    ),
    Kept(
        "QUALIFY",
        f"SELECT id, user, units FROM {EXACT} QUALIFY row_number() OVER (PARTITION BY user ORDER BY id "
        "DESC, units, paid, day, ts) <= 2",
        "the first rows of the partition",
        GROUP,
    ),
    Kept(
        "an aggregate inside OVER",
        "SELECT user, sum(units) AS s, rank() OVER (ORDER BY sum(units) DESC) AS r FROM orders GROUP BY user",
        "the groups; all of them, in order",
        GROUP,
    ),
]

FAMILIES = {
    "Selecting": _SELECT,
    "Recursion": RECURSION,
    "More joins and subqueries": _JOINS,
    "More aggregates": _GROUPS,
    "Pipe syntax": _PIPES,
    "Values": _VALUES,
    "Frames and windows": _WINDOWS,
}
KEPT = [each for family in FAMILIES.values() for each in family]
