"""The demonstration of crashes: the join query of the AMPLab benchmark on six executors, one of which is killed.

One driver, two workers with three executors each, two copies of the input. The query runs in four versions, and in each
an executor is killed that has done some of the work and is at more; in a fifth the driver is killed, and another that
waits takes over. What each version says is checked against what was done to it: the answer against one that is computed
without Spark, over all files or over those that were left, and what is missing against what the killed process had
read.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.demo.query import QUERY
from holdfast.demo.run import shown
from holdfast.demo.stage import Answer, DemoPlan, Run, generate, plain_answer, rows_of
from holdfast.foundation.retries import wait_until
from holdfast.testing.cluster import Cluster, Driver, Executor, Handle

_LIMIT = 60.0
"""So many seconds a version may take before it counts as hanging."""

_PATIENCE = 240.0
_LEASE_TIMEOUT = 2.0


@dataclass
class Version:
    """What became of the query in one version."""

    name: str
    happened: str
    answer: Answer | None
    coverage: str
    exact: bool
    right: bool
    """It did what it should: ended and said so, or gave the answer over the input that was left."""

    seconds: float
    lost: float | None = None
    """How much longer it took than without a crash."""

    missing: tuple[str, ...] = ()
    """Files that the answer lacks."""

    really_lost: tuple[str, ...] = ()
    """Files that the killed executor had read, or was reading."""


def run_crash_demo(console: Console, *, scale: float, as_json: bool) -> bool:
    """Run it, print the table; whether every version did what it should."""
    started = time.perf_counter()

    def say(text: str) -> None:
        if not as_json:
            console.print(f"{time.perf_counter() - started:5.0f} s  {text}", style="dim", highlight=False, markup=False)

    versions = crash_versions(DemoPlan(scale=scale), say)
    right = all(version.right for version in versions)
    if as_json:
        seconds = round(time.perf_counter() - started, 1)
        print(json.dumps({"versions": [asdict(one) for one in versions], "right": right, "seconds": seconds}))
        return right
    console.print(_table(versions))
    for version in versions:
        if not version.right:
            console.print(f"{version.name}: it did not do what it should", style="red", markup=False, highlight=False)
    return right


def crash_versions(plan: DemoPlan, say: Callable[[str], None] = lambda text: None) -> list[Version]:
    """All versions, on a cluster of their own."""
    workers = 2
    say(f"starting a cluster: {plan.executors} executors on {workers} workers")
    each = plan.executors // workers
    with Cluster(workers=workers, cores=each, executors_per_worker=each, memory=512) as cluster:
        home = cluster.directory
        leader = cluster.driver(lead, home, plan, name="leader")
        say("generating the input, in two copies")
        generate(home, plan)
        (home / "generated").touch()
        versions: list[Version] = []
        for number in range(4):
            versions.append(_awaited(leader, home / f"version-{number}", pickle.loads))
            say(f"{versions[-1].name}: {versions[-1].happened}")
        say("starting a second driver, which stands by")
        standby = cluster.driver(stand_by, home, plan, name="standby")
        _awaited(standby, home / "standby.ready")
        (home / "go").touch()
        _awaited(leader, home / "leader.middle")
        started = time.perf_counter()
        cluster.kill_driver(leader)
        say("the driver is killed; the other takes over")
        answer = standby.result(_PATIENCE)
        exact, crash_free = pickle.loads((home / "crash-free").read_bytes())
        seconds = time.perf_counter() - started
        same = answer == exact
        happened = "the standby took over, and computed all of it"
        versions.append(
            Version("replay, driver killed", happened, answer, "all", same, same, seconds, seconds - crash_free)
        )
        say(f"{versions[-1].name}: {versions[-1].happened}")
        return versions


def _awaited(driver: Driver, path: Path, read: Callable[[bytes], Any] = lambda data: None) -> Any:
    """Wait until a driver has written a file; what is in it."""
    deadline = time.monotonic() + _PATIENCE
    while not path.exists():
        if not driver.running:
            driver.result()
            raise RuntimeError(f"driver {driver.name} ended without {path.name}:\n{driver.output}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"driver {driver.name} did not reach {path.name} within {_PATIENCE:g} s")
        time.sleep(0.02)
    return read(path.read_bytes())


def _leave(path: Path, what: object) -> None:
    """A file that is there when it is whole."""
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(pickle.dumps(what))
    partial.rename(path)


# -- in drivers -----------------------------------------------------------------------------------------------------


def lead(handle: Handle, home: Path, plan: DemoPlan) -> None:
    """The driver that leads: four versions, and one more in which it is killed."""
    lease = _lease(home)
    lease.acquire()
    # A lost task is the end, as in a system that replays nothing.
    spark = _session(handle, plan, **_failures(1))
    _wait_for(home / "generated")
    _leave(home / "version-0", _killed(handle, spark, home, plan, "no fault tolerance", "replay"))
    spark.stop()
    spark = _session(handle, plan, **_failures(4))
    exact, crash_free = _timed(spark, home, plan)
    _leave(home / "crash-free", (exact, crash_free))
    for number, policy in enumerate(("terminate", "continue", "replay"), 1):
        version = _killed(handle, spark, home, plan, policy, policy, exact, crash_free)
        _leave(home / f"version-{number}", version)
        if policy != "replay":
            _wait_for_executors(spark, plan)
    _wait_for(home / "go")
    lease.require()
    # Nobody opens the gate: it is killed before it can end.
    with Run(handle, spark, home, plan, lambda run: _leave(home / "leader.middle", None)) as run:
        hf.query(spark, QUERY, on_loss="replay", tables=run.tables)


def stand_by(handle: Handle, home: Path, plan: DemoPlan) -> Answer:
    """The driver that waits for the lease with a warm session. Executors come when the leader's are gone."""
    lease = _lease(home)
    spark = handle.session(**_settings(plan))
    _leave(home / "standby.ready", None)
    lease.acquire()
    try:
        _wait_for_executors(spark, plan)
        answer = rows_of(hf.query(spark, QUERY, on_loss="replay", tables=Run.undisturbed(home, plan)).rows)
        lease.require()
        return answer
    finally:
        lease.release()


