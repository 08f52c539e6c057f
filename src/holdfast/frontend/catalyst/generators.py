"""Catalyst's `Generate`: each row with what a generator makes of it.

What Spark does not compute of the generator's arguments (draws, users' functions, subqueries) is a column below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from holdfast.frontend.attach import has_subquery
from holdfast.frontend.build import Item, extend
from holdfast.frontend.catalyst.relation import Relation
from holdfast.frontend.catalyst.tree import Expression, Operator
from holdfast.frontend.draws import has_wish
from holdfast.frontend.labels import label, unique
from holdfast.plan.expression import Tree, column, render
from holdfast.plan.nodes import Generate

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Converter

_FUNCTIONS = {
    "Explode": "explode",
    "PosExplode": "posexplode",
    "Inline": "inline",
    "Stack": "stack",
    "JsonTuple": "json_tuple",
    "VariantExplode": "variant_explode",
}
"""Catalyst's class → the function that `plan.nodes.Generate` calls."""

_ADVICE = {
    "PythonUDTF": "let a function of one row return an array of structs, and write inline(f(…))",
    "UserDefinedGenerator": "write explode(…) of an array",
}


def generate(converter: Converter, operator: Operator) -> Relation:
    """The rows below with what the generator makes of each."""
    below = converter.relation(operator.child)
    generator = operator.expression("generator")
    assert generator is not None
    function = _FUNCTIONS.get(generator.kind)
    if function is None:
        name = converter.statement.catalyst.function_name(generator)
        construct = f"the table function {generator.parameters.get('name') or name}"
        raise converter.statement.unsupported(construct, generator, _ADVICE.get(generator.kind, ""))
    arguments = _arguments(converter, generator, below)
    added: list[Item] = []
    for place, tree in enumerate(arguments):
        if has_wish(tree) or has_subquery(tree):
            name = unique(label(tree), [*below.node.columns, *(each for each, _ in added)])
            added.append((name, tree))
            arguments[place] = column(name)
    node = extend(below.node, added) if added else below.node
    names: list[str] = []
    outputs = operator.expressions("generatorOutput")
    for each in outputs:
        names.append(unique(each.name, [*node.columns, *names]))
    call = render(exp.Anonymous(this=function, expressions=arguments))
    made = tuple((each.id, name) for each, name in zip(outputs, names, strict=True))
    node = Generate(node, call, tuple(names), bool(operator.parameters["outer"]))
    return replace(below, node=node, outputs=below.outputs + made)


def _arguments(converter: Converter, generator: Expression, below: Relation) -> list[Tree]:
    trees = [converter.tree(child, below) for child in generator.children]
    if generator.kind == "Stack":
        count = converter.statement.catalyst.constant(generator.children[0])
        trees[0] = exp.Literal.number(str(count))
    return trees
