"""Time in views: rows that come and go because time passes, windows and sessions, and sources whose rows expire."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import TypeMismatch
from holdfast.testing import Oracle, assert_same_rows, stopped_clock

EVENTS = "id bigint, ts timestamp, day date, local timestamp_ntz, text string, pinned boolean"

TIMED = {
    "recent": "SELECT id, ts FROM events WHERE ts > now() - INTERVAL 1 HOUR",
    "past": "SELECT id FROM events WHERE ts <= current_timestamp() - INTERVAL 90 MINUTES",
    "shut": "SELECT id FROM events WHERE ts BETWEEN now() - INTERVAL 1 DAY AND now() + INTERVAL '30' MINUTE",
    "valid": "SELECT id FROM events WHERE now() BETWEEN ts AND day AND id % 2 = 0",
    "week": "SELECT id, day FROM events WHERE day >= current_date() - 7",
    "today": "SELECT id FROM events WHERE to_date(ts) = current_date()",
    "later": "SELECT id FROM events WHERE ts > current_date()",
    "month": "SELECT id, day FROM events WHERE day >= current_date() - INTERVAL 1 MONTH",
    "ahead": "SELECT id FROM events WHERE day < add_months(current_date(), 1)",
    "fresh": "SELECT id FROM events WHERE datediff(current_date(), day) < 3",
    "hour": "SELECT id FROM events WHERE ts >= date_trunc('HOUR', now())",
    "pinned": "SELECT id FROM events WHERE pinned OR ts > now()",
    "local": "SELECT id FROM events WHERE NOT local < localtimestamp() - INTERVAL 2 HOURS",
    "texts": "SELECT id FROM events WHERE text = current_date() OR id = 1",
    "per_day": "SELECT day, count(*) AS n, max(ts) AS m FROM events WHERE ts > now() - INTERVAL 2 DAYS GROUP BY day",
    "lively": "SELECT day, max(ts) AS m FROM events GROUP BY day HAVING max(ts) > now() - INTERVAL 3 HOURS",
    "pairs": """SELECT a.id, b.id AS other FROM events a JOIN events b ON a.day = b.day
                AND a.ts > now() - INTERVAL 4 HOURS AND b.ts < now()""",
    "twice": "SELECT r.id FROM recent r WHERE r.ts < now() - INTERVAL 10 MINUTES",
}

NOON = datetime.datetime(2024, 2, 28, 12, tzinfo=datetime.UTC)


def event(number: int, hours: float, pinned: bool | None = False) -> tuple[Any, ...]:
    """An event so many hours after noon."""
    at = NOON + datetime.timedelta(hours=hours)
    day = at.date() + datetime.timedelta(days=number % 3)
    return (number, at, day, at.replace(tzinfo=None), day.isoformat(), pinned)


STEPS: list[tuple[float, list[Any], list[Any]]] = [
    (0, [event(n, (n - 6) * 0.5, n == 4) for n in range(12)] + [(90, None, None, None, None, None)], []),
    (0.5, [event(20, -30), event(21, 30, None)], [event(5, -0.5)]),
    (0.25, [], []),
    (1.25, [event(22, 2, True)], [event(8, 1.0), event(20, -30)]),
    (10, [event(23, 12)], [event(0, -3.0)]),
    (14, [], []),
    (24 * 7, [event(24, 24 * 8)], []),
    (24 * 24, [event(25, 24 * 30)], [event(1, -2.5)]),
]
"""Hours that pass, and what is inserted and deleted then."""


def test_rows_come_and_go_as_time_passes(spark: SparkSession, tmp_path: Path) -> None:
    oracle = Oracle(spark, {"events": EVENTS})
    with stopped_clock(NOON) as clock, hf.Flow("timed", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        events = flow.input("events", EVENTS)
        for name, sql in TIMED.items():
            flow.view(name, sql)
        for hours, inserted, deleted in STEPS:
            clock.advance(hours=hours)
            events.insert(inserted)
            events.delete(deleted)
            oracle.insert("events", inserted)
            oracle.delete("events", deleted)
            flow.step()
            for name, frame in oracle.expect(TIMED, clock.micros).items():
                assert flow.read(name).schema.simpleString() == frame.schema.simpleString()
                assert_same_rows(flow.read(name), frame, f"{name} at {clock.now}")
        assert flow.read("recent").count() == 0
        assert "rows while their time is, until until" in flow.explain("recent")
