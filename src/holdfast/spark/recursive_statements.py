"""WITH RECURSIVE as Spark parses it, taken apart before it is analysed.

Spark's analyser takes one kind of recursion: ``anchor UNION ALL term``, where the term is linear in the recursive name.
All other kinds (UNION, several terms, definitions that refer to each other, aggregates over a recursive name) are
analysed piece by piece: each piece is an ordinary query, in which leaves stand for the recursive names. `_SOURCE` does
so in the driver's JVM, on Spark's parsed plan; the text of the query is never inspected.

A WITH clause can be anywhere in a statement: around it, in a subquery, in a definition of another WITH. Each clause has
a reference to the clause around it, whose names its pieces may use.

The file is long because the source of the Java class is in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from holdfast.plan.expression import quoted
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
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandExecutionMode;
import scala.jdk.javaapi.CollectionConverters;

public class Recursions {
  public Recursions() {}

  /* The parsed plan of a text; null if no WITH RECURSIVE is in it, or if it is a command. */
  public LogicalPlan parsed(String text, SparkSession session) throws Exception {
    scala.Option before = entered(session);
    LogicalPlan parsed;
    try {
      parsed = session.sessionState().sqlParser().parsePlan(text);
    } finally {
      left(before);
    }
    if (parsed instanceof Command || parsed instanceof ParsedStatement) return null;
    return recursive(parsed) ? parsed : null;
  }

  private static boolean recursive(LogicalPlan plan) {
    List clauses = outermost(plan);
    for (int place = 0; place < clauses.size(); place++) {
      UnresolvedWith with = (UnresolvedWith) clauses.get(place);
      if (with.allowRecursion() || recursive(with.child())) return true;
      for (int index = 0; index < with.cteRelations().size(); index++) {
        if (recursive((LogicalPlan) ((scala.Tuple3) with.cteRelations().apply(index))._2())) return true;
      }
    }
    return false;
  }

  /* The WITH clauses of a plan and of its subqueries that are inside no other. */
  public static List outermost(LogicalPlan plan) {
    List found = new ArrayList();
    collect(plan, found);
    return found;
  }

  private static void collect(LogicalPlan plan, List found) {
    if (plan instanceof UnresolvedWith) {
      found.add(plan);
      return;
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) collect((LogicalPlan) children.next(), found);
    scala.collection.Iterator queries = plan.subqueries().iterator();
    while (queries.hasNext()) collect((LogicalPlan) queries.next(), found);
  }

  /* The plan with another one in the place of one of its outermost WITH clauses. */
  public LogicalPlan replaced(LogicalPlan plan, LogicalPlan old, LogicalPlan other) {
    return (LogicalPlan) plan.transformDownWithSubqueries(new Replacing(old, other));
  }

  static class Replacing extends scala.runtime.AbstractPartialFunction {
    final Object old;
    final Object other;

    Replacing(Object old, Object other) {
      this.old = old;
      this.other = other;
    }

    public boolean isDefinedAt(Object any) { return any == old; }

    public Object applyOrElse(Object any, scala.Function1 otherwise) {
      return any == old ? other : otherwise.apply(any);
    }
  }

  public Clause clause(SparkSession session, LogicalPlan with, Clause around) {
    return new Clause(session, (UnresolvedWith) with, around);
  }

  public LogicalPlan analysed(SparkSession session, LogicalPlan plan) {
    scala.Option before = entered(session);
    try {
      return session.sessionState().executePlan(plan, CommandExecutionMode.SKIP()).analyzed();
    } finally {
      left(before);
    }
  }

  /* What a session says holds while a text is parsed, too: its time zone for literals, what + means, how to quote. */
  private static scala.Option entered(SparkSession session) {
    scala.Option before = SparkSession.getActiveSession();
    SparkSession.setActiveSession(session);
    return before;
  }

  private static void left(scala.Option before) {
    if (before.isDefined()) SparkSession.setActiveSession((SparkSession) before.get());
    else SparkSession.clearActiveSession();
  }

  public static class Clause {
    final SparkSession session;
    final UnresolvedWith with;
    final Clause around;
    final List known = new ArrayList();

    Clause(SparkSession session, UnresolvedWith with, Clause around) {
      this.session = session;
      this.with = with;
      this.around = around;
    }

    private scala.Tuple3 definition(int index) { return (scala.Tuple3) with.cteRelations().apply(index); }

    private SubqueryAlias alias(int index) { return (SubqueryAlias) definition(index)._2(); }

    private LogicalPlan inner(int index) {
      LogicalPlan child = alias(index).child();
      return child instanceof UnresolvedSubqueryColumnAliases
          ? ((UnresolvedSubqueryColumnAliases) child).child() : child;
    }

    /* The terms of a union. Those of a union behind a WITH have that clause each. */
    private static void flatten(LogicalPlan plan, List terms) {
      if (plan instanceof UnresolvedWith) {
        UnresolvedWith with = (UnresolvedWith) plan;
        List inside = new ArrayList();
        flatten(with.child(), inside);
        for (int place = 0; place < inside.size(); place++) {
          terms.add(new UnresolvedWith((LogicalPlan) inside.get(place), with.cteRelations(), with.allowRecursion()));
        }
        return;
      }
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

    /* The names that a plan takes from around it: those that a WITH inside of it defines are its own. */
    private static void mentions(LogicalPlan plan, Set names) {
      if (plan instanceof UnresolvedRelation) {
        scala.collection.Seq parts = ((UnresolvedRelation) plan).multipartIdentifier();
        if (parts.size() == 1) names.add(((String) parts.apply(0)).toLowerCase());
      }
      if (plan instanceof UnresolvedWith) {
        UnresolvedWith with = (UnresolvedWith) plan;
        Set own = new LinkedHashSet();
        Set all = new LinkedHashSet();
        int count = with.cteRelations().size();
        for (int index = 0; index < count; index++) {
          all.add(((String) ((scala.Tuple3) with.cteRelations().apply(index))._1()).toLowerCase());
        }
        for (int index = 0; index < count; index++) {
          scala.Tuple3 each = (scala.Tuple3) with.cteRelations().apply(index);
          Set inside = new LinkedHashSet();
          mentions((LogicalPlan) each._2(), inside);
          inside.removeAll(with.allowRecursion() ? all : own);
          names.addAll(inside);
          own.add(((String) each._1()).toLowerCase());
        }
        Set inside = new LinkedHashSet();
        mentions(with.child(), inside);
        inside.removeAll(all);
        names.addAll(inside);
        return;
      }
      scala.collection.Iterator children = plan.children().iterator();
      while (children.hasNext()) mentions((LogicalPlan) children.next(), names);
      scala.collection.Iterator queries = plan.subqueries().iterator();
      while (queries.hasNext()) mentions((LogicalPlan) queries.next(), names);
    }

    /* What is defined, in order: name, its place, kind of union, bound of levels, the names that each term mentions. */
    public String described() throws Exception {
      List all = new ArrayList();
      for (int index = 0; index < with.cteRelations().size(); index++) {
        Map one = new LinkedHashMap();
        scala.Option depth = (scala.Option) definition(index)._3();
        LogicalPlan inner = inner(index);
        scala.Option line = inner.origin().line();
        scala.Option position = inner.origin().startPosition();
        one.put("name", definition(index)._1());
        one.put("line", line.isDefined() ? line.get() : null);
        one.put("column", position.isDefined() ? position.get() : null);
        one.put("depth", depth.isDefined() ? depth.get() : null);
        one.put("inside", inner instanceof UnresolvedWith);
        while (inner instanceof UnresolvedWith) inner = ((UnresolvedWith) inner).child();
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

    public boolean isRecursive() { return with.allowRecursion(); }

    /* From now on a definition is known: as this plan, which is its text's or was made of it. */
    public void include(int index, LogicalPlan plan) {
      known.add(new scala.Tuple3(definition(index)._1(), plan, definition(index)._3()));
    }

    /* From now on a name stands for a plan. */
    public void bind(int index, LogicalPlan plan) {
      String name = (String) definition(index)._1();
      for (int place = known.size() - 1; place >= 0; place--) {
        if (((scala.Tuple3) known.get(place))._1().equals(name)) known.remove(place);
      }
      known.add(new scala.Tuple3(name, new SubqueryAlias(new AliasIdentifier(name), plan), scala.Option.apply(null)));
    }

    /* One term of a definition, under the names that the definition gives its columns. */
    public LogicalPlan term(int index, int place) { return named(index, (LogicalPlan) terms(index).get(place)); }

    public LogicalPlan body(int index) { return alias(index); }

    public LogicalPlan query() { return with.child(); }

    private LogicalPlan named(int index, LogicalPlan plan) {
      LogicalPlan child = alias(index).child();
      if (child instanceof UnresolvedSubqueryColumnAliases) {
        plan = new UnresolvedSubqueryColumnAliases(
            ((UnresolvedSubqueryColumnAliases) child).outputColumnNames(), plan);
      }
      return new SubqueryAlias(alias(index).identifier(), plan);
    }

    /* A query over the names that are known now. */
    public LogicalPlan over(LogicalPlan query) {
      scala.collection.immutable.Seq defined =
          ((scala.collection.mutable.Buffer) CollectionConverters.asScala(new ArrayList(known))).toSeq();
      return defined.isEmpty() ? query : new UnresolvedWith(query, defined, false);
    }

    /* A query over the names that are known now, also those of the clauses around this one. */
    public LogicalPlan within(LogicalPlan query) {
      LogicalPlan plan = over(query);
      return around == null ? plan : around.within(plan);
    }
  }
}
"""


