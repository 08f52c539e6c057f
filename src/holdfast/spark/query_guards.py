"""Guards: if an executor is lost, the input that it had read is left out of the answer instead of being read again.

Every leaf of a query's analysed plan (a scan, an RDD, a range) is wrapped in a pass-through task, the guard. When Spark
runs a guard a second time, because an executor was lost, the guard emits nothing and records that; Spark's own
machinery then computes the answer from the rows of the other tasks. Leaves whose rows are in the plan itself (literals)
cannot be lost, and have no guard.

A partition of a leaf is identified by ``spark_partition_id()`` over that leaf, which also holds under unions and
coalescing, where the number of the task does not identify it. Columns that the query does not use are not read.

This file, like `prepared_query.py`, uses Spark's internals: it rewrites the plan through py4j, and keeps the ids by
which the rest of the plan refers to the leaf's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, TaskContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from holdfast.errors import Unsupported
from holdfast.results.query_results import QueryInput, QueryInputs
from holdfast.spark.query_splits import pieces_of
from holdfast.spark.query_tables import PARTS

_UNLOSABLE = ("OneRowRelation", "LocalRelation", "EmptyRelation", "CTERelationRef", "UnionLoopRef")
_ID = "_holdfast_partition"


@dataclass(frozen=True)
class ReadRecord:
    """The work of one guard in one task."""

    leaf: int
    partition: int
    """The partition of the leaf."""

    stage: int
    task: int
    """The partition of the stage."""

    attempt: int
    rows: int
    """Rows passed on. -1: the guard left the partition out."""


class _Records(AccumulatorParam[list[ReadRecord]]):  # type: ignore[misc]  # pyspark is not followed
    def zero(self, value: list[ReadRecord]) -> list[ReadRecord]:
        return []

    def addInPlace(self, value1: list[ReadRecord], value2: list[ReadRecord]) -> list[ReadRecord]:
        return [*value1, *value2]


@dataclass
class Guarded:
    """A query with guards on its leaves."""

    frame: DataFrame
    inputs: list[QueryInputs]
    """Leaf → the pieces (files, partitions) that it reads."""

    _records: Accumulator[list[ReadRecord]] = field(repr=False)

    @property
    def records(self) -> list[ReadRecord]:
        return list(self._records.value)

    @property
    def stages(self) -> set[int]:
        """The stages in which guards have run."""
        return {record.stage for record in self.records}


def guarded(
    session: SparkSession, frame: DataFrame, skip: frozenset[tuple[int, int]], known: Mapping[str, QueryInputs]
) -> Guarded:
    """Return ``frame`` with guards on its leaves. Guards of the (leaf, partition) pairs in ``skip`` emit nothing from
    the start. ``known``: the parts of sources that are already known (`spark/query_tables.py`). Raises `Unsupported` if
    a leaf cannot be guarded."""
    context = session.sparkContext
    ensure_callback_server_started(context._gateway)
    records = context.accumulator([], _Records())
    execution = frame._jdf.queryExecution()
    replace = _Replace(session, _used(execution.optimizedPlan()), skip, records)
    plan = execution.analyzed().transformUpWithSubqueries(replace)
    if replace.failure is not None:
        raise replace.failure
    result = _frame(session, plan)
    inputs = [QueryInputs(name) for name in replace.names]
    _find_pieces(_initial(result), replace, inputs, known)
    return Guarded(result, inputs, records)


class _Replace:
    """A Scala partial function that puts guards on leaves."""

    def __init__(
        self,
        session: SparkSession,
        used: set[int],
        skip: frozenset[tuple[int, int]],
        records: Accumulator[list[ReadRecord]],
    ) -> None:
        self._session = session
        self._jvm: Any = session.sparkContext._jvm
        self._used = used
        self._skip = skip
        self._records = records
        self.names: list[str] = []
        self.marks: dict[int, int] = {}
        """Id of an attribute in a guard's output → its leaf."""

        self.failure: Unsupported | None = None

    def isDefinedAt(self, node: Any) -> bool:
        return True

    def applyOrElse(self, node: Any, otherwise: Any) -> Any:
        if node.children().size() or node.nodeName() in _UNLOSABLE or node.output().size() == 0 or self.failure:
            return node
        try:
            return self._guard(node)
        except Exception as error:
            text = str(error).split("\n", 1)[0]
            self.failure = Unsupported(f"query: {node.nodeName()}: its rows cannot be guarded: {text}")
            return node

    def apply(self, node: Any) -> Any:
        return self.applyOrElse(node, None)

    def _guard(self, leaf: Any) -> Any:
        columns = [leaf.output().apply(place) for place in range(leaf.output().size())]
        kept = [place for place, column in enumerate(columns) if column.exprId().id() in self._used]
        number = len(self.names)
        source = _frame(self._session, leaf)
        self.names.append(_name(leaf, source))
        renamed = source.toDF(*(f"c{place}" for place in range(len(columns))))
        read = renamed.select(*(f"c{place}" for place in kept), spark_partition_id().alias(_ID))
        mine = frozenset(partition for which, partition in self._skip if which == number)
        passed = read.mapInArrow(_pass(number, mine, self._records), read.schema)
        plan = passed._jdf.queryExecution().analyzed()
        given = [plan.output().apply(place) for place in range(plan.output().size())]
        self.marks.update({attribute.exprId().id(): number for attribute in given})
        values = dict(zip(kept, given, strict=False))
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        aliases = []
        for place, column in enumerate(columns):
            value = values.get(place) or expressions.Literal.create(None, column.dataType())
            nothing = self._jvm.scala.Option.apply(None)
            empty = self._jvm.PythonUtils.toSeq([])
            aliases.append(expressions.Alias(value, column.name(), column.exprId(), column.qualifier(), nothing, empty))
        logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        return logical.Project(self._jvm.PythonUtils.toSeq(aliases), plan)

    class Java:
        implements = ("scala.PartialFunction",)


