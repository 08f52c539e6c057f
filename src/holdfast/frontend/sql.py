"""A view's SQL to a plan.

Each query is planned inside out: WITH and FROM give relations, the conditions join and filter them, GROUP BY and the
aggregates make an `Aggregate`, window functions a `Window`, the select list is a `Linear`, DISTINCT an `Aggregate`
without calls, LIMIT a `TopK`, INTERSECT and EXCEPT a `SetOperation`. A table is the node the catalog holds for it, so
views on views share their nodes. The plan is simple rather than good: `plan.rewrites` makes it good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import linear
from holdfast.frontend.chain import Chain
from holdfast.frontend.draws import check_timeless
from holdfast.frontend.foreign import check_foreign
from holdfast.frontend.joins import How, as_one, join_all, qualified
from holdfast.frontend.laterals import LateralViews, check_order, join_lateral
from holdfast.frontend.moments import check_temporal
from holdfast.frontend.names import Relation, Scope, look_up, unknown_column, unknown_table
from holdfast.frontend.pivot import pivoted
from holdfast.frontend.place import Text
from holdfast.frontend.refuse import check_clauses, check_statement
from holdfast.frontend.resolve import resolve
from holdfast.frontend.select import check_reserved, finish_select, limited
from holdfast.frontend.subqueries import SubqueryPlanner
from holdfast.frontend.windows import with_windows
from holdfast.plan.expression import Tree, column, conjunction, conjuncts
from holdfast.plan.nodes import Aggregate, Node, SetOperation, Union, UserFunction

_HOW: dict[str, How] = {
    "": "inner", "CROSS": "inner", "LEFT": "left", "LEFT OUTER": "left", "RIGHT": "right", "RIGHT OUTER": "right",
    "FULL": "full", "FULL OUTER": "full", "LEFT SEMI": "semi", "SEMI": "semi", "LEFT ANTI": "anti", "ANTI": "anti",
}  # fmt: skip


def plan_sql(
    name: str, sql: str, catalog: Mapping[str, Node], functions: Mapping[str, UserFunction] | None = None
) -> Node:
    """The plan of view ``name``; ``catalog`` holds the plans of the sources and views it may read, ``functions`` the
    user's functions it may call, by lower-case name."""
    text = Text(sql, f"view {name!r}", name, functions=functions)
    try:
        statement = text.parse()
        check_statement(statement, text)
        check_foreign(statement, text)
        node = Planner(text, catalog).query(statement)
    except RecursionError:
        raise text.error(SqlError, "the statement is nested too deeply") from None
    check_reserved(node.columns, text)
    return node


