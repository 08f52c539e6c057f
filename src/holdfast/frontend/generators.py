"""Generators: calls that make several rows of one, in the select list, in LATERAL VIEW and in JOIN LATERAL.

While a select list is resolved, a generator's columns become calls of ``__generated`` (the generator's call, which of
its columns), one output column each; so they can be named, ordered by and compared like any tree, and the generator may
stand over aggregates. `plan_generated` makes a `Generate` of them when all that is below is planned.

What the columns are called, if the user does not say, is a matter of types (``key, value`` of a map, ``col`` of an
array, the fields of a struct), which only Spark knows for certain. They are looked up where the argument comes straight
from a source; otherwise an array is assumed, and Spark's analysis refuses what turns out to be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from holdfast.errors import SqlError
from holdfast.frontend.attach import has_subquery
from holdfast.frontend.build import Item, linear
from holdfast.frontend.draws import has_wish
from holdfast.frontend.labels import label, unique
from holdfast.frontend.names import Scope
from holdfast.frontend.place import Text
from holdfast.frontend.resolve import Aliases, resolve
from holdfast.frontend.schema import parse_schema
from holdfast.frontend.windows import has_window
from holdfast.plan.expression import Tree, column, render
from holdfast.plan.nodes import Generate, Node
from holdfast.plan.rewrites.push_filter import source_type

GENERATED = "__generated"
_ROWS = ("explode", "posexplode", "inline", "variant_explode")  # these have a form with _outer
_MAPS = (
    "map", "map_concat", "map_filter", "map_from_arrays", "map_from_entries", "map_sort", "map_zip_with", "str_to_map",
    "transform_keys", "transform_values",
)  # fmt: skip
_KNOWN = (*_ROWS, *(f"{name}_outer" for name in _ROWS), "json_tuple", "stack")


@dataclass(frozen=True)
class Generator:
    """A resolved generator: its call, what its columns are called, and whether rows without elements stay."""

    call: Tree
    names: tuple[str, ...]
    outer: bool


def is_generator(tree: Tree) -> bool:
    """Is this what the user wrote for a generator?"""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in _KNOWN


def read_generator(
    written: exp.Anonymous,
    names: Sequence[str] | None,
    scope: Scope,
    text: Text,
    aliases: Aliases | None = None,
    clause: str = "",
) -> Generator:
    """The generator that the user wrote. ``clause`` names where it stands if there may be no aggregate in it."""
    name = written.name.lower()
    function = name.removesuffix("_outer")
    arguments = [resolve(each, scope, text, aliases, clause, clause) for each in written.expressions]
    if function == "stack":
        first = arguments[0] if arguments else None
        if not (isinstance(first, exp.Literal) and first.name.isdigit() and int(first.name) > 0 and arguments[1:]):
            raise text.error(SqlError, "stack needs a number of rows, written as a number, and values", written)
    elif function == "json_tuple":
        if len(arguments) < 2:
            raise text.error(SqlError, "json_tuple needs a text and the names of fields", written)
    elif len(arguments) != 1:
        raise text.error(SqlError, f"{name} takes one argument, found {len(arguments)}", written)
    if function == "variant_explode" and clause != "LATERAL":
        raise text.unsupported(f"{name} in this place", written, "write FROM t, LATERAL variant_explode(…) AS v")
    if any(map(has_window, arguments)):
        raise text.unsupported(f"a window function inside {name}", written, "compute it in a subquery")
    found = tuple(names) if names else _default_names(function, arguments, scope, text, written)
    lower = [each.lower() for each in found]
    if len(set(lower)) < len(lower):
        raise text.error(SqlError, f"{name} gives two columns one name: {', '.join(found)}", written)
    return Generator(exp.Anonymous(this=function, expressions=arguments), found, name != function)


def _default_names(
    function: str, arguments: Sequence[Tree], scope: Scope, text: Text, written: Tree
) -> tuple[str, ...]:
    """What Spark calls the columns."""
    kind = _kind(arguments[0], scope)
    made = arguments[0].name.lower() if isinstance(arguments[0], exp.Anonymous) else ""
    is_map = (kind or "").startswith("map<") or made in _MAPS
    match function:
        case "explode":
            return ("key", "value") if is_map else ("col",)
        case "posexplode":
            return ("pos", "key", "value") if is_map else ("pos", "col")
        case "variant_explode":
            return ("pos", "key", "value")
        case "json_tuple":
            return tuple(f"c{place}" for place in range(len(arguments) - 1))
        case "stack":
            width = -(-(len(arguments) - 1) // int(arguments[0].name))
            return tuple(f"col{place}" for place in range(width))
    if kind is not None and kind.startswith("array<struct<"):
        return tuple(field.name for field in parse_schema(kind[len("array<struct<") : -2], subject=function))
    raise text.unsupported("inline without names for its columns", written, "name them with AS")


def _kind(tree: Tree, scope: Scope) -> str | None:
    """The type of a column that comes straight from a source."""
    if isinstance(tree, exp.Column):
        for relation in scope.relations:
            if tree.name in relation.internal and tree.name in relation.node.columns:
                return source_type(relation.node, tree.name)
    return None


def output_columns(generator: Generator, number: int) -> list[Item]:
    """Its columns, as output columns of a select list; ``number`` tells the generators of the list apart."""
    # Whether it is outer goes into the name: the tree is compared and copied as a whole.
    this = f"{generator.call.name}{'_outer' if generator.outer else ''}"
    call = exp.Anonymous(this=this, expressions=[each.copy() for each in generator.call.expressions])
    items: list[Item] = []
    for place, name in enumerate(generator.names):
        marks = [exp.Literal.number(number), exp.Literal.number(place), exp.Literal.number(len(generator.names))]
        items.append((name, exp.Anonymous(this=GENERATED, expressions=[call.copy(), *marks])))
    return items


def has_generated(tree: Tree) -> bool:
    return any(_is_generated(node) for node in tree.walk())


def _is_generated(tree: Tree) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name == GENERATED


def plan_generated(
    node: Node, predicate: Tree | None, names: Sequence[str], trees: Sequence[Tree]
) -> tuple[Node, list[Tree]]:
    """The rows of ``node`` that ``predicate`` keeps with what the trees generate, and the trees over that.

    ``names``: what the first of the trees, the output columns, are called. Several generators multiply: each makes its
    rows of what the one before made.
    """
    called = {tree: name for name, tree in zip(names, trees, strict=False)}
    while found := [each for tree in trees for each in tree.walk(bfs=False) if _is_generated(each)]:
        inner = next(each for each in found if not any(map(has_generated, each.expressions[0].expressions)))
        call, number, _, width = inner.expressions
        places = [exp.Literal.number(place) for place in range(int(width.name))]
        columns = [
            exp.Anonymous(this=GENERATED, expressions=[call.copy(), number.copy(), place, width.copy()])
            for place in places
        ]
        function = call.name.removesuffix("_outer")
        plain = exp.Anonymous(this=function, expressions=[each.copy() for each in call.expressions])
        wanted = tuple(called.get(each, function) for each in columns)
        node, made = generated(node, predicate, Generator(plain, wanted, call.name != function))
        predicate = None
        granted = {each: column(name) for each, name in zip(columns, made, strict=True)}
        trees = [tree.transform(lambda each, granted=granted: granted.get(each, each)) for tree in trees]
    return node, list(trees)


def generated(node: Node, predicate: Tree | None, generator: Generator) -> tuple[Node, tuple[str, ...]]:
    """The rows of ``node`` that ``predicate`` keeps with what the generator makes, and its columns' names there."""
    items: list[Item] = [(name, column(name)) for name in node.columns]
    arguments: list[Tree] = []
    for tree in generator.call.expressions:
        if has_wish(tree) or has_subquery(tree):
            name = unique(label(tree), [each for each, _ in items])
            items.append((name, tree))
            tree = column(name)
        arguments.append(tree)
    below = linear(node, predicate, items)
    names: list[str] = []
    for name in generator.names:
        names.append(unique(name, [*below.columns, *names]))
    call = exp.Anonymous(this=generator.call.name, expressions=[each.copy() for each in arguments])
    return Generate(below, render(call), tuple(names), generator.outer), tuple(names)
