"""Statements, read by Spark in one call: in a copy of the user's session, where the flow's names hide all others.

To read a statement takes some ninety calls of the JVM, and py4j needs more time for most of them than the JVM does. So
`_SOURCE`, which is compiled in the driver's JVM (`spark.jvm`), makes all of them there. `Statements` reads a text and
returns an `Analysis`, which says at once what the conversion asks of every plan.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from holdfast.spark.flow_leaves import FlowLeaves, leaf
from holdfast.spark.jvm import compiled, jvm_class

_CLASS = "holdfast.Statements"
_SOURCE = """
package holdfast;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.Deflater;
import java.util.zip.DeflaterOutputStream;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation;
import org.apache.spark.sql.catalyst.optimizer.PullOutGroupingExpressions$;
import org.apache.spark.sql.catalyst.optimizer.PullupCorrelatedPredicates$;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.command.ViewHelper$;
import org.apache.spark.sql.types.DataType;

public class Statements {
  final SparkSession user;
  final SparkSession own;
  final Properties settings;
  final Leaf leaf;
  final String prefix;
  final Map relations = new ConcurrentHashMap();

  public Statements() { this(null, null, null, null, null); }

  private Statements(SparkSession user, SparkSession own, Properties settings, Leaf leaf, String prefix) {
    this.user = user;
    this.own = own;
    this.settings = settings;
    this.leaf = leaf;
    this.prefix = prefix;
  }

  public Statements of(SparkSession user, SparkSession own, Properties settings, Leaf leaf, String prefix) {
    return new Statements(user, own, settings, leaf, prefix);
  }

  /* A copy of the user's session. ``names``: a list in JSON of collections, each with its columns as DDL. */
  public SparkSession session(String names) throws Exception {
    SparkSession copy = user.cloneSession();
    CatalogManager mine = copy.sessionState().catalogManager();
    // Of all that a session has, Spark does not copy its variables.
    Field variables = mine.getClass().getDeclaredField("tempVariableManager");
    variables.setAccessible(true);
    variables.set(mine, user.sessionState().catalogManager().tempVariableManager());
    copy.sessionState().conf().setConf(settings);
    SessionCatalog catalog = copy.sessionState().catalog();
    String[] parts = (String[]) new ObjectMapper().readValue(names, String[].class);
    for (int place = 0; place < parts.length; place += 2) {
      catalog.createTempView(parts[place], relation(parts[place], parts[place + 1]), true);
    }
    return copy;
  }

