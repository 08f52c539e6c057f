"""A view's SQL to a plan.

Each query is planned inside out: WITH and FROM give relations, the conditions join and filter them, GROUP BY and the
aggregates make an `Aggregate`, the select list is a `Linear`, DISTINCT an `Aggregate` without calls, and LIMIT a
`TopK`. A table is the node the catalog holds for it, so views on views share their nodes. The plan is simple rather
than good: `plan.rewrites` makes it good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import linear
from holdfast.frontend.draws import check_timeless
from holdfast.frontend.joins import join_all, qualified
from holdfast.frontend.names import Relation, Scope, look_up, unknown_column, unknown_table
from holdfast.frontend.place import Text
from holdfast.frontend.refuse import check_clauses, check_statement
from holdfast.frontend.resolve import resolve
from holdfast.frontend.select import check_reserved, finish_select, limited
from holdfast.frontend.windows import with_windows
from holdfast.plan.expression import Tree, column, conjunction, conjuncts
from holdfast.plan.nodes import Aggregate, Node, Outside, Union


def plan_sql(name: str, sql: str, catalog: Mapping[str, Node], functions: Mapping[str, Outside] | None = None) -> Node:
    """The plan of view ``name``; ``catalog`` holds the plans of the sources and views it may read, ``functions`` the
    user's functions it may call, by lower-case name."""
    text = Text(sql, f"view {name!r}", name, functions=functions)
    try:
        statement = text.parse()
        check_statement(statement, text)
        node = Planner(text, catalog).query(statement)
    except RecursionError:
        raise text.error(SqlError, "the statement is nested too deeply") from None
    check_reserved(node.columns, text)
    return node


