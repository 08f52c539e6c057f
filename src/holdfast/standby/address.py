"""The address of a lease: ``file:///shared/path``, ``zk://host:port,host:port/path``, or ``zks://…`` with TLS.

A flow takes a lease (``flow.run(lease=…)``). Other work that only one process may do at a time can use one, too:

    with open_lease("file:///shared/report", "2s") as lease:    # the lease is given back at the end
        if lease.acquire(stopping, waiting):                    # waits for the lease; False if stopping() said so
            …
            lease.require(stopping)                             # before an action that must not be done twice: waits
            …                                                   # until it is certain; LeaseLost if another has it now

``stopping`` and ``waiting`` may be left out. The lease does not fence an action between `require` and the moment when
it takes effect: its receiver must be able to refuse a second one, as Holdfast's sinks do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from holdfast.errors import ArgumentError, LeaseError
from holdfast.foundation import arguments
from holdfast.reporting import redaction
from holdfast.standby.lease import Lease

if TYPE_CHECKING:
    from holdfast.standby.zookeeper_access import Identity

DEFAULT_TIMEOUT = 5.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")
_FORMS = "file:///shared/path or zk://host:port/path"


def open_lease(lease: str | Lease, timeout: float | str | None = None) -> Lease:
    """Return the lease of an address, without connecting to it. Raise `LeaseError` if the address is wrong."""
    if isinstance(lease, Lease):
        return lease
    if not isinstance(lease, str):
        raise LeaseError(f"lease: expected {_FORMS}, found {lease!r}", lease=lease)
    seconds = DEFAULT_TIMEOUT if timeout is None else parse_timeout(timeout)
    redaction.shown(lease)  # from here on, no text of this process shows the credentials of the address
    scheme, marked, rest = lease.partition("://")
    if not marked:
        raise LeaseError(f"lease {lease!r}: expected {_FORMS}", lease=lease)
    if scheme == "file":
        if not rest.startswith("/") or not rest.strip("/"):
            raise LeaseError(
                f"lease {lease!r}: expected the path of a directory that all drivers see, as in file:///shared/path",
                lease=lease,
            )
        from holdfast.standby.file_lease import FileLease

        return FileLease(Path(unquote(rest)), seconds)
    if scheme in ("zk", "zks"):
        rest, _, query = rest.partition("?")
        hosts, _, path = rest.partition("/")
        user, _, hosts = hosts.rpartition("@")
        for host in hosts.split(","):
            found = _HOST.fullmatch(host)
            if found is None or not 0 < int(found[2]) < 65536:
                raise LeaseError(f"lease {lease!r}: expected host:port before the path, found {host!r}", lease=lease)
        names = path.rstrip("/")
        if not names or any(not name or name in (".", "..") for name in names.split("/")):
            raise LeaseError(
                f"lease {lease!r}: expected a path after the servers, as in zk://host:2181/flows/revenue", lease=lease
            )
        from holdfast.standby.zookeeper_access import access_of
        from holdfast.standby.zookeeper_lease import ZooKeeperLease

        return ZooKeeperLease(hosts, f"/{names}", seconds, access=access_of(lease, scheme, user, query))
    raise LeaseError(f"lease {lease!r}: no such kind of lease, {scheme!r}; expected {_FORMS}", lease=lease)


def zookeeper(
    hosts: str,
    path: str,
    *,
    timeout: float | str | None = None,
    auth: Identity | Callable[[], Identity] | None = None,
    acl: Sequence[Any] | None = None,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    key_password: str | None = None,
    check_hostname: bool = True,
    sasl: Mapping[str, str] | None = None,
) -> Lease:
    """A lease in ZooKeeper, for ``flow.run(lease=…)``, with settings and secrets that should not be in an address.

    ``auth`` is the identity of this driver, ``("digest", "user:password")``, or a function that returns it; then only
    the same identity can change the lease's nodes, unless ``acl`` (ACLs of ``kazoo.security``) says otherwise. ``tls``
    uses TLS with servers whose certificates are signed by ``ca`` (a file; by default the system's certificates);
    ``certificate`` and ``key`` are this driver's own, if servers ask for them. ``sasl`` is passed to kazoo as
    ``sasl_options``.
    """
    from holdfast.standby.zookeeper_access import Access
    from holdfast.standby.zookeeper_lease import ZooKeeperLease

    arguments.text("zookeeper", "hosts", hosts, "host:port, or several with commas")
    arguments.text("zookeeper", "path", path, "the path of the lease")
    for name, on in (("tls", tls), ("check_hostname", check_hostname)):
        arguments.flag("zookeeper", name, on)
    for name, file in (("ca", ca), ("certificate", certificate), ("key", key)):
        if file is not None:
            arguments.path("zookeeper", name, file)
    if key_password is not None and not isinstance(key_password, str):
        raise ArgumentError("zookeeper: key_password must be a text", subject="zookeeper", argument="key_password")
    if auth is not None and not callable(auth) and not _is_identity(auth):
        expected = "('digest', 'user:password'), or a function that returns that"  # the found value may be a secret
        raise ArgumentError(f"zookeeper: auth must be {expected}", subject="zookeeper", argument="auth")
    if acl is not None and (isinstance(acl, str) or not isinstance(acl, Sequence)):
        arguments.refuse("zookeeper", "acl", "a list of ACLs", acl)
    if sasl is not None and not isinstance(sasl, Mapping):
        raise ArgumentError("zookeeper: sasl must be options by name", subject="zookeeper", argument="sasl")
    seconds = open_lease(f"zk://{hosts}/{path.lstrip('/')}", timeout).timeout  # raises if it is no valid address
    access = Access(auth, acl, tls, ca, certificate, key, key_password, check_hostname, sasl)
    return ZooKeeperLease(hosts, f"/{path.strip('/')}", seconds, access=access)


def parse_timeout(text: float | str) -> float:
    """Return a timeout in seconds, from a number or a text such as ``"2s"``, ``"500ms"``, ``"1m"``. Raise `LeaseError`
    unless it is from 200 ms to 60 minutes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|)\s*", str(text))
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.2 <= seconds <= 3600:
        raise LeaseError(f"lease: the timeout must be a time from 200ms to 60m, such as '2s', not {text!r}")
    return seconds


def _is_identity(auth: object) -> bool:
    return isinstance(auth, tuple | list) and len(auth) == 2 and all(isinstance(each, str) for each in auth)
