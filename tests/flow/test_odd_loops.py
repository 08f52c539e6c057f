"""Iterations and recursions at their edges: conditions that end them, bounds, failures in a round, broken cycles."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import DeclarationError, EvaluationError, LoopDiverged


def rows(flow: hf.Flow, view: str) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in flow.read(view).collect())


def test_an_iteration_goes_on_until_its_condition_gives_no_row_and_follows_deletions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Newton's square roots until no value moves by more than a thousandth; halves, a fixed number of times; a ring
    that is broken."""

    def root(now: float, number: float) -> float:
        while abs((following := (now + number / now) / 2) - now) > 0.001:
            now = following
        return following

    with hf.Flow("until", tmp_path / "log", spark, partitions=2) as flow:
        numbers = flow.input("numbers", "n double")
        ring = flow.input("ring", "a long, b long")

        def better(guess: DataFrame) -> DataFrame:
            return guess.select("n", ((F.col("x") + F.col("n") / F.col("x")) / 2).alias("x"))

        def moving(before: DataFrame, now: DataFrame) -> DataFrame:
            joined = before.alias("b").join(now.alias("m"), F.col("b.n") == F.col("m.n"))
            return joined.where(F.abs(F.col("b.x") - F.col("m.x")) > 0.001)

        def told(now: DataFrame) -> DataFrame:
            links = flow.table("ring")
            return now.join(links, now.at == links.a).select(F.col("b").alias("at")).union(now).distinct()

        flow.iterate("roots", "SELECT n, n AS x FROM numbers", better, until=moving)
        flow.iterate("halves", "SELECT n, n AS x FROM numbers", lambda now: now.selectExpr("n", "x / 2D"), until=3)
        flow.iterate("same", "SELECT n FROM numbers", lambda now: now, until=0)
        flow.iterate("round", "SELECT min(a) AS at FROM ring", told)
        there: list[float] = []
        links = {(each, (each + 1) % 6) for each in range(6)}
        ring.insert(sorted(links))
        for come, gone, broken in (
            ([4.0], [], None),
            ([9.0, 2.0], [], (2, 3)),
            ([], [9.0], (0, 1)),
            ([7.0], [4.0], None),
        ):
            numbers.insert([(each,) for each in come])
            numbers.delete([(each,) for each in gone])
            there = [each for each in there + come if each not in gone]
            if broken is not None:
                ring.delete([broken])
                links -= {broken}
            flow.step()
            # All go on while one moves: so a root may be nearer than its own condition asks for.
            assert {n: round(x, 2) for n, x in rows(flow, "roots")} == {n: round(root(n, n), 2) for n in there}
            assert rows(flow, "halves") == Counter((n, n / 8) for n in there)
            assert rows(flow, "same") == Counter((n,) for n in there)
            reached = {0 if (0, 1) in links or min(a for a, _ in links) == 0 else min(a for a, _ in links)}
            while more := {b for a, b in links if a in reached} - reached:
                reached |= more
            assert rows(flow, "round") == Counter((each,) for each in reached)


def test_a_failure_in_a_round_abandons_the_epoch_and_names_the_expression(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("fails", tmp_path / "log", spark, partitions=2) as flow:
        numbers = flow.input("numbers", "n long")
        flow.view(
            "powers",
            "WITH RECURSIVE p(n) AS (SELECT n FROM numbers UNION SELECT CASE WHEN n > 0 THEN n * n ELSE n END FROM p "
            "WHERE n < 9000000000) SELECT n FROM p",
        )
        numbers.insert([(1,), (-3,)])
        flow.step()
        numbers.insert([(8_999_999_999,)])
        with pytest.raises(EvaluationError, match=r"view 'powers'.*long overflow.*`n` \* `n`"):
            flow.step()
        assert rows(flow, "powers") == Counter([(1,), (-3,)])
        numbers.delete([(8_999_999_999,)])
        numbers.insert([(7,)])
        flow.step()
        assert rows(flow, "powers") == Counter([(1,), (-3,), (7,), (49,), (2401,), (5764801,), (33232930569601,)])


def test_a_bound_counts_rounds_and_is_no_error_where_nothing_changes_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = "WITH RECURSIVE c(n) {} AS (SELECT n FROM numbers {} SELECT n + 1 FROM c WHERE n < 5) SELECT n FROM c"
    for union in ("UNION", "UNION ALL"):
        with hf.Flow("bounds", tmp_path / union, spark, partitions=1) as flow:
            numbers = flow.input("numbers", "n long")
            flow.view("said", text.format("MAX RECURSION LEVEL 6", union))
            flow.view("short", text.format("", union), max_rounds=5)
            numbers.insert([(1,)])
            flow.step()
            assert rows(flow, "said") == rows(flow, "short") == Counter((n,) for n in range(1, 6))
            numbers.insert([(-9,)])
            with pytest.raises(LoopDiverged, match=r"view '(said|short)', epoch 1: .* rounds"):
                flow.step()
            numbers.delete([(-9,)])
            numbers.insert([(3,)])
            flow.step()
            assert set(rows(flow, "said")) == {(n,) for n in range(1, 6)}


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "WITH RECURSIVE edges(a, b) AS (SELECT a, b FROM edges UNION SELECT a, b + 1 FROM edges) TABLE edges": (
            "edges refers to nothing but itself"
        ),
        "WITH RECURSIVE r(n) AS (SELECT a FROM edges UNION SELECT n, n FROM r) TABLE r": "NUM_COLUMNS_MISMATCH|columns",
        "WITH RECURSIVE r(n) AS (SELECT a FROM edges UNION SELECT m FROM r) TABLE r": "'m' not found",
        "WITH RECURSIVE r(n) AS (SELECT a FROM edges UNION SELECT n FROM q) TABLE r": "'q' not found",
        "WITH RECURSIVE r(n) AS (SELECT a FROM edges UNION ALL SELECT x.n FROM r x, r y) TABLE r": "(?i)recursive",
        "WITH RECURSIVE r(n) AS (SELECT a FROM edges UNION SELECT n + 1 FROM r LIMIT 3) TABLE r": "is no union.*LIMIT",
        "WITH RECURSIVE r(n) AS (SELECT a FROM edges EXCEPT SELECT n + 1 FROM r) TABLE r": "itself, and is no union",
    }.items(),
)
def test_a_recursion_that_means_nothing_is_refused_and_no_view_is_left(
    text: str, said: str, spark: SparkSession, tmp_path: Path
) -> None:
    flow = hf.Flow("refused", tmp_path / "log", spark)
    flow.input("edges", "a long, b long")
    with pytest.raises(DeclarationError, match=said) as raised:
        flow.view("v", text)
    assert "view 'v'" in str(raised.value)
    assert "v" not in flow._catalog.views
