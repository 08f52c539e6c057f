"""Time in plans: conditions on the clock become a `Temporal`, windows and sessions what there is already."""

from __future__ import annotations

import pytest

from holdfast.errors import DeclarationError, SqlError, UnknownName, Unsupported
from holdfast.operators.aggregate import Aggregate
from holdfast.operators.draw import Draw
from holdfast.operators.join import Join
from holdfast.operators.rewrites import rewrite
from holdfast.operators.temporal import Temporal
from holdfast.operators.window import Window
from holdfast.plan.expression import readable
from holdfast.plan.fingerprint import fingerprint
from holdfast.plan.nodes import Field, Linear, Node, Source, Union
from holdfast.plan.walk import reachable

from ...planned import expiring, plan_sql

T = Source("t", (Field("id", "bigint"), Field("ts", "timestamp"), Field("d", "date"), Field("p", "boolean")))
U = Source("u", (Field("id", "bigint"), Field("ts", "timestamp"), Field("n", "int")))
CATALOG: dict[str, Node] = {"t": T, "u": U}


def plan(sql: str) -> Node:
    return rewrite(plan_sql("v", sql, CATALOG))


def temporals(node: Node) -> list[Temporal]:
    return [each for each in reachable(node) if isinstance(each, Temporal)]


def moments(condition: str) -> tuple[str | None, str | None]:
    """When a row comes and goes."""
    (temporal,) = temporals(plan(f"SELECT id FROM t WHERE {condition}"))
    assert isinstance(temporal.input, Linear)
    texts = {output.name: readable(output.expression).replace("`ts`", "ts") for output in temporal.input.outputs}
    return texts.get(temporal.start or ""), texts.get(temporal.end or "")


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        ("ts > now()", None, "ts"),
        ("ts >= now()", None, "ts + INTERVAL '0.000001' SECOND"),
        ("ts < now()", "ts + INTERVAL '0.000001' SECOND", None),
        ("now() >= ts", "ts", None),
        ("NOT ts > now()", "ts", None),
        ("ts + INTERVAL 1 DAY > now()", None, "ts + INTERVAL '1' DAY"),
        ("ts > now() - INTERVAL 1 HOUR", None, "ts + INTERVAL '1' HOUR"),
        ("ts > INTERVAL 1 HOUR + now() - INTERVAL '2' MINUTE", None, "(ts + INTERVAL '2' MINUTE) - INTERVAL '1' HOUR"),
        ("ts > timestampadd(HOUR, -1, now())", None, "ts + INTERVAL '1' HOUR"),
        ("ts BETWEEN now() - INTERVAL 1 HOUR AND now()", "ts", "ts + INTERVAL '1' HOUR + INTERVAL '0.000001' SECOND"),
        ("p OR ts > now()", None, "if(coalesce(`p`, FALSE), NULL, ts)"),
        ("ts > now() AND ts > now() - INTERVAL 1 HOUR", None, "least(ts, ts + INTERVAL '1' HOUR)"),
    ],
)
def test_a_condition_on_the_clock_holds_for_a_time(condition: str, start: str | None, end: str | None) -> None:
    assert moments(condition) == (start, end)


@pytest.mark.parametrize(
    ("condition", "calendar"),
    [
        ("ts > now() - INTERVAL 23 HOURS", ""),
        ("ts > now() - INTERVAL 24 HOURS", "fixed"),  # to Spark, a day
        ("ts > timestampadd(HOUR, -24, now())", ""),
        ("now() - ts < INTERVAL 1 HOUR", "fixed"),
        ("ts > now() - INTERVAL 1 DAY", "fixed"),
        ("d > current_date() - 1", "days"),
        ("ts > localtimestamp()", "fixed"),
        ("ts > date_trunc('HOUR', now())", "fixed"),
        ("ts > now() - INTERVAL '1 day 2 hours'", "fixed"),
    ],
)
def test_what_is_assumed_of_the_time_zone_is_said(condition: str, calendar: str) -> None:
    (temporal,) = temporals(plan(f"SELECT id FROM t WHERE {condition}"))
    assert temporal.calendar == calendar


def test_a_condition_on_the_clock_is_never_drawn() -> None:
    for sql in (
        "SELECT id FROM t WHERE ts > now() AND rand() < 0.5",
        "SELECT id, max(ts) AS m FROM t GROUP BY id HAVING max(ts) > now()",
        "SELECT id, row_number() OVER (ORDER BY ts) AS n FROM t WHERE ts > now()",
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND u.ts > now())",
        "SELECT t.id FROM t, u WHERE datediff(current_date(), t.d) = u.n",
        "SELECT id FROM t WHERE ts > now() AND id IN (SELECT id FROM u)",
    ):
        node = plan(sql)
        assert len(temporals(node)) == 1
        drawn = [draw.function for each in reachable(node) if isinstance(each, Draw) for draw in each.draws]
        assert "clock" not in drawn


