"""A lease in ZooKeeper that others cannot touch: authentication, ACLs and TLS, against a real server on loopback."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

import holdfast as hf
from holdfast.errors import LeaseError
from holdfast.standby.address import open_lease
from holdfast.standby.zookeeper_access import Access
from holdfast.standby.zookeeper_lease import ZooKeeperLease
from holdfast.testing.zookeeper import ZooKeeperServer, zookeeper
from tests.standby import certificates

TIMEOUT = 1.5
SECRET = "zk-p4ssword"
OURS = ("digest", f"holdfast:{SECRET}")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(pem: certificates.Certificates) -> Iterator[ZooKeeperServer]:
    with zookeeper(tick=0.5, tls=(pem.server, pem.authority)) as running:
        yield running


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.name}"


def test_only_who_authenticates_can_touch_the_nodes_of_a_lease(server: ZooKeeperServer, path: str) -> None:
    lease = ZooKeeperLease(server.address, path, TIMEOUT, access=Access(auth=OURS))
    stranger = KazooClient(server.address)
    stranger.start()
    try:
        assert lease.acquire() and lease.require()
        for attempt in (
            lambda: stranger.delete(f"{path}/{lease._node}"),
            lambda: stranger.create(f"{path}/driver-x-", ephemeral=True, sequence=True),
            lambda: stranger.get_children(path),
        ):
            with pytest.raises(NoAuthError):
                attempt()
        with pytest.raises(LeaseError, match="permission denied"):
            other = ZooKeeperLease(server.address, path, TIMEOUT, access=Access(auth=("digest", "other:one")))
            try:
                other.connect()
                other.look()
            finally:
                other.release()
        second = ZooKeeperLease(server.address, path, TIMEOUT, access=Access(auth=lambda: OURS))
        second.connect()
        assert not second.look()
        second.release()
    finally:
        lease.release()
        stranger.stop()
        stranger.close()


def test_a_path_that_is_open_to_anybody_is_refused_by_who_authenticates(server: ZooKeeperServer, path: str) -> None:
    before = ZooKeeperLease(server.address, path, TIMEOUT)
    before.connect()
    before.release()
    with pytest.raises(LeaseError, match="open to anybody; set its ACL"):
        ZooKeeperLease(server.address, path, TIMEOUT, access=Access(auth=OURS)).connect()


def test_an_acl_of_the_users_own_is_used(server: ZooKeeperServer, path: str) -> None:
    acl = [make_digest_acl("holdfast", SECRET, all=True), make_digest_acl("watcher", "eyes", read=True)]
    lease = hf.zookeeper(server.address, path, timeout=TIMEOUT, auth=OURS, acl=acl)
    watcher = KazooClient(server.address, auth_data=[("digest", "watcher:eyes")])
    watcher.start()
    try:
        assert lease.acquire()
        assert len(watcher.get_children(path)) == 1
        with pytest.raises(NoAuthError):
            watcher.delete(f"{path}/{watcher.get_children(path)[0]}")
    finally:
        lease.release()
        watcher.stop()
        watcher.close()


def test_credentials_come_from_the_environment_or_the_address_and_are_shown_nowhere(
    server: ZooKeeperServer, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    logging.getLogger("holdfast.zookeeper").setLevel(1)
    monkeypatch.setenv("HOLDFAST_ZOOKEEPER_AUTH", f"digest:holdfast:{SECRET}")
    by_environment = open_lease(f"zk://{server.address}{path}", TIMEOUT)
    monkeypatch.delenv("HOLDFAST_ZOOKEEPER_AUTH")
    by_address = open_lease(f"zk://holdfast:{SECRET}@{server.address}{path}", TIMEOUT)
    assert by_environment.url == by_address.url == f"zk://{server.address}{path}"
    assert by_environment.acquire()
    by_address.connect()
    assert isinstance(by_address, ZooKeeperLease) and not by_address.look()  # the same identity: it may stand by
    said = [repr(vars(lease)) for lease in (by_environment, by_address)]
    for lease in (by_address, by_environment):
        lease.release()
    with pytest.raises(LeaseError) as caught:
        open_lease(f"zk://holdfast:{SECRET}@{server.address}{path}?no=1")
    said += traceback.format_exception(caught.value)
    assert "Connecting to" in caplog.text  # kazoo was heard
    assert not any(SECRET in text for text in (*said, caplog.text))


def test_over_tls_a_lease_is_held_with_certificates_of_both_sides(
    server: ZooKeeperServer, path: str, pem: certificates.Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ZOOKEEPER_KEY_PASSWORD", certificates.PASSWORD)
    address = f"127.0.0.1:{server.secure_port}{path}"
    lease = open_lease(f"zks://{address}?ca={pem.authority}&cert={pem.client}&key={pem.client_key}", TIMEOUT)
    assert lease.url == f"zks://{address}"
    try:
        assert lease.acquire() and lease.require()
    finally:
        lease.release()


@pytest.mark.parametrize("flaw", ["another authority", "no certificate", "another host", "not TLS"])
def test_tls_that_is_not_right_is_refused_within_the_time_limit(
    server: ZooKeeperServer, path: str, pem: certificates.Certificates, tmp_path: Path, flaw: str
) -> None:
    ca, host, port = pem.authority, "127.0.0.1", server.secure_port
    if flaw == "another authority":
        ca = certificates.make(tmp_path).authority
    if flaw == "another host":
        host = "localhost"  # its certificate is for the address
    if flaw == "not TLS":
        port = server.port
    mine = {} if flaw == "no certificate" else {"certificate": str(pem.client), "key": str(pem.client_key)}
    access = Access(tls=True, ca=str(ca), key_password=certificates.PASSWORD, **mine)
    lease = ZooKeeperLease(f"{host}:{port}", path, TIMEOUT, patience=1.5, access=access)
    with pytest.raises(LeaseError, match=r"does it speak TLS there|cannot be made safe"):
        lease.connect()


def test_what_does_not_fit_together_is_refused() -> None:
    for given, fix in (
        (lambda: Access(ca="/ca.pem"), "these are for TLS; write zks://"),
        (lambda: Access(tls=True, key="/key.pem"), "needs its key, and a key its certificate"),
        (lambda: Access(auth=("digest", "nobody")), "such as \\('digest', 'user:password'\\)"),
        (lambda: open_lease("zks://host:2281/path?cacert=x"), "parameter 'cacert' is not known; expected ca, cert"),
    ):
        with pytest.raises(LeaseError, match=fix):
            given()