def _pass(
    leaf: int, skip: frozenset[int], records: Accumulator[list[ReadRecord]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None  # it runs in a task
        again = context.attemptNumber() > 0
        rows, partition = 0, -1
        for batch in batches:
            if batch.num_rows and partition < 0:
                partition = batch.column(batch.num_columns - 1)[0].as_py()
                if again or partition in skip:
                    rows = -1
                    break
            rows += batch.num_rows
            yield batch
        if partition >= 0:  # a partition without rows has nothing to lose
            place = (context.stageId(), context.partitionId(), context.taskAttemptId())
            records.add([ReadRecord(leaf, partition, *place, rows)])
        for _ in batches if rows < 0 else ():
            pass  # input left unread would count as an error

    return task


def _used(plan: Any) -> set[int]:
    """Return the ids of all attributes that a plan refers to."""
    found: set[int] = set()

    def add(attributes: Any) -> None:
        found.update(attributes.apply(place).exprId().id() for place in range(attributes.size()))

    def walk(node: Any) -> None:
        add(node.references().toSeq())
        for some in (node.children(), node.subqueries()):
            for place in range(some.size()):
                walk(some.apply(place))

    add(plan.output())
    walk(plan)
    return found


def _frame(session: SparkSession, plan: Any) -> DataFrame:
    jvm: Any = session.sparkContext._jvm
    own: Any = session
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(own._jsparkSession, plan), session)


def _name(leaf: Any, source: DataFrame) -> str:
    """The name of a leaf for people: its table, its directory, or its columns."""
    if leaf.nodeName() == "LogicalRelation" or leaf.nodeName().startswith("Relation"):
        table = leaf.catalogTable()
        if table.isDefined():
            return str(table.get().identifier().unquotedString())
        files = source.inputFiles()
        if files:
            return str(files[0].rpartition("/")[0])
    output = leaf.output()
    names = [output.apply(place).name() for place in range(output.size())]
    return names[0] if names[0].startswith(PARTS) else f"{leaf.nodeName().lower()}({', '.join(names)})"


def _initial(frame: DataFrame) -> Any:
    """The initial physical plan: with adaptive execution, before it adapts."""
    plan = frame._jdf.queryExecution().executedPlan()
    return plan.initialPlan() if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec" else plan


def _find_pieces(plan: Any, replace: _Replace, inputs: list[QueryInputs], known: Mapping[str, QueryInputs]) -> None:
    """Find what each leaf's partitions read, in the physical plan, and note it in ``inputs``."""

    def walk(node: Any) -> None:
        leaf = None
        if node.getClass().getSimpleName() == "MapInArrowExec" and node.output().size():
            leaf = replace.marks.get(node.output().apply(0).exprId().id())
        if leaf is not None and not inputs[leaf].pieces:
            own = known.get(inputs[leaf].table)
            if own is not None:
                inputs[leaf] = own
            else:
                inputs[leaf].pieces = pieces_of(inputs[leaf].table, node.children().apply(0))
        for some in (node.children(), node.subqueries()):
            for place in range(some.size()):
                below = some.apply(place)
                walk(below.child() if below.getClass().getSimpleName() == "SubqueryAdaptiveBroadcastExec" else below)

    walk(plan)


def missing_of(inputs: list[QueryInputs], places: frozenset[tuple[int, int]]) -> tuple[QueryInput, ...]:
    """Return the pieces at these places (leaf, partition)."""
    return tuple(inputs[leaf].pieces[partition] for leaf, partition in sorted(places))