def test_now_in_the_select_list_is_still_drawn() -> None:
    node = plan("SELECT id, now() AS at FROM t WHERE ts > now()")
    assert len(temporals(node)) == 1
    assert any(isinstance(each, Draw) for each in reachable(node))


def test_a_condition_on_the_clock_of_one_side_is_kept_below_the_join() -> None:
    node = plan("SELECT t.id FROM t JOIN u ON t.id = u.id AND u.ts > now() - INTERVAL 1 HOUR")
    (join,) = (each for each in reachable(node) if isinstance(each, Join))
    assert temporals(join.right)
    assert not temporals(join.left)
    assert temporals(node) == temporals(join.right)


def test_a_filter_moves_below_and_columns_that_nobody_reads_are_not_kept() -> None:
    (temporal,) = temporals(plan("SELECT id FROM (SELECT * FROM t WHERE ts > now()) WHERE id > 3"))
    assert isinstance(temporal.input, Linear)
    assert temporal.columns == ("id", "until")
    assert temporal.input.predicate is not None and "`id` > 3" in readable(temporal.input.predicate)


def test_moments_are_part_of_the_meaning() -> None:
    texts = ("ts > now()", "ts < now()", "ts > now() - INTERVAL 1 HOUR", "d > current_date()")
    marks = {fingerprint(plan(f"SELECT id FROM t WHERE {text}")) for text in texts}
    assert len(marks) == len(texts)
    same = fingerprint(plan("SELECT id FROM t WHERE now() - INTERVAL 1 HOUR < ts"))
    assert same in marks


def test_a_row_is_in_as_many_sliding_windows_as_slides_fit() -> None:
    for text, branches in (("'10 minutes', '5 minutes'", 2), ("'10 minutes', '4 minutes'", 3)):
        (union,) = (
            each for each in reachable(plan(f"SELECT window(ts, {text}) AS w FROM t")) if isinstance(each, Union)
        )
        assert len(union.inputs) == branches


def test_a_session_is_two_windows_and_an_aggregate() -> None:
    node = plan("SELECT id, session_window AS w, count(*) AS n FROM t GROUP BY id, session_window(ts, '5 minutes')")
    assert node.columns == ("id", "w", "n")
    kinds = [type(each) for each in reachable(node) if not isinstance(each, (Linear, Source))]
    assert kinds == [Window, Window, Aggregate]


def test_window_is_a_name_like_any_other() -> None:
    assert plan("SELECT id AS window FROM t").columns == ("window",)
    assert plan("SELECT sum(id) OVER window AS s FROM t WINDOW window AS (ORDER BY ts)").columns == ("s",)
    assert plan("SELECT *, window(ts, '1 hour') FROM t").columns == (*T.columns, "window")
    assert plan("SELECT window(ts, '1 hour').start FROM t").columns == ("window.start",)
    own = {"w": Source("w", (Field("window", "int"), Field("ts", "timestamp")))}
    node = plan_sql("v", "SELECT window, window(ts, '1 hour') AS hour FROM w", own)
    assert node.columns == ("window", "hour")


@pytest.mark.parametrize(
    ("expires", "kind", "message"),
    [
        ("tz", UnknownName, "source 't', expires: column 'tz' not found"),
        ("timestamp_seconds(rand())", Unsupported, "what is not computed from the row alone"),
        ("now()", Unsupported, "what is not computed from the row alone"),
        ("max(ts)", SqlError, "does not include a GROUP BY"),
        ("(SELECT max(ts) FROM t)", Unsupported, "what is not computed from the row alone"),
        ("explode(array(ts))", Unsupported, "what is not computed from the row alone"),
        ("ts FROM t", SqlError, "syntax error"),
        ("  ", DeclarationError, "expected a SQL expression such as"),
    ],
)
def test_an_expiry_that_cannot_be_is_refused(expires: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        expiring(T, expires)
    assert message in str(caught.value)


def test_what_expires_keeps_its_columns() -> None:
    node = expiring(T, "ts + INTERVAL 1 DAY")
    assert node.columns == T.columns
    assert [each.end for each in temporals(node)] == ["expires"]
