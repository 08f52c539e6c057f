"""Views over the tables of `data` at the edges of constructs: conditions that are constant, widened types, subqueries
in odd places, nothing to aggregate."""

from __future__ import annotations

CONSTANT = {
    "where_false": "SELECT id, user FROM orders WHERE false",
    "sum_of_nothing": "SELECT sum(units) AS s, count(*) AS n, max(day) AS d FROM orders WHERE false",
    "groups_of_nothing": "SELECT user, count(*) AS n FROM orders WHERE 1 = 0 GROUP BY user",
    "rollup_of_nothing": "SELECT user, count(*) AS n FROM orders WHERE id < -99 GROUP BY ROLLUP (user)",
    "inner_on_false": "SELECT o.id FROM orders o JOIN users u ON false",
    "left_on_false": "SELECT o.id, u.name FROM orders o LEFT JOIN users u ON false",
    "left_on_true": "SELECT o.units, u.active FROM orders o LEFT JOIN users u ON true",
    "full_on_false": "SELECT o.id, u.id AS uid FROM orders o FULL JOIN users u ON 1 = 0",
    "full_on_true": "SELECT o.units, u.active FROM orders o FULL JOIN users u ON 1 = 1",
    "left_on_left": "SELECT o.id, u.name FROM orders o LEFT JOIN users u ON o.paid",
    "left_on_right": "SELECT o.id, u.name FROM orders o LEFT JOIN users u ON u.active",
    "right_on_left": "SELECT o.id, u.name FROM orders o RIGHT JOIN users u ON o.paid",
    "full_on_left": "SELECT o.units, u.id FROM orders o FULL JOIN users u ON o.paid",
    "anti_on_nothing": "SELECT o.id FROM orders o LEFT ANTI JOIN users u ON u.id > 99",
    "semi_on_true": "SELECT o.id FROM orders o LEFT SEMI JOIN users u",
    "having_alone": "SELECT 1 AS one FROM orders HAVING count(*) > 8",
    "constants": "SELECT 1 AS a, 'x' AS b, NULL AS c FROM orders",
    "constant_group": "SELECT 'x' AS b, count(*) AS n FROM orders GROUP BY 'x', user",
    "limit_0": "SELECT id FROM orders ORDER BY id LIMIT 0",
    "unmatched": "SELECT o.id, o.user FROM orders o LEFT JOIN users u ON o.user = u.name WHERE u.name IS NULL",
    "twice": "SELECT user FROM orders UNION ALL SELECT user FROM orders",
    "shadowed": "WITH users AS (SELECT user AS name FROM orders WHERE paid) SELECT name FROM users",
    "cte_twice": (
        "WITH w AS (SELECT user, count(*) AS n FROM orders GROUP BY user) "
        "SELECT a.user, a.n, b.n AS m FROM w a LEFT JOIN w b ON a.n = b.n + 1"
    ),
    "count_distinct_rows": "SELECT count(*) AS n FROM (SELECT DISTINCT user, paid FROM orders)",
}
WIDENED = {
    "bigint_int": "SELECT o.id, u.id AS uid FROM orders o JOIN users u ON o.id = u.id",
    "bigint_decimal": "SELECT o.id, u.credit FROM orders o LEFT JOIN users u ON o.id = u.credit",
    "int_double": "SELECT o.units, u.score FROM orders o FULL JOIN users u ON o.units = u.score",
    "double_float": "SELECT o.amount, u.ratio FROM orders o JOIN users u ON o.amount = u.ratio",
    "float_safe": "SELECT o.amount, u.ratio FROM orders o LEFT JOIN users u ON o.amount <=> u.ratio",
    "decimals": "SELECT o.price, u.worth FROM orders o FULL JOIN users u ON o.price = u.worth",
    "date_timestamp": "SELECT o.ts, u.since FROM orders o LEFT JOIN users u ON o.ts >= u.since AND o.day = u.since",
    "in_widened": "SELECT id, units FROM orders WHERE units IN (SELECT score FROM users)",
    "not_in_widened": "SELECT id, units FROM orders WHERE units NOT IN (SELECT age FROM users WHERE age IS NOT NULL)",
    "in_decimal": (
        "SELECT id, price FROM orders WHERE price IN (SELECT id FROM users) OR price IN (SELECT credit FROM users)"
    ),
    "union_widened": "SELECT id, units, day FROM orders UNION SELECT credit, score, since FROM users",
    "intersect_widened": "SELECT id FROM orders INTERSECT SELECT score FROM users",
    "except_widened": "SELECT amount FROM orders EXCEPT ALL SELECT ratio FROM users",
    "scalar_widened": "SELECT id, coalesce((SELECT max(score) FROM users u WHERE u.id = o.id), 0) AS m FROM orders o",
    "max_struct": "SELECT user, max(place) AS a, min(tags) AS b, count(DISTINCT place) AS c FROM orders GROUP BY user",
    "lists_of_structs": (
        "SELECT paid, sort_array(collect_list(place)) AS a, sort_array(collect_set(tags)) AS b FROM orders "
        "GROUP BY paid"
    ),
    "distinct_doubles": (
        "SELECT paid, count(DISTINCT amount) AS n, sum(DISTINCT amount) AS s, avg(DISTINCT price) AS a FROM "
        "orders GROUP BY paid"
    ),
    "median_decimal": (
        "SELECT active, median(worth) AS a, percentile(credit, array(0.0, 0.5, 1.0)) AS b FROM users GROUP BY active"
    ),
    "join_structs": "SELECT a.id, b.units FROM orders a JOIN orders b ON a.place = b.place AND a.tags <=> b.tags",
    "by_struct": "SELECT place, tags, ts, count(*) AS n, sum(price) AS s FROM orders GROUP BY place, tags, ts",
    "window_by_struct": (
        "SELECT place, units, sum(units) OVER (PARTITION BY place ORDER BY amount, tags) AS s FROM orders"
    ),
    "case_widened": "SELECT CASE WHEN paid THEN id ELSE price END AS x, count(*) AS n FROM orders GROUP BY 1",
    "nested_distinct": "SELECT count(DISTINCT x) AS n FROM (SELECT DISTINCT amount + 0.0D AS x, user FROM orders)",
}
SUBQUERIES = {
    "exists_limit": "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM users u WHERE u.name = o.user LIMIT 1)",
    "scalar_having": (
        "SELECT id, (SELECT count(*) FROM users u WHERE u.name = o.user HAVING count(*) > 1) AS n FROM orders o"
    ),
    "in_filter": "SELECT count(*) FILTER (WHERE user IN (SELECT name FROM users)) AS n FROM orders",
    "exists_in_sum": (
        "SELECT paid, sum(CASE WHEN EXISTS (SELECT 1 FROM users u WHERE u.name = o.user) THEN 1 ELSE 0 END) "
        "AS s FROM orders o GROUP BY paid"
    ),
    "scalar_key": (
        "SELECT paid, (SELECT max(id) FROM users) AS m, count(*) AS n FROM orders GROUP BY paid, (SELECT "
        "max(id) FROM users)"
    ),
    "scalar_order": "SELECT id, user FROM orders ORDER BY id + (SELECT count(*) FROM users), user LIMIT 3",
    "scalar_argument": "SELECT user, sum(units + (SELECT count(*) FROM users)) AS n FROM orders GROUP BY user",
    "not_and": "SELECT id, user FROM orders WHERE NOT (user IN (SELECT name FROM users) AND paid)",
    "in_is_null": "SELECT id, user FROM orders WHERE (user IN (SELECT name FROM users)) IS NULL",
    "in_is_true": "SELECT id, user FROM orders WHERE (user IN (SELECT name FROM users)) = true",
    "in_case": "SELECT id FROM orders WHERE CASE WHEN user IN (SELECT name FROM users) THEN paid ELSE units > 1 END",
    "in_value": (
        "SELECT id, user IN (SELECT name FROM users) AS a, units NOT IN (SELECT id FROM users) AS b FROM orders"
    ),
    "exists_value": "SELECT id, EXISTS (SELECT 1 FROM users u WHERE u.name = o.user AND u.active) AS e FROM orders o",
    "not_exists_value": "SELECT id, NOT EXISTS (SELECT 1 FROM users WHERE age > 2) AS e FROM orders",
    "pair_in": "SELECT id, user FROM orders WHERE (user, units) IN (SELECT name, id FROM users)",
    "nested_in": (
        "SELECT id FROM orders WHERE user IN (SELECT name FROM users WHERE city IN (SELECT user FROM orders "
        "WHERE paid))"
    ),
    "nested_exists": (
        "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM users u WHERE u.name = o.user "
        "AND NOT EXISTS (SELECT 1 FROM orders p WHERE p.user = u.city))"
    ),
    "in_groups": "SELECT id, user FROM orders WHERE user IN (SELECT name FROM users GROUP BY name HAVING count(*) > 1)",
    "not_in_groups": "SELECT id, user FROM orders WHERE units NOT IN (SELECT max(id) FROM users GROUP BY city)",
    "in_union": "SELECT id, user FROM orders WHERE user IN (SELECT name FROM users UNION SELECT city FROM users)",
    "scalar_of_nothing": (
        "SELECT id, (SELECT max(age) FROM users WHERE false) AS m, (SELECT count(*) FROM users WHERE id > 99) "
        "AS n FROM orders"
    ),
    "two_scalars": (
        "SELECT id, (SELECT max(age) FROM users u WHERE u.name = o.user) - (SELECT min(age) FROM users u "
        "WHERE u.name = o.user) "
        "AS d FROM orders o"
    ),
    "scalar_case": (
        "SELECT id, CASE WHEN paid THEN (SELECT count(*) FROM users u WHERE u.id = o.units) ELSE -1 END AS n "
        "FROM orders o"
    ),
    "not_in_and_in": (
        "SELECT id FROM orders WHERE units NOT IN (SELECT id FROM users WHERE active) AND user IN (SELECT "
        "name FROM users)"
    ),
    "having_in": "SELECT user, count(*) AS n FROM orders GROUP BY user HAVING count(*) IN (SELECT id FROM users)",
    "in_over_join": (
        "SELECT o.id, u.city FROM orders o LEFT JOIN users u ON o.user = u.name WHERE u.city NOT IN (SELECT "
        "user FROM orders WHERE paid)"
    ),
}
THRESHOLDS = {
    "above_mean": "SELECT id, amount FROM orders WHERE amount > (SELECT avg(amount) FROM orders)",
    "up_to_mean": "SELECT id, amount FROM orders WHERE amount <= (SELECT avg(score) FROM users WHERE active)",
    "is_most": "SELECT id, day FROM orders WHERE day = (SELECT max(since) FROM users)",
    "is_not_most": "SELECT id, user FROM orders WHERE user <> (SELECT max(name) FROM users)",
    "below_null": "SELECT id FROM orders WHERE units < (SELECT max(id) FROM users WHERE id > 99)",
    "mirrored": "SELECT id, units FROM orders WHERE (SELECT min(id) FROM users) < units",
    "between": (
        "SELECT id FROM orders WHERE price >= (SELECT min(credit) FROM users) "
        "AND price < (SELECT max(worth) FROM users)"
    ),
    "wide_sum": (
        "SELECT user, sum(price) AS s FROM orders GROUP BY user HAVING sum(price) > (SELECT sum(worth) * 0.0001000000 "
        "FROM users)"
    ),
    "rounded_sum": (
        "SELECT user, sum(price * units) AS s FROM orders GROUP BY user HAVING sum(price * units) > (SELECT "
        "sum(price * units) * 0.1000000000 FROM orders)"
    ),
    "one_row": "SELECT id FROM orders WHERE units >= (SELECT id FROM users WHERE active ORDER BY id, name LIMIT 1)",
    "above_mean_of_user": (
        "SELECT id, user FROM orders o WHERE amount >= (SELECT avg(p.amount) FROM orders p WHERE p.user = o.user)"
    ),
    "not_least_of_group": (
        "SELECT id FROM orders o WHERE NOT price = (SELECT min(p.price) FROM orders p WHERE p.amount = o.amount)"
    ),
    "later_exists": (
        "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM users u WHERE u.name = o.user AND u.since > o.day)"
    ),
    "grouped_above": (
        "SELECT user, count(*) AS n FROM orders WHERE amount > (SELECT min(score) FROM users) GROUP BY user"
    ),
    "joined_above": (
        "SELECT o.id, u.city FROM orders o JOIN users u ON o.user = u.name "
        "WHERE o.amount > (SELECT avg(amount) FROM orders)"
    ),
}
SHAPES = {
    "using_null": (
        "SELECT id, o.id AS a, u.id AS b FROM orders o FULL JOIN users u USING (id) WHERE o.id IS NULL OR u.id > 0"
    ),
    "using_star": "SELECT u.*, o.user FROM orders o RIGHT JOIN users u USING (id)",
    "using_twice": (
        "SELECT id, a.user, c.user AS other FROM orders a FULL JOIN users b USING (id) LEFT JOIN orders c USING (id)"
    ),
    "cube_rollup": (
        "SELECT user, paid, count(*) AS n FROM orders GROUP BY CUBE (user), ROLLUP (paid) HAVING "
        "grouping(user) = 1 OR count(*) > 1"
    ),
    "rollup_ids": (
        "SELECT user, paid, grouping_id(user, paid) AS g, sum(units) AS s FROM orders GROUP BY user, paid WITH ROLLUP"
    ),
    "rollup_key_used": "SELECT coalesce(user, 'all') AS u, sum(length(user)) AS n FROM orders GROUP BY ROLLUP (user)",
    "ignore_nulls": "SELECT user, min(units) AS a, count(units) AS b FROM orders GROUP BY user",
    "lag_back": (
        "SELECT id, units, lag(units, -1) OVER (ORDER BY id, units) AS a, lead(units, 0) OVER (ORDER BY id, "
        "units) AS b FROM orders"
    ),
    "window_of_sum": "SELECT user, sum(sum(units)) OVER (ORDER BY user) AS s, count(*) AS n FROM orders GROUP BY user",
    "distinct_window": "SELECT DISTINCT user, count(*) OVER (PARTITION BY user) AS n FROM orders",
    "window_then_group": (
        "SELECT rk, count(*) AS n FROM (SELECT dense_rank() OVER (PARTITION BY user ORDER BY units) AS rk "
        "FROM orders) GROUP BY rk"
    ),
    "two_windows": (
        "SELECT id, user, rank() OVER (PARTITION BY user ORDER BY id) AS a, rank() OVER (ORDER BY user DESC) "
        "AS b FROM orders"
    ),
    "window_of_window": (
        "SELECT a, sum(b) OVER (PARTITION BY a) AS s FROM (SELECT user AS a, count(*) OVER (PARTITION BY "
        "units) AS b FROM orders)"
    ),
    "top_of_group": "SELECT user, count(*) AS n FROM orders GROUP BY user ORDER BY count(*) DESC, user LIMIT 3",
    "top_hidden": "SELECT user FROM orders GROUP BY user ORDER BY max(id) DESC NULLS LAST, user LIMIT 2",
    "top_of_union": "SELECT user FROM orders UNION ALL SELECT name FROM users ORDER BY user DESC LIMIT 4 OFFSET 1",
    "top_of_top": "SELECT * FROM (SELECT id, user FROM orders ORDER BY id, user LIMIT 6) ORDER BY user, id LIMIT 2",
    "join_tops": (
        "SELECT a.id, b.name FROM (SELECT id, user FROM orders ORDER BY id, user LIMIT 5) a "
        "LEFT JOIN (SELECT name, id FROM users ORDER BY name, id LIMIT 5) b ON a.user = b.name"
    ),
    "group_of_group": "SELECT n, count(*) AS m FROM (SELECT user, count(*) AS n FROM orders GROUP BY user) GROUP BY n",
    "full_of_groups": (
        "SELECT a.user, a.n, b.name, b.m FROM (SELECT user, count(*) AS n FROM orders GROUP BY user) a "
        "FULL JOIN (SELECT name, max(age) AS m FROM users GROUP BY name) b ON a.user = b.name"
    ),
    "left_of_outer": (
        "SELECT x.id, x.city, v.score FROM (SELECT o.id, u.city FROM orders o LEFT JOIN users u ON o.user = u.name) x "
        "LEFT JOIN users v ON x.city <=> v.city"
    ),
    "except_self": "SELECT user, paid FROM orders EXCEPT ALL SELECT user, paid FROM orders WHERE units > 0",
    "pivot_joined": (
        "SELECT p.user, p.y, u.city FROM (SELECT * FROM (SELECT user, paid, units FROM orders) "
        "PIVOT (count(units) FOR paid IN (true AS y, false AS n))) p LEFT JOIN users u ON u.name = p.user"
    ),
    "first_and_rank": (
        "SELECT id, user FROM orders QUALIFY rank() OVER (PARTITION BY user ORDER BY id DESC NULLS LAST) <= 2 "
        "AND id IS NOT NULL"
    ),
    "range_days": (
        "SELECT day, units, count(*) OVER (ORDER BY day RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT "
        "ROW) AS n FROM orders"
    ),
    "range_doubles": (
        "SELECT amount, count(*) OVER (ORDER BY amount RANGE BETWEEN 1.5D PRECEDING AND 1.5D FOLLOWING) AS n "
        "FROM orders"
    ),
}
EXPRESSIONS = {
    "literals": (
        "SELECT id, 1L AS a, 1.5BD AS b, 1e3 AS c, 1.50 AS d, X'1F' AS e, 'it''s' AS f, 'a' 'b' AS g, r'\\n' AS h, "
        "'tab\\there' AS i, DATE'2024-01-01' AS j, TIMESTAMP'2024-01-01 10:00:00' AS k, -0.0D AS l, 7S AS m FROM orders"
    ),
    "operators": (
        "SELECT id, units / 2 AS a, units DIV 2 AS b, units % 3 AS c, -units AS d, ~units AS e, units & 3 AS f, "
        "units | 4 AS g, units ^ 1 AS h, units << 1 AS i, 7 - units - 1 AS j, 2 * (units + 1) AS k, user || '!' AS l "
        "FROM orders"
    ),
    "comparisons": (
        "SELECT id, units <=> 1 AS a, NOT units = 1 AS b, units != 1 AS c, units BETWEEN 1 AND 2 AS d, "
        "units NOT BETWEEN 1 AND 2 AS e, units IS DISTINCT FROM 1 AS f, user NOT LIKE 'a%' AS g, user RLIKE '^a' AS h, "
        "user ILIKE 'A%' AS i, user LIKE ANY ('a%', 'b%') AS j, paid IS NOT TRUE AS k, paid IS UNKNOWN AS l FROM orders"
    ),
    "logic": (
        "SELECT id, paid AND units > 1 OR NOT paid AS a, paid OR units > 1 AND NOT paid AS b, NOT (paid AND units "
        "> 1) AS c, "
        "NOT paid AND units > 1 AS d, CASE units WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS e, "
        "CASE WHEN units > 1 THEN 1 ELSE 2.5 END AS f, if(paid, 1, 2) AS g, nullif(units, 1) AS h, nvl(units, 9) AS i "
        "FROM orders"
    ),
    "texts": (
        "SELECT id, substring(user FROM 2 FOR 2) AS a, trim(BOTH 'a' FROM user) AS b, position('b' IN user) AS c, "
        "overlay(user PLACING 'zz' FROM 1) AS d, concat_ws('-', user, 'x', NULL) AS e, upper(left(user, 1)) AS f, "
        "lpad(user, 3, '*') AS g, regexp_replace(user, '[ab]', '_') AS h, split(user, ' ')[0] AS i, "
        "translate(user, 'ab', 'xy') AS j, reverse(user) AS k, initcap(user) AS l FROM orders"
    ),
    "dates": (
        "SELECT id, day + INTERVAL 1 MONTH AS a, extract(DAY FROM day - DATE'2024-01-01') AS b, "
        "extract(YEAR FROM day) AS c, "
        "date_trunc('HOUR', ts) AS d, ts + INTERVAL '1' DAY AS e, date_format(ts, 'yyyy-MM') AS f, "
        "to_date(CAST(day AS string)) AS g, datediff(day, DATE'2024-01-01') AS h, add_months(day, 1) AS i, "
        "unix_timestamp(ts) AS j, dayofweek(day) AS k, make_date(2024, 1, 1) AS l, last_day(day) AS m FROM orders"
    ),
    "casts": (
        "SELECT id, CAST(units AS string) AS a, units::double AS b, price::bigint AS c, CAST(paid AS int) AS d, "
        "try_cast(user AS int) AS e, CAST(day AS timestamp) AS f, CAST(ts AS date) AS g, CAST(amount AS string) AS h, "
        "CAST(price AS decimal(20,4)) AS i, CAST(id AS decimal(20,2)) AS j, CAST(tags AS array<string>) AS k FROM "
        "orders"
    ),
    "nested": (
        "SELECT id, tags[0] AS a, size(tags) AS b, array_contains(tags, 1) AS c, place.a AS d, element_at(tags, "
        "1) AS e, "
        "array(units, 2)[1] AS f, named_struct('x', units, 'y', user).y AS g, struct(units, user) AS h, "
        "sort_array(tags) AS i, transform(tags, x -> x * 2) AS j, aggregate(tags, 0, (s, x) -> s + coalesce(x, "
        "0)) AS k "
        "FROM orders WHERE size(tags) > 0"
    ),
    "numbers": (
        "SELECT id, round(price, 1) AS a, floor(price) AS b, ceil(amount) AS c, abs(units) AS d, greatest(units, "
        "id, 1) AS e, "
        "least(amount, 1.0D) AS f, pmod(units, 3) AS g, sign(price) AS h, price * price AS i, price / 3 AS j, "
        "price + units AS k, amount + price AS l, bround(price, 0) AS m FROM orders WHERE NOT isnan(amount) AND "
        "abs(amount) < 99"
    ),
    "filters": (
        "SELECT id, user FROM orders WHERE (units > 1 OR paid) AND NOT (user = 'a' AND units < 2) AND "
        "coalesce(user, '') NOT IN ('b', 'ab') AND (amount > -3 OR amount IS NULL)"
    ),
    "grouped": (
        "SELECT CASE WHEN units > 1 THEN 'many' ELSE 'few' END AS size, count(*) + 1 AS n, sum(units) * 2 - "
        "min(units) AS s, "
        "max(upper(user)) || '!' AS m, round(avg(price), 2) AS a FROM orders GROUP BY CASE WHEN units > 1 THEN "
        "'many' ELSE 'few' END"
    ),
}
