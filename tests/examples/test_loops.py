"""The examples of recursive views: after every epoch each is what plain Python computes."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast as hf

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "loops"))

import clusters
import graph
import pagerank
import points_to
import roads


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> hf.Flow:
    return hf.Flow("example", log=tmp_path / "log", spark=spark)


def test_a_cycle_that_nothing_leads_to_is_no_longer_reached(flow: hf.Flow) -> None:
    with flow:
        found = [(reached, sorted(components.values())) for _, reached, components in graph.run(flow)]
    everybody = ["ada", "bob", "cyd", "dan", "eve", "fay"]
    assert found == [
        (["ada", "bob", "cyd"], [["ada", "bob", "cyd"], ["dan", "eve", "fay"]]),
        (everybody, [everybody]),
        (["ada"], [["bob", "cyd", "dan", "eve", "fay"]]),
        (["ada", "dan", "eve", "fay"], [everybody]),
    ]


def test_ranks_follow_links_that_come_and_go(flow: hf.Flow) -> None:
    dice = random.Random(3)
    with flow:
        given = pagerank.declare(flow)
        links = list(pagerank.LINKS)
        given.insert(links)
        for _ in range(4):
            flow.step()
            assert pagerank.ranks_of(flow) == pagerank.expected(links)
            gone = dice.sample(links, 2)
            come = [("shop", "post"), ("cart", "home")] if dice.random() < 0.5 else []
            given.delete(gone)
            given.insert(come)
            links = [link for link in links if link not in gone] + come


def test_distances_follow_roads_that_close_and_open(flow: hf.Flow) -> None:
    dice, all_roads, closed = random.Random(5), roads.network(side=6), set()
    with flow:
        given = roads.declare(flow)
        given.insert(all_roads)
        for _ in range(6):
            flow.step()
            assert roads.distances(flow) == roads.expected(set(all_roads) - closed)
            change = set(dice.sample(all_roads, 3))
            given.insert(list(change & closed))
            given.delete(list(change - closed))
            closed ^= change


def test_the_model_is_that_of_all_points_so_far(flow: hf.Flow) -> None:
    with flow:
        given = clusters.declare(flow)
        points = clusters.points(30, seed=1)
        given.insert(points)
        for batch in range(3):
            flow.step()
            assert clusters.model_of(flow) == clusters.expected(points)
            more, gone = clusters.points(15, seed=10 + batch, first=100 * (batch + 1)), points[:5]
            given.insert(more)
            given.delete(gone)
            points = points[5:] + more


def test_what_variables_point_to_follows_edits_of_the_program(flow: hf.Flow) -> None:
    with flow:
        inputs = points_to.declare(flow)
        program = points_to.PROGRAM.strip().splitlines()
        for line in program:
            points_to.edit(inputs, "+", line)
        for sign, line in [("", ""), *points_to.EDITS]:
            if sign:
                points_to.edit(inputs, sign, line)
                program = [*program, line] if sign == "+" else [each for each in program if each != line]
            flow.step()
            found = {tuple(row) for row in flow.read("points_to").collect()}
            assert found == points_to.expected(map(points_to.parsed, program))


@pytest.mark.slow
@pytest.mark.parametrize("example", [clusters, graph, pagerank, points_to, roads], ids=lambda example: example.__name__)
def test_an_example_that_is_run_twice_prints_the_same_but_for_the_times(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], example: Any
) -> None:
    printed = []
    for _ in range(2):
        example.main(spark=spark)
        printed.append([_words(line) for line in capsys.readouterr().out.splitlines()])
    timed = any("(ms)" in words for words in printed[0])
    first, second = ([words[:-1] if timed and words else words for words in lines if words] for lines in printed)
    assert first == second and len(first) > 5


def _words(line: str) -> list[str]:
    """The words of a line of a table. If the table says how long epochs took, that is its last column."""
    return re.findall(r"[^\s\u2500-\u257f]+", line)
