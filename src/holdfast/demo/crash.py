"""The demonstration of crashes: the join query of the AMPLab benchmark on six executors, one of which is killed.

One driver, two workers with three executors each, two copies of the input. The query runs in four versions, and in each
an executor is killed after it has done some of the work; in a fifth the driver is killed, and another that waits takes
over. The answer of each is compared with Spark's own, over all files or over those that were left.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.connectors.source import Offer, Part, Source
from holdfast.demo.amplab import RANKINGS, USERVISITS, Generator, Sizes
from holdfast.demo.query import QUERY
from holdfast.demo.run import shown
from holdfast.testing.cluster import Cluster, Handle

_EXECUTORS = 6
_FILES = 12
_KILL_AFTER = 4
"""The executor that ends the fourth task is killed: rankings are read by then, visits are being read."""

_PACE = 0.5
"""Each file takes so many seconds longer to read: on so little data nothing could be hit in the middle."""

_LIMIT = 60.0
"""So many seconds a version may take before it counts as hanging."""

Answer = list[tuple[Any, ...]]


@dataclass
class Version:
    """What became of the query in one version."""

    name: str
    happened: str
    answer: Answer | None
    coverage: str
    exact: bool
    right: bool
    """The answer is the one over the input that was left; without an answer: it ended, and said so."""

    seconds: float
    lost: float | None
    """How much longer it took than without a crash."""


def run_crash_demo(console: Console, *, scale: float, as_json: bool) -> bool:
    """Run it, print the table; whether every version did what it should."""
    started = time.perf_counter()

    def say(text: str) -> None:
        if not as_json:
            console.print(f"{time.perf_counter() - started:5.0f} s  {text}", style="dim", highlight=False, markup=False)

    versions = crash_versions(scale, say)
    if as_json:
        print(json.dumps([asdict(version) for version in versions]))
    else:
        console.print(_table(versions))
    return all(version.right for version in versions)


def crash_versions(scale: float, say: Callable[[str], None] = lambda text: None) -> list[Version]:
    """All versions, on a cluster of their own."""
    with Cluster(workers=2, cores=3, executors_per_worker=3, memory=512) as cluster:
        home = cluster.directory
        say(f"a cluster of {_EXECUTORS} executors on two workers; generating the input, in two copies")
        generate(home, scale)
        versions: list[Version] = []
        for function in (no_tolerance, policies):
            driver = cluster.driver(function, home)
            for version in driver.result(240.0):
                say(f"{version.name}: {version.happened}")
                versions.append(version)
        crash_free = versions[-1].seconds - (versions[-1].lost or 0.0)
        versions.append(driver_killed(cluster, home, versions[-1].answer or [], crash_free))
        say(f"{versions[-1].name}: {versions[-1].happened}")
        return versions


def generate(home: Path, scale: float) -> None:
    """The two tables, twice."""
    generator = Generator(Sizes.of(scale, _FILES))
    rankings, visits = home / "a" / "rankings", home / "a" / "uservisits"
    for directory in (rankings, visits):
        directory.mkdir(parents=True)
    pages = generator.rankings()
    half = pages.num_rows // 2
    pq.write_table(pages.slice(0, half), rankings / "0.parquet")
    pq.write_table(pages.slice(half), rankings / "1.parquet")
    for number in range(_FILES):
        pq.write_table(generator.visits(), visits / f"{number:02}.parquet")
    shutil.copytree(home / "a", home / "b")


def _tables(home: Path) -> dict[str, Any]:
    schemas = {"rankings": RANKINGS, "uservisits": USERVISITS}
    return {
        name: Paced(hf.files([home / "a" / name, home / "b" / name], schema=schema, replicas=True))
        for name, schema in schemas.items()
    }


class Paced(Source):
    """A source whose parts take a while longer to read, so that a query over little data has a middle."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.fields = source.fields

    def poll(self) -> Offer | None:
        return self._source.poll()

    def advance(self, offer: Offer) -> None:
        self._source.advance(offer)

    def parts(self, offer: Offer) -> list[Part]:
        return [PacedPart(part, part.file, part.size) for part in self._source.parts(offer)]  # type: ignore[attr-defined]  # of Parquet files


@dataclass(frozen=True)
class PacedPart:
    """A part that takes a while longer."""

    part: Part
    file: Any
    size: tuple[int, int]

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        time.sleep(_PACE)
        yield from self.part.read(schema)


def _session(handle: Handle, **settings: object) -> Any:
    from holdfast.spark.membership import Watch

    spark = handle.session(spark__sql__shuffle__partitions=_EXECUTORS, **settings)
    watch = Watch(spark, begin=False)
    watch.wait(_EXECUTORS, 120.0)
    watch.close()
    return spark


def _rows(table: pa.Table) -> Answer:
    return [tuple(row.values()) for row in table.to_pylist()]


def no_tolerance(handle: Handle, home: Path) -> list[Version]:
    """In a driver: a lost task is the end, as in a system that replays nothing."""
    spark = _session(handle, spark__task__maxFailures=1, spark__stage__maxConsecutiveAttempts=1)
    _, crash_free = _timed(spark, home)
    return [_killed(handle, spark, home, "no fault tolerance", "replay", crash_free)]


