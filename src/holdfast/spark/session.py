"""The Spark session: a local one with the settings that epochs want, or the user's own."""

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
    # Where a keyed task runs is decided by where its layers are, not by where its input is.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "0",
    # What is exchanged are Arrow buffers of milliseconds' life, within one host.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # Each epoch leaves an exchange behind; they are removed when the JVM collects garbage.
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
}

CLUSTER_SETTINGS = {
    # A task waits a moment for the executor that has its layers; elsewhere it would have to fetch them.
    "spark.locality.wait": "3s",
    # An executor that is lost took its exchanges along: they are made again at once, not when they are missed.
    "spark.shuffle.registration.timeout": "2000",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    "spark.rpc.askTimeout": "20s",
    # A task that is cancelled while its Python worker is busy ends so soon.
    "spark.python.task.killTimeout": "500ms",
    # An executor that is decommissioned stays so long at least, in which it can hand over what its host keeps.
    "spark.test.executor.decommission.initial.sleep.millis": "10000",
}
"""Beside `SETTINGS`, for a session on a cluster."""

_FAILED_TASKS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.api.python.PythonRunner",
)
"""The loggers by which Spark tells of a task that failed."""

_NOTEBOOK_SETTINGS = {
    # A DataFrame that is the last line of a cell shows its rows.
    "spark.sql.repl.eagerEval.enabled": "true",
}

_LOCAL_ONLY = frozenset(["spark.driver.memory", "spark.ui.enabled", "spark.ui.showConsoleProgress", "spark.log.level"])
"""Those of `SETTINGS` that a cluster's users decide about."""


def detection(timeout: float) -> dict[str, str]:
    """The Spark settings by which an executor that falls silent is lost after ``timeout`` seconds, or a little
    before. (One that dies is heard of within a second, whatever these say.) They count when a Spark context starts."""
    timeout = arguments.number("detection", "detection_timeout", timeout, 1.0)
    milliseconds = round(timeout * 1000)
    return {
        "spark.executor.heartbeatInterval": f"{milliseconds // 5}ms",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{milliseconds * 7 // 10}ms",
        "spark.network.timeoutInterval": f"{milliseconds // 5}ms",
        "spark.network.timeout": f"{max(milliseconds, 10_000)}ms",
        # Executors that hear the driver, but not each other: what one waits for from another (rows that were exchanged,
        # pieces of a broadcast) is given up, and made or fetched elsewhere; and an exchange that fails twice, though
        # all are there, is an error of the epoch.
        "spark.stage.maxConsecutiveAttempts": "2",
        "spark.shuffle.io.connectionTimeout": f"{milliseconds // 2}ms",
        "spark.shuffle.io.connectionCreationTimeout": f"{milliseconds // 2}ms",
        "spark.shuffle.io.maxRetries": "0",
    }


def start_session(detection_timeout: float | None = None) -> SparkSession:
    """Return the session that is active in this process, or start one: with the master and the settings that the user
    configured (`configured`), and ours where there are none. With no master it is a local one."""
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
    # Under spark-submit it is the JVM that started this process.
    atexit.register(_end_workers, os.getppid() if process is None else process.pid)
    return session


def _say_failures_once(session: SparkSession) -> None:
    """Have Spark not log the Java stack of a task that failed. The driver is told the reason, and raises it: as an
    error of Holdfast's, or of PySpark's for a query of the user's own."""
    jvm = session.sparkContext._jvm
    off = jvm.org.apache.logging.log4j.Level.OFF
    for name in _FAILED_TASKS:
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, off)


def _end_workers(jvm: int) -> None:
    """At the end of the process, end Spark's Python workers. Spark would close their connections first, and each would
    print a traceback that it cannot write any more."""
    with suppress(OSError):  # no /proc: then they complain
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == jvm and _WORKERS.encode() in (process / "cmdline").read_bytes():
                    os.killpg(int(process.name), signal.SIGKILL)  # it leads a group of its own, with its workers


def local_master(cores: int) -> str:
    """Name a local master for so many cores. Merging and copying have slots of their own: an epoch never waits for one
    of their tasks to end (one that copies mostly waits for storage); the operating system shares the cores. One more is
    for the task that stays (`resident_task`), which mostly waits to be told."""
    return f"local[{cores + spare(cores) + 1}]"


def local_builder(cores: int) -> SparkSession.Builder:
    """A local session of so many cores."""
    builder = SparkSession.builder.master(local_master(cores))
    builder = builder.config("spark.default.parallelism", str(cores))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder


def is_frame(value: object) -> bool:
    """Whether a value is a PySpark DataFrame."""
    return isinstance(value, DataFrame)
