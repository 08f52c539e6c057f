"""WITH RECURSIVE as Spark parses it, taken apart before it is analysed.

Spark's analyser takes one kind of recursion: ``anchor UNION ALL term``, the term linear in what it defines. For all
other kinds (UNION, several terms, definitions that refer to each other, aggregates over what is defined) the parsed
statement is analysed piece by piece: each piece an ordinary query, over leaves that stand for the recursive names.
`_SOURCE` does so in the driver's JVM; nothing looks at the text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from holdfast.spark.jvm import compiled

_CLASS = "holdfast.Recursions"
_SOURCE = """
package holdfast;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedSubqueryColumnAliases;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandExecutionMode;
import scala.jdk.javaapi.CollectionConverters;

public class Recursions {
  public Recursions() {}

  /* A statement that begins with WITH RECURSIVE; null if it is another one. */
  public Recursive of(String text, SparkSession session) throws Exception {
    LogicalPlan parsed = session.sessionState().sqlParser().parsePlan(text);
    if (!(parsed instanceof UnresolvedWith)) return null;
    UnresolvedWith with = (UnresolvedWith) parsed;
    return with.allowRecursion() ? new Recursive(session, with) : null;
  }

  public static class Recursive {
    final SparkSession session;
    final UnresolvedWith with;
    final List known = new ArrayList();

    Recursive(SparkSession session, UnresolvedWith with) {
      this.session = session;
      this.with = with;
    }

    private scala.Tuple3 definition(int index) { return (scala.Tuple3) with.cteRelations().apply(index); }

    private SubqueryAlias alias(int index) { return (SubqueryAlias) definition(index)._2(); }

    private LogicalPlan inner(int index) {
      LogicalPlan child = alias(index).child();
      return child instanceof UnresolvedSubqueryColumnAliases
          ? ((UnresolvedSubqueryColumnAliases) child).child() : child;
    }

    private static void flatten(LogicalPlan plan, List terms) {
      LogicalPlan below = plan instanceof Distinct ? ((Distinct) plan).child() : plan;
      if (below instanceof Union) {
        scala.collection.Iterator children = ((Union) below).children().iterator();
        while (children.hasNext()) flatten((LogicalPlan) children.next(), terms);
      } else {
        terms.add(plan);
      }
    }

    private List terms(int index) {
      List terms = new ArrayList();
      flatten(inner(index), terms);
      return terms;
    }

    private static void mentions(LogicalPlan plan, Set names) {
      if (plan instanceof UnresolvedRelation) {
        scala.collection.Seq parts = ((UnresolvedRelation) plan).multipartIdentifier();
        if (parts.size() == 1) names.add(((String) parts.apply(0)).toLowerCase());
      }
      if (plan instanceof UnresolvedWith) {
        scala.collection.Iterator defined = ((UnresolvedWith) plan).cteRelations().iterator();
        while (defined.hasNext()) mentions((LogicalPlan) ((scala.Tuple3) defined.next())._2(), names);
      }
      scala.collection.Iterator children = plan.children().iterator();
      while (children.hasNext()) mentions((LogicalPlan) children.next(), names);
      scala.collection.Iterator queries = plan.subqueries().iterator();
      while (queries.hasNext()) mentions((LogicalPlan) queries.next(), names);
    }

    /* What is defined, in order: name, kind of union, bound of levels, and the names that each term mentions. */
    public String described() throws Exception {
      List all = new ArrayList();
      for (int index = 0; index < with.cteRelations().size(); index++) {
        Map one = new LinkedHashMap();
        scala.Option depth = (scala.Option) definition(index)._3();
        LogicalPlan inner = inner(index);
        one.put("name", definition(index)._1());
        one.put("depth", depth.isDefined() ? depth.get() : null);
        one.put("union", inner instanceof Union ? "all" : inner instanceof Distinct ? "distinct" : "");
        List terms = new ArrayList();
        List plans = terms(index);
        for (int place = 0; place < plans.size(); place++) {
          Set names = new LinkedHashSet();
          mentions((LogicalPlan) plans.get(place), names);
          terms.add(names);
        }
        one.put("terms", terms);
        all.add(one);
      }
      return new ObjectMapper().writeValueAsString(all);
    }

