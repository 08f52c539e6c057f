"""Recursions that are analysed piece by piece mean what the whole statement means, and end where they must."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError, LoopDiverged


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> Iterator[hf.Flow]:
    with hf.Flow("pieces", tmp_path / "log", spark, partitions=2) as made:
        made.input("edges", "a long, b long")
        made.input("y", "id long")
        yield made


def column(flow: hf.Flow, view: str) -> list[object]:
    return sorted(row[0] for row in flow.read(view).collect())


def test_literals_in_a_recursion_are_read_as_the_flow_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever session is active: it is another one, in another zone, with other ways to quote."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "America/New_York")
    with hf.Flow("zone", tmp_path / "log", own, partitions=1) as flow:
        flow.input("y", "id long")
        flow.view(
            "times",
            "WITH RECURSIVE t(at) AS (SELECT TIMESTAMP '2024-07-01 00:00:00' UNION SELECT at + INTERVAL 1 HOUR FROM t "
            "WHERE at < TIMESTAMP '2024-07-01 02:00:00') SELECT unix_timestamp(at) AS seconds FROM t",
        )
        flow.view("plain", "SELECT unix_timestamp(TIMESTAMP '2024-07-01 00:00:00') AS seconds")
        flow.step()
        first = int(datetime(2024, 7, 1, 4, tzinfo=UTC).timestamp())
        assert column(flow, "plain") == [first]
        assert column(flow, "times") == [first, first + 3600, first + 7200]


def test_draws_in_different_pieces_of_a_recursion_are_different_draws(flow: hf.Flow) -> None:
    flow.view(
        "left",
        "WITH RECURSIVE r(n) AS (SELECT id FROM y WHERE rand() < 0.5 UNION SELECT n FROM r) "
        "SELECT o.id FROM (SELECT id FROM y WHERE rand() < 0.5) o LEFT ANTI JOIN r ON r.n = o.id",
    )
    flow.view(
        "twice",
        "WITH RECURSIVE d AS (SELECT id, rand() AS x FROM y), "
        "r(n, x) AS (SELECT id, x FROM d UNION SELECT n, x FROM r) "
        "SELECT r.n FROM r JOIN d ON r.n = d.id WHERE r.x = d.x",
    )
    flow.input("y", "id long").insert([(n,) for n in range(400)])
    flow.step()
    assert 40 < len(column(flow, "left")) < 160, "a quarter, more or less"
    assert len(column(flow, "twice")) == 400, "one call, which two pieces read, is one draw"


def test_draws_before_and_behind_an_iteration_are_different_draws(flow: hf.Flow, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    flow.iterate(
        "kept",
        flow.table("y").where(F.rand() < 0.5),
        lambda now: now.union(flow.table("y").where(F.rand() < 0.5).where("id >= 0")).distinct(),
    )
    flow.input("y", "id long").insert([(n,) for n in range(400)])
    flow.step()
    assert 240 < len(column(flow, "kept")) < 360, "three quarters, more or less"


def test_a_frame_that_an_iteration_uses_twice_is_one_draw(flow: hf.Flow) -> None:
    start = flow.sql("SELECT id, uuid() AS drawn, rand() AS x FROM y")
    flow.iterate("kept", start, lambda now: now.union(start).distinct())
    flow.input("y", "id long").insert([(n,) for n in range(50)])
    flow.step()
    assert flow.read("kept").count() == 50


def test_a_later_definition_with_the_name_of_a_table_is_not_taken_for_it(flow: hf.Flow) -> None:
    text = (
        "WITH RECURSIVE x AS (SELECT id FROM {0}), {0} AS (SELECT 1L AS id UNION SELECT id + 1 FROM x WHERE id < 3) "
        "SELECT id FROM {0}"
    )
    with pytest.raises(DeclarationError, match=r"x refers to 'y', which is defined behind it and is the name of"):
        flow.view("v", text.format("y"))
    flow.view("z", text.format("z")).view("z", text.format("z"))  # its own name is nothing that it reads
    flow.step()
    assert column(flow, "z") == [1, 2, 3]
    with pytest.raises(DeclarationError, match="can't have duplicate names: `t`"):
        flow.view(
            "v", "WITH RECURSIVE T AS (SELECT 1 AS n UNION SELECT n FROM T), t AS (SELECT 2 AS n) SELECT n FROM T"
        )


def test_ways_that_have_no_end_are_an_error_that_says_so(flow: hf.Flow) -> None:
    """UNION ALL over a cycle with two ways out of each node: the copies of a row double in each round."""
    flow.view(
        "ways",
        "WITH RECURSIVE t(n) AS (SELECT id FROM y UNION ALL SELECT e.b FROM t JOIN edges e ON e.a = t.n) "
        "SELECT n FROM t",
    )
    edges, starts = flow.input("edges", "a long, b long"), flow.input("y", "id long")
    edges.insert([(1, 2)])
    starts.insert([(1,)])
    flow.step()
    assert column(flow, "ways") == [1, 2]
    edges.insert([(1, 1), (2, 1), (2, 2)])
    with pytest.raises(LoopDiverged, match=r"view 'ways', epoch 1: .*in round \d+: they become more from round to"):
        flow.step()
    assert column(flow, "ways") == [1, 2]
    edges.delete([(1, 1), (2, 1), (2, 2)])
    flow.step()
    assert column(flow, "ways") == [1, 2]


def test_a_level_may_add_as_many_rows_as_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.cteRecursionRowLimit", "1000")
    with hf.Flow("rows", tmp_path / "log", own, partitions=1) as flow:
        starts, edges = flow.input("y", "id long"), flow.input("edges", "a long, b long")
        text = (
            "WITH RECURSIVE t(n, path) AS (SELECT id, '' FROM y {} SELECT e.b, path || e.b FROM t JOIN edges e ON "
            "e.a = t.n WHERE length(path) < 11) SELECT n, path FROM t"
        )
        flow.view("paths", text.format("UNION ALL"))
        starts.insert([(1,)])
        edges.insert([(a, b) for a in (1, 2) for b in (1, 2)])
        with pytest.raises(LoopDiverged, match=r"adds 1024 rows in round 11, .*allows 1000 \(spark.sql.cteRecursion"):
            flow.step()
        own.conf.set("spark.sql.cteRecursionRowLimit", "-1")
        flow.view("paths", text.format("UNION ALL"))
        flow.step()
        assert flow.read("paths").count() == 2**12 - 1, "the same text, under another bound"
        flow.view("paths", text.format("UNION"))
        flow.step()
        assert flow.read("paths").count() == 2**12 - 1, "of rows alone there are as many as there are"


def test_views_that_share_a_loop_share_its_bounds(flow: hf.Flow) -> None:
    text = "WITH RECURSIVE t(n) AS (SELECT id FROM y UNION SELECT n + 1 FROM t WHERE n < 9) SELECT n FROM t"
    flow.view("loose", text, max_rounds=1000).view("strict", text, max_rounds=3)
    starts = flow.input("y", "id long")
    starts.insert([(8,)])
    flow.step()
    starts.insert([(1,)])
    with pytest.raises(LoopDiverged, match="bound of 3 rounds"):
        flow.step()
    flow.drop("strict")
    flow.step()
    assert column(flow, "loose") == list(range(1, 10))
    nested = (
        "WITH RECURSIVE o(n) AS (SELECT id FROM y UNION SELECT i.n FROM (WITH RECURSIVE t(n) MAX RECURSION LEVEL {} AS "
        "(SELECT n FROM o UNION SELECT n + 1 FROM t WHERE n < 9) SELECT n FROM t) i) SELECT n FROM o"
    )
    flow.view("wide", nested.format(1000)).view("narrow", nested.format(4))
    with pytest.raises(LoopDiverged, match="bound of 4 rounds"):
        flow.step()


def test_a_recursion_of_no_level_at_all_adds_nothing(flow: hf.Flow) -> None:
    flow.view(
        "none",
        "WITH RECURSIVE t(n) MAX RECURSION LEVEL 0 AS (SELECT id FROM y UNION SELECT n + 1 FROM t WHERE n < 3) "
        "SELECT n FROM t",
    )
    flow.input("y", "id long").insert([(1,)])
    with pytest.raises(LoopDiverged, match="bound of 0 rounds"):
        flow.step()
