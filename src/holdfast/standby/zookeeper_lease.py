"""A lease in ZooKeeper: each driver has an ephemeral sequential node, and the driver of the first node has the lease.

    <path>/driver-<token>-0000000042       {"pid": …, "host": …, "since": …}

A node disappears with its session, and the server ends a session when it has heard nothing for the session's timeout,
which is that of the lease. Each driver watches the node before its own, so a node that disappears wakes one driver, not
all.

The holder does not wait for a message: it asks for its own node several times per timeout. After each answer it counts
on the lease for one timeout from *before* the question. (So a driver that was paused is not sure of the lease the
moment it wakes up.) In kazoo's state SUSPENDED, when the connection is gone, it is not sure either, until the session
is found alive or the node gone.

The server must allow the timeout. ZooKeeper's least session timeout is two ticks (4 s by default); it raises a shorter
one to that, and another driver then takes over later. Its longest is twenty ticks; it lowers a longer one to that. So a
longer timeout is refused: a holder would count on a lease that it may have lost.

Kazoo's recipes are not used. A contender of its `Lock` (and `Election`) that does not block loses its place in the
queue, because ``acquire`` with a timeout removes its node. A contender that blocks learns neither that its own node is
gone nor from which moment it may count on the lock. `NonBlockingLease` compares the clocks of hosts.
"""

from __future__ import annotations

import json
import logging
import secrets
import ssl
from contextlib import suppress
from typing import Any

from holdfast.errors import LeaseError, LeaseLost
from holdfast.reporting.redaction import cause, logger
from holdfast.standby.lease import Clock, Holder, Lease, since_boot
from holdfast.standby.zookeeper_access import Access, open_to_anybody

_LONGEST = 40.0
"""The longest timeout in seconds: twenty of ZooKeeper's ticks, by default."""

_PATIENCE = 10.0
"""Seconds within which a server must answer."""

_SAID = logger("holdfast.zookeeper")
"""Kazoo's log records. The lease itself reports what matters of them."""

_SAID.addHandler(logging.NullHandler())  # kazoo logs every attempt to connect: shown only if a program asks for it


