"""A network for a test cluster: each node is a network namespace, and links between nodes can be cut and healed.

    Cluster(workers=3, namespaces=True)                 needs root, and Debian's iproute2 and util-linux
    cluster.cut("driver-0", "worker-1")                 what either sends to the other is lost, silently
    cluster.cut("worker-0", "worker-2", both=False)     one way: from the first to the second
    cluster.heal()

Representation: a sleeping process (``unshare --net``) holds each namespace; a file in the network's directory has its
pid and address. Nothing has a name in the system: when the sleepers are killed, with all other processes of the
cluster, the namespaces and their links are gone. One node, the hub, has a bridge, to which all other nodes are
connected. No node is connected to the host, and all addresses are inside this network (10.77.0.0/24).

Without a cluster: ``with network("one", "two") as net: subprocess.Popen(net.node("one").inside([…]))``.

To cut a link, the sender is given a wrong hardware address of the receiver: its frames reach no one, as behind a broken
switch. Neither side is notified: connections stay open, and nothing arrives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.testing.processes import Spawner

ADDRESS = "HOLDFAST_CLUSTER_ADDRESS"
"""Environment variable of a process on a node: the node's address."""

_HUB = "hub"
_BRIDGE = "switch"
_NOWHERE = "02:00:00:00:00:01"
_PATIENCE = 10.0

Start = Callable[[Sequence[str], Mapping[str, str]], "subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Node:
    """A namespace, and its address in the network."""

    name: str
    pid: int
    address: str

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs ``command`` on this node."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *command]

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on this node, and wait for its end."""
        return subprocess.run(self.inside(command), capture_output=True, text=True, timeout=_PATIENCE)

    def asked(self, port: int, question: bytes = b"") -> bytes | None:
        """Send ``question`` to a port of this node, from this node. Return the answer; None if nothing listens."""
        code = (
            "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 1); "
            "q = bytes.fromhex(sys.argv[3]); s.sendall(q); sys.stdout.buffer.write(s.recv(4096) if q else b'')"
        )
        done = subprocess.run(
            self.inside([sys.executable, "-S", "-E", "-c", code, self.address, str(port), question.hex()]),
            capture_output=True,
            timeout=_PATIENCE,
        )
        return done.stdout if done.returncode == 0 else None


class Network:
    """The nodes of a network, as any process of this machine can use them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def node(self, name: str) -> Node:
        try:
            pid, address = (self._directory / name).read_text().split()
        except FileNotFoundError:
            raise LookupError(f"node {name!r} is not there; there are {self.names()}") from None
        return Node(name, int(pid), address)

    def names(self) -> list[str]:
        return sorted(path.name for path in self._directory.iterdir() if path.name not in (_HUB, "cuts"))

    def cut(self, one: str, other: str, both: bool = True) -> None:
        """Drop everything that ``one`` sends to ``other``, and if ``both``, also in the other direction."""
        self._tell(one, other, "replace", "lladdr", _NOWHERE, "nud", "permanent")
        if both:
            self._tell(other, one, "replace", "lladdr", _NOWHERE, "nud", "permanent")

    def isolate(self, name: str) -> None:
        """Cut a node off from all others."""
        for other in self.names():
            if other != name:
                self.cut(name, other)

    def heal(self) -> None:
        """Restore all links."""
        cuts = self._directory / "cuts"
        for pair in sorted(set(cuts.read_text().splitlines())) if cuts.exists() else ():
            sender, receiver = pair.split()
            self._tell(sender, receiver, "del")
        cuts.unlink(missing_ok=True)

    def _tell(self, sender: str, receiver: str, what: str, *more: str) -> None:
        if what == "replace":
            with (self._directory / "cuts").open("a") as cuts:
                cuts.write(f"{sender} {receiver}\n")
        done = self.node(sender).call("ip", "neigh", what, self.node(receiver).address, *more, "dev", "eth0")
        if done.returncode and what != "del":
            raise OSError(f"cannot cut the link from {sender} to {receiver}: {done.stderr.strip()}")


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Make a network of these nodes, without a cluster. It is removed at the end; the caller ends the processes on its
    nodes."""
    spawner, holders = Spawner(), list[subprocess.Popen[bytes]]()
    home = Path(tempfile.mkdtemp(prefix="holdfast-network-"))

    def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with open(os.devnull, "wb") as nowhere:
            holders.append(spawner.start(command, environment, nowhere))
        return holders[-1]

    try:
        made = make_network(home / "nodes", start)
        for name in names:
            add_node(made, name, start)
        yield made
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
        spawner.close()
        shutil.rmtree(home, ignore_errors=True)


def make_network(directory: Path, start: Start) -> Network:
    """Make a network whose only node is the hub."""
    directory.mkdir(parents=True)
    hub = _hold(directory, _HUB, "-", start)
    _done(hub, "ip", "link", "add", _BRIDGE, "type", "bridge")
    _done(hub, "ip", "link", "set", _BRIDGE, "up")
    return Network(directory)


def add_node(network: Network, name: str, start: Start) -> Node:
    """Add a node, which can reach all others."""
    directory = network._directory
    number = len(network.names()) + 1
    hub, node = network.node(_HUB), _hold(directory, name, f"10.77.0.{number}", start)
    port = f"port-{number}"
    _done(hub, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(node.pid))
    _done(hub, "ip", "link", "set", port, "master", _BRIDGE, "up")
    _done(node, "ip", "link", "set", "lo", "up")
    _done(node, "ip", "addr", "add", f"{node.address}/24", "dev", "eth0")
    _done(node, "ip", "link", "set", "eth0", "up")
    return node


def _hold(directory: Path, name: str, address: str, start: Start) -> Node:
    process = start(["unshare", "--net", "sleep", "infinity"], os.environ)
    own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + _PATIENCE
    while _namespace(process.pid) in (None, own):
        if process.poll() is not None or time.monotonic() > deadline:
            raise OSError(f"no network namespace could be made (unshare ended with {process.poll()})")
        time.sleep(0.01)
    (directory / name).write_text(f"{process.pid} {address}")
    return Node(name, process.pid, address)


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _done(node: Node, *command: str) -> None:
    done = node.call(*command)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def why_not() -> str | None:
    """Return why this process cannot make such a network; None if it can. It really tries."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "to make network namespaces takes root"
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found; install iproute2 and util-linux"
    script = "ip link add name one type bridge && ip link add name two type veth peer name three && ip link set lo up"
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True)
    return f"the kernel refuses: {done.stderr.strip()}" if done.returncode else None
