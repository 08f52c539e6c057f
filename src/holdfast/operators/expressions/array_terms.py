"""Arrays and structs inside loops. A recursion uses them, for example, to keep the path by which it reached a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.expressions.arithmetic import failing, numbers_of
from holdfast.operators.expressions.number_terms import OneOperand
from holdfast.operators.expressions.terms import (
    Failure,
    Frame,
    Term,
    Value,
    compare,
    in_turn,
    looked_at,
    truth,
    whole,
)
from holdfast.trace import physical


@dataclass(frozen=True)
class Joined(Term):
    """Concatenated arrays; NULL if one of them is NULL. A part that is ``single`` is one element, which may be NULL."""

    parts: tuple[Term, ...]
    single: tuple[bool, ...]

    @property
    def operands(self) -> tuple[Term, ...]:
        return self.parts

    def value(self, frame: Frame) -> Value:
        values = [part.value(frame) for part in self.parts]
        rows = rows_of(values)
        flat, starts, lengths, nulls = [], [], [], np.zeros(rows, np.bool_)
        before = 0
        for value, single in zip(values, self.single, strict=True):
            array = whole(value.data, rows)
            if single:
                elements, own, many = array, np.arange(rows), np.ones(rows, np.int64)
            else:
                elements = physical.elements(array)
                own, many = physical.spans(array)
                nulls |= truth(pc.is_null(array))
            flat.append(elements)
            starts.append(own + before)
            lengths.append(many)
            before += len(elements)
        counts = np.stack(lengths, axis=1)
        counts[nulls] = 0
        places = physical.ranges(np.stack(starts, axis=1).ravel(), counts.ravel())
        elements = pa.concat_arrays([each.cast(self.type.value_type) for each in flat]).take(pa.array(places))
        ends = np.concatenate([[0], np.cumsum(counts.sum(axis=1))]).astype(np.int32)
        offsets = pa.array(ends, mask=np.append(nulls, False))
        data = pa.ListArray.from_arrays(offsets, elements).cast(self.type)
        arrays = [value for value, single in zip(values, self.single, strict=True) if not single]
        if len(arrays) == len(values):
            return Value(data, *in_turn(values))
        return Value(data, *looked_at([(value, None) for value in values]))


@dataclass(frozen=True)
class Contained(Term):
    """``array_contains``; NULL if the element is not in the array but a NULL is."""

    array: Term
    element: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.array, self.element)

    def value(self, frame: Frame) -> Value:
        values = [self.array.value(frame), self.element.value(frame)]
        rows = rows_of(values)
        array, wanted = whole(values[0].data, rows), whole(values[1].data, rows)
        starts, lengths = physical.spans(array)
        elements = physical.elements(array).take(pa.array(physical.ranges(starts, lengths)))
        owners = np.repeat(np.arange(rows), lengths)
        equal = truth(compare("=", elements, wanted.take(pa.array(owners))))
        found = np.bincount(owners[equal], minlength=rows) > 0
        unknown = np.bincount(owners[truth(pc.is_null(elements))], minlength=rows) > 0
        nulls = truth(pc.is_null(array)) | truth(pc.is_null(wanted)) | (unknown & ~found)
        return Value(pa.array(found, mask=nulls), *in_turn(values))


@dataclass(frozen=True)
class Element(Term):
    """The element at a place, counted from 0; if ``from_one``, counted from 1, or from the end if the place is
    negative. Fails if there is no such element."""

    array: Term
    place: Term
    from_one: bool
    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.array, self.place)

    @property
    def raises(self) -> bool:
        return True

    def value(self, frame: Frame) -> Value:
        values = [self.array.value(frame), self.place.value(frame)]
        failed, why = in_turn(values)
        rows = rows_of(values)
        array, wanted = whole(values[0].data, rows), whole(values[1].data, rows)
        starts, lengths = physical.spans(array)
        nulls = truth(pc.is_null(array)) | truth(pc.is_null(wanted))
        places = numbers_of(wanted).astype(np.int64)
        if self.from_one:
            places = np.where(places > 0, places - 1, np.where(places < 0, lengths + places, -1))
        outside = ((places < 0) | (places >= lengths)) & ~nulls
        taken = pa.array(np.where(nulls | outside, 0, starts + places), mask=nulls | outside)
        data = physical.elements(array).take(taken).cast(self.type)
        if not outside.any():
            return Value(data, failed, why)
        words = "The index is out of bounds: the array has fewer elements. Use `get` or `try_element_at` to give NULL."
        return failing(data, outside, Failure("INVALID_ARRAY_INDEX", words, self.text), failed, why)


@dataclass(frozen=True)
class Length(OneOperand):
    """``size`` of an array."""

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.cast(pc.list_value_length(inner.data), self.type))


@dataclass(frozen=True)
class Struct(Term):
    """A struct of values, never NULL itself."""

    values: tuple[Term, ...]

    @property
    def operands(self) -> tuple[Term, ...]:
        return self.values

    def value(self, frame: Frame) -> Value:
        values = [each.value(frame) for each in self.values]
        rows = rows_of(values)
        fields = [self.type.field(place) for place in range(self.type.num_fields)]
        arrays = [whole(value.data, rows).cast(field.type) for value, field in zip(values, fields, strict=True)]
        return Value(pa.StructArray.from_arrays(arrays, fields=fields), *looked_at([(value, None) for value in values]))


@dataclass(frozen=True)
class Field(OneOperand):
    """A field of a struct; NULL if the struct is NULL."""

    place: int

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.struct_field(inner.data, [self.place]))


def rows_of(values: list[Value]) -> int:
    """The number of rows of the values; 1 if all values are scalars."""
    return max([len(value.data) for value in values if not isinstance(value.data, pa.Scalar)], default=1)
