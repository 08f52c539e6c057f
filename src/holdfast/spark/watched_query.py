"""A one-off query that runs in a thread of its own, while the calling thread listens for lost members."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast.connectors.source import Source
from holdfast.coordinator.membership import Change, Member
from holdfast.errors import DeclarationError, EvaluationError, MemberLost, SqlError
from holdfast.foundation.choices import OnLoss
from holdfast.results.query_results import Answer, QueryInputs, Report, coverage_of
from holdfast.spark.listener import listener_of
from holdfast.spark.membership import Watch
from holdfast.spark.query_guards import Guarded, guarded, missing_of
from holdfast.spark.query_history import QueryHistory
from holdfast.spark.query_tables import register

_GRACE = 1.0
"""Seconds to wait for a cancelled query to end; after that it is left alone."""


def run_query(
    spark: SparkSession,
    query: str | DataFrame,
    on_loss: OnLoss,
    tables: Mapping[str, Source | DataFrame],
    timeout: float | None,
) -> Answer:
    """See `holdfast.queries.one_off.query`."""
    if on_loss == "continue" and spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise DeclarationError(
            "query: on_loss='continue' does not go with spark.speculation: a second attempt would be taken for a loss"
        )
    session = _own(spark)
    known = register(session, tables)
    frame = _sql(session, query) if isinstance(query, str) else query
    watched = Watched(spark, on_loss, None if timeout is None else time.monotonic() + timeout)
    try:
        if on_loss == "continue":
            return _continued(watched, session, frame, known)
        return Answer(watched.run(frame, cancel_on_loss=on_loss == "terminate"), watched.report())
    finally:
        watched.close()


def _sql(session: SparkSession, text: str) -> DataFrame:
    try:
        return session.sql(text)
    except (AnalysisException, ParseException) as error:
        raise SqlError(f"query: {_sentence(str(error))}", sql=text) from error


def _own(spark: SparkSession) -> SparkSession:
    """Return a clone of the session, with the user's tables and settings, to which tables can be added. The number of
    partitions of an input is fixed there, so that it does not depend on how many executors are left."""
    any_spark: Any = spark
    clone = any_spark._jsparkSession.cloneSession()
    own: SparkSession = SparkSession(spark.sparkContext, clone)
    parallelism = str(max(1, spark.sparkContext.defaultParallelism))
    for name in ("spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism"):
        if own.conf.get(name, None) is None:
            own.conf.set(name, parallelism)
    return own


class Watched:
    """Runs DataFrames, and records members that are lost meanwhile."""

    def __init__(self, spark: SparkSession, on_loss: OnLoss, deadline: float | None) -> None:
        self._context = spark.sparkContext
        self._on_loss = on_loss
        self._deadline = deadline
        self._started = time.monotonic()
        self._watch = Watch(spark)
        self._changed = threading.Condition()
        self._lost: list[tuple[Member, str]] = []
        self._first_loss: float | None = None
        self._watch.on_loss(self._lose)
        self.group = ""
        self.history = QueryHistory("")
        self.runs = 0

    def _lose(self, change: Change) -> None:
        with self._changed:
            self._first_loss = self._first_loss or time.monotonic()
            self._lost += [(member, change.reason) for member in change.lost]
            self._changed.notify_all()

    @property
    def lost(self) -> tuple[Member, ...]:
        return tuple(member for member, _ in self._lost)

    def run(self, frame: DataFrame, *, cancel_on_loss: bool, again: Any = lambda: False) -> pa.Table:
        """Return the rows of ``frame``. ``again``: called after every event; if it is true, `Again` is raised."""
        self.runs += 1
        self.group = f"holdfast-query-{secrets.token_hex(6)}"
        self._forget()
        self.history = QueryHistory(self.group)
        listener_of(self._context).add(self.history.hear, tasks=True)
        running = _Running(self._changed)
        thread = InheritableThread(target=lambda: self._collect(frame, running), daemon=True, name=self.group)
        thread.start()
        try:
            return self._wait(running, cancel_on_loss, again)
        except BaseException:
            self._context.cancelJobGroup(self.group)
            thread.join(_GRACE)
            raise

    def _collect(self, frame: DataFrame, running: _Running) -> None:
        try:
            # Interrupt on cancel: a cancelled task that waits must not keep its slot.
            self._context.setJobGroup(self.group, "holdfast: query", interruptOnCancel=True)
            running.end(frame.toArrow(), None)
        except BaseException as error:
            running.end(None, error)

    def _wait(self, running: _Running, cancel_on_loss: bool, again: Any) -> pa.Table:
        while True:
            with self._changed:
                if not running.ended and not (cancel_on_loss and self._lost):
                    left = 0.1 if self._deadline is None else min(0.1, self._deadline - time.monotonic())
                    self._changed.wait(max(0.0, left))
                ended, lost = running.ended, list(self._lost)
            if ended and running.error is not None and not lost:
                lost = self._lost_late()
            if cancel_on_loss and lost and not (ended and running.error is None):
                raise self._terminated(*lost[0])
            if ended and running.error is not None:
                if lost and not again():
                    raise self._hopeless(running.error) from running.error
                if not lost:
                    raise _failed(running.error) from running.error
            if lost and again():
                raise Again
            if ended:
                return running.rows
            if self._deadline is not None and time.monotonic() >= self._deadline:
                done, not_done = self.history.progress()
                raise TimeoutError(f"query: not finished in time; done: {done}; not done: {not_done}")

    def _lost_late(self) -> list[tuple[Member, str]]:
        """Return the members whose loss made the query fail. News of a loss may come after the failure, so wait for
        it."""
        self.settle()
        if not self.history.victims:
            return []
        with self._changed:
            self._changed.wait_for(lambda: self._lost, _GRACE)
            return list(self._lost)

    def _terminated(self, member: Member, reason: str) -> MemberLost:
        done, not_done = self.history.progress()
        after = (self._first_loss or 0.0) - self._started
        return MemberLost(
            f"query: {member} was lost after {after:.1f} s ({_sentence(reason)}); everything was cancelled, as "
            f"on_loss='terminate' says; done: {done}; not done: {not_done}",
            member=member,
            done=done,
            not_done=not_done,
        )

    def _hopeless(self, error: BaseException) -> MemberLost:
        done, not_done = self.history.progress()
        names = ", ".join(map(str, self.lost))
        return MemberLost(
            f"query: lost: {names}; what was done there could not be done again: "
            f"{_cause(str(error))}; done: {done}; not done: {not_done}",
            member=self.lost[0],
            done=done,
            not_done=not_done,
        )

    def settle(self) -> None:
        """Wait until the listener has received all events so far."""
        with suppress(Py4JError):
            self._context._jsc.sc().listenerBus().waitUntilEmpty(5000)

    def report(self) -> Report:
        self.settle()
        now = time.monotonic()
        return Report(
            self._on_loss,
            self.lost,
            recomputed=self.history.recomputed(),
            runs=self.runs,
            seconds=now - self._started,
            seconds_after_loss=None if self._first_loss is None else now - self._first_loss,
        )

    def _forget(self) -> None:
        listener_of(self._context).remove(self.history.hear)

    def close(self) -> None:
        self._forget()
        self._watch.close()


class Again(Exception):
    """Raised when this run can no longer give a consistent answer: start the query again, without the lost pieces."""


@dataclass
class _Running:
    changed: threading.Condition
    ended: bool = False
    rows: pa.Table = None
    error: BaseException | None = field(default=None)

    def end(self, rows: pa.Table, error: BaseException | None) -> None:
        with self.changed:
            self.rows, self.error, self.ended = rows, error, True
            self.changed.notify_all()


def _continued(watched: Watched, session: SparkSession, frame: DataFrame, known: Mapping[str, QueryInputs]) -> Answer:
    """Run with guards until an answer contains each piece entirely or not at all.

    Usually a loss while a leaf is being read costs only the pieces that were lost. But if the loss takes data that a
    later stage has already read in part, Spark would read the piece again, its guard would return nothing, and the
    answer would have some rows of the piece without the others. Then the query starts again, without those pieces.
    """
    skip: frozenset[tuple[int, int]] = frozenset()
    while True:
        query = guarded(session, frame, skip, known)
        try:
            rows = watched.run(
                query.frame, cancel_on_loss=False, again=lambda query=query: watched.history.repeated(query.stages)
            )
            watched.settle()
            missing, mixed = _missing(query, watched)
            if not mixed and not watched.history.repeated(query.stages):
                lacking = missing_of(query.inputs, missing)
                coverage = coverage_of(query.inputs, lacking)
                return Answer(rows, replace(watched.report(), missing=lacking, coverage=coverage, recomputed=()))
        except Again:
            watched.settle()
            missing, _ = _missing(query, watched)
        if missing <= skip and watched.runs > 1 + len(watched.lost):
            raise DeclarationError("query: on_loss='continue' makes no progress; try on_loss='replay'")
        skip |= missing


def _missing(query: Guarded, watched: Watched) -> tuple[frozenset[tuple[int, int]], bool]:
    """Return the pieces (leaf, partition) that are not in the answer, or would not be after another start; and whether
    a piece is in the answer only in part."""
    lost = watched.history.held({member.id for member in watched.lost})
    records = query.records
    dropped = {(record.leaf, record.partition): record for record in records if record.rows < 0}
    places = {(record.stage, record.task) for record in dropped.values()}
    failure = watched.history.failed(places)
    if failure is not None:
        raise EvaluationError(f"query: a task failed by itself, and was not lost: {_cause(failure.text)}")
    mixed = any(
        record.rows >= 0
        and (record.leaf, record.partition) in dropped
        and (record.stage, record.task)
        != (dropped[record.leaf, record.partition].stage, dropped[record.leaf, record.partition].task)
        for record in records
    )
    gone = {(record.leaf, record.partition) for record in records if (record.stage, record.task) in lost}
    repeated = watched.history.repeated(query.stages)
    return frozenset(dropped) | (frozenset(gone) if repeated or mixed else frozenset()), mixed


def _failed(error: BaseException) -> BaseException:
    """The error of a query that failed without a loss: an expression's or a user function's."""
    return EvaluationError(f"query: {_cause(str(error))}") if isinstance(error, PySparkException) else error


def _cause(text: str) -> str:
    """The line of a failure's text that names the cause: Python's last error line, if there is one."""
    said: list[str] = re.findall(r"^\s*([A-Za-z_.]*(?:Error|Exception): .*)$", text, re.MULTILINE)
    own = [line for line in said if not line.startswith(("org.apache.", "java."))]
    return (own or said or [_sentence(text)])[-1]


def _sentence(text: str) -> str:
    return text.strip().split("\n", 1)[0].rstrip(".")