class Planner:
    """Plans queries whose tables are in ``tables`` (the catalog, shadowed by the CTEs in reach).

    ``outer`` is the scope of the enclosing query, if it plans a subquery.
    """

    def __init__(self, text: Text, tables: Mapping[str, Node], outer: Scope | None = None) -> None:
        self.text, self.tables, self.outer = text, tables, outer
        self._found = {name.lower(): node for name, node in tables.items()}

    def query(self, query: Tree, names: Sequence[str] | None = None) -> Node:
        """The plan of a SELECT, a set operation, or one of these in parentheses.

        ``names``: what the columns are called from outside (the second half of a set operation, a table alias with
        columns). Then the query's own names need not differ.
        """
        with_ = query.args.get("with_")
        if with_ is not None:
            return self._with(with_, query, names)
        check_clauses(query, self.text)
        match query:
            case exp.Select():
                return self._select(query, names)
            case exp.SetOperation():
                return self._set_operation(query, names)
            case exp.Subquery() if isinstance(query.this, exp.Query):
                return limited(self.query(query.this, names), query, self.text)
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
            planner = Planner(self.text, {**_without(planner.tables, name), name: node}, self.outer)
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

    def _set_operation(self, query: exp.SetOperation, names: Sequence[str] | None) -> Node:
        word = query.key.upper()
        if query.args.get("by_name") or query.args.get("side") or query.args.get("kind"):
            raise self.text.unsupported(f"{word} BY NAME", query, keyword="NAME", after=True)
        left = self.query(query.this, names)
        right = self.query(query.expression, left.columns)
        if len(left.columns) != len(right.columns):
            message = (
                f"{word} of {len(left.columns)} columns ({', '.join(left.columns)}) "
                f"with {len(right.columns)} ({', '.join(right.columns)})"
            )
            raise self.text.error(SqlError, message, query.expression)
        if not isinstance(query, exp.Union):
            node: Node = SetOperation(left, right, query.key, all=not query.args.get("distinct"))
            return limited(node, query, self.text)
        # a UNION ALL b UNION ALL c is one node
        inputs = left.inputs if isinstance(left, Union) and isinstance(query.this, exp.Union) else (left,)
        node = Union((*inputs, right))
        if query.args.get("distinct"):
            node = Aggregate(node, node.columns, ())
        return limited(node, query, self.text)

    def _select(self, select: exp.Select, names: Sequence[str] | None) -> Node:
        if not select.expressions:
            raise self.text.error(SqlError, "a SELECT without columns; name them, or write *", select, "SELECT")
        select = with_windows(select, self.text)
        scope, units, conditions = self._tables(select)
        views = LateralViews(select, scope, self.text)
        scope = views.scope
        where = select.args.get("where")
        if where is not None:
            tree = resolve(where.this, scope, self.text, aggregates="WHERE", windows="WHERE")
            check_temporal(tree, "WHERE", self.text)
            conditions += conjuncts(tree)
        node, conditions = join_all([one.node for one in units], [each for each in conditions if not _is_true(each)])
        return finish_select(select, scope, views.over(node), conjunction(conditions), self.text, names)

    def from_(self, select: exp.Select, linked: bool = False) -> tuple[Scope, list[Relation], list[Tree]]:
        """The scope of a SELECT, and what is left to be joined: relations, and conditions on them.

        ``linked``: its WHERE may refer to the enclosing query.
        """
        scope, units, conditions = self._tables(select, linked)
        if not select.args.get("laterals"):
            return scope, units, conditions
        views = LateralViews(select, scope, self.text)
        node, conditions = join_all([one.node for one in units], conditions)
        return views.scope, [as_one(views.over(node))], conditions

    def _tables(self, select: exp.Select, linked: bool = False) -> tuple[Scope, list[Relation], list[Tree]]:
        """The same without LATERAL VIEWs."""
        check_order(select, self.text)
        from_ = select.args.get("from_")
        if from_ is None:
            advice = "a view needs an input that can change"
            raise self.text.unsupported("SELECT without FROM", select, advice, "SELECT")
        joins: list[exp.Join] = select.args.get("joins") or []
        first = self._relation(from_.this)
        if not joins:
            return self._scope((first,), {}, linked), [first], []
        chains = [Chain([qualified(first, ())])]
        for join in joins:
            how = self._how(join)
            if isinstance(join.this, exp.Lateral):
                chains = join_lateral(chains, join, how, self.outer, self._behind_comma(join), self.text)
                continue
            if how in ("right", "full") and chains[-1].after_comma:
                advice = "write JOIN LATERAL instead of the comma"
                raise self.text.unsupported(f"{how.upper()} JOIN behind a comma and LATERAL", join.this, advice)
            relation = self._relation(join.this)
            known = [each for chain in chains for each in chain.relations]
            if relation.alias and any(relation.alias.lower() == other.alias.lower() for other in known):
                message = f"table {relation.alias!r} appears twice in FROM; give each its own alias"
                raise self.text.error(SqlError, message, join.this, name=relation.alias)
            taken = [name for chain in chains for unit in chain.units for name in unit.internal]
            relation = qualified(relation, [*taken, *(name for each in known for name in each.internal)])
            if how == "inner" and self._behind_comma(join):
                chains.append(Chain([relation]))
            else:
                self._extend(chains, join, how, relation)
        if any(chain.merged for chain in chains[1:]) and any(isinstance(each, exp.Star) for each in select.expressions):
            raise self.text.unsupported("* over a USING behind a comma", select, "name the columns", "SELECT")
        merged = {hidden: shown for chain in chains for hidden, shown in chain.merged.items()}
        scope = self._scope(tuple(each for chain in chains for each in chain.relations), merged, linked)
        units = [unit for chain in chains for unit in chain.units]
        return scope, units, [each for chain in chains for each in chain.conditions]

    def _scope(self, relations: tuple[Relation, ...], merged: Mapping[str, str], linked: bool) -> Scope:
        planner = SubqueryPlanner(self.text, self.from_inside, self.query_inside)
        return Scope(relations, merged, self.outer, linked, planner)

    def from_inside(self, select: exp.Select, outer: Scope) -> tuple[Scope, list[Relation], list[Tree]]:
        """The FROM of a subquery that may refer to ``outer``."""
        check_clauses(select, self.text)
        return Planner(self.text, self.tables, outer).from_(select, linked=True)

    def query_inside(self, query: Tree, outer: Scope) -> Node:
        """A subquery that may not refer to ``outer``."""
        return Planner(self.text, self.tables, outer).query(query)

    def _extend(self, chains: list[Chain], join: exp.Join, how: How, relation: Relation) -> None:
        """Join ``relation`` to the last chain."""
        chain = chains[-1]
        before, own = chain.scope, Scope((relation,), {})
        pairs = [(self._column(key, before), self._column(key, own)) for key in join.args.get("using") or ()]
        conditions: list[Tree] = [exp.EQ(this=left, expression=right) for left, right in pairs]
        if (on := join.args.get("on")) is not None:
            # The ON of an inner join may be a condition of WHERE: it sees what stands before a comma too.
            reach = chains if how == "inner" else [chain]
            merged = {hidden: shown for each in reach for hidden, shown in each.merged.items()}
            merged |= {right.name: left.name for left, right in pairs}
            relations = tuple(each for one in reach for each in one.relations)
            tree = resolve(on, Scope((*relations, relation), merged), self.text, aggregates="ON", windows="ON")
            (check_temporal if how == "inner" else check_timeless)(tree, "ON", self.text)
            conditions += conjuncts(tree)
        chain.join(relation, [relation], how, [each for each in conditions if not _is_true(each)], pairs)

    def _column(self, key: Tree, scope: Scope) -> Tree:
        """A column of USING."""
        name = exp.to_identifier(key.name, quoted=True).update_positions(key)
        found = look_up(scope, [name], self.text)
        if found is None:
            raise unknown_column(scope, [name], self.text)
        return found

    def _behind_comma(self, join: exp.Join) -> bool:
        """Is the relation written behind a comma? sqlglot reads that as CROSS JOIN, which binds more tightly."""
        place = self.text.offset(join.this)
        words = [token.text.upper() for token in self.text.tokens if place is not None and token.start < place]
        return next((word for word in reversed(words) if word in (",", "JOIN")), "JOIN") == ","

    def _how(self, join: exp.Join) -> How:
        words = [str(join.args.get(key) or "").upper() for key in ("method", "side", "kind")]
        words = [word for word in words if word not in ("", "INNER")]
        how = _HOW.get(" ".join(words))
        if how is None:
            raise self.text.unsupported(f"{' '.join(words)} JOIN", join.this, keyword=words[0])
        return how

    def _relation(self, tree: Tree) -> Relation:
        """A table or derived table of FROM."""
        pivots: list[Tree] = tree.args.get("pivots") or []
        for pivot in pivots:
            if pivot.args.get("unpivot"):
                raise self.text.unsupported("UNPIVOT", pivot, keyword="UNPIVOT")
        for key, construct in (("sample", ""), ("version", "time travel"), ("when", "time travel")):
            if tree.args.get(key):
                if construct:
                    raise self.text.unsupported(f"{construct} in a query", tree, "read the view with at= instead")
                raise self.text.unsupported("TABLESAMPLE", tree.args[key], keyword="TABLESAMPLE")
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
        relation = Relation(tree.alias_or_name, node, shown, node.columns)
        for pivot in pivots:
            relation = pivoted(relation, pivot, self.text)
        return relation

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


def _is_true(tree: Tree) -> bool:
    """sqlglot reads a JOIN without ON as one ON TRUE."""
    return isinstance(tree, exp.Boolean) and bool(tree.this)


def _without(tables: Mapping[str, Node], name: str) -> dict[str, Node]:
    return {each: node for each, node in tables.items() if each.lower() != name.lower()}
