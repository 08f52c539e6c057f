"""Expressions: Spark SQL text in, a tree to work on, canonical text out.

Representation: a sqlglot tree in *bare* form. A column is ``Column`` with one quoted identifier, the name of a column
of the input; a struct field is a `Dot` above it; a lambda variable is an `Identifier`; there are no `Paren` nodes.
As text, a column is backticked (`` `o.amount` * 2 ``), functions are lower case, and parentheses stand exactly where
they are needed. So `` (a) + b `` and `` a + b `` are one tree and one text.

Invariant: Spark gives ``render(read(text))`` the meaning of ``text``. sqlglot's own Spark dialect does not keep that
promise: it is made to translate, so it turns functions into classes and those into other functions (``nvl`` into
``coalesce``, ``date_format`` formats through strftime and back). `Faithful` therefore knows no function: a call is a
name with arguments, and only forms with a syntax of their own (CAST, EXTRACT, TRIM … FROM) are parsed as such.

Cost: parsing is linear in the text and cached by it; trees handed out are copies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

Tree = exp.Expr


def _either_way(name: str) -> Callable[[Any], Tree]:
    """Parse ``name(a, b)`` as a plain call, and ``name(a FROM b)`` and the like with sqlglot's parser for it."""
    special = SparkParser.FUNCTION_PARSERS[name]

    def parse(parser: Any) -> Tree:
        start = parser._index
        written = parser._tokens[start - 2]
        arguments = parser._try_parse(lambda: parser._parse_function_args(True))
        if arguments is not None and parser._curr and parser._curr.token_type == TokenType.R_PAREN:
            return exp.Anonymous(this=written.text, expressions=arguments).update_positions(written)
        parser._retreat(start)
        result: Tree = special(parser)
        return result.update_positions(written)

    return parse


class _Parser(SparkParser):
    STRICT_CAST = True
    FUNCTIONS: ClassVar[dict[str, Callable[..., Tree]]] = {}
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, type[exp.Func]]] = {}  # array(1, 2)[0] is no constructor in Spark
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CAST": SparkParser.FUNCTION_PARSERS["CAST"],
        "TRY_CAST": SparkParser.FUNCTION_PARSERS["TRY_CAST"],
        "EXTRACT": SparkParser.FUNCTION_PARSERS["EXTRACT"],
        "POSITION": SparkParser.FUNCTION_PARSERS["POSITION"],
        **{name: _either_way(name) for name in ("TRIM", "SUBSTRING", "SUBSTR", "OVERLAY")},
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"],
    }


_SUFFIX = {
    exp.DType.BIGINT: "L",
    exp.DType.SMALLINT: "S",
    exp.DType.TINYINT: "Y",
    exp.DType.DOUBLE: "D",
    exp.DType.FLOAT: "F",
}


class _Generator(SparkGenerator):
    TYPE_MAPPING: ClassVar[dict[exp.DType, str]] = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}

    def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
        # sqlglot reads 1L as a cast. As a cast, -9223372036854775808L would overflow before it is negated.
        # It reads TIME '10:00' as a cast too, but Spark has the literal where it does not have the cast.
        to, value = expression.to, expression.this
        if isinstance(value, exp.Literal) and value.is_string and to.this == exp.DType.TIME and not safe_prefix:
            return f"TIME {self.sql(value)}"
        suffix = _SUFFIX.get(to.this) if isinstance(value, exp.Literal) and not value.is_string else None
        if suffix and not safe_prefix and (suffix in "DF" or value.name.isdigit()):
            return f"{value.name}{suffix}"
        return super().cast_sql(expression, safe_prefix)


class Faithful(Spark):
    """Spark's dialect without sqlglot's knowledge of functions."""

    Parser = _Parser
    Generator = _Generator

    class Tokenizer(Spark.Tokenizer):
        # Spark 4 reads 'it''s' as one string; sqlglot's Spark reads two, to be concatenated.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']


# How tightly an operator binds in Spark's grammar. What is not here is atomic.
_LEVELS: dict[type[Tree], int] = {
    exp.Or: 1,
    exp.And: 2,
    exp.Not: 3,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ), 4),
    **dict.fromkeys((exp.Between, exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Is), 4),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor), 5),
    **dict.fromkeys((exp.Add, exp.Sub, exp.DPipe), 6),
    **dict.fromkeys((exp.Mul, exp.Div, exp.IntDiv, exp.Mod), 7),
    **dict.fromkeys((exp.Neg, exp.BitwiseNot), 8),
    exp.Lambda: 0,
    exp.Collate: 8,
    exp.AtTimeZone: 8,
}
_ATOM = 9
_CHAINS = (exp.And, exp.Or, exp.Add, exp.Mul, exp.DPipe)  # a op b op c needs no parentheses on its left
_ENCLOSED = (exp.Dot, exp.Bracket, exp.Interval)  # these take an atom as their first operand


def level(tree: Tree) -> int:
    """How tightly the outermost operator of a bare tree binds."""
    return _LEVELS.get(type(tree), _ATOM)


def bare(tree: Tree) -> Tree:
    """The tree without its `Paren` nodes (changed in place; the new root is returned)."""
    for paren in list(tree.find_all(exp.Paren)):
        inner = paren.this
        if paren is tree:
            tree = inner
            inner.pop()
        else:
            paren.replace(inner)
    return tree


