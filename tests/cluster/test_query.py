"""One-off queries on a real cluster, whose executors are killed in the middle.

One driver plays all scenes (`scenes.queries`); the tests judge what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster import scenes
from holdfast.testing.cluster import MARK, Cluster
from holdfast.testing.processes import marked

pytestmark = pytest.mark.slow  # until they have been seen to pass within the time that CI allows

EXECUTORS, LOSSES = 4, 3


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    with Cluster(workers=2, cores=2, executors_per_worker=2, memory=512) as cluster:
        yield cluster.driver(scenes.queries, EXECUTORS, LOSSES).result(200.0)
    assert marked(MARK, cluster.mark) == []


def test_replay_gives_the_exact_answer_and_says_what_was_done_again(seen: dict[str, Any]) -> None:
    rows, report = seen["replay"]
    assert rows == seen["exact"]
    assert report.exact and len(report.lost) == 1
    lost = str(report.lost[0])
    assert report.recomputed
    assert all(one.done_on != lost for one in report.recomputed)
    assert any(one.lost_on == lost for one in report.recomputed)


def test_terminate_names_the_lost_member_within_two_seconds(seen: dict[str, Any]) -> None:
    text, seconds, member, killed = seen["terminate"]
    assert member == killed
    assert f"executor {killed} on 127.0.0." in text and "not done: stage" in text
    assert seconds < 3.0  # two after it was heard of, which takes a second at most


def test_continue_answers_from_exactly_what_is_left(seen: dict[str, Any]) -> None:
    assert any(report.missing for _, _, report in seen["continue"])
    for rows, left, report in [*seen["continue"], seen["late"]]:
        total = scenes.FILES * scenes.ROWS
        if report.missing:
            assert rows == left
        assert report.coverage.rows_total == total
        assert report.coverage.rows == sum(count for _, count, _ in rows)
        assert report.coverage.partitions == scenes.FILES - len(report.missing)
        assert report.coverage.rows == total - sum(piece.rows for piece in report.missing)


def test_continue_begins_again_when_a_part_of_what_is_lost_was_used(seen: dict[str, Any]) -> None:
    _, _, report = seen["late"]
    assert report.missing and report.runs > 1


def test_guards_change_no_answer(seen: dict[str, Any]) -> None:
    for same, report in seen["forms"]:
        assert same and report.exact and report.coverage.complete


def test_a_task_that_fails_by_itself_is_not_taken_for_a_loss(seen: dict[str, Any]) -> None:
    assert "ZeroDivisionError" in seen["own_failure"], seen["own_failure"]


def test_files_are_read_from_whichever_copy_has_them(seen: dict[str, Any]) -> None:
    assert seen["replicas"] == seen["exact"]


def test_every_loss_and_joining_is_told_once_in_order(seen: dict[str, Any]) -> None:
    heard = seen["heard"]
    assert [change.number for change in heard] == list(range(len(heard)))
    assert len(heard[0].members) == EXECUTORS and heard[0].joined == heard[0].members
    lost = [member.id for change in heard for member in change.lost]
    assert len(lost) == len(set(lost)) == 3 + LOSSES
    members = set(heard[0].members)
    for change in heard[1:]:
        members = (members | set(change.joined)) - set(change.lost)
        assert members == set(change.members)
