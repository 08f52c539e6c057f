"""A leader that is cut off from its lease, by a network whose links are cut: it stops, another leads, never both."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.testing.network import Network, network, why_not
from holdfast.testing.zookeeper import ZooKeeperServer, zookeeper

TIMEOUT = 2.0
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no network namespaces: {why_not()}")

DRIVER = """
    import sys, time
    from holdfast.errors import LeaseLost
    from holdfast.standby.zookeeper_lease import ZooKeeperLease

    address, path, said = sys.argv[1:4]
    lease = ZooKeeperLease(address, path, float(sys.argv[4]))

    def say(what):
        with open(said, "a") as file:
            file.write(f"{what} {time.monotonic()}\\n")

    lease.connect()
    say("ready")
    lease.acquire()
    try:
        while True:
            lease.require()
            say("leads")
            time.sleep(0.02)
    except LeaseLost:
        say("stopped")
    finally:
        lease.release()
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network("first", "second", "zookeeper") as made:
        yield made


@pytest.fixture(scope="module")
def server(net: Network) -> Iterator[ZooKeeperServer]:
    with zookeeper(tick=0.5, node=net.node("zookeeper")) as running:
        yield running


@contextmanager
def driver(net: Network, node: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = net.node(node).inside([sys.executable, "-c", textwrap.dedent(DRIVER), *arguments])
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(path: Path, what: str) -> list[float]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [float(line.split()[1]) for line in lines if line.startswith(f"{what} ") and len(line.split()) == 2]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "cut",
    [
        ("first", "zookeeper", True),
        pytest.param(("first", "zookeeper", False), marks=pytest.mark.slow),
        pytest.param(("zookeeper", "first", False), marks=pytest.mark.slow),
    ],
    ids=["both ways", "to the lease", "from the lease"],
)
def test_a_leader_that_is_cut_off_from_its_lease_stops_before_another_leads(
    net: Network, server: ZooKeeperServer, tmp_path: Path, cut: tuple[str, str, bool]
) -> None:
    path, one, other = f"/partitions/{tmp_path.name}", tmp_path / "first", tmp_path / "second"
    with driver(net, "first", server.address, path, str(one), str(TIMEOUT)) as first:
        until(lambda: said(one, "leads"))
        with driver(net, "second", server.address, path, str(other), str(TIMEOUT)):
            until(lambda: said(other, "ready"))
            at = time.monotonic()
            net.cut(*cut)
            try:
                until(lambda: said(other, "leads"))
            finally:
                net.heal()
            took = said(other, "leads")[0]
            until(lambda: said(one, "stopped"))
            first.wait(PATIENCE)
    last = said(one, "leads")[-1]
    print(f"the first stopped {last - at:.2f} s after the cut, the second led after {took - at:.2f} s")
    assert last < took, "never two at once"
    assert last - at <= TIMEOUT + 0.5, "it counts on the lease for no longer than its timeout"
    assert took - at < 3 * TIMEOUT + 5.0
