"""A real Spark cluster on this machine: a standalone master and workers, as separate processes on loopback.

    with Cluster(workers=2, cores=3, executors_per_worker=3) as cluster:
        spark = cluster.session()
        …
        cluster.kill_executor(0)

It needs only the installed PySpark and Java. Each worker has an address of its own (127.0.0.11, …12, …), so that Spark
takes it for a host, and a directory of its own (``HOLDFAST_LOCAL`` in the environment of its executors and their Python
workers), which is deleted when the worker is killed. No process is left behind, even if the process that made the
cluster is killed: a janitor (`janitor.py`) waits for its end.

With ``namespaces=True`` the master, each worker and each driver is a node of a private network (`network.py`; needs
root), whose links can be cut and healed: ``cluster.cut("driver-0", "worker-1")``. Drivers must then be processes of
their own, and ``cluster.node(name)`` makes further nodes, for ZooKeeper for example.

A driver can be a process of its own, which can be killed, too: `Cluster.driver`. Its function gets a `Handle`, with
which it can kill other processes of the cluster.

The file is long because the user of a cluster needs all of it in one place: start, kill, pause, cut, add, and clean up.
"""

from __future__ import annotations

import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.testing.network import ADDRESS, Network, Node, add_node, make_network
from holdfast.testing.processes import Process, Spawner, below, kill, marked, send, wait_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "HOLDFAST_CLUSTER"
WORKER = "HOLDFAST_CLUSTER_WORKER"
DRIVER = "HOLDFAST_CLUSTER_DRIVER"
LOCAL = "HOLDFAST_LOCAL"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options for many JVMs on few cores that live for seconds: compile little, collect with one thread."""

_PATIENCE = 60.0
_NETWORK = "network"


@dataclass(frozen=True)
class Executor:
    """An executor process of a cluster."""

    id: str
    """Spark's id of the executor."""

    worker: int
    host: str
    pid: int


@dataclass(eq=False)
class Handle:
    """A running cluster, as any process of this machine can use it."""

    mark: str
    master: str
    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def conf(self, **settings: object) -> dict[str, str]:
        """Return the settings of a session on this cluster, Holdfast's included. ``settings``: yours, with ``__`` for
        dots."""
        from holdfast.spark.session import CLUSTER_SETTINGS, SETTINGS

        own = {key.replace("__", "."): str(value) for key, value in settings.items()}
        address = os.environ.get(ADDRESS)
        here = {"spark.driver.host": address, "spark.driver.bindAddress": address} if address else {}
        return {**SETTINGS, **CLUSTER_SETTINGS, **self.settings, "spark.master": self.master, **here, **own}

    def session(self, **settings: object) -> SparkSession:
        """Return a session on this cluster, in this process. `wait_for_executors` waits until it has all executors."""
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if (self.directory / _NETWORK).exists() and ADDRESS not in os.environ:
            raise RuntimeError("a cluster with namespaces is reached from its own nodes alone; use Cluster.driver")
        os.environ["SPARK_LOCAL_IP"] = os.environ.get(ADDRESS, "127.0.0.1")
        builder = SparkSession.builder.appName("holdfast-cluster")
        for key, value in self.conf(**settings).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def wait_for_executors(self, count: int, seconds: float = _PATIENCE) -> list[Executor]:
        """Wait until ``count`` executor processes run. Return them. Raises `TimeoutError` after ``seconds``."""
        deadline = time.monotonic() + seconds
        while len(found := self.members()) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {count} executors are there after {seconds:g} s")
            time.sleep(0.05)
        return found

    # -- who is there -------------------------------------------------------------------------------------------------

    def processes(self) -> list[Process]:
        """Return all processes of the cluster."""
        return marked(MARK, self.mark)

    def members(self) -> list[Executor]:
        """Return the live executors, in the order in which they were started."""
        found = []
        for process in self.processes():
            if _EXECUTOR in process.command and "--executor-id" in process.command:
                said = dict(zip(process.command, process.command[1:], strict=False))
                worker = int(process.environment[WORKER])
                found.append(Executor(said["--executor-id"], worker, said.get("--hostname", ""), process.pid))
        return sorted(found, key=lambda one: int(one.id))

    def local(self, worker: int) -> Path:
        """Return the worker's own directory, which `kill_worker` deletes with the worker."""
        return self.directory / f"worker-{worker}" / "local"

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def kill_executor(self, which: int | str, *, with_directory: bool = False) -> Executor:
        """SIGKILL an executor and its Python workers. ``which``: its position in `members`, or its id.
        ``with_directory``: also delete its worker's directory, so that the next executor there finds no layers."""
        executor = self._executor(which)
        pids = below(executor.pid, self.processes())
        self._kill(lambda process: process.pid in pids)
        if with_directory:
            shutil.rmtree(self.local(executor.worker), ignore_errors=True)
        return executor

    def kill_worker(self, which: int) -> None:
        """SIGKILL a worker and all processes that it started, at once, and delete its directory."""
        self._kill(lambda process: process.environment.get(WORKER) == str(which))
        shutil.rmtree(self.local(which), ignore_errors=True)

    def decommission_worker(self, which: int) -> None:
        """Make Spark decommission a worker and its executors, like a host whose shutdown is announced. Sessions need
        ``spark.decommission.enabled=true`` for their executors to end. The worker's directory stays."""
        mine = [process for process in self.processes() if process.environment.get(WORKER) == str(which)]
        send([process.pid for process in mine if _WORKER in process.command], signal.SIGPWR)

    def _kill(self, whom: Callable[[Process], bool]) -> None:
        """SIGKILL the chosen processes, and wait until they are gone."""
        deadline = time.monotonic() + _PATIENCE
        while (pids := [process.pid for process in self.processes() if whom(process)]) and time.monotonic() < deadline:
            # Stop all of them first, so that none has time to notice the end of another.
            send(pids, signal.SIGSTOP)
            kill(pids)
            time.sleep(0.01)

    @property
    def network(self) -> Network:
        """The nodes and links of this cluster, if it has namespaces."""
        return Network(self.directory / _NETWORK)

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        """Cut a link: silently drop everything that node ``one`` (``"master"``, ``"worker-0"``, ``"driver-0"``) sends
        to ``other``; with ``both``, also in the other direction."""
        self.network.cut(one, other, both)

    def heal(self) -> None:
        """Restore all links."""
        self.network.heal()

    def pause(self, which: int | str) -> Executor:
        """SIGSTOP an executor and its Python workers: it stays alive, and silent. Return it, for `resume`."""
        executor = self._executor(which)
        send(below(executor.pid, self.processes()), signal.SIGSTOP)
        return executor

    def resume(self, executor: Executor) -> None:
        """SIGCONT an executor that `pause` stopped."""
        send(below(executor.pid, self.processes()), signal.SIGCONT)

    def _executor(self, which: int | str) -> Executor:
        members = self.members()
        for place, executor in enumerate(members):
            if which == (executor.id if isinstance(which, str) else place):
                return executor
        raise LookupError(f"executor {which!r} is not there; there are {[one.id for one in members]}")


