"""A collection of a flow as a Spark table: each query over it reads the collection as it is when Spark plans the query.

Spark asks a table for its rows on the driver, whenever it plans a query (`V1Scan.toV1TableScan`). The answer is an RDD
that Python makes then, of the layers as of one epoch. A plan keeps its RDD: adaptive execution, which plans again, gets
the same one. The next query has a new plan. All tables of one query must be read as of the same epoch. Spark optimises
each query under a tracker of its own, so requests under the same tracker belong to the same query and get the same
query number.

`_SOURCE` is compiled by the compiler that Spark has for its own generated code. It runs in the driver's JVM only. It is
Java because Spark calls these classes while it plans, and py4j can implement interfaces but not classes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from py4j.clientserver import ClientServer
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from holdfast.plan.nodes import Field
from holdfast.plan.types import type_text
from holdfast.runtime.turns import acting_for
from holdfast.spark.jvm import compiled, jvm_class
from holdfast.spark.schemas import ddl

_CLASS = "holdfast.Leaf"
_SOURCE = """
package holdfast;

import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.V1Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class Leaf implements Table, SupportsRead {
  private static final Map QUERIES = new WeakHashMap();
  private static long next = 0;

  final String name;
  final StructType schema;
  final scala.Function4 read;

  public Leaf() { this(null, null, null); }

  private Leaf(String name, StructType schema, scala.Function4 read) {
    this.name = name;
    this.schema = schema;
    this.read = read;
  }

  public Leaf reading(scala.Function4 read) { return new Leaf(null, null, read); }

  public LogicalPlan plan(String name, String columns, String prefix) {
    scala.Option nothing = scala.Option.apply(null);
    Leaf leaf = new Leaf(name, StructType.fromDDL(columns), read);
    LogicalPlan plan = DataSourceV2Relation$.MODULE$.create(leaf, nothing, nothing);
    plan = new SubqueryAlias(new AliasIdentifier(prefix + name), plan);
    return new SubqueryAlias(new AliasIdentifier(name), plan);
  }

  public String name() { return name; }
  public StructType schema() { return schema; }
  public Set capabilities() { return Collections.singleton(TableCapability.BATCH_READ); }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    scala.Option tracker = QueryPlanningTracker.get();
    Object query = tracker.isEmpty() ? new Object() : tracker.get();
    synchronized (QUERIES) {
      if (!QUERIES.containsKey(query)) QUERIES.put(query, Long.valueOf(next++));
      return new Scanning(this, (Long) QUERIES.get(query));
    }
  }

  static class Scanning implements ScanBuilder, SupportsPushDownRequiredColumns, V1Scan {
    final Leaf leaf;
    final Long query;
    StructType wanted;
    RDD rows;

    Scanning(Leaf leaf, Long query) {
      this.leaf = leaf;
      this.query = query;
      this.wanted = leaf.schema;
    }

    public void pruneColumns(StructType required) { wanted = required; }
    public Scan build() { return this; }
    public StructType readSchema() { return wanted; }
    public BaseRelation toV1TableScan(SQLContext context) { return new Rows(this, context); }

    synchronized RDD rows() {
      if (rows == null) {
        Long thread = Long.valueOf(Thread.currentThread().getId());
        rows = (RDD) leaf.read.apply(leaf.name, wanted.json(), query, thread);
      }
      return rows;
    }
  }

  static class Rows extends BaseRelation implements TableScan {
    final Scanning scan;
    final SQLContext context;

    Rows(Scanning scan, SQLContext context) {
      this.scan = scan;
      this.context = context;
    }

    public SQLContext sqlContext() { return context; }
    public StructType schema() { return scan.wanted; }
    public boolean needConversion() { return false; }
    public String toString() { return scan.leaf.name; }
    public RDD buildScan() { return scan.rows(); }
  }
}
"""

Read = Callable[[str, Sequence[Field], int], DataFrame]
"""Read a collection: (its name, the wanted columns with their types, the number of the query) → its rows."""


class FlowLeaves:
    """The collections of a flow, as leaves of Spark's plans."""

    def __init__(self, session: SparkSession, read: Read) -> None:
        self.session, self._read = session, read
        ensure_callback_server_started(session.sparkContext._gateway)
        self.first: Any = leaf(session).reading(_Reading(self))
        """A leaf without a collection, from which the others are made."""

        pinned = isinstance(session.sparkContext._gateway, ClientServer)
        self._threads: Any = jvm_class(session, "java.lang.Thread") if pinned else None
        self._callers: dict[int, int] = {}
        """JVM thread → the Python thread for which it works."""

        self._failed: dict[int, BaseException] = {}
        """Python thread → the error that its read met."""

    def plan(self, name: str, fields: Sequence[Field], prefix: str) -> Any:
        """Return Spark's plan of the collection, aliased to its name; below that alias is another, ``prefix`` +
        name."""
        return self.first.plan(name, ddl(fields), prefix)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the JVM that may read collections. An error that Python met while reading is raised
        unchanged."""
        me = threading.get_ident()
        thread = self._own_thread()
        if thread is not None:
            self._callers[thread] = me
        try:
            return function(*arguments)
        except Exception:
            failure = self._failed.pop(me, None)
            if failure is None:
                raise
            raise failure from None
        finally:
            if thread is not None:
                self._callers.pop(thread, None)

    def _own_thread(self) -> int | None:
        """Return the JVM thread that serves this Python thread; None if there is no fixed one."""
        return int(self._threads.currentThread().getId()) if self._threads is not None else None

    def rows(self, name: str, schema: str, query: int, thread: int) -> Any:
        """Called by Spark. Return the rows as an RDD of Spark's internal rows."""
        wanted = StructType.fromJson(json.loads(schema))
        caller = self._callers.get(thread, threading.get_ident())
        try:
            fields = [Field(field.name, type_text(field.dataType)) for field in wanted.fields]
            with acting_for(caller):
                frame: Any = self._read(name, fields, query)
                return frame._jdf.queryExecution().toRdd()
        except BaseException as error:
            if thread in self._callers:
                self._failed[caller] = error
            raise


class _Reading:
    """A Scala function of (name, schema, query, thread) that returns an RDD."""

    def __init__(self, leaves: FlowLeaves) -> None:
        self._leaves = leaves

    def apply(self, name: str, schema: str, query: int, thread: int) -> Any:
        return self._leaves.rows(name, schema, query, thread)

    def toString(self) -> str:
        return "holdfast"

    class Java:
        implements = ("scala.Function4",)


def leaf(session: SparkSession) -> Any:
    """The compiled leaf class, without a flow or a collection."""
    return compiled(session, _CLASS, _SOURCE)
