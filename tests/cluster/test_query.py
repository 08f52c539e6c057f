"""One-off queries on a real cluster, whose executors are killed in the middle.

One driver plays all scenes (`query_scenes.queries`); the tests judge what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster import query_scenes as scenes
from holdfast.testing.cluster import MARK, Cluster
from holdfast.testing.processes import marked

EXECUTORS, LOSSES = 4, 2

pytestmark = pytest.mark.slow  # two minutes; (in `make test`: tests/flow/test_query.py, in one process)


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    with Cluster(workers=2, cores=2, executors_per_worker=2, memory=512) as cluster:
        driver = cluster.driver(scenes.queries, EXECUTORS, LOSSES)
        yield driver.result(300.0)
        print(driver.output)
    assert marked(MARK, cluster.mark) == []


def test_replay_gives_the_exact_answer_and_says_what_several_survivors_did_again(seen: dict[str, Any]) -> None:
    # From two copies of the input, each of which lacks something that the other has, before and after the kill.
    rows, report = seen["replay"]
    assert rows == seen["exact"]
    assert report.exact and len(report.lost) == 1
    lost = str(report.lost[0])
    # What it had done, and what it was doing.
    assert [one.lost_on for one in report.recomputed].count(lost) >= 2
    assert all(one.done_on != lost for one in report.recomputed)
    assert len(report.survivors) >= 2


def test_terminate_names_the_lost_member_and_stops_everything_within_two_seconds(seen: dict[str, Any]) -> None:
    text, member, killed, ended, idle = seen["terminate"]
    assert member == killed
    assert f"executor {killed} on 127.0.0." in text
    assert "done: nothing; not done: stage" in text and "(2 of 8 tasks)" in text and "(not begun)" in text
    assert ended < 2.0
    assert idle < 5.0  # its tasks, which are in the middle of Python code; on a busy machine


def _right(rows: Any, left: Any, report: Any) -> None:
    total = scenes.FILES * scenes.ROWS
    if report.missing:
        assert rows == left
    assert report.coverage.rows_total == total
    assert report.coverage.rows == sum(count for _, count, _ in rows)
    assert report.coverage.rows == total - sum(piece.rows for piece in report.missing)
    assert report.coverage.partitions == scenes.FILES - len(report.missing)
    assert report.exact == report.coverage.complete == (not report.missing)


def test_continue_answers_from_exactly_what_is_left(seen: dict[str, Any]) -> None:
    assert any(report.missing for _, _, report in seen["continue"])
    for answer in seen["continue"]:
        _right(*answer)


def test_continue_begins_again_when_a_part_of_what_is_lost_was_used(seen: dict[str, Any]) -> None:
    rows, left, report = seen["late"]
    _right(rows, left, report)
    assert report.missing and report.runs > 1


def test_guards_change_no_answer(seen: dict[str, Any]) -> None:
    for same, report in seen["forms"]:
        assert same and report.exact and report.coverage.complete


def test_a_task_that_fails_by_itself_is_not_taken_for_a_loss(seen: dict[str, Any]) -> None:
    assert "ZeroDivisionError" in seen["own failure"], seen["own failure"]


def test_every_loss_and_joining_is_told_once_in_order(seen: dict[str, Any]) -> None:
    heard = seen["heard"]
    assert [change.number for change in heard] == list(range(len(heard)))
    assert len(heard[0].members) == EXECUTORS and heard[0].joined == heard[0].members
    lost = [member.id for change in heard for member in change.lost]
    assert len(lost) == len(set(lost)) == seen["kills"]


@pytest.mark.slow
def test_coverage_is_exact_across_many_random_losses() -> None:
    with Cluster(workers=2, cores=2, executors_per_worker=2, memory=512) as cluster:
        found = cluster.driver(scenes.random_losses, EXECUTORS, 30).result(1800.0)
    assert sum(bool(report.missing) for _, _, report in found) > 15
    for answer in found:
        _right(*answer)