def policies(handle: Handle, home: Path) -> list[Version]:
    """In a driver: the three policies, one after the other."""
    spark = _session(handle)
    exact, crash_free = _timed(spark, home)
    versions = []
    for policy in ("terminate", "continue", "replay"):
        versions.append(_killed(handle, spark, home, policy, policy, crash_free, exact))
        _wait_for_all(spark)
    return versions


def _timed(spark: Any, home: Path) -> tuple[Answer, float]:
    """The exact answer, and the seconds it takes when all is warm."""
    seconds = []
    for _ in range(2):
        answer = hf.query(spark, QUERY, tables=_tables(home), timeout=120.0)
        seconds.append(answer.report.seconds)
    return _rows(answer.rows), min(seconds)


def _killed(
    handle: Handle, spark: Any, home: Path, name: str, policy: Any, crash_free: float, exact: Answer | None = None
) -> Version:
    """Run the query, kill an executor in the middle, and see."""
    from holdfast.testing.trigger import AfterTasks

    started = time.perf_counter()
    with AfterTasks(spark, _KILL_AFTER, handle.kill_executor) as kill:
        try:
            rows, report = hf.query(spark, QUERY, on_loss=policy, tables=_tables(home), timeout=_LIMIT)
        except TimeoutError:
            return Version(name, "hung", None, "", False, True, time.perf_counter() - started, None)
        except hf.MemberLost as error:
            seconds = time.perf_counter() - started
            after = time.monotonic() - kill.at
            member = error.fields["member"]
            what = f"stopped {after:.1f} s after {member} was killed" if policy == "terminate" else "failed with it"
            return Version(name, what, None, "", False, after < 5.0 if policy == "terminate" else True, seconds, None)
    answer = _rows(rows)
    if not report.lost:
        return Version(name, "was not hit", answer, "", False, False, report.seconds, None)
    lost = report.seconds - crash_free
    if report.coverage is not None:
        left = _recomputed(spark, home, {path for one in report.missing for path, _, _ in one.files})
        happened = f"went on without {len(report.missing)} of {report.coverage.partitions_total} inputs"
        right = left == answer and not report.exact
        return Version(name, happened, answer, str(report.coverage), report.exact, right, report.seconds, lost)
    again = len(report.recomputed)
    happened = f"{again} tasks done again by {len(report.survivors)} survivors"
    return Version(name, happened, answer, "all", True, answer == exact, report.seconds, lost)


def _recomputed(spark: Any, home: Path, without: set[str]) -> Answer:
    """The answer that plain Spark gives over the files that are left."""
    own = spark.newSession()
    for name, schema in (("rankings", RANKINGS), ("uservisits", USERVISITS)):
        paths = [str(path) for path in sorted((home / "a" / name).iterdir()) if str(path) not in without]
        frame = own.read.schema(schema).parquet(*paths) if paths else own.createDataFrame([], schema)
        frame.createOrReplaceTempView(name)
    return [tuple(row) for row in own.sql(QUERY).collect()]


def _wait_for_all(spark: Any) -> None:
    from holdfast.spark.membership import Watch

    watch = Watch(spark, begin=False)
    watch.wait(_EXECUTORS, 60.0)
    watch.close()


# -- the driver's own death ---------------------------------------------------------------------------------------


def candidate(handle: Handle, home: Path, name: str) -> Answer:
    """In a driver: wait for the lease, then run the query. Whoever dies lets go of the lease."""
    from pyspark import SparkContext

    from holdfast.testing.trigger import AfterTasks

    with (home / "lease").open("a") as lease:
        # The JVM is warm before it is needed; executors come with the lease, since the leader has them all.
        SparkContext._ensure_initialized()
        fcntl.flock(lease, fcntl.LOCK_EX)
        (home / f"{name}.leads").touch()
        spark = _session(handle)
        with AfterTasks(spark, _KILL_AFTER, lambda executor: (home / f"{name}.middle").touch()):
            return _rows(hf.query(spark, QUERY, on_loss="replay", tables=_tables(home)).rows)


def driver_killed(cluster: Cluster, home: Path, exact: Answer, crash_free: float) -> Version:
    """Kill the leading driver in the middle of the query; another one waits, and takes over."""
    leader = cluster.driver(candidate, home, "leader", name="leader")
    _wait_for(home / "leader.leads")
    standby = cluster.driver(candidate, home, "standby", name="standby")
    _wait_for(home / "leader.middle")
    started = time.perf_counter()
    cluster.kill_driver(leader)
    answer = standby.result(120.0)
    seconds = time.perf_counter() - started
    return Version(
        "replay, driver killed",
        "the standby took over and did it all again",
        answer,
        "all",
        answer == exact,
        answer == exact,
        seconds,
        seconds - crash_free,
    )


def _wait_for(path: Path, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} was not reached within {seconds:g} s")
        time.sleep(0.02)


def _table(versions: list[Version]) -> Table:
    table = Table("version", "what happened", "answer", "coverage", "exact", "time lost")
    table.columns[5].justify = "right"
    for version in versions:
        answer = "none" if version.answer is None else " / ".join(shown(version.answer))
        lost = "" if version.lost is None else f"{version.lost:.1f} s"
        exact = "-" if version.answer is None else "yes" if version.exact else "no"
        table.add_row(version.name, version.happened, answer, version.coverage, exact, lost)
    return table
