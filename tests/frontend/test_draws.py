"""Nondeterministic calls become draws: below the expressions that use them, each once, and nothing of them is left."""

from __future__ import annotations

import pytest

from holdfast.errors import SqlError
from holdfast.operators.aggregate import Aggregate
from holdfast.operators.draw import Draw, Drawn
from holdfast.operators.join import Join
from holdfast.operators.rewrites import rewrite
from holdfast.operators.topk import TopK
from holdfast.plan.expression import Column, readable
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Field, Linear, Named, Node, Outside, Source
from holdfast.plan.walk import reachable

from ..planned import plan_sql

T = Source("t", (Field("id", "bigint"), Field("city", "string"), Field("x", "double")))
U = Source("u", (Field("id", "bigint"), Field("y", "double")))
CATALOG: dict[str, Node] = {"t": T, "u": U}
GEOCODE = Outside("geocode", "string", "meaning", b"")


def plan(sql: str) -> Node:
    return plan_sql("v", sql, CATALOG, {"geocode": GEOCODE})


def shown(node: Linear) -> str:
    """The condition of a node, for people."""
    return "" if node.predicate is None else readable(node.predicate)


def draws(node: Node) -> list[Draw]:
    return [each for each in reachable(node) if isinstance(each, Draw)]


def texts(node: Node) -> list[str]:
    linears = [each for each in reachable(node) if isinstance(each, Linear)]
    found = [readable(output.expression) for each in linears for output in each.outputs]
    return found + [readable(each.predicate) for each in linears if each.predicate is not None]


def test_a_call_of_the_clock_is_a_column_of_a_draw_below() -> None:
    assert plan("SELECT id, now() AS at FROM t") == Linear(
        Draw(T, (Drawn("current_timestamp()", "clock", (), "timestamp"),)),
        None,
        (Named("id", T.column("id")), Named("at", Column("current_timestamp()", "timestamp"))),
    )


@pytest.mark.parametrize(
    ("call", "computed"),
    [
        ("current_timestamp", "`current_timestamp()`"),
        ("current_date", "CAST(`current_timestamp()` AS date)"),
        ("curdate()", "CAST(`current_timestamp()` AS date)"),
        ("localtimestamp()", "CAST(`current_timestamp()` AS timestamp_ntz)"),
        ("unix_timestamp()", "unix_timestamp(`current_timestamp()`)"),
    ],
)
def test_every_form_of_the_clock_is_computed_from_one_instant(call: str, computed: str) -> None:
    node = plan(f"SELECT {call} AS a, CASE WHEN x > 0 THEN now() END AS b FROM t")
    (draw,) = draws(node)
    assert [each.function for each in draw.draws] == ["clock"]
    assert isinstance(node, Linear)
    assert readable(node.outputs[0].expression) == computed


def test_each_call_of_chance_is_a_draw_of_its_own() -> None:
    (draw,) = draws(plan("SELECT rand() AS a, rand() AS b, uuid() AS c, randn() AS d FROM t"))
    assert [(each.function, each.type) for each in draw.draws] == [
        ("rand", "double"), ("rand", "double"), ("uuid", "string"), ("randn", "double"),
    ]  # fmt: skip
    assert len({each.salt for each in draw.draws}) == 4


def test_an_alias_that_is_used_twice_is_drawn_once() -> None:
    (draw,) = draws(plan("SELECT rand() AS a, a + 1 AS b FROM t ORDER BY a LIMIT 3"))
    assert len(draw.draws) == 1


def test_equal_seeds_are_one_draw_and_different_seeds_are_two() -> None:
    (draw,) = draws(plan("SELECT rand(1) AS a, rand(1) AS b, rand(-2) AS c FROM t"))
    assert [each.salt for each in draw.draws] == ["seed 1", "seed -2"]


def test_a_users_function_draws_from_its_argument_columns() -> None:
    node = plan("SELECT id, geocode(city) AS place, GEOCODE(upper(city)) AS other FROM t")
    (draw,) = draws(node)
    found = [(each.function, each.arguments, each.outside) for each in draw.draws]
    assert found == [("udf:geocode", ("city",), GEOCODE), ("udf:geocode", ("upper(city)",), GEOCODE)]
    assert not any("geocode(" in text and "`" not in text for text in texts(node))


def test_a_draw_in_the_argument_of_a_draw_is_drawn_first() -> None:
    outer, inner = draws(plan("SELECT geocode(concat(city, uuid())) AS place FROM t"))[::-1]
    assert outer.draws[0].function == "udf:geocode"
    assert inner.draws[0].function == "uuid"


