"""What the tests of queries and of membership run, in drivers of their own: a process that has a Spark session already
cannot have another.

Scenes kill at moments that Spark's own progress decides, and return plain values for the tests to judge.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

import holdfast as hf
from holdfast.spark.listener import Event, StageSubmitted, TaskEnded, listener_of
from holdfast.spark.membership import Watch
from holdfast.testing.cluster import Handle
from holdfast.testing.gate import Gate
from holdfast.testing.trigger import AfterTasks

FILES, ROWS = 8, 1000
QUERY = "SELECT g, count(*) AS n, sum(k) AS s FROM p WHERE waits(k) >= 0 GROUP BY g"
"""Its first stage waits at a gate, once per task."""

LATER = "SELECT g, n, s FROM (SELECT g, count(*) AS n, sum(k) AS s FROM p GROUP BY g) WHERE waits(n) >= 0"
"""Its second stage does."""


def write_table(directory: Path) -> None:
    """Eight files; in file f the keys f * 1000 …, in seven groups."""
    directory.mkdir(parents=True)
    for number in range(FILES):
        keys = list(range(number * ROWS, (number + 1) * ROWS))
        pq.write_table(pa.table({"k": keys, "g": [key % 7 for key in keys]}), directory / f"{number}.parquet")


def session(handle: Handle, executors: int) -> Any:
    """A session with all its executors. One file is one partition; nothing is compiled, for a few rows."""
    spark = handle.session(
        spark__sql__shuffle__partitions=3,
        spark__sql__files__openCostInBytes=200_000_000,
        spark__sql__codegen__wholeStage="false",
        spark__sql__codegen__factoryMode="NO_CODEGEN",
    )
    wait_for(spark, executors)
    return spark


def wait_for(spark: Any, executors: int) -> None:
    watch = Watch(spark, begin=False)
    watch.wait(executors, 120)
    watch.close()


def set_gate(spark: Any, gate: Gate, *, together: bool = False) -> None:
    """What `QUERY` waits for from now on. What is done again is done on two executors at least: ``together``."""

    def waits(key: int) -> int:
        if not entered:  # a task has its own copy of the list
            entered.append(key)
            gate.enter()
            task = TaskContext.get()
            if together and task is not None and task.attemptNumber():
                gate.meet(f"executor-{os.getppid()}", others=1)  # all workers of an executor have one parent
        return key

    entered: list[int] = []
    spark.udf.register("waits", waits, "long")


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def left_over(report: hf.Report) -> list[tuple[int, ...]]:
    """What the rows of the files that are left amount to, without Spark: group, count, sum."""
    gone = {path for piece in report.missing for path, _, _ in piece.files}
    directory = Path(next(iter(gone))).parent
    found: dict[int, list[int]] = {}
    for path in directory.iterdir():
        if str(path) not in gone:
            for row in pq.read_table(path).to_pylist():
                total = found.setdefault(row["g"], [0, 0])
                total[0] += 1
                total[1] += row["k"]
    return sorted((group, *total) for group, total in found.items())


class Stage:
    """A session, a table, and queries that are hit in the middle."""

    def __init__(self, handle: Handle, executors: int) -> None:
        self.handle = handle
        self.executors = executors
        self.directory = handle.directory / "t"
        write_table(self.directory)
        self.spark = session(handle, executors)
        self.spark.read.parquet(str(self.directory)).createOrReplaceTempView("p")
        self._gates = 0
        self.losses: list[float] = []
        self.watch = hf.on_membership(self.spark)
        self.watch.on_loss(lambda change: self.losses.append(time.monotonic()))

    def gate(self, free: int, *, together: bool = False) -> Gate:
        self._gates += 1
        gate = Gate(self.handle.directory / f"gate-{self._gates}", free)
        set_gate(self.spark, gate, together=together)
        return gate

    def answer(self, text: str, **options: Any) -> list[tuple[Any, ...]]:
        """Without a loss."""
        self.gate(0).open()
        return rows_of(hf.query(self.spark, text, **options).rows)

    def killed(self, text: str, policy: Any, after: int, *, stages: int = 0, **options: Any) -> Any:
        """The answer to ``text`` if the executor that ends the task number ``after`` is killed then. What more is to
        happen at that moment: ``then``. The gate stays closed: ``shut``. For ``together``, see `set_gate`."""
        then, shut = options.pop("then", None), options.pop("shut", False)
        victim = options.pop("victim", lambda executor: executor)
        gate = self.gate(after, together=options.pop("together", False))

        def hit(executor: str) -> None:
            self.handle.kill_executor(victim(executor))
            if then is not None:
                then()
            if not shut:
                gate.open()

        # Whoever is being started in place of another takes part or not; most are there.
        wait_for(self.spark, self.executors - 1)
        del self.losses[:]
        with AfterTasks(self.spark, after, hit, stages) as kill:
            started = time.monotonic()
            try:
                return hf.query(self.spark, text, on_loss=policy, timeout=90.0, **options)
            except hf.MemberLost as error:
                ended = time.monotonic()
                while self._at_work():
                    time.sleep(0.05)
                idle = time.monotonic()
                return error, ended - self.losses[0], idle - self.losses[0], kill.executor
            except TimeoutError:
                print(_stuck(self.spark), flush=True)  # for whoever reads the output of a test that failed
                raise
            finally:
                gate.open()
                print(policy, after, stages, f"{time.monotonic() - started:.1f} s", flush=True)

    def _at_work(self) -> int:
        listed = self.spark.sparkContext._jsc.sc().statusStore().executorList(True)
        return sum(listed.apply(place).activeTasks() for place in range(listed.size()))

    def close(self) -> None:
        self.watch.settle()
        self.watch.close()
        self.spark.stop()


def queries(handle: Handle, executors: int, losses: int) -> dict[str, Any]:
    """All policies, and ``losses`` random ones under ``continue``."""
    stage = Stage(handle, executors)
    seen: dict[str, Any] = {}
    heard: list[hf.Change] = []
    stage.watch(heard.append)
    seen["exact"] = stage.answer(QUERY)
    seen["forms"] = _forms(stage.spark)
    seen["replay"] = _replicas(stage)
    error, ended, idle, killed = stage.killed(QUERY, "terminate", 2, shut=True)
    seen["terminate"] = (str(error), error.fields["member"].id, killed, ended, idle)
    seen["continue"] = [_continued(stage, seed) for seed in range(losses)]
    seen["late"] = _late(stage)
    seen["own failure"] = _own_failure(stage.spark)
    seen["kills"] = 3 + losses
    stage.close()
    seen["heard"] = heard
    return seen


def random_losses(handle: Handle, executors: int, losses: int) -> list[Any]:
    """Random ones under ``continue``, alone."""
    stage = Stage(handle, executors)
    found = [_continued(stage, seed) for seed in range(100, 100 + losses)]
    stage.close()
    return found


def _continued(stage: Stage, seed: int) -> Any:
    """An executor is lost at a random moment: the one that just ended a task, or any."""
    chance = random.Random(seed)

    def victim(executor: str) -> str:
        members = [one.id for one in stage.handle.members()]
        return executor if chance.random() < 0.5 else chance.choice(members)

    return _judged(stage.killed(QUERY, "continue", chance.randrange(1, FILES), victim=victim))


def _late(stage: Stage) -> Any:
    """One that has read files is lost when the first task of the next stage has ended. (Whoever ended that one may have
    come too late to read any.) Each of the seven groups is in a task of its own, and four wait at the gate at most: so
    there are tasks that have not begun, and will miss what is lost."""
    stages: list[int] = []
    readers: list[str] = []

    def hear(event: Event) -> None:
        match event:
            case StageSubmitted(stage=number):
                stages.append(number)
            case TaskEnded(stage=number, executor=executor) if number in stages[:1]:
                readers.append(executor)

    listener = listener_of(stage.spark.sparkContext)
    listener.add(hear, tasks=True)
    few = stage.spark.conf.get("spark.sql.shuffle.partitions")
    stage.spark.conf.set("spark.sql.shuffle.partitions", 48)
    try:
        return _judged(stage.killed(LATER, "continue", 1, stages=1, victim=lambda _: readers[0]))
    finally:
        listener.remove(hear)
        stage.spark.conf.set("spark.sql.shuffle.partitions", few)


def _judged(answer: hf.Answer) -> tuple[list[tuple[Any, ...]], list[tuple[int, ...]] | None, hf.Report]:
    """The rows, what they should be if something is missing, and the report."""
    rows, report = answer
    return rows_of(rows), left_over(report) if report.missing else None, report


def _stuck(spark: Any) -> str:
    """What Spark's scheduler is doing."""
    traces = spark.sparkContext._jvm.java.lang.Thread.getAllStackTraces()
    found = []
    for thread in traces.keySet():
        if thread.getName().startswith(("dag-scheduler", "spark-listener-group-shared", "dispatcher-Coarse")):
            found.append("\n  ".join([thread.getName(), *(frame.toString() for frame in traces.get(thread)[:25])]))
    return "\n".join(found)


