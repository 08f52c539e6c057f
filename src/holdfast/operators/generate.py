"""Generators computed natively: explode, posexplode and inline of arrays and maps.

A row becomes as many rows as its array has elements, each with the row's own diff: the number of a row's children is a
function of the row, so what a retraction makes is what the insertion made. Everything is one ``take`` per column: the
parents' columns by a repeated index, the elements' by their own. An element's position is its place in the array.

NULL and empty arrays make nothing or, if it is ``outer``, one row of NULLs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.operators.expressions import as_array, columns_of
from holdfast.operators.terms import Term
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


def compile_generator(
    generator: str, outer: bool, columns: Sequence[tuple[str, pa.DataType]], types: Sequence[pa.DataType]
) -> Explode | None:
    """The generator over ``columns`` (name, type), giving ``types``. None: Spark must run it."""
    # sqlglot takes a while to import, and workers never need it.
    from holdfast.operators.reading import read
    from holdfast.operators.terms import Column
    from holdfast.plan.expression import read as parse
    from holdfast.plan.expression import render

    call = parse(generator)
    known = {name: Column(kind, position) for position, (name, kind) in enumerate(columns)}
    if call.name not in NATIVE or len(call.expressions) != 1 or len(known) < len(columns):
        return None
    term = read(render(call.expressions[0]), known)
    if term is None or term.raises or not physical.is_list(term.type):
        return None
    made = _made(term.type, call.name)
    return Explode(term, call.name, outer, tuple(made)) if made == list(types) else None


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