def column(name: str) -> exp.Column:
    """A reference to the input's column ``name``."""
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def _enclose(tree: Tree) -> None:
    """Put a `Paren` around every operand that binds less tightly than its place needs (in place)."""
    for node in list(tree.walk()):
        need = level(node)
        for key, child in _children(node):
            binds = level(child)
            if isinstance(node, _ENCLOSED) and key == "this":
                signed = child.this if isinstance(child, exp.Neg) else child
                wrap = not isinstance(signed, exp.Literal) if isinstance(node, exp.Interval) else not _is_atom(child)
            elif need in (0, _ATOM) or _stands_apart(node, key, child):
                wrap = False
            else:
                wrap = binds < need if need in (3, 8) else binds <= need
            if wrap:
                paren = exp.Paren()
                child.replace(paren)
                paren.set("this", child)  # moved, not copied: the walk is to reach its operands too


def _is_atom(tree: Tree) -> bool:
    """Can a field or an element be taken of it as it stands? 1.f would be a number and a name."""
    return level(tree) == _ATOM and not tree.is_number


def _stands_apart(node: Tree, key: str, child: Tree) -> bool:
    """Is the operand delimited by the syntax itself, or the left part of a chain of one operator?"""
    if isinstance(node, exp.Escape) or isinstance(child, (exp.Any, exp.All)):
        return True
    if isinstance(node, exp.In) and key != "this":
        return True
    return type(child) is type(node) and key == "this" and isinstance(node, _CHAINS)


def _children(node: Tree) -> list[tuple[str, Tree]]:
    pairs: list[tuple[str, Tree]] = []
    for key, value in node.args.items():
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, exp.Expr):
                pairs.append((key, child))
    return pairs


@lru_cache(maxsize=2048)
def _read(text: str) -> Tree:
    parsed = Faithful().parse(f"SELECT {text}")[0]
    assert isinstance(parsed, exp.Select)
    (tree,) = parsed.expressions
    return dotted(bare(tree.pop()))


def read(text: str) -> Tree:
    """The bare tree of an expression in plan form (its columns backticked names of the input)."""
    return _read(text).copy()


def dotted(tree: Tree) -> Tree:
    """Turn sqlglot's ``Column(db, table, name)`` into fields of the column named first (in place)."""
    for reference in list(tree.find_all(exp.Column)):
        if not reference.table:
            continue
        first, *fields = reference.parts
        result: Tree = exp.Column(this=first.copy())
        for field in fields:
            result = exp.Dot(this=result, expression=field.copy())
        if reference is tree:
            tree = result
        else:
            reference.replace(result)
    return tree


def render(tree: Tree) -> str:
    """The canonical text of a bare tree."""
    root = exp.Tuple(expressions=[tree.copy()])
    _enclose(root)
    text: str = root.expressions[0].sql(dialect=Faithful, normalize_functions="lower", comments=False)
    return text


FOREIGN = r"\b_hf_[a-z0-9_]+_[0-9a-f]{16}\b"
"""The names of calls that stand for expressions of Spark's own (`spark.foreign`), as a pattern."""


def foreign_name(function: str, meaning: str) -> str:
    """The name of such a call: what Spark calls the expression, for people, and a hash of all that it means."""
    return f"_hf_{re.sub('[^a-z0-9]+', '_', function.lower()).strip('_') or 'expression'}_{meaning}"


def readable(text: str) -> str:
    """An expression for people: calls of Spark's own expressions under the names that Spark gives them."""
    return re.sub(r"\b_hf_([a-z0-9_]+)_[0-9a-f]{16}\b", r"\1", text)


def quoted(name: str) -> str:
    """The text of a reference to the column ``name``."""
    return "`" + name.replace("`", "``") + "`"


@lru_cache(maxsize=2048)
def references(text: str) -> tuple[str, ...]:
    """The columns that an expression reads, each once, in the order of their first use."""
    return tuple(dict.fromkeys(node.name for node in _read(text).find_all(exp.Column, bfs=False)))


def plain(text: str) -> str | None:
    """The column's name, if the expression is nothing but a column."""
    tree = _read(text)
    return tree.name if isinstance(tree, exp.Column) else None


def substitute(text: str, replacement: Mapping[str, str]) -> str:
    """The expression with columns replaced by expressions; columns that are not in ``replacement`` stay."""
    return render(replace_columns(read(text), {name: read(sql) for name, sql in replacement.items()}))


def replace_columns(tree: Tree, replacement: Mapping[str, Tree]) -> Tree:
    """The same on bare trees (in place; the new root is returned)."""
    for node in list(tree.find_all(exp.Column)):
        if (new := replacement.get(node.name)) is None:
            continue
        if node is tree:
            return new.copy()
        node.replace(new.copy())
    return tree


def conjuncts(tree: Tree) -> list[Tree]:
    """The parts of a bare tree that AND connects."""
    parts: list[Tree] = []
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.And):
            waiting += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def conjunction(parts: list[Tree]) -> Tree | None:
    """AND of all parts; None of none."""
    result: Tree | None = None
    for part in parts:
        result = part.copy() if result is None else exp.And(this=result, expression=part.copy())
    return result