@dataclass(frozen=True)
class Definition:
    """A definition of a WITH clause. ``line``, ``column``: where its query begins in the text. ``union``: ``all`` or
    ``distinct`` if the query is a union, else empty. ``has_own_with``: whether the query begins with a WITH of its own.
    ``depth``: the bound of levels in the text. ``terms``: for each term, the names that it mentions."""

    index: int
    name: str
    line: int | None
    column: int | None
    union: str
    has_own_with: bool
    depth: int | None
    terms: tuple[frozenset[str], ...]

    @property
    def mentions(self) -> frozenset[str]:
        return frozenset().union(*self.terms)


class WithClause:
    """A WITH clause. Its names become known one after the other, as they are included or bound."""

    def __init__(self, parsed: Any, around: WithClause | None) -> None:
        self.parsed, self._around = parsed, around
        self.is_recursive = bool(parsed.isRecursive())
        self.definitions = tuple(
            Definition(
                index,
                each["name"],
                each["line"],
                None if each["column"] is None else each["column"] + 1,
                each["union"],
                each["inside"],
                each["depth"],
                tuple(map(frozenset, each["terms"])),
            )
            for index, each in enumerate(json.loads(parsed.described()))
        )

    def knows_outside(self, name: str) -> bool:
        """Whether a clause around this one defines the name."""
        if self._around is None:
            return False
        return any(each.name.lower() == name for each in self._around.definitions) or self._around.knows_outside(name)

    def include(self, definition: Definition, plan: Any) -> None:
        """Make a definition known, as this parsed plan, to the pieces analysed later."""
        self.parsed.include(definition.index, plan)

    def bind(self, definition: Definition, plan: Any) -> None:
        """Let a definition's name stand for a plan of Spark's in the pieces analysed later."""
        self.parsed.bind(definition.index, plan)

    def term(self, definition: Definition, place: int) -> Any:
        """The parsed plan of a term, with the definition's column names."""
        return self.parsed.term(definition.index, place)

    def body(self, definition: Definition) -> Any:
        """The parsed plan of a definition."""
        return self.parsed.body(definition.index)

    def query(self) -> Any:
        """The parsed plan of the query after the definitions."""
        return self.parsed.query()

    def over(self, query: Any) -> Any:
        """The query with a WITH clause around it that defines the names known so far."""
        return self.parsed.over(query)