    /* From now on a definition is known, as it is. */
    public void include(int index) { known.add(definition(index)); }

    /* From now on a name stands for a plan. */
    public void bind(int index, LogicalPlan plan) {
      String name = (String) definition(index)._1();
      for (int place = known.size() - 1; place >= 0; place--) {
        if (((scala.Tuple3) known.get(place))._1().equals(name)) known.remove(place);
      }
      known.add(new scala.Tuple3(name, new SubqueryAlias(new AliasIdentifier(name), plan), scala.Option.apply(null)));
    }

    /* The analysed plan of one term of a definition, under the names that the definition gives its columns. */
    public LogicalPlan term(int index, int place) throws Exception {
      return analysed(named(index, (LogicalPlan) terms(index).get(place)));
    }

    public LogicalPlan body(int index) throws Exception { return analysed(alias(index)); }

    public LogicalPlan query() throws Exception { return analysed(with.child()); }

    private LogicalPlan named(int index, LogicalPlan plan) {
      LogicalPlan child = alias(index).child();
      if (child instanceof UnresolvedSubqueryColumnAliases) {
        plan = new UnresolvedSubqueryColumnAliases(
            ((UnresolvedSubqueryColumnAliases) child).outputColumnNames(), plan);
      }
      return new SubqueryAlias(alias(index).identifier(), plan);
    }

    private LogicalPlan analysed(LogicalPlan plan) throws Exception {
      scala.collection.immutable.Seq defined =
          ((scala.collection.mutable.Buffer) CollectionConverters.asScala(new ArrayList(known))).toSeq();
      if (!defined.isEmpty()) plan = new UnresolvedWith(plan, defined, false);
      scala.Option before = SparkSession.getActiveSession();
      SparkSession.setActiveSession(session);
      try {
        return session.sessionState().executePlan(plan, CommandExecutionMode.SKIP()).analyzed();
      } finally {
        if (before.isDefined()) SparkSession.setActiveSession((SparkSession) before.get());
        else SparkSession.clearActiveSession();
      }
    }
  }
}
"""


@dataclass(frozen=True)
class Definition:
    """A definition of a WITH RECURSIVE: what it is called, ``all`` or ``distinct`` if it is a union, the bound of
    levels that its text says, and for each term the names that it mentions."""

    index: int
    name: str
    union: str
    depth: int | None
    terms: tuple[frozenset[str], ...]

    @property
    def mentions(self) -> frozenset[str]:
        return frozenset().union(*self.terms)


class RecursiveStatement:
    """A statement that begins with WITH RECURSIVE, whose names become known one after the other."""

    def __init__(self, parsed: Any) -> None:
        self._parsed = parsed
        self.definitions = tuple(
            Definition(index, each["name"], each["union"], each["depth"], tuple(map(frozenset, each["terms"])))
            for index, each in enumerate(json.loads(parsed.described()))
        )

    def include(self, definition: Definition) -> None:
        """From now on a definition is known, as it is."""
        self._parsed.include(definition.index)

    def bind(self, definition: Definition, plan: Any) -> None:
        """From now on its name stands for a plan of Spark's."""
        self._parsed.bind(definition.index, plan)

    def term(self, definition: Definition, place: int) -> Any:
        """The analysed plan of a term, with the definition's columns."""
        return self._parsed.term(definition.index, place)

    def body(self, definition: Definition) -> Any:
        """The analysed plan of a definition."""
        return self._parsed.body(definition.index)

    def query(self) -> Any:
        """The analysed plan of the query behind the definitions."""
        return self._parsed.query()


def recursive_statement(session: SparkSession, text: str, reading: Any) -> RecursiveStatement | None:
    """The statement, if it begins with WITH RECURSIVE; it is read by the JVM's session ``reading``."""
    parsed = compiled(session, _CLASS, _SOURCE).of(text, reading)
    return None if parsed is None else RecursiveStatement(parsed)
