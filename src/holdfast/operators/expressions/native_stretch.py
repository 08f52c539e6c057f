"""Linear stretches computed natively: filter and projection over Arrow columns, without Spark.

A stretch is a predicate and outputs. It is compiled once from expressions to terms (`compile_stretch`), and applied to
every batch of every epoch (`NativeStretch.run`). `compile_stretch` returns None for expressions outside the small set
that matches Spark 4 in ANSI mode bit for bit (see `compile_term`); then Spark runs the stretch.

Files: `compile_term` (expressions → terms), `same_terms` (terms that Spark considers equal), `terms` and `arithmetic`
(the terms). Cost of a run: one kernel pass per term; a column that is only passed on is not copied unless rows are
filtered out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import EvaluationError
from holdfast.operators.expressions.compile_term import read
from holdfast.operators.expressions.same_terms import has_twins
from holdfast.operators.expressions.terms import ColumnTerm, Term, Value, whole
from holdfast.operators.step import NativeStep
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.types import arrow_type


@dataclass(frozen=True)
class NativeStretch(NativeStep):
    """A compiled filter and projection."""

    predicate: Term | None
    outputs: tuple[Term, ...]

    def run(self, change: pa.Table) -> pa.Table:
        """Return the outputs of the rows that the predicate keeps, each with the row's diff. Raises EvaluationError if
        an expression fails on one of these rows."""
        names = [f"c{index}" for index in range(len(self.outputs))]
        fields = [*zip(names, (term.type for term in self.outputs), strict=True), ("_diff", pa.int64())]
        schema = pa.schema([pa.field(name, kind) for name, kind in fields])
        return pa.Table.from_batches([_apply_batch(self, batch, schema) for batch in change.to_batches()], schema)


def compile_stretch(step: Linear, *, as_written: bool = False) -> NativeStretch | None:
    """Compile a filter and projection; None if Spark must run it. ``as_written``: the step is inside a loop."""
    known = columns_by_name(step.input)
    kept = None
    if step.predicate is not None:
        kept = read(step.predicate, known, as_written=as_written)
        if kept is None or (has_twins([kept]) and not as_written):
            return None
    terms: list[Term] = []
    for output in step.outputs:
        term = read(output.expression, known, as_written=as_written)
        if term is None or term.type != arrow_type(output.expression.type):
            return None
        terms.append(term)
    return None if has_twins(terms) and not as_written else NativeStretch(kept, tuple(terms))


def columns_by_name(node: Node) -> dict[str, ColumnTerm]:
    return {each.name: ColumnTerm(arrow_type(each.type), index) for index, each in enumerate(node.fields)}


def _apply_batch(stretch: NativeStretch, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if stretch.predicate is not None:
        frame = {index: batch.column(index) for index in columns_of([stretch.predicate])}
        mask = as_array(stretch.predicate.value(frame), batch.num_rows)
        if mask.true_count < batch.num_rows:
            needed = [*columns_of(stretch.outputs), batch.num_columns - 1]
            batch = _only(batch, needed, mask)
    frame = {index: batch.column(index) for index in columns_of(stretch.outputs)}
    arrays = [as_array(term.value(frame), batch.num_rows) for term in stretch.outputs]
    return pa.RecordBatch.from_arrays([*arrays, batch.column(batch.num_columns - 1)], schema=schema)


def _only(batch: pa.RecordBatch, needed: Sequence[int], mask: pa.BooleanArray) -> pa.RecordBatch:
    """Filter the columns ``needed`` by ``mask``. Columns keep their places; all others become columns of type null."""
    count = mask.true_count
    columns = [pa.nulls(count)] * batch.num_columns
    for index in needed:
        columns[index] = batch.column(index).filter(mask)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def as_array(value: Value, rows: int) -> pa.Array:
    """The values as an array of ``rows`` rows. Raises EvaluationError if the expression failed on a row."""
    if value.failed is not None and rows and value.failed.any():
        assert value.why is not None
        condition, words, text = value.why
        raise EvaluationError(
            f"{words} ({text}, on {int(value.failed.sum())} row(s))", condition=condition, expression=text
        )
    return whole(value.data, rows)


def columns_of(terms: Sequence[Term]) -> list[int]:
    """The positions of the columns that the terms read."""
    return sorted({term.position for root in terms for term in _walk(root) if isinstance(term, ColumnTerm)})


def _walk(term: Term) -> Iterator[Term]:
    yield term
    for operand in term.operands:
        yield from _walk(operand)
