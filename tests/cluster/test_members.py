"""Membership on a real cluster: one driver hears of executors that are killed, fall silent and join
(`member_scenes.membership`); the tests judge what it saw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import member_scenes as scenes
from holdfast.testing.cluster import MARK, Cluster
from holdfast.testing.processes import marked

EXECUTORS = 2

pytestmark = pytest.mark.slow  # (in `make test` the flows of test_flows.py hear of losses)


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    with Cluster(workers=EXECUTORS, cores=1) as cluster:
        more = cluster.directory / "more"
        driver = cluster.driver(scenes.membership, EXECUTORS, more)
        while driver.running and not more.exists():
            time.sleep(0.05)
        if driver.running:
            cluster.add_worker()
        yield driver.result(180.0)
    assert marked(MARK, cluster.mark) == []


def test_a_run_that_waits_for_too_many_members_says_who_is_there(seen: dict[str, Any]) -> None:
    kind, text = seen["too few"]
    assert kind == "TooFewMembers" and f"of {EXECUTORS + 1} members are there after 1 s" in text
    assert seen["told too early"] == []


def test_every_handler_sees_the_same_changes_from_the_same_initial_set_on(seen: dict[str, Any]) -> None:
    first, second = seen["heard"]
    assert len(first[0].members) == EXECUTORS and first[0].joined == first[0].members and first[0].epoch == -1
    shorter = min(len(first), len(second))
    assert first[:shorter] == second[:shorter] and shorter >= 4


def test_changes_come_once_in_order_and_never_two_at_once(seen: dict[str, Any]) -> None:
    assert not seen["overlapped"]
    for changes in (*seen["heard"], seen["alone"]):
        assert [change.number for change in changes] == list(range(len(changes)))
        members = set(changes[0].members)
        for change in changes[1:]:
            assert len(change.joined) + len(change.lost) == 1
            members = (members | set(change.joined)) - set(change.lost)
            assert members == set(change.members)
        lost = [member.id for change in changes for member in change.lost]
        assert lost == list(dict.fromkeys(lost)) and lost[:2] == list(seen["ids"])


def test_a_change_says_how_far_the_flow_was(seen: dict[str, Any]) -> None:
    assert {change.epoch for change in seen["heard"][1][1:4]} == {0}
    assert {change.epoch for change in seen["alone"]} == {-1}


def test_a_killed_executor_is_heard_of_at_once_and_a_silent_one_in_time(seen: dict[str, Any]) -> None:
    assert seen["killed"] < 3.0  # "about a second", on a machine that does other things as well
    assert 1.0 < seen["paused"] < scenes.DETECTION + 2.0


def test_a_flow_that_lost_members_goes_on(seen: dict[str, Any]) -> None:
    assert seen["rows"] == [("ada", 2), ("bob", 1)]


def test_an_error_in_a_handler_stops_the_flow_with_its_text(seen: dict[str, Any]) -> None:
    kind, text = seen["stopped"]
    assert kind == "MembershipError" and "'stops': ValueError: that is enough" in text
