"""Tables and DataFrames that are not the flow's, taken as sources whose rows never change.

Each leaf of a plan that is no collection of the flow's becomes a source with a name that says what it is, so that the
next process finds it again: a table by its own name, files by their path, rows that are in the plan itself or in this
process (VALUES, ``createDataFrame``) by a hash of what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.connectors.table import Table
from holdfast.frontend.column_names import unique
from holdfast.plan.expression import quoted
from holdfast.plan.schema import RESERVED
from holdfast.reporting.redaction import shown
from holdfast.spark.replanned_frames import dataset
from holdfast.trace.hashing import hash_columns

PREFIX = "static "
"""How the names of these sources begin."""


def static(session: SparkSession, leaf: Any, view: str) -> tuple[str, Table]:
    """A leaf of an analysed plan as a source, and its name. ``view``: of the user's, in which it is."""
    kind = leaf.getClass().getSimpleName().rstrip("$")
    frame = _frame(session, leaf) if kind != "OneRowRelation" else session.range(1).selectExpr("true AS `row`")
    return PREFIX + _name(session, kind, leaf, frame, view), Table(frame)


def _frame(session: SparkSession, leaf: Any) -> DataFrame:
    own: Any = session
    frame = DataFrame(dataset(session, own._jsparkSession, leaf), session)
    names: list[str] = []
    for name in frame.columns:
        names.append(unique("column" if not name or name.lower().startswith(RESERVED) else name, names))
    return frame if names == frame.columns else frame.toDF(*names)


def _name(session: SparkSession, kind: str, leaf: Any, frame: DataFrame, view: str) -> str:
    match kind:
        case "OneRowRelation":
            return "row"
        case "Range":
            return f"range({leaf.start()}, {leaf.end()}, {leaf.step()})"
        case "LocalRelation" | "EmptyRelation":
            return f"{view or 'values'} {_digest(frame.schema.simpleString(), _content(frame))}"
        case "LogicalRDD" | "ExternalRDD":
            return f"{view or 'rows'} {_digest(frame.schema.simpleString(), _sum(frame))}"
        case "LogicalRelation":
            return _relation(leaf)
        case "HiveTableRelation":
            return str(leaf.tableMeta().identifier().unquotedString())
    return str(leaf.name())


def _content(frame: DataFrame) -> str:
    """The rows of a LocalRelation, as a text that no others have: NULL is not 'null', and texts have an end."""
    columns = []
    for name, kind in frame.dtypes:
        column = quoted(name)
        # These have no values in Python.
        own = (
            f"to_json({column})" if "variant" in kind else f"CAST({column} AS string)" if "interval" in kind else column
        )
        columns.append(own)
    return repr([tuple(row) for row in frame.selectExpr(*columns).collect()])


def _sum(frame: DataFrame) -> str:
    """A hash of the rows, in whatever order and wherever they are."""
    found = frame.mapInArrow(_sums, "count bigint, sum bigint").collect()
    count, total = sum(row[0] for row in found), sum(row[1] for row in found)
    return f"{count} {total % 2**64:016x}"


def _sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        words = hash_columns(batch.columns, normalise=False, rows=batch.num_rows)
        total = np.add.reduce(words, dtype=np.uint64).view(np.int64)
        yield pa.record_batch([pa.array([batch.num_rows]), pa.array([int(total)], pa.int64())], ["count", "sum"])


def _relation(leaf: Any) -> str:
    table = leaf.catalogTable()
    if table.isDefined():
        return str(table.get().identifier().unquotedString())
    relation = leaf.relation()
    kind = relation.getClass().getSimpleName()
    if kind == "JDBCRelation":
        return f"{relation.toString()} {_digest(*_pairs(relation.jdbcOptions().parameters().originalMap()))}"
    if kind != "HadoopFsRelation":
        return str(relation.toString())
    paths = relation.location().rootPaths()
    places = sorted(shown(str(paths.apply(place).toString())) for place in range(paths.size()))
    # How files are read says what is in them: a header, a separator. Options may be secrets, so a hash of them.
    options = [each for each in _pairs(relation.options()) if not each.lower().startswith(("path=", "paths="))]
    read = f" {_digest(*options)}" if options else ""
    return f"{relation.fileFormat().toString()} {', '.join(places)}{read}"


def _pairs(options: Any) -> list[str]:
    """A map of the JVM's, in order."""
    found, pairs = [], options.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found.append(f"{pair._1()}={pair._2()}")
    return sorted(found)


def _digest(*parts: str) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()
