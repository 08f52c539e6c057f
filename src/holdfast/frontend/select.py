"""The upper half of a SELECT: its list, GROUP BY, HAVING, QUALIFY, DISTINCT, ORDER BY and LIMIT, over FROM's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.build import Item, linear, over
from holdfast.frontend.draws import check_timeless
from holdfast.frontend.generators import has_generated, is_generator, output_columns, plan_generated, read_generator
from holdfast.frontend.grouping import Grouping
from holdfast.frontend.labels import label, unique
from holdfast.frontend.moments import check_temporal
from holdfast.frontend.names import Relation, Scope
from holdfast.frontend.naming import output_name
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import Aliases, has_aggregate, has_grouping, resolve
from holdfast.frontend.schema import RESERVED
from holdfast.frontend.sets import Set, keys_and_sets
from holdfast.frontend.starred import expand
from holdfast.frontend.times import with_time
from holdfast.frontend.windows import has_window, plan_windows
from holdfast.plan.expression import Tree, column
from holdfast.plan.nodes import Aggregate, Node, Order, TopK


@dataclass(frozen=True)
class Sort:
    """One ORDER BY expression: resolved, as written, and its direction."""

    tree: Tree
    written: Tree
    descending: bool
    nulls_first: bool


def finish_select(
    select: exp.Select,
    scope: Scope,
    node: Node,
    predicate: Tree | None,
    text: Text,
    names: Sequence[str] | None = None,
) -> Node:
    """The plan of ``select``, whose FROM and WHERE are ``node`` and ``predicate`` over ``scope``.

    ``names`` are what the output columns are called by whoever reads them, if not by their own names.
    """
    timed = with_time(select, scope, node, predicate, text)
    select, scope, node, predicate = timed.select, timed.scope, timed.node, timed.predicate
    items, written = select_items(select, scope, text)
    aliases = {name.lower(): tree for name, tree in reversed(items)}
    if names is not None and len(names) == len(items):
        items = [(name, tree) for name, (_, tree) in zip(names, items, strict=True)]
    check_names(items, written, text)
    keys, sets = _keys(select, items, scope, text)
    for key in keys:
        check_timeless(key, "GROUP BY", text)
    having = select.args.get("having")
    having_tree = None
    if having is not None:
        having_tree = resolve(having.this, scope, text, Aliases(aliases, first=True, keys=keys), windows="HAVING")
    if having_tree is not None and has_generated(having_tree):
        raise text.error(SqlError, "generator in HAVING, where none may be; use LATERAL VIEW", having)
    if having_tree is not None:
        check_temporal(having_tree, "HAVING", text)
    qualify = select.args.get("qualify")
    qualified = None if qualify is None else resolve(qualify.this, scope, text, Aliases(aliases))
    if qualified is not None:
        check_timeless(qualified, "QUALIFY", text)
    sorts = _sorts(select, items, scope, text, Aliases(aliases, first=True))
    grouped = select.args.get("group") is not None or having is not None
    used = [tree for _, tree in items] + [sort.tree for sort in sorts]
    used += [tree for tree in (having_tree, qualified) if tree is not None]
    if grouped or any(has_aggregate(tree) or has_grouping(tree) for tree in used):
        grouping = Grouping(keys, items, used, text, sets, timed.session)
        node = grouping.plan(node, predicate)
        items = [(name, grouping.above(tree, place)) for (name, tree), place in zip(items, written, strict=True)]
        sorts = [replace(sort, tree=grouping.above(sort.tree, sort.written)) for sort in sorts]
        predicate = None if having_tree is None else grouping.above(having_tree, having)
        qualified = None if qualified is None else grouping.above(qualified, qualify)
    trees = [tree for _, tree in items] + [sort.tree for sort in sorts] + ([] if qualified is None else [qualified])
    if any(map(has_generated, trees)):
        node, trees = plan_generated(node, predicate, [name for name, _ in items], trees)
        items = [(name, tree) for (name, _), tree in zip(items, trees, strict=False)]
        sorts = [replace(sort, tree=tree) for sort, tree in zip(sorts, trees[len(items) :], strict=False)]
        predicate, qualified = None, None if qualified is None else trees[-1]
    if any(map(has_window, trees)):
        names_of = [name for name, _ in items] + [None] * (len(trees) - len(items))
        node, trees = plan_windows(node, predicate, names_of, trees)
        items = [(name, tree) for (name, _), tree in zip(items, trees, strict=False)]
        sorts = [replace(sort, tree=tree) for sort, tree in zip(sorts, trees[len(items) :], strict=False)]
        predicate = None if qualified is None else trees[-1]
    elif qualify is not None:
        raise text.error(SqlError, "QUALIFY needs a window function, in it or in the select list", qualify)
    if select.args.get("distinct") is not None:
        node = linear(node, predicate, items)
        node = Aggregate(node, node.columns, ())
        sorts = [replace(sort, tree=_among(sort, items, text)) for sort in sorts]
        return _top(node, None, [(name, column(name)) for name in node.columns], sorts, select, text)
    return _top(node, predicate, items, sorts, select, text)


def limited(node: Node, query: Tree, text: Text) -> Node:
    """``node`` with the ORDER BY and LIMIT of ``query`` (a set operation, or a query in parentheses) on it."""
    items: list[Item] = [(name, column(name)) for name in node.columns]
    scope = Scope((Relation("the result", node, node.columns, node.columns),), {})
    sorts = _sorts(query, items, scope, text, Aliases())
    for sort in sorts:
        if has_aggregate(sort.tree) or has_window(sort.tree):
            what = "aggregate" if has_aggregate(sort.tree) else "window function"
            raise text.error(SqlError, f"{what} in ORDER BY of a set operation", sort.written)
    return _top(node, None, items, sorts, query, text)


def select_items(select: exp.Select, scope: Scope, text: Text) -> tuple[list[Item], list[Tree]]:
    """The output columns, and for each what the user wrote."""
    items: list[Item] = []
    written: list[Tree] = []
    aliases: dict[str, Tree] = {}
    for number, expression in enumerate(select.expressions):
        starred = expand(expression, scope, text)
        if starred is not None:
            items += starred
            written += [expression] * len(starred)
            continue
        inner = expression.this if isinstance(expression, (exp.Alias, exp.Aliases)) else expression
        if isinstance(inner, exp.Anonymous) and is_generator(inner):
            given = [each.name for each in expression.expressions] if isinstance(expression, exp.Aliases) else []
            given = [expression.alias] if isinstance(expression, exp.Alias) else given
            made = output_columns(read_generator(inner, given, scope, text, Aliases(aliases)), number)
            aliases |= {name.lower(): tree for name, tree in made if name.lower() not in aliases}
            items += made
            written += [expression] * len(made)
            continue
        if isinstance(expression, exp.Aliases):
            raise text.unsupported("several aliases for one expression", expression)
        tree = resolve(inner, scope, text, Aliases(aliases))
        name = expression.alias if isinstance(expression, exp.Alias) else output_name(inner, tree, scope)
        if isinstance(expression, exp.Alias):
            aliases.setdefault(name.lower(), tree)
        items.append((name, tree))
        written.append(expression)
    return items, written


def check_names(items: list[Item], written: list[Tree], text: Text) -> None:
    """Refuse two output columns of one name."""
    seen: dict[str, str] = {}
    for (name, _), place in zip(items, written, strict=True):
        if name == "":
            raise text.error(SqlError, "an output column has an empty name", place, name=name)
        if name.lower() in seen:
            other = seen[name.lower()]
            advice = "name the columns, or rename one with AS" if isinstance(place, exp.Star) else "rename one with AS"
            raise text.error(SqlError, f"two output columns are called {other!r}; {advice}", place, name=name)
        seen[name.lower()] = name


def check_reserved(names: Sequence[str], text: Text) -> None:
    """Refuse output columns with names that Holdfast gives to its own."""
    for name in names:
        if name.lower().startswith(RESERVED):
            ours = ", ".join(RESERVED)
            message = f"output column {name!r} is reserved: names that start with {ours} are Holdfast's own"
            raise text.error(SqlError, f"{message}; rename it with AS", name=name)


def _ordinal(tree: Tree, items: list[Item], clause: str, text: Text) -> Tree | None:
    """The output column that a number in GROUP BY or ORDER BY stands for."""
    if not (isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdigit()):
        return None
    place = int(tree.name)
    if not 1 <= place <= len(items):
        raise text.error(SqlError, f"{clause} {place}: the select list has {len(items)} columns", name=place)
    return items[place - 1][1].copy()


def _keys(select: exp.Select, items: list[Item], scope: Scope, text: Text) -> tuple[list[Tree], list[Set] | None]:
    """The keys of GROUP BY, and the sets of them by which rows are grouped, if there are several."""
    group = select.args.get("group")
    if group is None:
        return [], None
    if group.args.get("all"):
        if any(has_generated(tree) for _, tree in items):
            raise text.unsupported("GROUP BY ALL with a generator", group, "use LATERAL VIEW", "GROUP")
        return [tree for _, tree in items if not has_aggregate(tree) and not has_window(tree)], None
    aliases = Aliases({name.lower(): tree for name, tree in reversed(items)})

    def key(expression: Tree) -> Tree:
        found = _ordinal(expression, items, "GROUP BY", text)
        if found is None:
            found = resolve(expression, scope, text, aliases, windows="GROUP BY")
        if has_window(found):
            raise text.error(SqlError, "window function in GROUP BY, where none may be", expression)
        if has_generated(found):
            raise text.error(SqlError, "generator in GROUP BY, where none may be; use LATERAL VIEW", expression)
        if has_aggregate(found):
            raise text.error(SqlError, "aggregate in GROUP BY, where none may be", expression)
        return found

    return keys_and_sets(group, key)


def _sorts(query: Tree, items: list[Item], scope: Scope, text: Text, aliases: Aliases) -> list[Sort]:
    order = query.args.get("order")
    sorts: list[Sort] = []
    for each in order.expressions if order is not None else ():
        descending = bool(each.args.get("desc"))
        nulls_first = bool(each.args.get("nulls_first"))
        if isinstance(each.this, exp.Var) and each.this.name.upper() == "ALL":
            sorts += [Sort(tree, each, descending, nulls_first) for _, tree in items]
            continue
        tree = _ordinal(each.this, items, "ORDER BY", text)
        if tree is None:
            tree = resolve(each.this, scope, text, aliases)
        sorts.append(Sort(tree, each, descending, nulls_first))
    return sorts


def _among(sort: Sort, items: list[Item], text: Text) -> Tree:
    """``sort`` over the output columns: behind DISTINCT there is nothing else to sort by."""
    message = "with SELECT DISTINCT, ORDER BY may only use columns of the select list"
    known = {tree: name for name, tree in reversed(items)}
    return over(sort.tree, known, lambda node: text.error(SqlError, message, sort.written, name=node.name))


def _number(query: Tree, clause: str, text: Text) -> int | None:
    """The value of LIMIT or OFFSET."""
    found = query.args.get(clause)
    if found is None:
        return None
    value = found.expression if isinstance(found, (exp.Limit, exp.Offset)) else found.args.get("count")
    if isinstance(value, exp.Var) and value.name.upper() == "ALL":
        return None
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return int(value.name)
    if isinstance(value, exp.Neg):
        raise text.error(SqlError, f"{clause.upper()} must not be negative", query, clause.upper(), after=True)
    construct = f"{clause.upper()} that is not a number"
    raise text.unsupported(construct, query, "write the number", clause.upper(), after=True)


def _top(node: Node, predicate: Tree | None, items: list[Item], sorts: list[Sort], query: Tree, text: Text) -> Node:
    """The select list over ``node``, cut to the LIMIT. Without one the order means nothing: a view is a bag."""
    limit, offset = _number(query, "limit", text), _number(query, "offset", text) or 0
    if limit is None:
        if offset:
            raise text.unsupported("OFFSET without LIMIT", query, keyword="OFFSET", after=True)
        return linear(node, predicate, items)
    hidden: list[Item] = []
    order: list[Order] = []
    for sort in sorts:
        name = next((name for name, tree in [*items, *hidden] if tree == sort.tree), None)
        if name is None:
            name = unique(label(sort.tree), [each for each, _ in [*items, *hidden]])
            hidden.append((name, sort.tree))
        if all(name != each.column for each in order):
            order.append(Order(name, sort.descending, sort.nulls_first))
    node = TopK(linear(node, predicate, [*items, *hidden]), tuple(order), limit, offset)
    return linear(node, None, [(name, column(name)) for name, _ in items])
