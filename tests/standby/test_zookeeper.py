"""The lease in ZooKeeper, against a real server on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import LeaseError, LeaseLost
from holdfast.standby.lease import LeaseState
from holdfast.standby.zookeeper_lease import ZooKeeperLease
from holdfast.testing.zookeeper import ZooKeeperServer, zookeeper

TIMEOUT = 1.5
PATIENCE = 60.0

Driver = Callable[..., ZooKeeperLease]


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with zookeeper(tick=0.5) as running:
        yield running
        pid = running.pid
    assert not Path(f"/proc/{pid}").exists()


@pytest.fixture
def driver(server: ZooKeeperServer, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Makes drivers that stand by for each other."""
    made: list[ZooKeeperLease] = []

    def make(timeout: float = TIMEOUT) -> ZooKeeperLease:
        made.append(ZooKeeperLease(server.address, f"/tests/{request.node.name}", timeout))
        made[-1].connect()
        return made[-1]

    yield make
    for lease in made:
        lease.release()


def eventually(what: Callable[[], bool], patience: float = PATIENCE) -> float:
    """The seconds until it is so."""
    started = time.monotonic()
    while not what():
        assert time.monotonic() - started < patience
        time.sleep(0.01)
    return time.monotonic() - started


def in_background(lease: ZooKeeperLease) -> threading.Thread:
    thread = threading.Thread(target=lease.acquire, daemon=True)
    thread.start()
    return thread


def test_the_first_leads_and_the_next_takes_over_at_once_when_it_is_released(
    driver: Driver,
) -> None:
    first, second, third = driver(10.0), driver(10.0), driver(10.0)
    assert first.acquire()
    waiting = in_background(second)
    eventually(lambda: second.holder() is not None)
    in_background(third)
    eventually(lambda: third.holder() is not None)
    assert str(second.holder()).startswith(f"pid {os.getpid()} on ")
    first.release()
    assert eventually(lambda: second.state is LeaseState.HELD) < 10.0  # it need not wait for the session to end
    waiting.join()
    assert third.state is LeaseState.FOLLOWING
    assert second.require()


def test_a_server_that_stops_makes_the_holder_unsure_and_sure_again_when_it_is_back(
    server: ZooKeeperServer, driver: Driver
) -> None:
    lease = driver()
    lease.acquire()
    server.pause()
    try:
        eventually(lambda: lease.state is LeaseState.UNSURE)
        assert not lease.require(stopping=lambda: True)
    finally:
        server.resume()
    # Whether the session outlives a server that slept is the server's to say: it keeps the time.
    eventually(lambda: lease.state in (LeaseState.HELD, LeaseState.LOST))


def test_a_server_that_is_started_again_knows_the_session(server: ZooKeeperServer, driver: Driver) -> None:
    lease = driver(6.0)
    lease.acquire()
    server.kill()
    eventually(lambda: lease.state is LeaseState.UNSURE)
    server.restart()
    eventually(lambda: lease.state is LeaseState.HELD)
    assert lease.require()


def test_a_driver_that_is_paused_loses_the_lease_and_says_so(server: ZooKeeperServer, driver: Driver) -> None:
    second = driver()
    code = f"""
        import sys
        from holdfast.errors import LeaseLost
        from holdfast.standby.zookeeper_lease import ZooKeeperLease
        lease = ZooKeeperLease({server.address!r}, {second._path!r}, {TIMEOUT})
        lease.connect()
        lease.acquire()
        print("held", flush=True)
        sys.stdin.readline()
        try:
            lease.require()
            print("still held")
        except LeaseLost as error:
            print(error)
        lease.release()
    """
    first = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        in_background(second)
        eventually(lambda: second.holder() is not None)
        os.kill(first.pid, 19)
        eventually(lambda: second.state is LeaseState.HELD)
        first.stdin.write("\n")  # type: ignore[union-attr]
        first.stdin.flush()  # type: ignore[union-attr]
        os.kill(first.pid, 18)
        said = first.communicate(timeout=PATIENCE)[0]
    finally:
        first.kill()
        first.wait()
    assert "the session has ended" in said and f"pid {os.getpid()} on" in said


def test_a_session_that_ends_while_a_driver_waits_is_made_anew(driver: Driver) -> None:
    first, second = driver(), driver()
    first.acquire()
    in_background(second)
    eventually(lambda: second._node is not None)
    first._client.delete(f"{second._path}/{second._node}")  # as the server does when a session ends
    before = second._node
    eventually(lambda: second._node != before)
    first.release()
    eventually(lambda: second.state is LeaseState.HELD)


def test_a_node_that_is_gone_is_a_lease_that_is_lost(driver: Driver) -> None:
    lease, other = driver(), driver()
    told = threading.Event()
    lease.on_lost = told.set
    lease.acquire()
    other._client.delete(f"{lease._path}/{lease._node}")
    assert told.wait(PATIENCE)
    with pytest.raises(LeaseLost, match="the session has ended"):
        lease.require()


def test_a_server_that_does_not_answer_is_an_error_within_the_time_limit() -> None:
    started = time.monotonic()
    with pytest.raises(LeaseError, match="no ZooKeeper server answered within 1 s"):
        ZooKeeperLease("127.0.0.1:1", "/path", TIMEOUT, patience=1.0).connect()
    assert time.monotonic() - started < PATIENCE


def test_a_path_that_is_not_ours_to_write_is_refused(server: ZooKeeperServer, driver: Driver) -> None:
    from kazoo.security import make_acl

    client = driver()._client
    client.create("/others", b"", acl=[make_acl("world", "anyone", read=True)])
    with pytest.raises(LeaseError, match="permission denied"):
        ZooKeeperLease(server.address, "/others/ours", TIMEOUT).connect()


def test_the_nodes_say_who_waits(driver: Driver) -> None:
    lease = driver()
    lease.acquire()
    said = json.loads(lease._client.get(f"{lease._path}/{lease._node}")[0])
    assert said["pid"] == os.getpid()