def _lease(home: Path) -> Any:
    from holdfast.standby.address import open_lease

    lease = open_lease(f"file://{home / 'lease'}", _LEASE_TIMEOUT)
    lease.connect()
    return lease


def _settings(plan: DemoPlan) -> dict[str, object]:
    # Executors that are new compile nothing: it would take them longer than the query.
    compiled = {"spark__sql__codegen__wholeStage": "false", "spark__sql__codegen__factoryMode": "NO_CODEGEN"}
    return {"spark__sql__shuffle__partitions": plan.executors, **compiled}


def _failures(allowed: int) -> dict[str, object]:
    """So often a task, or a stage, may fail. Said in any case: a second session of a process begins with the settings
    of the first."""
    return {"spark__task__maxFailures": allowed, "spark__stage__maxConsecutiveAttempts": allowed}


def _session(handle: Handle, plan: DemoPlan, **settings: object) -> Any:
    spark = handle.session(**_settings(plan), **settings)
    _wait_for_executors(spark, plan)
    return spark


def _wait_for_executors(spark: Any, plan: DemoPlan) -> None:
    from holdfast.spark.membership import Watch

    watch = Watch(spark, begin=False)
    watch.wait(plan.executors, _PATIENCE)
    watch.close()


def _wait_for(path: Path) -> None:
    if not wait_until(path.exists, _PATIENCE, 0.02):
        raise TimeoutError(f"{path.name} is not there after {_PATIENCE:g} s")


def _timed(spark: Any, home: Path, plan: DemoPlan) -> tuple[Answer, float]:
    """The exact answer, and the seconds that the query takes when all is warm."""
    seconds = []
    for _ in range(2):
        answer = hf.query(spark, QUERY, tables=Run.undisturbed(home, plan), timeout=_PATIENCE)
        seconds.append(answer.report.seconds)
    exact = plain_answer(home)
    if rows_of(answer.rows) != exact:
        raise RuntimeError(f"the query gave {rows_of(answer.rows)}, and not {exact}")
    return exact, min(seconds)


def _killed(
    handle: Handle,
    spark: Any,
    home: Path,
    plan: DemoPlan,
    name: str,
    policy: Any,
    exact: Answer | None = None,
    crash_free: float = 0.0,
) -> Version:
    """Run the query, kill an executor in the middle, and see. Without ``exact`` it is meant to have no answer."""
    killed: list[tuple[Executor, float]] = []

    def kill(run: Run) -> None:
        killed.append((handle.kill_executor(run.executor), time.monotonic()))
        run.gate.open()

    started = time.perf_counter()
    with Run(handle, spark, home, plan, kill) as run:
        try:
            rows, report = hf.query(spark, QUERY, on_loss=policy, tables=run.tables, timeout=_LIMIT)
        except TimeoutError:
            return Version(name, f"hung for {_LIMIT:g} s", None, "", False, exact is None, _LIMIT)
        except hf.MemberLost as error:
            after, seconds = time.monotonic() - killed[0][1], time.perf_counter() - started
            if policy == "terminate":
                happened = f"stopped {after:.1f} s after {error.fields['member']} was killed"
                return Version(name, happened, None, "", False, after < 5.0, seconds)
            return Version(name, f"failed with {error.fields['member']}", None, "", False, exact is None, seconds)
    answer = rows_of(rows)
    if not report.lost:
        return Version(name, "was not hit", answer, "", False, False, report.seconds)
    lost = report.seconds - crash_free
    gone = run.read_by(killed[0][0].pid)
    if report.coverage is None:
        happened = f"{len(report.recomputed)} tasks done again by {len(report.survivors)} survivors"
        same = answer == exact
        right = same and bool(report.recomputed)
        return Version(name, happened, answer, "all", same, right, report.seconds, lost, (), gone)
    missing = tuple(sorted(path for one in report.missing for path, _, _ in one.files))
    happened = f"went on without {len(missing)} of {report.coverage.partitions_total} files"
    right = (
        answer == plain_answer(home, without=gone)
        and missing == gone
        and report.coverage.rows == run.rows_without(gone)
    )
    return Version(
        name, happened, answer, str(report.coverage), answer == exact, right, report.seconds, lost, missing, gone
    )


def _table(versions: list[Version]) -> Table:
    table = Table("version", "what happened", "answer", "coverage", "exact", "time lost")
    table.columns[5].justify = "right"
    for version in versions:
        answer = "none" if version.answer is None else " / ".join(shown(version.answer))
        lost = "" if version.lost is None else f"{version.lost:.1f} s"
        exact = "-" if version.answer is None else "yes" if version.exact else "no"
        table.add_row(version.name, version.happened, answer, version.coverage, exact, lost)
    return table
