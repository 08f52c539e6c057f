"""Addresses of leases, and what is said of wrong ones."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from holdfast.errors import LeaseError
from holdfast.standby.address import open_lease, parse_timeout
from holdfast.standby.file_lease import FileLease
from holdfast.standby.zookeeper_lease import ZooKeeperLease


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/shared/path", "expected file:///shared/path or zk://host:port/path"),
        ("etcd://host:2379/path", "no such kind of lease, 'etcd'"),
        ("file://", "expected the path of a directory"),
        ("file://host/path", "expected the path of a directory"),
        ("file:///", "expected the path of a directory"),
        ("zk:///path", "expected host:port before the path, found ''"),
        ("zk://host/path", "expected host:port before the path, found 'host'"),
        ("zk://host:99999/path", "expected host:port"),
        ("zk://host:2181", "expected a path after the servers"),
        ("zk://host:2181//", "expected a path after the servers"),
        ("zk://host:2181/a//b", "expected a path after the servers"),
    ],
)
def test_a_wrong_address_says_what_was_expected(address: str, message: str) -> None:
    with pytest.raises(LeaseError, match="lease '") as raised:
        open_lease(address)
    assert message in str(raised.value) and raised.value.fields["lease"] == address


def test_right_addresses_are_opened_without_connecting(tmp_path: Path) -> None:
    lease = open_lease(f"file://{tmp_path}/a%20lease", "500ms")
    assert isinstance(lease, FileLease) and lease.timeout == 0.5 and not list(tmp_path.iterdir())
    assert lease.url == f"file://{tmp_path}/a%20lease"
    lease = open_lease("zk://one:2181,[::1]:2181/flows/revenue/", 3)
    assert isinstance(lease, ZooKeeperLease) and lease.url == "zk://one:2181,[::1]:2181/flows/revenue"
    assert open_lease(lease) is lease


@pytest.mark.parametrize("text", ["", "soon", "-2s", "0s", "100ms", "2h", "2 s 3"])
def test_a_wrong_timeout_is_refused(text: str) -> None:
    with pytest.raises(LeaseError, match="must be a time from 200ms to 60m"):
        parse_timeout(text)


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_kazoo(name: str, *rest: object) -> object:
        if name.startswith("kazoo"):
            raise ImportError("no kazoo")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_kazoo)
    with pytest.raises(LeaseError, match=r"pip install 'holdfast\[zookeeper\]'"):
        open_lease("zk://127.0.0.1:1/path").connect()
