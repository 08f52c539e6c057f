"""Generators computed natively: explode, posexplode and inline of arrays and maps.

A row becomes as many rows as its array has elements, each with the row's own diff: the number of a row's children is a
function of the row, so what a retraction makes is what the insertion made. Everything is one ``take`` per column: the
parents' columns by a repeated index, the elements' by their own. An element's position is its place in the array.

NULL and empty arrays make nothing or, if it is ``outer``, one row of NULLs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.expressions.compile_term import read
from holdfast.operators.expressions.native_stretch import as_array, columns_by_name, columns_of
from holdfast.operators.expressions.terms import Term
from holdfast.plan.nodes import Generate
from holdfast.plan.types import arrow_type
from holdfast.trace import physical

NATIVE = ("explode", "posexplode", "inline")


@dataclass(frozen=True)
class Explode:
    """A compiled generator. A plain value: it is pickled to the workers."""

    term: Term
    function: str
    outer: bool
    types: tuple[pa.DataType, ...]
    """Of what it adds to the row."""


def compile_generator(step: Generate) -> Explode | None:
    """The generator of a step, compiled. None: Spark must run it."""
    if step.function not in NATIVE or len(step.arguments) != 1:
        return None
    term = read(step.arguments[0], columns_by_name(step.input))
    if term is None or term.raises or not physical.is_list(term.type):
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


def generate(explode: Explode, change: pa.Table) -> pa.Table:
    """The change (``c0…``, ``_diff``) of each row with each of its elements."""
    width = change.num_columns - 1
    kinds = [field.type for field in change.schema][:-1] + list(explode.types)
    schema = pa.schema([*((f"c{place}", kind) for place, kind in enumerate(kinds)), ("_diff", pa.int64())])
    made = [_batch(explode, batch, width, schema) for batch in change.to_batches()]
    return pa.Table.from_batches(made, schema)


def _batch(explode: Explode, batch: pa.RecordBatch, width: int, schema: pa.Schema) -> pa.RecordBatch:
    frame = {place: batch.column(place) for place in columns_of([explode.term])}
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