def test_the_deterministic_part_of_a_condition_filters_before_the_draw() -> None:
    node = rewrite(plan("SELECT id FROM t WHERE x > 1 AND rand() < 0.1"))
    assert isinstance(node, Linear)
    assert shown(node) == "`rand()` < 0.1D"
    (draw,) = draws(node)
    assert isinstance(draw.input, Linear)
    assert shown(draw.input) == "`x` > 1.0D"


def test_draws_work_below_and_above_aggregates_in_joins_and_in_subqueries() -> None:
    below = plan("SELECT city, sum(r) AS s FROM (SELECT city, rand() AS r FROM t) GROUP BY city")
    assert isinstance(below, Aggregate)
    assert isinstance(draws(below)[0].input, Source)
    above = plan("SELECT city, count(*) AS n, now() AS at FROM t GROUP BY city")
    assert isinstance(draws(above)[0].input, Aggregate)
    joined = plan("SELECT t.id, uuid() AS k FROM t JOIN u ON t.id = u.id")
    assert isinstance(draws(joined)[0].input, Join)
    keyed = plan("SELECT t.id FROM t JOIN (SELECT floor(y * rand()) AS k FROM u) v ON t.id = v.k")
    assert isinstance(keyed, Linear)
    assert isinstance(keyed.input, Join)
    derived = plan("SELECT d, count(*) AS n FROM (SELECT current_date() AS d FROM t) GROUP BY d")
    assert isinstance(derived, Aggregate)
    sampled = plan("SELECT id FROM t ORDER BY rand() LIMIT 5")
    assert isinstance(sampled, Linear)
    assert isinstance(sampled.input, TopK)
    for node in (below, above, joined, keyed, derived, sampled):
        assert len(draws(node)) == 1


def test_equal_calls_in_two_subqueries_are_two_draws() -> None:
    drawn = "(SELECT id, rand() AS r FROM t)"
    node = plan(f"SELECT a.r, b.r AS s FROM {drawn} a JOIN {drawn} b ON a.id = b.id")
    one, other = draws(node)
    assert fingerprint(one) != fingerprint(other)


def test_a_subquery_that_is_read_twice_is_drawn_once() -> None:
    node = rewrite(
        plan(
            "WITH s AS (SELECT id, x, rand() AS r FROM t) "
            "SELECT a.r, b.r AS s FROM s a JOIN s b ON a.id = b.id WHERE a.id > 3 AND b.x > 1"
        )
    )
    assert len({fingerprint(each) for each in draws(node)}) == 1


def test_two_views_of_one_text_share_their_draws_and_a_changed_function_does_not() -> None:
    sql = "SELECT id, geocode(city) AS place FROM t"
    changed = Outside("geocode", "string", "another meaning", b"")
    assert fingerprint(plan(sql)) == fingerprint(plan(sql))
    assert fingerprint(plan(sql)) != fingerprint(plan_sql("v", sql, CATALOG, {"geocode": changed}))


def test_a_filter_on_input_columns_goes_below_a_draw_and_one_on_what_was_drawn_does_not() -> None:
    node = rewrite(plan("SELECT * FROM (SELECT id, x, rand() AS r FROM t) WHERE x > 1 AND r < 0.5"))
    assert isinstance(node, Linear)
    assert shown(node) == "`rand()` < 0.5D"
    (draw,) = draws(node)
    assert isinstance(draw.input, Linear)
    assert shown(draw.input) == "`x` > 1.0D"


def test_a_filter_stays_above_a_draw_that_another_view_shows() -> None:
    first = rewrite(plan("SELECT id, x, rand() AS r FROM t"))
    second = rewrite(plan_sql("w", "SELECT id, r FROM v WHERE x > 1", {"v": first}), keep=[first])
    assert {fingerprint(each) for each in draws(first)} == {fingerprint(each) for each in draws(second)}


def test_a_draw_that_nobody_reads_is_not_made() -> None:
    assert draws(rewrite(plan("SELECT id FROM (SELECT id, geocode(city) AS place FROM t)"))) == []
    (draw,) = draws(rewrite(plan("SELECT id, r FROM (SELECT id, geocode(city) AS place, rand() AS r FROM t)")))
    assert [each.function for each in draw.draws] == ["rand"]
    assert draw.input.columns == ("id",)


def test_an_unnamed_call_is_called_as_spark_calls_it() -> None:
    assert plan("SELECT now(), rand(), uuid() FROM t").columns == ("now()", "rand()", "uuid()")


def test_arguments_that_the_clock_does_not_take_are_refused() -> None:
    with pytest.raises(SqlError, match="precision 1"):
        plan("SELECT now(1) AS a FROM t")
