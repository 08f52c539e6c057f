"""The address of a lease: ``file:///shared/path``, or ``zk://host:port,host:port/path``.

A flow is given one (``flow.run(lease=…)``). Any other work of which only one process may be at it can use one, too:

    with open_lease("file:///shared/report", "2s") as lease:    # given back at the end
        if lease.acquire(stopping, waiting):                    # waits; False if stopping() said so
            …
            lease.require(stopping)                             # before what must not be done twice: waits until it is
            …                                                   # certain; LeaseLost if another has it now

``stopping`` and ``waiting`` may be left out. What is done between `require` and the moment it takes effect is not
fenced by the lease: whoever receives it must be able to refuse a second one, as Holdfast's sinks do.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from holdfast.errors import LeaseError
from holdfast.lease.lease import Lease

DEFAULT_TIMEOUT = 5.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")
_FORMS = "file:///shared/path or zk://host:port/path"


def open_lease(lease: str | Lease, timeout: float | str | None = None) -> Lease:
    """The lease of an address. Nothing is connected to yet."""
    if isinstance(lease, Lease):
        return lease
    if not isinstance(lease, str):
        raise LeaseError(f"lease: expected {_FORMS}, found {lease!r}", lease=lease)
    seconds = DEFAULT_TIMEOUT if timeout is None else parse_timeout(timeout)
    scheme, marked, rest = lease.partition("://")
    if not marked:
        raise LeaseError(f"lease {lease!r}: expected {_FORMS}", lease=lease)
    if scheme == "file":
        if not rest.startswith("/") or not rest.strip("/"):
            raise LeaseError(
                f"lease {lease!r}: expected the path of a directory that all drivers see, as in file:///shared/path",
                lease=lease,
            )
        from holdfast.lease.file import FileLease

        return FileLease(Path(unquote(rest)), seconds)
    if scheme == "zk":
        hosts, _, path = rest.partition("/")
        for host in hosts.split(","):
            found = _HOST.fullmatch(host)
            if found is None or not 0 < int(found[2]) < 65536:
                raise LeaseError(f"lease {lease!r}: expected host:port before the path, found {host!r}", lease=lease)
        names = path.rstrip("/")
        if not names or any(not name or name in (".", "..") for name in names.split("/")):
            raise LeaseError(
                f"lease {lease!r}: expected a path after the servers, as in zk://host:2181/flows/revenue", lease=lease
            )
        from holdfast.lease.zookeeper import ZooKeeperLease

        return ZooKeeperLease(hosts, f"/{names}", seconds)
    raise LeaseError(f"lease {lease!r}: no such kind of lease, {scheme!r}; expected {_FORMS}", lease=lease)


def parse_timeout(text: float | str) -> float:
    """Seconds: a number, or a text such as ``"2s"``, ``"500ms"``, ``"1m"``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|)\s*", str(text))
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.2 <= seconds <= 3600:
        raise LeaseError(f"lease: the timeout must be a time from 200ms to 60m, such as '2s', not {text!r}")
    return seconds