class ZooKeeperLease(Lease):
    """A lease in ZooKeeper (see the head of this file)."""

    def __init__(
        self,
        hosts: str,
        path: str,
        timeout: float,
        clock: Clock = since_boot,
        patience: float = _PATIENCE,
        access: Access | None = None,
    ) -> None:
        self._access = access or Access()
        super().__init__(f"zk{'s' if self._access.tls else ''}://{hosts}{path}", timeout, clock)
        if timeout > _LONGEST:
            raise LeaseError(
                f"lease {self.url}: the timeout must be {_LONGEST:g}s at most, not {timeout:g}s: "
                "ZooKeeper ends a session by then, whatever is asked of it",
                lease=self.url,
            )
        self._hosts = hosts
        self._path = path
        self._patience = patience
        self._token = secrets.token_hex(8)
        self._client: Any = None
        self._node: str | None = None
        self._holder: Holder | None = None

    @property
    def pause(self) -> float:
        return min(1.0, self.timeout / 2)  # a watch wakes the driver earlier

    def connect(self) -> None:
        if self._client is not None:
            return
        try:
            from kazoo.client import KazooClient
            from kazoo.exceptions import KazooException
            from kazoo.handlers.threading import KazooTimeoutError
        except ImportError as error:
            raise LeaseError(
                f"lease {self.url}: ZooKeeper needs the package kazoo; pip install 'holdfast[zookeeper]'",
                lease=self.url,
            ) from error
        self._timed_out, self._failed = KazooTimeoutError, KazooException
        # A session must be found again before it ends, so the pause between attempts stays below its timeout.
        again = {"max_tries": -1, "delay": 0.05, "max_delay": self.timeout / 8, "max_jitter": 0.1}
        options = self._access.options()
        client = KazooClient(hosts=self._hosts, timeout=self.timeout, connection_retry=again, logger=_SAID, **options)
        client.add_listener(self._told)
        try:
            client.start(timeout=self._patience)
        except (KazooTimeoutError, OSError, KazooException, ImportError) as error:
            with suppress(Exception):
                client.stop()
                client.close()
            raise LeaseError(f"lease {self.url}: {self._why_not(error)}", lease=self.url) from cause(error)
        self._client = client
        try:
            self._ask(client.ensure_path_async(self._path))
            self._check_acl()
        except LeaseError:
            self._close()
            raise
        self._connected = True

    def _why_not(self, error: Exception) -> str:
        name = type(error).__name__
        if name == "AuthFailedError":
            return "the server does not take these credentials; check them, and that it knows their scheme"
        if isinstance(error, ssl.SSLError | FileNotFoundError | ImportError):
            return f"the way to the server cannot be made safe: {error}"
        tls = ", does it speak TLS there, and is its certificate one that you trust" if self._access.tls else ""
        return f"no ZooKeeper server answered within {self._patience:g} s; is the address right{tls}, and does it run?"

    def _check_acl(self) -> None:
        """Raise `LeaseError` if anybody may delete children of the path: whatever the ACL of a driver's node, its lease
        could be taken away then."""
        if self._access.guarded and open_to_anybody(self._ask(self._client.get_acls_async(self._path))[0]):
            raise LeaseError(
                f"lease {self.url}: this driver authenticates, but the path, made before, is open to anybody; set "
                f"its ACL (zkCli: setAcl {self._path} auth::cdrwa), or choose another path",
                lease=self.url,
            )

    def look(self) -> bool:
        started = self._clock()
        children = self._children()
        if self._node not in children:
            # This driver has no node yet, or its session has ended. (A node whose creation was not answered is found by
            # the token in its name.)
            mine = [name for name in children if self._token in name]
            self._node = mine[0] if mine else self._join()
            children = self._children()
        order = sorted(children, key=_place)
        if self._node not in order:
            return False
        if order[0] == self._node:
            self.term, self._holder = _place(self._node), Holder.here()
            self.confirm(started)
            return True
        before = order[order.index(self._node) - 1]
        if self._ask(self._client.exists_async(f"{self._path}/{before}", watch=lambda _: self._wake.set())) is None:
            self._wake.set()
        self._holder = self._said_by(order[0])
        return False

    def renew(self) -> None:
        started = self._clock()
        if self._ask(self._client.exists_async(f"{self._path}/{self._node}")) is None:
            first = min(self._children(), key=_place, default=None)
            self._holder = self._said_by(first) if first else None
            to = f"; {self._holder} has it now" if self._holder else ""
            raise LeaseLost(
                f"lease {self.url}: the session has ended, since the server heard nothing of this driver for "
                f"{self.timeout:g} s{to}; this driver has stopped, so that another may go on",
                lease=self.url,
            )
        self.confirm(started)

    def holder(self) -> Holder | None:
        return self._holder

    def leave(self) -> None:
        if self._client is None:
            return
        try:
            if self._node is not None and not self._cut_off:
                self._ask(self._client.delete_async(f"{self._path}/{self._node}"))
        finally:
            self._close()

    def _close(self) -> None:
        client, self._client = self._client, None
        with suppress(Exception):
            client.stop()  # ends the session, and so the node
            client.close()

    def _told(self, state: Any) -> None:
        """Called by kazoo's thread when the state of the connection changes; it must not block."""
        if str(state) != "CONNECTED":
            self.cut_off()
        self._wake.set()

    def _children(self) -> list[str]:
        return [name for name in self._ask(self._client.get_children_async(self._path)) if name.startswith("driver-")]

    def _join(self) -> str:
        said = json.dumps(Holder.here().to_dict()).encode()
        path = f"{self._path}/driver-{self._token}-"
        made: str = self._ask(self._client.create_async(path, said, ephemeral=True, sequence=True))
        return made.rpartition("/")[2]

    def _said_by(self, name: str) -> Holder | None:
        try:
            found = self._ask(self._client.get_async(f"{self._path}/{name}"))[0]
            return Holder.of(json.loads(found))
        except (LeaseError, ValueError):
            return None

    def _ask(self, answer: Any) -> Any:
        """Return the answer to a question to the server. Raise `LeaseError` if there is none within the lease's
        timeout, or if it is an error."""
        try:
            return answer.get(timeout=self.timeout)
        except (self._failed, self._timed_out) as error:
            name = type(error).__name__
            why = {
                "NoAuthError": "permission denied; give this client the right to create, read and delete there",
                "AuthFailedError": "the server does not take these credentials any more",
                "NoNodeError": "a node is gone",
            }.get(name, f"ZooKeeper does not answer now ({name})")
            raise LeaseError(f"lease {self.url}: {why}", lease=self.url) from cause(error)


def _place(name: str) -> int:
    """Return a node's place in the queue: the number that ZooKeeper gave it."""
    return int(name.rpartition("-")[2])
