"""When conditions on the clock hold: the moments of the rows, against Spark's own answer at many clocks."""

from __future__ import annotations

import datetime

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import Unsupported
from holdfast.operators.rewrites import rewrite
from holdfast.operators.temporal import Temporal
from holdfast.plan.expression import sql
from holdfast.plan.nodes import Linear, Node, Source
from holdfast.plan.schema import parse_schema
from holdfast.plan.walk import reachable
from holdfast.spark.keepable import check_keepable
from holdfast.spark.spark_expressions import known_to
from holdfast.spark.time_zones import keeps_dates, keeps_days
from holdfast.testing.oracle import as_of

from ..planned import plan_sql

SCHEMA = "id bigint, ts timestamp, day date, local timestamp_ntz, text string, pinned boolean"

ANYWHERE = [
    "ts > now() - INTERVAL 1 HOUR",
    "ts <= current_timestamp() - INTERVAL 90 MINUTES",
    "ts >= now() + INTERVAL 1 HOUR - INTERVAL '10' MINUTE",
    "ts = now()",
    "NOT ts < now() - INTERVAL 2 HOURS",
    "now() BETWEEN ts AND day",
    "day > now()",
    "local <= now() - INTERVAL 3 HOURS",
    "text < now()",
    "pinned OR ts > now()",
    "pinned AND ts < now() OR pinned",
    "ts < now() AND day >= current_date() OR id = 3",
    "day >= current_date() - 7",
    "day < current_date() + 1",
    "day = current_date()",
    "to_date(ts) = current_date()",
    "ts > current_date()",
    "ts <= current_date() - INTERVAL 2 DAYS",
    "text = current_date()",
    "text >= date_sub(current_date(), 1)",
    "day >= current_date() - INTERVAL 1 MONTH",
    "day > current_date() - INTERVAL 1 MONTH",
    "day <= add_months(current_date(), 1)",
    "day < add_months(current_date(), -1)",
    "day = current_date() - INTERVAL 1 MONTH",
    "datediff(current_date(), day) < 3",
    "datediff(day, current_date()) = CAST(id % 4 AS INT)",
    "ts >= CAST(now() - INTERVAL 3 HOURS AS DATE)",
    "current_date() BETWEEN day - 1 AND to_date(ts)",
]
IN_UTC = [
    "ts BETWEEN now() - INTERVAL 1 DAY AND now() + INTERVAL '30' MINUTE",
    "ts > now() - INTERVAL '1 day 2 hours'",
    "local < localtimestamp()",
    "text <= localtimestamp() - INTERVAL 1 HOUR",
    "day > localtimestamp()",
    "ts >= date_trunc('HOUR', now())",
    "ts < date_trunc('WEEK', now())",
    "ts > date_trunc('MONTH', now() - INTERVAL 1 DAY)",
    "ts <= date_trunc('QUARTER', now())",
    "ts >= timestampadd(DAY, -1, current_date())",
]


def moments() -> list[datetime.datetime]:
    """Moments at which something may go wrong: borders of hours, days and months, and when clocks are changed."""
    days = ["2023-12-31", "2024-01-31", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-31", "2024-10-27"]
    found = []
    for day in days:
        start = datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00")
        for hours in (-2, -1, 0, 1, 2, 13.5, 23):
            found.append(start + datetime.timedelta(hours=hours))
            found.append(found[-1] - datetime.timedelta(microseconds=1))
    return found


@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.slow), "Europe/Berlin"])
def test_a_row_is_there_exactly_while_the_condition_holds(spark: SparkSession, zone: str) -> None:
    session = spark.newSession()
    for key, value in {"spark.sql.session.timeZone": zone, "spark.sql.shuffle.partitions": "1"}.items():
        session.conf.set(key, value)
    rows = [
        f"({number}, {_instant(at)}, CAST({_instant(at)} AS DATE), CAST({_instant(at)} AS TIMESTAMP_NTZ), "
        f"CAST(CAST({_instant(at)} AS DATE) AS STRING), {['true', 'false', 'NULL'][number % 3]})"
        for number, at in enumerate(moments()[::2])
    ]
    names = ", ".join(field.name for field in parse_schema(SCHEMA, subject="e"))
    empty = "(1000, NULL, NULL, NULL, NULL, NULL)"
    session.sql(f"SELECT * FROM VALUES {', '.join([*rows, empty])} AS e({names})").createOrReplaceTempView("e")
    clocks = ", ".join(f"({_micros(at)})" for at in moments())
    session.sql(f"SELECT * FROM VALUES {clocks} AS c(clock)").createOrReplaceTempView("c")
    conditions = ANYWHERE + IN_UTC if zone == "UTC" else [text for text in ANYWHERE if "date" in text]
    wrong = ", ".join(
        f"max(CASE WHEN ({_held(session, text)}) <> coalesce({as_of(text, 'clock')}, false) "
        f"THEN concat(e.id, ' at ', clock) END) AS w{place}"
        for place, text in enumerate(conditions)
    )
    held = ", ".join(
        f"count(DISTINCT coalesce({as_of(text, 'clock')}, false)) AS h{place}" for place, text in enumerate(conditions)
    )
    known_to(session, wrong)
    found = session.sql(f"SELECT {wrong}, {held} FROM e CROSS JOIN c").first()
    assert found is not None
    assert {text: found[f"w{place}"] for place, text in enumerate(conditions) if found[f"w{place}"] is not None} == {}
    assert [text for place, text in enumerate(conditions) if found[f"h{place}"] != 2] == []  # all tell rows apart


@pytest.mark.parametrize("condition", IN_UTC[::3])
def test_where_clocks_are_put_back_what_depends_on_it_is_refused(spark: SparkSession, condition: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with pytest.raises(Unsupported, match="in the time zone Europe/Berlin"):
        _held(session, condition)


def test_a_zone_in_which_a_date_came_twice_is_known(spark: SparkSession) -> None:
    assert not keeps_dates(spark, "America/St_Johns", since=2000)  # from 0:01 back to 23:01, until 2011
    assert keeps_dates(spark, "America/St_Johns")
    assert keeps_dates(spark, "Asia/Beirut", since=2000)  # from 0:00 back to 23:00: midnight comes once
    assert not keeps_days(spark, "Asia/Beirut")
    assert keeps_days(spark, "+02:00")


def _held(session: SparkSession, condition: str) -> str:
    """Whether a row is there at ``clock``, as a `Temporal` would have it."""
    source: Node = Source("e", parse_schema(SCHEMA, subject="e"))
    plan = rewrite(plan_sql("v", f"SELECT id FROM e WHERE {condition}", {"e": source}, session=session))
    check_keepable("v", plan, session)
    (temporal,) = (each for each in reachable(plan) if isinstance(each, Temporal))
    below = temporal.input
    assert isinstance(below, Linear)
    assert isinstance(below.input, Source)
    texts = {output.name: sql(output.expression) for output in below.outputs}
    now = "timestamp_micros(clock)"
    parts = [] if below.predicate is None else [f"({sql(below.predicate)})"]
    parts += [f"coalesce({texts[temporal.start]} <= {now}, true)"] if temporal.start else []
    parts += [f"coalesce({now} < {texts[temporal.end]}, true)"] if temporal.end else []
    return f"coalesce({' AND '.join(parts)}, false)"


def _instant(at: datetime.datetime) -> str:
    return f"timestamp_micros({_micros(at)})"


def _micros(at: datetime.datetime) -> int:
    return (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