class Driver:
    """A driver in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, home: Path) -> None:
        self._process = process
        self._home = home
        self.name = name
        self.pid = process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """The text that the driver has printed."""
        return (self._home / "output").read_text(errors="replace")

    def result(self, seconds: float = 120.0) -> Any:
        """Return the driver function's result, or raise its error. Raises `TimeoutError` if it still runs after
        ``seconds``."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"driver {self.name} is still running after {seconds:g} s:\n{self.output}") from None
        found = self._home / "result"
        if not found.exists():
            raise RuntimeError(f"driver {self.name} ended with {code}, without a result:\n{self.output}")
        kind, value = pickle.loads(found.read_bytes())
        if kind == "error":
            raise value
        return value


class Cluster(Handle):
    """A cluster; see the module. ``cores``: per worker. ``memory``: per executor, in MB."""

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 2,
        executors_per_worker: int = 1,
        memory: int = 512,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        namespaces: bool = False,
    ) -> None:
        """``settings``: for all sessions. ``environment``: for all processes. ``namespaces``: see the module."""
        if sys.platform != "linux":
            raise OSError("holdfast.testing.cluster runs on Linux only: it finds processes through /proc")
        mark, directory = secrets.token_hex(8), Path(tempfile.mkdtemp(prefix="holdfast-cluster-"))
        self._spawner = Spawner()
        self._janitor = _janitor(mark, directory)
        self._environment = dict(environment or {})
        self._cores = cores
        self._room = (memory + 512) * executors_per_worker
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers = 0
        self._drivers = 0
        self._namespaces = namespaces
        port, flags = _free_port(), " ".join(_SMALL_JVM)
        try:
            if namespaces:
                self.directory, self.mark = directory, mark
                make_network(directory / _NETWORK, self._started)
            host = self._place("master", "127.0.0.1")
        except BaseException:
            self.close()
            raise
        super().__init__(
            mark,
            f"spark://{host}:{port}",
            directory,
            {
                "spark.executor.cores": str(max(1, cores // executors_per_worker)),
                "spark.executor.memory": f"{memory}m",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "1g",
                "spark.executor.extraJavaOptions": flags,
                "spark.driver.extraJavaOptions": flags,
                **(settings or {}),
            },
        )
        try:
            self._java("master", "master.Master", ["--host", host, "--port", str(port), "--webui-port", "0"], {})
            _wait_for_port(port, self.network.node("master") if namespaces else None)
            for _ in range(workers):
                self.add_worker()
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> Any:
        # Another process gets only the handle; this process keeps the child processes.
        return Handle, (self.mark, self.master, self.directory, dict(self.settings))

    def add_worker(self) -> int:
        """Start one more worker, which offers itself to running applications at once. Return its number."""
        number = self._workers
        self._workers += 1
        home = self.directory / f"worker-{number}"
        host = self._place(f"worker-{number}", f"127.0.0.{11 + number}")
        for name in ("local", "spark", "work"):
            (home / name).mkdir(parents=True)
        arguments = [
            "--host", host, "--cores", str(self._cores), "--memory", f"{self._room}m", "--webui-port", "0",
            "--work-dir", str(home / "work"), self.master,
        ]  # fmt: skip
        own = {WORKER: str(number), LOCAL: str(home / "local"), "SPARK_LOCAL_DIRS": str(home / "spark")}
        own["SPARK_LOCAL_IP"] = host
        self._java(f"worker-{number}", "worker.Worker", arguments, own)
        return number

    def driver(self, function: Callable[..., Any], *arguments: object, name: str | None = None) -> Driver:
        """Call ``function(handle, *arguments)`` in a process of its own, which can be killed. The function is sent by
        value."""
        from pyspark import cloudpickle

        name = name or f"driver-{self._drivers}"
        self._drivers += 1
        home = self.directory / name
        home.mkdir()
        (home / "call").write_bytes(cloudpickle.dumps((function, self, arguments)))
        with (home / "output").open("wb") as output:
            address = self._place(name, "")
            process = self._spawner.start(
                self._on(name, [sys.executable, "-m", "holdfast.testing.driver", str(home)]),
                {
                    **self._marked(),
                    DRIVER: name,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONUNBUFFERED": "1",
                    **({ADDRESS: address} if address else {}),
                },
                output,
            )
        self._processes.append(process)
        return Driver(process, name, home)

    def kill_driver(self, driver: Driver) -> None:
        """SIGKILL a driver and its JVM."""
        self._kill(lambda process: process.environment.get(DRIVER) == driver.name)

    def pause_driver(self, driver: Driver) -> None:
        """SIGSTOP a driver and its JVM."""
        send(self._pids_of(driver), signal.SIGSTOP)

    def resume_driver(self, driver: Driver) -> None:
        send(self._pids_of(driver), signal.SIGCONT)

    def _pids_of(self, driver: Driver) -> list[int]:
        return [process.pid for process in self.processes() if process.environment.get(DRIVER) == driver.name]

    def close(self) -> None:
        """End all processes, and delete all files. Raises `RuntimeError` if a process is left."""
        deadline = time.monotonic() + _PATIENCE
        # None must be found twice in a row: a process may start another just before it is killed.
        quiet = 0
        while quiet < 2 and time.monotonic() < deadline:
            kill([process.pid for process in self.processes()])
            for process in self._processes:
                process.wait(_PATIENCE)
            quiet = 0 if wait_gone(MARK, self.mark, 2.0) else quiet + 1
        self._spawner.close()
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        self._janitor.wait(_PATIENCE)
        shutil.rmtree(self.directory, ignore_errors=True)
        if left := self.processes():
            raise RuntimeError(f"these processes of the cluster did not end: {[one.command[:3] for one in left]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _marked(self) -> dict[str, str]:
        """The environment of all processes. They can import the modules that this process can."""
        paths = os.pathsep.join(path for path in sys.path if path)
        return {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", **self._environment, MARK: self.mark}

    def _java(self, name: str, what: str, arguments: list[str], own: Mapping[str, str]) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else "java"
        command = [
            str(java), *_SMALL_JVM, "-Xmx192m", "-Dspark.decommission.enabled=true",
            "-cp", str(home / "jars" / "*"), *_OPENED,
            f"org.apache.spark.deploy.{what}", *arguments,
        ]  # fmt: skip
        environment = {**self._marked(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": self._address(name), **own}
        # Spark's scripts would set this; without it, Spark looks for a source tree.
        environment["SPARK_SCALA_VERSION"] = "2.13"
        with (self.directory / f"{name}.log").open("wb") as output:
            self._processes.append(self._spawner.start(self._on(name, command), environment, output, self.directory))

    # -- nodes of a network -------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """Add a node to a cluster with namespaces. ``node.inside(command)`` is the command to run there."""
        return add_node(self.network, name, self._started)

    def _place(self, name: str, otherwise: str) -> str:
        """Return the address of a new node; ``otherwise``, if the cluster has no namespaces."""
        return self.node(name).address if self._namespaces else otherwise

    def _address(self, name: str) -> str:
        return self.network.node(name).address if self._namespaces else "127.0.0.1"

    def _on(self, name: str, command: Sequence[str]) -> Sequence[str]:
        return self.network.node(name).inside(command) if self._namespaces else command

    def _started(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with open(os.devnull, "wb") as nowhere:
            process = self._spawner.start(command, {**environment, MARK: self.mark}, nowhere)
        self._processes.append(process)
        return process


_OPENED = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.nio", "java.net", "java.util", "java.util.concurrent", "sun.nio.ch")
)


def _janitor(mark: str, directory: Path) -> subprocess.Popen[bytes]:
    """Start the process that cleans up when this one ends. It has no mark, because it must outlive all marked
    processes."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", str(Path(__file__).with_name("janitor.py")), MARK, mark, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_port(port: int, node: Node | None) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            if node is None:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
            elif node.asked(port) is None:
                raise ConnectionRefusedError(port)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing listens on port {port} after {_PATIENCE:g} s") from None
            time.sleep(0.05)
