"""The Spark session: a local one with settings that suit epochs, or the user's own."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from holdfast.foundation import arguments
from holdfast.spark.background_slots import spare
from holdfast.spark.configuration import configured
from holdfast.spark.first_start import importing_meanwhile, start_workers
from holdfast.spark.java import not_started
from holdfast.spark.quiet_launch import quiet_launch

_WORKERS = "holdfast.spark.workers"

SETTINGS = {
    # Python workers are copies of a process that has loaded everything.
    "spark.python.daemon.module": _WORKERS,
    # Small messages between the JVM and Python workers wait for delayed acknowledgements on TCP: 40 ms each.
    "spark.python.unix.domain.socket.enabled": "true",
    # Re-planning pays for queries of minutes, not for epochs of milliseconds.
    "spark.sql.adaptive.enabled": "false",
    # Maintenance runs beside epochs, with less weight.
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": str(Path(__file__).with_name("fairscheduler.xml")),
    # A keyed task runs where its layers are, not where its input is.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "0",
    # Exchanges move Arrow buffers that live for milliseconds, within one host.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # Each epoch leaves an exchange's files behind; they are removed when the JVM collects garbage.
    "spark.cleaner.periodicGC.interval": "2min",
    # Otherwise the JVM stands still for that, and uses all cores meanwhile.
    "spark.driver.defaultJavaOptions": "-XX:+ExplicitGCInvokesConcurrent",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
}

CLUSTER_SETTINGS = {
    # A task waits a moment for the executor that has its layers: on another host it would have to fetch them.
    "spark.locality.wait": "3s",
    # A lost executor's exchanged rows are computed again at once, not when a task misses them.
    "spark.shuffle.registration.timeout": "2000",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    "spark.rpc.askTimeout": "20s",
    # A cancelled task whose Python worker is busy ends after this time.
    "spark.python.task.killTimeout": "500ms",
    # A decommissioned executor stays at least this long, so that it can hand over its host's layers.
    "spark.test.executor.decommission.initial.sleep.millis": "10000",
}
"""Further settings, beside `SETTINGS`, for a session on a cluster."""

_FAILED_TASKS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.api.python.PythonRunner",
)
"""The loggers in which Spark reports a failed task."""

_NOTEBOOK_SETTINGS = {
    # A DataFrame that is the last line of a cell shows its rows.
    "spark.sql.repl.eagerEval.enabled": "true",
}

_LOCAL_ONLY = frozenset(
    [
        "spark.driver.memory",
        "spark.driver.defaultJavaOptions",
        "spark.ui.enabled",
        "spark.ui.showConsoleProgress",
        "spark.log.level",
    ]
)
"""The settings among `SETTINGS` that are left to the user on a cluster."""


def detection(timeout: float) -> dict[str, str]:
    """Return the Spark settings with which a silent executor counts as lost after ``timeout`` seconds, or a little
    earlier. (An executor that dies is noticed within a second, whatever these settings are.) They take effect when a
    Spark context starts."""
    timeout = arguments.number("detection", "detection_timeout", timeout, 1.0)
    milliseconds = round(timeout * 1000)
    return {
        "spark.executor.heartbeatInterval": f"{milliseconds // 5}ms",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{milliseconds * 7 // 10}ms",
        "spark.network.timeoutInterval": f"{milliseconds // 5}ms",
        "spark.network.timeout": f"{max(milliseconds, 10_000)}ms",
        # For executors that reach the driver but not each other: a fetch from another executor (exchanged rows, pieces
        # of a broadcast) is given up, and the data is computed or fetched elsewhere. An exchange that fails twice
        # although all executors are there is an error of the epoch.
        "spark.stage.maxConsecutiveAttempts": "2",
        "spark.shuffle.io.connectionTimeout": f"{milliseconds // 2}ms",
        "spark.shuffle.io.connectionCreationTimeout": f"{milliseconds // 2}ms",
        "spark.shuffle.io.maxRetries": "0",
    }


def start_session(detection_timeout: float | None = None) -> SparkSession:
    """Return the session that is active in this process, or start one: with the master and settings that the user
    configured (`configured`), and Holdfast's where the user set none. Without a master it is a local session."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    given = configured()
    master = given.get("spark.master")
    if master is None:
        cores = os.cpu_count() or 1
        wanted = {"spark.master": local_master(cores), "spark.default.parallelism": str(cores), **SETTINGS}
    elif master.startswith("local"):
        wanted = SETTINGS
    else:
        wanted = {key: value for key, value in {**SETTINGS, **CLUSTER_SETTINGS}.items() if key not in _LOCAL_ONLY}
    if "ipykernel" in sys.modules:
        wanted = {**wanted, **_NOTEBOOK_SETTINGS}
    detecting = {} if detection_timeout is None else detection(detection_timeout)
    builder = SparkSession.builder
    for key, value in {"spark.app.name": "holdfast", **wanted, **detecting}.items():
        if key not in given or key in detecting:
            builder = builder.config(key, value)
    with quiet_launch(), importing_meanwhile():
        try:
            session = builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise not_started(error) from None
    if "spark.log.level" in wanted and "spark.log.level" not in given:
        _say_failures_once(session)
    if master is None or master.startswith("local"):
        start_workers(session)
    process = session.sparkContext._gateway.proc
    # Under spark-submit there is no process to ask: the JVM is this process's parent.
    atexit.register(_end_workers, os.getppid() if process is None else process.pid)
    return session


def _say_failures_once(session: SparkSession) -> None:
    """Keep Spark from logging the Java stack of a failed task. The driver gets the reason, and raises it: as an error
    of Holdfast, or of PySpark for a query of the user's."""
    jvm = session.sparkContext._jvm
    off = jvm.org.apache.logging.log4j.Level.OFF
    for name in _FAILED_TASKS:
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, off)


def _end_workers(jvm: int) -> None:
    """Kill Spark's Python workers at the end of the process. Spark would close their connections first, and each worker
    would print a traceback that it can no longer write."""
    with suppress(OSError):  # no /proc: the workers print their tracebacks
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == jvm and _WORKERS.encode() in (process / "cmdline").read_bytes():
                    os.killpg(int(process.name), signal.SIGKILL)  # the daemon leads a process group with its workers


def local_master(cores: int) -> str:
    """Return a local master for this many cores. It has more slots than cores: some for merging and copying, so that an
    epoch never waits for such a task to end (a copying task mostly waits for storage), and one for the resident task
    (`resident_task`), which mostly waits for a request. The operating system shares the cores."""
    return f"local[{cores + spare(cores) + 1}]"


def local_builder(cores: int) -> SparkSession.Builder:
    """Return a builder of a local session with this many cores."""
    builder = SparkSession.builder.master(local_master(cores))
    builder = builder.config("spark.default.parallelism", str(cores))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder


def is_frame(value: object) -> bool:
    """Whether a value is a PySpark DataFrame."""
    return isinstance(value, DataFrame)