  private TemporaryViewRelation relation(String name, String ddl) {
    Object[] known = (Object[]) relations.get(name);
    if (known == null || !known[0].equals(ddl)) {
      LogicalPlan plan = analysed(own, leaf.plan(name, ddl, prefix));
      scala.Option nothing = scala.Option.apply(null);
      known = new Object[] {ddl, ViewHelper$.MODULE$.createTemporaryViewRelation(
          new TableIdentifier(name), own, false, new None(), nothing, plan, plan,
          (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$, nothing)};
      relations.put(name, known);
    }
    return (TemporaryViewRelation) known[1];
  }

  public Analysis read(String text, String names) throws Exception { return read(text, session(names)); }

  /* The plan of a text, in a session; while it is parsed, what that session says holds. */
  public Analysis read(String text, SparkSession session) throws Exception {
    scala.Option before = SparkSession.getActiveSession();
    SparkSession.setActiveSession(session);
    try {
      LogicalPlan parsed = session.sessionState().sqlParser().parsePlan(text);
      // A command is refused as one, before Spark has its say about what it would do.
      if (isCommand(parsed)) return new Analysis(parsed, parsed.nodeName());
      // Analysing does not execute: some commands are found only here.
      LogicalPlan plan = analysed(session, parsed);
      return new Analysis(plan, isCommand(plan) ? parsed.nodeName() : "");
    } finally {
      if (before.isDefined()) SparkSession.setActiveSession((SparkSession) before.get());
      else SparkSession.clearActiveSession();
    }
  }

  public Analysis taken(LogicalPlan plan) { return new Analysis(plan, ""); }

  private static LogicalPlan analysed(SparkSession session, LogicalPlan plan) {
    return session.sessionState().executePlan(plan, CommandExecutionMode.SKIP()).analyzed();
  }

  private static boolean isCommand(LogicalPlan plan) {
    return plan instanceof Command || plan instanceof ParsedStatement;
  }

  static class None extends scala.runtime.AbstractFunction1 {
    public Object apply(Object any) { return scala.Option.apply(null); }
  }

  public static class Analysis {
    final LogicalPlan plan;
    final String command;
    Project root;

    Analysis(LogicalPlan plan, String command) {
      this.plan = plan;
      this.command = command;
    }

    public LogicalPlan plan() { return plan; }
    public Project root() { return root; }
    public String command() { return command; }

    /* Whether the plan needs no other of Spark's rules than those of `pulledOut`. */
    public boolean isPlain() {
      return !plan.containsPattern(TreePattern.LATERAL_JOIN()) && !plan.containsPattern(TreePattern.PLAN_EXPRESSION());
    }

    /* The columns, and what `told` says of a plan that is plain. Of another one, `finished` says it. */
    public byte[] described() throws Exception {
      String told = isPlain() ? told(pulledOut(plan)) : "null";
      return packed("{\\"schema\\": " + plan.schema().json() + ", \\"told\\": " + told + "}");
    }

    private static LogicalPlan pulledOut(LogicalPlan plan) {
      LogicalPlan pulled = (LogicalPlan) PullOutGroupingExpressions$.MODULE$.apply(plan);
      return (LogicalPlan) PullupCorrelatedPredicates$.MODULE$.apply(pulled);
    }

    /* ``changed``: the plan, without laterals and correlated subqueries. */
    public byte[] finished(LogicalPlan changed) throws Exception { return packed(told(changed)); }

    private String told(LogicalPlan changed) {
      // The outputs, by name and id, are the columns of the view.
      root = new Project((scala.collection.immutable.Seq) changed.output(), changed);
      return "{\\"ansi\\": " + isAnsi(root) + ", \\"plan\\": " + root.toJSON() + "}";
    }

    /* What py4j sends in more than one piece (8 kB) takes 40 ms on its way: a piece waits for the one before it to be
       acknowledged, and whoever gets that takes its time. */
    private static byte[] packed(String text) throws Exception {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      Deflater fast = new Deflater(Deflater.BEST_SPEED);
      DeflaterOutputStream out = new DeflaterOutputStream(bytes, fast);
      out.write(text.getBytes("UTF-8"));
      out.close();
      fast.end();
      return bytes.toByteArray();
    }

    /* What is at a path below a tree: indices of children, names of parameters, indices in lists. */
    public Object at(Object above, String path) throws Exception {
      String[] steps = path.split("/");
      for (int place = 0; place < steps.length; place++) {
        String step = steps[place];
        boolean child = false;
        if (Character.isDigit(step.charAt(0))) {
          child = above instanceof TreeNode;
          scala.collection.Seq some =
              (scala.collection.Seq) (child ? (Object) ((TreeNode) above).children() : above);
          above = some.apply(Integer.parseInt(step));
        } else {
          try {
            above = above.getClass().getMethod(step, new Class[0]).invoke(above, new Object[0]);
          } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof Exception) throw (Exception) failure.getCause();
            throw failure;
          }
        }
        if (!child && above instanceof scala.Some) above = ((scala.Some) above).get();
      }
      return above;
    }

    public String textAt(String path) throws Exception { return String.valueOf(at(root, path)); }

    /* Whether all that can fail in a tree is ANSI's; false if that is not certain. */
    private static boolean isAnsi(Object any) {
      if (any instanceof scala.Enumeration.Value) {
        String name = any.toString();
        return !name.equals("TRY") && !name.equals("LEGACY");
      }
      if (any instanceof DataType) return true;
      scala.collection.Iterator within = null;
      if (any instanceof scala.collection.Iterable) within = ((scala.collection.Iterable) any).iterator();
      else if (any instanceof scala.Product) within = ((scala.Product) any).productIterator();
      while (within != null && within.hasNext()) {
        if (!isAnsi(within.next())) return false;
      }
      return true;
    }
  }
}
"""


def statements(
    session: SparkSession, own: SparkSession, meaning: Mapping[str, str], leaves: FlowLeaves, prefix: str
) -> Any:
    """Return the `Statements` that reads texts in copies of ``session``. ``own``: a session in which Spark makes
    relations. ``meaning``: settings that override the user's session. ``prefix``: the beginning of a leaf's alias."""
    settings: Any = jvm_class(session, "java.util.Properties")()
    for setting, value in meaning.items():
        settings.setProperty(setting, value)
    user, mine = (each._jsparkSession for each in (session, own))
    return _none(session).of(user, mine, settings, leaves.first, prefix)


def analysis(session: SparkSession, plan: Any) -> Any:
    """The `Analysis` of a plan that Spark has analysed."""
    return _none(session).taken(plan)


def _none(session: SparkSession) -> Any:
    """The compiled `Statements` without a session, from which others are made."""
    return compiled(session, _CLASS, _SOURCE, leaf(session))


def text_of(names: Mapping[str, str]) -> str:
    """Return collections with their columns as DDL as one JSON text: for a list, py4j would make a call per item."""
    return json.dumps([part for pair in names.items() for part in pair])


def unpacked(packed: bytes) -> str:
    """Unpack the bytes of an `Analysis` into JSON."""
    return zlib.decompress(packed).decode()
