"""What is not supported, found before anything is planned, and said with its place in the text.

Expressions are checked against a list of what is known to pass through sqlglot unchanged (`_SCALARS`): a form that is
not on it is refused rather than trusted. Queries are checked clause by clause, against the clauses that are planned.
"""

from __future__ import annotations

from sqlglot import exp

from holdfast.errors import Unsupported
from holdfast.frontend import functions
from holdfast.frontend.draws import is_drawn
from holdfast.frontend.place import Text
from holdfast.plan.expression import Tree

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_PREDICATES = (exp.Between, exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Is)
_BITWISE = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseNot, exp.DPipe)
_LEAVES = (exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.HexString, exp.RawString, exp.Var)
_SCALARS = (
    *_LEAVES, *_COMPARISONS, *_PREDICATES, *_BITWISE, *_ARITHMETIC,
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Tuple, exp.Dot, exp.Bracket, exp.Lambda, exp.Alias, exp.Kwarg,
    exp.Case, exp.If, exp.Cast, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.IntervalSpan,
    exp.Any, exp.All, exp.Interval, exp.Collate, exp.Concat, exp.Anonymous, exp.Distinct, exp.IgnoreNulls,
    exp.RespectNulls, exp.Star, exp.Extract, exp.Trim, exp.Substring, exp.Overlay, exp.StrPosition, exp.Filter,
    exp.Where, exp.WithinGroup, exp.Window, exp.WindowSpec, exp.Order, exp.Ordered,
)  # fmt: skip
_PARAMETERS = (":", "?", "$", "@", "{")
_BARE_DRAWS = (exp.CurrentDate, exp.CurrentTimestamp)
_BARE_CALLS = (exp.CurrentTime, exp.CurrentUser, exp.SessionUser)


def check_expression(tree: Tree, text: Text, subqueries: bool = False) -> None:
    """Refuse what a scalar or aggregate expression may not contain. ``subqueries``: whether it may contain those."""
    for node in tree.walk(prune=lambda node: isinstance(node, (exp.Query, exp.DataType))):
        if not (subqueries and _is_subquery(node)):
            _check_node(node, text)
        _check_precedence(node, text)


def _is_subquery(node: Tree) -> bool:
    return isinstance(node, (exp.Exists, exp.Query)) or (isinstance(node, exp.In) and bool(node.args.get("query")))


def _check_node(node: Tree, text: Text) -> None:
    match node:
        case exp.Exists():
            raise text.unsupported("EXISTS (subquery) here", node, "write it as a join", "EXISTS")
        case exp.Query() if isinstance(node.parent, exp.In):
            raise text.unsupported("IN (subquery) here", node.parent, "write it as a join")
        case exp.Query():
            raise text.unsupported("a scalar subquery here", node, "join the subquery instead", "SELECT")
        case exp.In() if node.args.get("query") is not None:
            raise text.unsupported("IN (subquery) here", node, "write it as a join")
        case exp.Filter() if _is_windowed(node):
            advice = "write sum(CASE WHEN … THEN x END) OVER (…)"
            raise text.unsupported("FILTER before OVER", node, advice, "FILTER", after=True)
        case exp.WithinGroup() if _is_windowed(node):
            raise text.unsupported("WITHIN GROUP before OVER", node, keyword="WITHIN", after=True)
        case exp.Placeholder() | exp.Parameter():
            mark = next((each.text for each in text.tokens if each.text in _PARAMETERS), None)
            raise text.unsupported("a parameter", node, "write the value into the text", mark)
        case exp.Anonymous():
            check_function(node, text)
        case exp.Dot() if isinstance(node.expression, exp.Anonymous):
            raise text.unsupported("a qualified function name", node)
        case _ if isinstance(node, _BARE_CALLS):
            name = node.key.replace("current", "current_").replace("session", "session_")
            raise nondeterministic(name, node, text, name.upper())
        case _ if not isinstance(node, (*_SCALARS, *_BARE_DRAWS)):
            raise text.unsupported(f"the expression {node.sql(dialect='spark')[:60]!r}", node)


