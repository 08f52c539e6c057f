"""Sessions and windows of time as Spark reads them, kept up to date."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from .keeping import check, numbered, refused


def test_sessions_grow_merge_and_split(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select session_window(ts, '10 minutes') w, count(*) c, u "
            "from o group by u, session_window(ts, '10 minutes')",
            "select session_window.start s, session_window.end e, sum(amount) a "
            "from o group by session_window(ts, '8 minutes')",
            "select count(*) c from o group by session_window(ts, case when k > 1 then '10 minutes' else '1 hour' end)",
            "select k, count(distinct u) c, session_window.start s from o group by k, session_window(ts, '15 minutes') "
            "having count(*) > 1",
            lambda table: (
                table("o").groupBy(F.session_window("ts", "20 minutes").alias("w"), "k").agg(F.max("id").alias("m"))
            ),
        ),
    )


def test_windows_of_time_are_groups(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select window, count(*) c from o group by window(ts, '10 minutes')",
            "select window.start s, u, sum(amount) a from o group by window(ts, '10 minutes', '5 minutes'), u",
            "select window_time(w) t, c from (select window(ts, '20 minutes') w, count(*) c from o group by 1)",
            "select w.end e, count(*) c "
            "from (select window(ts, '7 minutes', '7 minutes', '1 minute') w from o) group by w.end",
            "select window(window, '1 hour').start s, sum(c) c from "
            "(select window(ts, '10 minutes') as window, count(*) c "
            "from o group by 1) group by window(window, '1 hour')",
            lambda table: table("o").groupBy(F.window("ts", "1 hour")).count(),
        ),
    )


def test_a_session_is_a_key_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    query = "select max(session_window) from o group by session_window(ts, '10 minutes')"
    assert refused(spark, tmp_path, query).fields["construct"] == "session_window inside an aggregate"