class Planner:
    """Plans queries whose tables are in ``tables`` (the catalog, shadowed by the CTEs in reach)."""

    def __init__(self, text: Text, tables: Mapping[str, Node]) -> None:
        self.text, self.tables = text, tables
        self._found = {name.lower(): node for name, node in tables.items()}

    def query(self, query: Tree, names: Sequence[str] | None = None) -> Node:
        """The plan of a SELECT, a UNION, or one of these in parentheses.

        ``names``: what the columns are called from outside (the second half of a UNION, a table alias with columns).
        Then the query's own names need not differ.
        """
        with_ = query.args.get("with_")
        if with_ is not None:
            return self._with(with_, query, names)
        check_clauses(query, self.text)
        match query:
            case exp.Select():
                return self._select(query, names)
            case exp.Union():
                return self._union(query, names)
            case exp.Subquery() if isinstance(query.this, exp.Query):
                return limited(self.query(query.this, names), query, self.text)
            case exp.SetOperation():
                written = {token.text.upper() for token in self.text.tokens}
                keyword = next((word for word in ("INTERSECT", "EXCEPT", "MINUS") if word in written), None)
                raise self.text.unsupported(query.key.upper(), query, keyword=keyword, after=True)
        raise self.text.unsupported(query.key.upper(), query)

    def _with(self, with_: Tree, query: Tree, names: Sequence[str] | None) -> Node:
        if with_.args.get("recursive"):
            raise self.text.unsupported("WITH RECURSIVE", with_, keyword="RECURSIVE")
        planner = self
        defined: set[str] = set()
        for cte in with_.expressions:
            if not isinstance(cte.this, exp.Query):
                raise self.text.unsupported("a CTE that is not a query", cte)
            name = cte.alias
            if name.lower() in defined:
                raise self.text.error(SqlError, f"WITH defines {name!r} twice", cte, name=name)
            defined.add(name.lower())
            given = _column_names(cte)
            node = planner.query(cte.this, given)
            if given is not None:
                node = self._renamed(node, given, cte)
            planner = Planner(self.text, {**_without(planner.tables, name), name: node})
        body = query.copy()
        body.set("with_", None)
        return planner.query(body, names)

    def _renamed(self, node: Node, names: Sequence[str], tree: Tree) -> Node:
        self._check_count(len(names), len(node.columns), tree)
        return linear(node, None, [(new, column(old)) for new, old in zip(names, node.columns, strict=True)])

    def _check_count(self, names: int, columns: int, tree: Tree) -> None:
        if names != columns:
            message = f"{names} column names are given for {columns} columns"
            raise self.text.error(SqlError, message, tree, expected=columns, found=names)

    def _union(self, query: exp.Union, names: Sequence[str] | None) -> Node:
        if query.args.get("by_name") or query.args.get("side") or query.args.get("kind"):
            raise self.text.unsupported("UNION BY NAME", query, keyword="NAME", after=True)
        left = self.query(query.this, names)
        right = self.query(query.expression, left.columns)
        if len(left.columns) != len(right.columns):
            message = (
                f"UNION of {len(left.columns)} columns ({', '.join(left.columns)}) "
                f"with {len(right.columns)} ({', '.join(right.columns)})"
            )
            raise self.text.error(SqlError, message, query.expression)
        # a UNION ALL b UNION ALL c is one node
        inputs = left.inputs if isinstance(left, Union) and isinstance(query.this, exp.Union) else (left,)
        node: Node = Union((*inputs, right))
        if query.args.get("distinct"):
            node = Aggregate(node, node.columns, ())
        return limited(node, query, self.text)

    def _select(self, select: exp.Select, names: Sequence[str] | None) -> Node:
        select = with_windows(select, self.text)
        scope, node, conditions = self._from(select)
        where = select.args.get("where")
        if where is not None:
            tree = resolve(where.this, scope, self.text, aggregates="WHERE", windows="WHERE")
            check_timeless(tree, "WHERE", self.text)
            conditions += conjuncts(tree)
        # sqlglot reads a JOIN without ON as one ON TRUE
        conditions = [each for each in conditions if not (isinstance(each, exp.Boolean) and each.this)]
        if len(scope.relations) > 1:
            places = [select.args["from_"].this, *(join.this for join in select.args["joins"])]
            node, conditions = join_all(scope.relations, places, conditions, self.text)
        return finish_select(select, scope, node, conjunction(conditions), self.text, names)

    def _from(self, select: exp.Select) -> tuple[Scope, Node, list[Tree]]:
        """The scope of a SELECT, its first relation's node, and the conditions of its joins."""
        from_ = select.args.get("from_")
        if from_ is None:
            advice = "a view needs an input that can change"
            raise self.text.unsupported("SELECT without FROM", select, advice, "SELECT")
        joins: list[exp.Join] = select.args.get("joins") or []
        relations = [self._relation(from_.this)]
        if not joins:
            return Scope(tuple(relations), {}), relations[0].node, []
        relations = [qualified(relations[0], ())]
        merged: dict[str, str] = {}
        conditions: list[Tree] = []
        for join in joins:
            self._check_join(join)
            relation = self._relation(join.this)
            if relation.alias and any(relation.alias.lower() == other.alias.lower() for other in relations):
                message = f"table {relation.alias!r} appears twice in FROM; give each its own alias"
                raise self.text.error(SqlError, message, join.this, name=relation.alias)
            relation = qualified(relation, [name for other in relations for name in other.internal])
            before, relations = Scope(tuple(relations), merged), [*relations, relation]
            using = [each for each in join.args.get("using") or ()]
            for key in using:
                condition, merge = self._using(key, before, relation)
                conditions.append(condition)
                merged = {**merged, **merge}
            if (on := join.args.get("on")) is not None:
                tree = resolve(on, Scope(tuple(relations), merged), self.text, aggregates="ON", windows="ON")
                check_timeless(tree, "ON", self.text)
                conditions += conjuncts(tree)
        return Scope(tuple(relations), merged), relations[0].node, conditions

    def _using(self, key: Tree, before: Scope, relation: Relation) -> tuple[Tree, dict[str, str]]:
        """The condition of one USING column, and which column it hides."""
        sides = []
        for scope in (before, Scope((relation,), {})):
            name = exp.to_identifier(key.name, quoted=True).update_positions(key)
            found = look_up(scope, [name], self.text)
            if found is None:
                raise unknown_column(scope, [name], self.text)
            sides.append(found)
        left, right = sides
        return exp.EQ(this=left, expression=right), {right.name: left.name}

    def _check_join(self, join: exp.Join) -> None:
        words = [str(join.args.get(key) or "").upper() for key in ("method", "side", "kind")]
        words = [word for word in words if word not in ("", "INNER")]
        if words and words != ["CROSS"]:
            keyword = words[0] if words[0] != "OUTER" else "FULL"
            raise self.text.unsupported(f"{' '.join(words)} JOIN", join.this, keyword=keyword)

    def _relation(self, tree: Tree) -> Relation:
        """A table or derived table of FROM."""
        for key, construct in (("pivots", ""), ("sample", ""), ("version", "time travel"), ("when", "time travel")):
            if tree.args.get(key):
                if construct:
                    raise self.text.unsupported(f"{construct} in a query", tree, "read the view with at= instead")
                check_clauses(tree, self.text)
        names = _column_names(tree)
        match tree:
            case exp.Table() if isinstance(tree.this, exp.Identifier):
                node = self._table(tree)
            case exp.Table():
                raise self.text.unsupported(f"the table-valued function {tree.this.name}", tree)
            case exp.Subquery() if isinstance(tree.this, exp.Query):
                node = self.query(tree.this, names)
            case exp.Subquery():
                raise self.text.unsupported("a join in parentheses", tree, "write it without them, or as a subquery")
            case exp.Values():
                raise self.text.unsupported("VALUES", tree, "declare the rows as an input", "VALUES")
            case exp.Lateral():
                raise self.text.unsupported("LATERAL", tree, keyword="LATERAL")
            case _:
                raise self.text.unsupported(f"{tree.key.upper()} in FROM", tree)
        if names is not None:
            self._check_count(len(names), len(node.columns), tree)
        shown = node.columns if names is None else tuple(names)
        return Relation(tree.alias_or_name, node, shown, node.columns)

    def _table(self, tree: exp.Table) -> Node:
        if tree.args.get("db") is not None:
            name = ".".join(part.name for part in tree.parts)
            raise unknown_table(name, list(self.tables), self.text, tree)
        found = self._found.get(tree.name.lower())
        if found is None:
            raise unknown_table(tree.name, list(self.tables), self.text, tree)
        return found


def _column_names(tree: Tree) -> list[str] | None:
    """The column names of ``… AS t(a, b)``."""
    alias = tree.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return [each.name for each in columns] if columns else None


def _without(tables: Mapping[str, Node], name: str) -> dict[str, Node]:
    return {each: node for each, node in tables.items() if each.lower() != name.lower()}
