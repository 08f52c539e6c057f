"""Generators computed natively: explode, posexplode and inline of arrays and maps.

A row becomes as many rows as its array has elements, each with the row's own diff. The new rows are a function of the
row, so the retraction of a row retracts exactly the rows that its insertion inserted. Each column is one ``take``: the
row's columns by a repeated index, the elements' columns by the index of the element. An element's position is its place
in the array.

NULL and empty arrays give no row or, if ``outer``, one row of NULLs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.expressions.compile_term import read
from holdfast.operators.expressions.native_stretch import as_array, columns_by_name, columns_of
from holdfast.operators.expressions.terms import Term
from holdfast.operators.step import NativeStep, StepNode
from holdfast.plan.expression import Tree, readable, references
from holdfast.plan.fingerprint import digest, shape
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.trace import physical

NATIVE = ("explode", "posexplode", "inline")


_GENERATED = 3.0
"""The estimated number of rows that a generator makes of one row."""


@dataclass(frozen=True)
class Generate(StepNode):
    """Each row of the input with each of the rows that a generator makes of it (LATERAL VIEW, ``explode`` in a select
    list).

    ``function`` is the generator's name, without ``_outer``; ``outer``: a row from which no row is made stays, with
    NULLs. Columns: the input's, then those that are ``made``. The node changes the number of rows, so it is never
    pruned, even if no reader needs its columns.
    """

    function: str
    arguments: tuple[Tree, ...]
    made: tuple[Field, ...]
    outer: bool = False

    runs_in_spark = True
    multiplies = True

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + self.made

    @property
    def expressions(self) -> tuple[Tree, ...]:
        return self.arguments

    def compiled(self) -> Explode | None:
        return compile_generator(self)

    def texts(self) -> list[str]:
        call = f"{self.function}({', '.join(map(readable, self.arguments))})"
        return [f"{'outer ' if self.outer else ''}{call} as {', '.join(each.name for each in self.made)}"]

    def meaning(self, *inputs: str) -> str:
        indices = {name: index for index, name in enumerate(self.input.columns)}
        arguments = tuple(shape(each, indices) for each in self.arguments)
        return digest("generate", inputs[0], self.function, arguments, self.outer, len(self.made))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        passed = (name for name in self.input.columns if name in wanted)
        return ({*passed, *references(*self.arguments)},)

    def guessed_rows(self, *inputs: float) -> float:
        return inputs[0] * _GENERATED


@dataclass(frozen=True)
class Explode(NativeStep):
    """A compiled generator. A plain value, which is pickled and sent to the workers."""

    term: Term
    function: str
    outer: bool
    types: tuple[pa.DataType, ...]
    """The types of the columns that the generator adds."""

    def run(self, change: pa.Table) -> pa.Table:
        """Return the change with each row repeated for each of its elements."""
        width = change.num_columns - 1
        kinds = [field.type for field in change.schema][:-1] + list(self.types)
        schema = pa.schema([*((f"c{index}", kind) for index, kind in enumerate(kinds)), ("_diff", pa.int64())])
        return pa.Table.from_batches([_batch(self, batch, width, schema) for batch in change.to_batches()], schema)


def compile_generator(step: Generate, *, as_written: bool = False) -> Explode | None:
    """Compile the generator of a step; None if Spark must run it. ``as_written``: the step is inside a loop."""
    if step.function not in NATIVE or len(step.arguments) != 1:
        return None
    term = read(step.arguments[0], columns_by_name(step.input), as_written=as_written)
    if term is None or (term.raises and not as_written) or not physical.is_list(term.type):
        return None
    made = _made(term.type, step.function)
    wanted = [arrow_type(each.type) for each in step.made]
    return Explode(term, step.function, step.outer, tuple(made)) if made == wanted else None


def _made(kind: pa.DataType, function: str) -> list[pa.DataType]:
    if pa.types.is_map(kind):
        elements = [kind.key_type, kind.item_type]
    elif function == "inline":
        elements = [field.type for field in kind.value_type] if pa.types.is_struct(kind.value_type) else []
    else:
        elements = [kind.value_type]
    return [pa.int32(), *elements] if function == "posexplode" else elements


def _batch(explode: Explode, batch: pa.RecordBatch, width: int, schema: pa.Schema) -> pa.RecordBatch:
    frame = {index: batch.column(index) for index in columns_of([explode.term])}
    array = physical.plain(as_array(explode.term.value(frame), batch.num_rows))
    starts, lengths = physical.spans(array)
    counts = np.maximum(lengths, 1) if explode.outer else lengths
    parents = np.repeat(np.arange(len(array)), counts)
    within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    missing = (lengths == 0)[parents] if explode.outer else None
    places = pa.array(starts[parents] + within, pa.int64(), mask=missing)
    elements = physical.elements(array)
    split = pa.types.is_map(array.type) or explode.function == "inline"
    values = elements.flatten() if split else [elements]
    made = [value.take(places) for value in values]
    if explode.function == "posexplode":
        made.insert(0, pa.array(within.astype(np.int32), mask=missing))
    rows = pa.array(parents)
    passed = [column.take(rows) for column in batch.columns]
    return pa.RecordBatch.from_arrays([*passed[:width], *made, passed[width]], schema=schema)