class RecursiveStatement:
    """A parsed statement that has a WITH RECURSIVE somewhere."""

    def __init__(self, jvm: Any, reading: Any, plan: Any) -> None:
        self._jvm, self._reading, self.plan = jvm, reading, plan
        self.is_clause = plan.nodeName() == "UnresolvedWith"
        """Whether the whole statement is one WITH clause and its query."""

    def has_table(self, name: str) -> bool:
        """Whether the catalog has a table or view of that name: a collection of the flow, or one of the user's."""
        return bool(self._reading.catalog().tableExists(quoted(name)))

    def clauses(self, plan: Any) -> Iterator[Any]:
        """Yield the outermost WITH clauses of a parsed plan."""
        found = self._jvm.outermost(plan)
        return (found.get(place) for place in range(found.size()))

    def clause(self, parsed: Any, around: WithClause | None) -> WithClause:
        """Wrap a parsed clause. ``around``: the clause around it, whose names it may use, too."""
        return WithClause(self._jvm.clause(self._reading, parsed, None if around is None else around.parsed), around)

    def replaced(self, plan: Any, old: Any, other: Any) -> Any:
        """Return the plan with the clause ``old`` replaced by ``other``."""
        return self._jvm.replaced(plan, old, other)

    def analysed(self, plan: Any, around: WithClause | None) -> Any:
        """Return Spark's analysis of a parsed plan, which may use the names of a clause and of the clauses around
        it."""
        return self._jvm.analysed(self._reading, plan if around is None else around.parsed.within(plan))


def recursive_statement(session: SparkSession, text: str, reading: Any) -> RecursiveStatement | None:
    """Parse a text in the JVM's session ``reading``. Return the statement if it has a WITH RECURSIVE anywhere, else
    None."""
    jvm = compiled(session, _CLASS, _SOURCE)
    parsed = jvm.parsed(text, reading)
    return None if parsed is None else RecursiveStatement(jvm, reading, parsed)
