"""Static tables: tables and DataFrames that are not the flow's, taken as sources whose rows never change.

Each leaf of a plan that is not a collection of the flow becomes a source whose name identifies it, so that the next
process finds it again: a table by its own name, files by their path, rows that are in the plan or in this process
(VALUES, ``createDataFrame``) by a hash of their content.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.connectors.table import Table
from holdfast.errors import Unsupported
from holdfast.frontend.column_names import unique
from holdfast.plan.schema import RESERVED
from holdfast.plan.types import doubled_field
from holdfast.reporting.redaction import shown, without_credentials
from holdfast.spark.replanned_frames import dataset
from holdfast.trace.hashing import hash_columns
from holdfast.trace.physical import Words

PREFIX = "static "
"""Prefix of the names of static tables."""


def static(session: SparkSession, leaf: Any, view: str) -> tuple[str, Table]:
    """Return (name, source) for a leaf of an analysed plan. ``view``: the user's temporary view that contains it, if
    any."""
    kind = leaf.getClass().getSimpleName().rstrip("$")
    frame = _frame(session, leaf) if kind != "OneRowRelation" else session.range(1).selectExpr("true AS `row`")
    table = Table(frame)  # before hashing: it refuses types that cannot be kept, which cannot be hashed either
    for field in table.fields:
        if (name := doubled_field(field.type)) is not None:
            construct = f"a struct with two fields called {name!r}"
            raise Unsupported(f"{construct} is not supported: name one of them with AS", construct=construct)
    return PREFIX + _name(session, kind, leaf, frame, view), table


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
    """Return a hash of the rows of a LocalRelation, in their order.

    The hash is of Arrow's values, because Python shows a timestamp in the time zone of its process, and has no year
    10000.
    """
    own: Any = frame  # toArrow refuses a variant that is NULL
    found = blake2b(digest_size=16)
    for batch in own._collect_as_arrow():
        found.update(_hashes(batch).tobytes())
    return found.hexdigest()


def _sum(frame: DataFrame) -> str:
    """Return a hash of the rows that does not depend on their order or place."""
    found = frame.mapInArrow(_sums, "count bigint, sum bigint").collect()
    count, total = sum(row[0] for row in found), sum(row[1] for row in found)
    return f"{count} {total % 2**64:016x}"


def _sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        total = np.add.reduce(_hashes(batch), dtype=np.uint64).view(np.int64)
        yield pa.record_batch([pa.array([batch.num_rows]), pa.array([int(total)], pa.int64())], ["count", "sum"])


def _hashes(batch: pa.RecordBatch) -> Words:
    """Return one hash per row; floats are hashed by their bits."""
    return hash_columns(batch.columns, normalise=False, rows=batch.num_rows)


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
    # Reader options (a header, a separator) change the rows. Only their hash is in the name: an option may hold a
    # secret.
    options = [each for each in _pairs(relation.options()) if not each.lower().startswith(("path=", "paths="))]
    read = f" {_digest(*options)}" if options else ""
    return f"{relation.fileFormat().toString()} {', '.join(places)}{read}"


def _pairs(options: Any) -> list[str]:
    """Return a reader's options, from a JVM map, sorted. Credentials are left out: they do not change the rows, and not
    even a hash of one may be in a log."""
    found, pairs = {}, options.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return sorted(f"{name}={value}" for name, value in without_credentials(found).items())


def _digest(*parts: str) -> str:
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()
