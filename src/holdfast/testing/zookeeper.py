"""A ZooKeeper server on loopback, for tests: from the jars in PySpark, without its admin server.

    with zookeeper() as server:
        flow.run(lease=f"zk://{server.address}/flows/revenue")

The server ends with the ``with`` block, and with the thread that started it, however that thread ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.testing.network import Node
from holdfast.testing.processes import die_with_parent

_PATIENCE = 30.0
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_SMALL = ("-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class ZooKeeperServer:
    """A server that can be paused and killed."""

    def __init__(self, home: Path, tick: float, tls: tuple[Path, Path] | None = None, node: Node | None = None) -> None:
        """``tick``: ZooKeeper's unit of time, in seconds. A session lasts at least two ticks, and expires at a whole
        tick."""
        self._home = home
        self._tick = tick
        self._tls = tls
        self._node = node
        self._host = "127.0.0.1" if node is None else node.address
        self.port = _free_port()
        self.secure_port = _free_port() if tls is not None else None
        self._start()

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def pause(self) -> None:
        """SIGSTOP the server, like a host that is too busy to run it. Connections stay open; nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL the server."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Start the server again after `kill`, with its data."""
        self._start()

    def _start(self) -> None:
        settings = {
            "tickTime": int(self._tick * 1000),
            "dataDir": self._home / "data",
            "clientPort": self.port,
            "clientPortAddress": self._host,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "srvr",
        }
        if self._tls is not None:
            settings |= {
                "secureClientPort": self.secure_port,
                "secureClientPortAddress": self._host,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": self._tls[0],
                "ssl.trustStore.location": self._tls[1],
                "ssl.clientAuth": "need",
            }
        (self._home / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [_java(), *_SMALL, "-cp", _jars(), _MAIN, str(self._home / "zoo.cfg")]
        with open(self._home / "said.txt", "ab") as said:
            self._process = subprocess.Popen(
                command if self._node is None else self._node.inside(command),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self._home,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            # The port is open before requests are answered.
            if b"Mode:" in (self._asked(b"srvr") or b""):
                return
            time.sleep(0.05)
        said = (self._home / "said.txt").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"ZooKeeper did not start on {self.address}:\n{said}")

    def _asked(self, question: bytes) -> bytes | None:
        if self._node is not None:
            return self._node.asked(self.port, question)
        with suppress(OSError), socket.create_connection((self._host, self.port), timeout=1.0) as asked:
            asked.sendall(question)
            return asked.recv(4096)
        return None


@contextmanager
def zookeeper(
    tick: float = 0.5, tls: tuple[Path, Path] | None = None, node: Node | None = None
) -> Iterator[ZooKeeperServer]:
    """Start an empty server. ``tls``: also speak TLS, on ``secure_port``. The first of these PEM files is the server's
    key and certificate; the second has the certificates that must have signed those of clients. ``node``: the node of a
    cluster with namespaces on which it runs."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-zookeeper-"))
    server = None
    try:
        server = ZooKeeperServer(home, tick, tls, node)
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(home, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise RuntimeError("no Java was found; set JAVA_HOME")
    return found


def _jars() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "jars" / "*")