def check_function(call: exp.Anonymous, text: Text) -> None:
    """Refuse functions that are neither deterministic scalars, nor drawn, nor aggregates that can be maintained."""
    name = call.name.lower()
    if name in text.functions or is_drawn(name, len(call.expressions)):
        return
    if name in functions.OTHER_AGGREGATES:
        raise text.unsupported(f"the aggregate {name}", call)
    if name in functions.AGGREGATES and name not in functions.OVER and _is_windowed(call):
        raise text.unsupported(f"the aggregate {name} before OVER", call)
    if name in functions.GENERATORS:
        advice = "it stands by itself in the select list, in LATERAL VIEW or behind LATERAL"
        raise text.unsupported(f"the generator {name} in this place", call, advice)
    if name in functions.TIME_WINDOWS and name != "window_time":
        raise text.unsupported(f"the time window {name} here", call, "name it in the select list of a subquery")
    if name in functions.WINDOW_FUNCTIONS and not (name in functions.OVER and _is_windowed(call)):
        raise text.unsupported(f"the window function {name}", call, "" if _is_windowed(call) else "it needs OVER (…)")
    if name in functions.NONDETERMINISTIC or len(call.expressions) < functions.DETERMINISTIC_FROM.get(name, 0):
        raise nondeterministic(name, call, text)


def _is_windowed(call: Tree) -> bool:
    parent = call.parent
    return isinstance(parent.parent if isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls)) else parent, exp.Window)


def nondeterministic(name: str, tree: Tree, text: Text, keyword: str | None = None) -> Unsupported:
    """``keyword``: how to find it in the text, if it stands there without parentheses."""
    advice = functions.INSTEAD.get(name, functions.INSTEAD_OF_ANY)
    return text.unsupported(f"the nondeterministic function {name}", tree, advice, keyword)


def _check_precedence(node: Tree, text: Text) -> None:
    """Refuse mixtures that sqlglot and Spark would group differently; parentheses settle them."""
    cast = node.this if isinstance(node, exp.Neg) else None
    if isinstance(cast, exp.Cast) and cast.this.is_number and not cast.to.is_type(*exp.DataType.NUMERIC_TYPES):
        # -1::string: Spark casts -1, sqlglot negates 1::string
        raise text.unsupported("the cast of a negative number without parentheses", node, "write CAST(-1 AS …)")
    compare, bits = (*_COMPARISONS, *_PREDICATES), isinstance(node, _BITWISE)
    for child in node.iter_expressions():
        if isinstance(node, compare) and isinstance(child, (*compare, exp.Not)):
            mixed = not isinstance(node, (exp.Escape, exp.Is))
        elif bits and isinstance(child, _BITWISE):
            mixed = type(node) is not type(child) or isinstance(node, (exp.BitwiseLeftShift, exp.BitwiseRightShift))
        else:
            mixed = isinstance(node, exp.DPipe) and isinstance(child, (exp.Add, exp.Sub, *_BITWISE))
            mixed = mixed or (isinstance(node, (exp.Add, exp.Sub, *_BITWISE)) and isinstance(child, exp.DPipe))
        if mixed:
            advice = "put parentheses around the inner one"
            raise text.unsupported("a mixture of operators without parentheses", node, advice)


# The clauses of a query that are planned, or (hint) mean nothing to a view. Any other is refused by its name.
_PLANNED = {
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_",
    "hint", "this", "expression", "alias", "side", "kind", "by_name", "on", "windows", "qualify", "laterals",
}  # fmt: skip
_CLAUSES = {
    "sort": ("SORT BY", "SORT"),
    "cluster": ("CLUSTER BY", "CLUSTER"),
    "distribute": ("DISTRIBUTE BY", "DISTRIBUTE"),
    "sample": ("TABLESAMPLE", "TABLESAMPLE"),
    "pivots": ("PIVOT", "PIVOT"),
    "match": ("MATCH_RECOGNIZE", "MATCH_RECOGNIZE"),
    "locks": ("FOR UPDATE", "FOR"),
}


def check_clauses(query: Tree, text: Text) -> None:
    """Refuse the clauses of a SELECT or UNION that are not planned."""
    for key, value in query.args.items():
        if not value or key in _PLANNED:
            continue
        name, keyword = _CLAUSES.get(key, (key.strip("_").upper().replace("_", " "), None))
        tree = value[0] if isinstance(value, list) else value
        tree = tree if isinstance(tree, exp.Expr) else query
        if key == "pivots" and tree.args.get("unpivot"):
            name, keyword = "UNPIVOT", "UNPIVOT"
        raise text.unsupported(name, tree, keyword=keyword)
    if isinstance(query, exp.Select):
        distinct = query.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise text.unsupported("DISTINCT ON", distinct)
        if query.args.get("kind"):
            raise text.unsupported(f"SELECT {query.args['kind']}", query)


def check_statement(statement: Tree, text: Text) -> None:
    """Refuse everything that is not a query."""
    if isinstance(statement, exp.Query):
        return
    name = text.tokens[0].text.upper()
    if isinstance(statement, exp.Create):
        name = f"CREATE {statement.args.get('kind') or ''}".strip()
    raise text.unsupported(f"the statement {name}", statement, "a view is a SELECT", text.tokens[0].text.upper())
