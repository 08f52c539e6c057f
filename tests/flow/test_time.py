"""Time in views: rows that come and go because time passes, windows and sessions, and sources whose rows expire."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import ClockJumped, TypeMismatch
from holdfast.testing import Oracle, assert_same_rows, stopped_clock

NOON = datetime.datetime(2024, 2, 28, 12, tzinfo=datetime.UTC)


def at(minutes: float) -> datetime.datetime:
    """So many minutes after noon."""
    return NOON + datetime.timedelta(minutes=minutes)


# -- windows and sessions -----------------------------------------------------------------------------------------

CLICKS = "id bigint, user string, ts timestamp, local timestamp_ntz"
WINDOWED = {
    "tumbling": """SELECT user, window.start, window.end, count(*) AS n, sum(id) AS s
                   FROM clicks GROUP BY user, window(ts, '10 minutes')""",
    "named": "SELECT window, count(*) AS n FROM clicks GROUP BY window(local, '7 minutes', '7 minutes', '-2 minutes')",
    "sliding": "SELECT window(ts, '10 minutes', '4 minutes') AS w, id FROM clicks WHERE id < 100",
    "whole": "SELECT window(local, '10 minutes', '5 minutes') AS w, count(DISTINCT user) AS n FROM clicks GROUP BY w",
    "wider": """SELECT window(w, '1 hour') AS h, sum(n) AS n, max(window_time(w)) AS last
                FROM (SELECT window(ts, '5 minutes') AS w, count(*) AS n FROM clicks GROUP BY 1) GROUP BY 1""",
    "sessions": """SELECT user, session_window.start, session_window.end, count(*) AS n, max(id) AS m
                   FROM clicks GROUP BY user, session_window(ts, '5 minutes')""",
    "all_of_it": "SELECT session_window(local, '3 minutes') AS w, count(DISTINCT user) AS n FROM clicks GROUP BY w",
    "own_gap": """SELECT session_window(ts, CASE WHEN id % 2 = 0 THEN '2 minutes' WHEN id = 9 THEN '0 seconds'
                  ELSE '8 minutes' END) AS w, collect_set(id) AS ids FROM clicks GROUP BY 1""",
    "each": "SELECT *, session_window(ts, '5 minutes') FROM clicks",
}


def click(number: int, user: str | None, minutes: float) -> tuple[Any, ...]:
    return (number, user, at(minutes), at(minutes).replace(tzinfo=None))


FIRST = [click(n, "ab"[n % 2], m) for n, m in enumerate((0, 1, 3, 8, 9.5, 20, 20, 33, 40, 41))]
CLICKED: list[tuple[list[Any], list[Any]]] = [
    ([*FIRST, FIRST[2], (50, "a", None, None)], []),
    # A late row that joins two sessions of b; one that touches the end of another; one before the epoch's beginning.
    ([click(11, "b", 5), click(12, "a", 25), click(13, None, -1e7)], []),
    # What joined them goes again; a copy goes, and the other stays.
    ([click(14, "a", 33)], [click(11, "b", 5), FIRST[2], FIRST[9]]),
]


def test_windows_and_sessions_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    oracle = Oracle(spark, {"clicks": CLICKS})
    with hf.Flow("windows", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        clicks = flow.input("clicks", CLICKS)
        for name, sql in WINDOWED.items():
            flow.view(name, sql)
        for inserted, deleted in CLICKED:
            clicks.insert(inserted)
            clicks.delete(deleted)
            oracle.insert("clicks", inserted)
            oracle.delete("clicks", deleted)
            epoch = flow.step().epoch
            for name, frame in oracle.expect(WINDOWED).items():
                found = flow.read(name)
                if epoch == 0:
                    assert found.schema.simpleString() == frame.schema.simpleString()
                if name == "own_gap":
                    found, frame = (each.withColumn("ids", F.array_sort("ids")) for each in (found, frame))
                assert_same_rows(found, frame, f"{name}, epoch {epoch}")


def test_the_verbs_take_sparks_window_columns(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("windows", log=tmp_path / "log", spark=spark) as flow:
        flow.input("clicks", CLICKS)
        clicks = flow.table("clicks")
        for text, window in (
            ("window(ts, '10 minutes')", F.window("ts", "10 minutes")),
            ("window(ts, '10 minutes', '5 minutes')", F.window("ts", "10 minutes", "5 minutes")),
            ("session_window(ts, '5 minutes')", F.session_window("ts", "5 minutes")),
        ):
            flow.view("verbs", clicks.groupBy("user", window).agg(F.count("*").alias("n")))
            flow.view("sql", f"SELECT user, {text}, count(*) AS n FROM clicks GROUP BY user, {text}")
            assert flow._catalog.views["verbs"] == flow._catalog.views["sql"]


# -- time that passes ---------------------------------------------------------------------------------------------

EVENTS = "id bigint, ts timestamp, day date, text string"
TIMED = {
    "recent": "SELECT id, ts FROM events WHERE ts > now() - INTERVAL 1 HOUR",
    "valid": "SELECT id FROM events WHERE now() BETWEEN ts AND day AND id % 2 = 0",
    "per_day": "SELECT day, count(*) AS n, max(ts) AS m FROM events WHERE day > current_date() - 2 GROUP BY day",
    "lively": "SELECT day, max(ts) AS m FROM events GROUP BY day HAVING max(ts) > now() - INTERVAL 3 HOURS",
    "pairs": """SELECT a.id, b.id AS other FROM events a JOIN events b ON a.day = b.day
                AND a.ts > now() - INTERVAL 4 HOURS AND b.ts < now()""",
    "twice": "SELECT r.id FROM recent r WHERE r.ts < now() - INTERVAL 10 MINUTES",
}


def event(number: int, hours: float) -> tuple[Any, ...]:
    """An event so many hours after noon."""
    day = at(60 * hours).date() + datetime.timedelta(days=number % 3)
    return (number, at(60 * hours), day, day.isoformat())


STEPS: list[tuple[float, list[Any], list[Any]]] = [
    (0, [event(n, (n - 6) * 0.5) for n in range(12)] + [(90, None, None, None)], []),
    (0.75, [event(20, -30), event(21, 30)], [event(5, -0.5)]),
    (1.25, [event(22, 2)], [event(8, 1.0), event(20, -30)]),
    (22, [], []),
    (24 * 7, [event(24, 24 * 8)], [event(1, -2.5)]),
]
"""Hours that pass, and what is inserted and deleted then."""


def test_rows_come_and_go_as_time_passes(spark: SparkSession, tmp_path: Path) -> None:
    oracle = Oracle(spark, {"events": EVENTS})
    with stopped_clock(NOON) as clock:
        flow = hf.Flow("timed", log=tmp_path / "log", spark=spark, partitions=2)
        events = flow.input("events", EVENTS)
        for name, sql in TIMED.items():
            flow.view(name, sql)
        for number, (hours, inserted, deleted) in enumerate(STEPS):
            clock.advance(hours=hours)
            if number == 2:  # opened again: what was pending is known from the log
                flow.close()
                flow = hf.Flow("timed", log=tmp_path / "log", spark=spark, partitions=3)
                events = flow.input("events", EVENTS)
                for name, sql in TIMED.items():
                    flow.view(name, sql)
            events.insert(inserted)
            events.delete(deleted)
            oracle.insert("events", inserted)
            oracle.delete("events", deleted)
            assert flow.step().epoch == number
            for name, frame in oracle.expect(TIMED, clock.micros).items():
                assert_same_rows(flow.read(name), frame, f"{name} at {clock.now}")
        assert "rows while their time is, until until" in flow.explain("recent")
        replayed = flow._started().replay(3, 1)
        for name in ("recent", "lively"):
            then = flow.changes(name, since=2).where("_epoch = 3")
            assert replayed[name].num_rows == then.count() > 0
        flow.view("new", TIMED["recent"].replace("1 HOUR", "2 HOURS"))  # filled as of the last epoch's clock
        clock.advance(hours=-1)
        expected = oracle.expect({"new": TIMED["recent"].replace("1 HOUR", "2 HOURS")}, clock.micros)
        assert flow.read("new").count() == expected["new"].count() == 1
        flow.close()


def test_an_epoch_is_made_when_something_is_due_and_not_before(spark: SparkSession, tmp_path: Path) -> None:
    with stopped_clock(NOON) as clock, hf.Flow("due", log=tmp_path / "log", spark=spark) as flow:
        events = flow.input("events", EVENTS)
        flow.view("recent", TIMED["recent"])
        events.insert([event(1, -0.5), event(2, -0.25)])
        assert not flow.step().idle
        clock.advance(minutes=29)
        assert flow.step().idle
        clock.advance(minutes=1)
        assert flow.run(until="idle") == 1
        assert [row.id for row in flow.read("recent").collect()] == [2]
        assert [(row.id, row._diff) for row in flow.changes("recent", since=0).collect()] == [(1, -1)]
        clock.advance(minutes=-20)  # a host's clock that is put back brings nothing back
        events.insert([event(3, -1 / 60)])
        flow.step()
        assert sorted(row.id for row in flow.read("recent").collect()) == [2, 3]


def test_a_clock_that_was_ahead_expires_nothing_and_there_is_a_way_back(spark: SparkSession, tmp_path: Path) -> None:
    with stopped_clock(NOON) as clock, hf.Flow("ahead", log=tmp_path / "log", spark=spark) as flow:
        events = flow.input("events", EVENTS)
        flow.view("recent", TIMED["recent"])

        def recent() -> list[int]:
            return sorted(row.id for row in flow.read("recent").collect())

        events.insert([event(1, -0.5)])
        flow.step()
        clock.jump(days=3650)
        events.insert([event(2, -0.25)])
        with pytest.raises(ClockJumped, match=r"flow\.accept_clock"):
            flow.step()
        assert recent() == [1] and events.pending.inserted == 1
        clock.jump(days=-3650)
        flow.step()
        assert recent() == [1, 2], "the clock is right again, and nothing has happened"

        clock.jump(days=3650)
        flow.accept_clock().step()
        assert recent() == []
        clock.jump(days=-3650)
        assert flow.status().clock.ahead == 3650 * 86400
        events.insert([event(3, 0)])
        flow.step()
        assert recent() == [], "ahead for good"
        events.insert([event(4, 0)])
        flow.accept_clock().step()
        assert recent() == [4] and flow.status().clock.ahead == 0
        clock.advance(minutes=61)
        flow.run(until="idle")
        assert recent() == []


# -- rows that expire ---------------------------------------------------------------------------------------------


def test_rows_of_a_source_expire(spark: SparkSession, tmp_path: Path) -> None:
    expires = {"events": "ts + INTERVAL 1 HOUR"}
    views = {
        "kept": "SELECT id FROM events",
        "counts": "SELECT day, count(*) AS n FROM events WHERE id <> 3 GROUP BY day",
    }
    oracle = Oracle(spark, {"events": EVENTS}, expires)
    steps: list[tuple[float, list[Any], list[Any]]] = [
        (0, [event(n, n - 3) for n in range(6)] + [(90, None, None, None)], []),
        (1.5, [event(7, -9)], [event(5, 2)]),
        (5, [], [event(4, 1)]),  # gone already: to delete it changes nothing
    ]
    with stopped_clock(NOON) as clock:
        flow = hf.Flow("expiring", log=tmp_path / "log", spark=spark, partitions=2)
        for number, (hours, inserted, deleted) in enumerate(steps):
            clock.advance(hours=hours)
            if number != 1:
                flow.close()
                flow = hf.Flow("expiring", log=tmp_path / "log", spark=spark, partitions=2)
                events = flow.input("events", EVENTS, expires=expires["events"])
                for name, sql in views.items():
                    flow.view(name, sql)
            events.insert(inserted)
            events.delete(deleted)
            oracle.insert("events", inserted)
            oracle.delete("events", deleted)
            flow.step()
            for name, frame in oracle.expect(views, clock.micros).items():
                assert_same_rows(flow.read(name), frame, f"{name} at {clock.now}")
        # Nothing of what has expired is kept, neither by the views nor by the input's own log.
        engine = flow._started()
        assert engine._flow.log_of("events").rows(0, 2**64, engine.last).num_rows == 1
        flow.view("later", "SELECT id, ts FROM events")
        assert [row.id for row in flow.read("later").collect()] == [90]
        flow.close()


def test_an_expiry_that_is_no_moment_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("expiring", log=tmp_path / "log", spark=spark) as flow:
        with pytest.raises(TypeMismatch, match="source 'events': expires is a moment, expected a timestamp or a date"):
            flow.input("events", EVENTS, expires="id + 1")
        flow.input("events", EVENTS, expires="day")
        with pytest.raises(TypeMismatch, match="view 'v'"):
            flow.view("v", "SELECT id FROM events WHERE id > now()")
