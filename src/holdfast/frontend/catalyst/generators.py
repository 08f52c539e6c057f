"""Catalyst's `Generate`: each row with the rows that a generator makes of it.

Parts of the generator's arguments that Spark does not compute (draws, users' functions, subqueries) become columns
below it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.frontend.build_nodes import extend
from holdfast.frontend.catalyst.relation import Relation
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator
from holdfast.frontend.column_names import label, unique
from holdfast.frontend.placeholders import has_placeholder
from holdfast.frontend.uncorrelated_subqueries import Item, has_subquery
from holdfast.operators.generate import Generate
from holdfast.plan.expression import Column, Tree, number
from holdfast.plan.nodes import Field

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
"""Catalyst's class → the function that `operators.generate.Generate` calls."""

_ADVICE = {
    "PythonUDTF": "let a function of one row return an array of structs, and write inline(f(…))",
    "UserDefinedGenerator": "write explode(…) of an array",
}


def generate(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert `Generate`: the rows below with the rows that the generator makes of each."""
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
        if has_placeholder(tree) or has_subquery(tree):
            name = unique(label(tree), [*below.node.columns, *(each for each, _ in added)])
            added.append((name, tree))
            arguments[place] = Column(name, tree.type)
    node = extend(below.node, added) if added else below.node
    made: list[Field] = []
    outputs = operator.expressions("generatorOutput")
    types = converter.expressions({})
    for each in outputs:
        name = unique(each.name, [*node.columns, *(field.name for field in made)])
        made.append(Field(name, types.type_of(each)))
    ids = tuple((each.id, field.name) for each, field in zip(outputs, made, strict=True))
    node = Generate(node, function, tuple(arguments), tuple(made), bool(operator.parameters["outer"]))
    return replace(below, node=node, outputs=below.outputs + ids)


def _arguments(converter: Converter, generator: CatalystExpression, below: Relation) -> list[Tree]:
    trees = [converter.tree(child, below) for child in generator.children]
    if generator.kind == "Stack":
        count = converter.statement.catalyst.constant(generator.children[0])
        assert isinstance(count, int)
        trees[0] = number(count)
    return trees