def _forms(spark: Any) -> list[tuple[bool, hf.Report]]:
    """Queries of many forms, guarded, without a loss: the same answer as without guards."""
    frames = [
        spark.sql(
            "SELECT a.k, b.g FROM p a JOIN p b ON a.k = b.k + 1 WHERE a.k < 10 UNION ALL SELECT 1, 2 "
            "UNION ALL SELECT id, id FROM range(5)"
        ),
        spark.table("p").select("k").coalesce(2).union(spark.range(3).toDF("k")).where("k % 100 = 0"),
        spark.sql(
            "WITH x AS (SELECT k, g FROM p WHERE k < 100) SELECT x.g, (SELECT max(g) FROM p) AS m, count(*) AS c "
            "FROM x WHERE EXISTS (SELECT 1 FROM p WHERE p.k = x.k + 1) GROUP BY x.g"
        ),
    ]
    found = []
    for frame in frames:
        rows, report = hf.query(spark, frame, on_loss="continue")
        found.append((rows_of(rows) == sorted(map(tuple, frame.collect())), report))
    return found


def _own_failure(spark: Any) -> str:
    """A task that fails by itself is tried again, and must not look like a loss."""
    spark.udf.register("bad", lambda key: 1 // (key - 1500), "long")
    try:
        return f"no error: {hf.query(spark, 'SELECT count(*) FROM p WHERE bad(k) > 5', on_loss='continue')}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _replicas(stage: Stage) -> tuple[list[tuple[Any, ...]], hf.Report]:
    """Two copies. One lacks a file, and in the other one is damaged; in the middle of the query an executor is killed,
    and a file of one copy, which was not read yet, is deleted."""
    copies = [stage.directory.parent / name for name in ("copy-a", "copy-b")]
    for copy in copies:
        shutil.copytree(stage.directory, copy)
    (copies[0] / "0.parquet").unlink()
    damaged = copies[1] / "1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-100] + bytes(100))
    source = hf.files(copies, replicas=True)
    unread = copies[0] / f"{FILES - 1}.parquet"
    answer = stage.killed(QUERY, "replay", 3, tables={"p": source}, then=unread.unlink, together=True)
    return rows_of(answer.rows), answer.report
