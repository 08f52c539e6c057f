"""Functions of strings inside loops, with the results of Spark's ``UTF8String``, character by character.

All except `Concat` and `Spelled` run row by row: they are functions of several columns, for which Arrow has no kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.expressions.arithmetic import failing
from holdfast.operators.expressions.number_terms import OneOperand
from holdfast.operators.expressions.terms import Failure, Frame, Term, Value, in_turn, looked_at

_MOST, _LEAST = 2**31 - 1, -(2**31)


@dataclass(frozen=True)
class Concat(Term):
    """Concatenated strings; NULL if one of them is NULL."""

    parts: tuple[Term, ...]

    @property
    def operands(self) -> tuple[Term, ...]:
        return self.parts

    def value(self, frame: Frame) -> Value:
        values = [part.value(frame) for part in self.parts]
        return Value(pc.binary_join_element_wise(*(value.data for value in values), ""), *in_turn(values))


@dataclass(frozen=True)
class ConcatWith(Term):
    """``concat_ws``: the strings that are not NULL, with a separator between them; NULL if the separator is NULL."""

    between: Term
    parts: tuple[Term, ...]

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.between, *self.parts)

    def value(self, frame: Frame) -> Value:
        values = [term.value(frame) for term in self.operands]
        rows = max([len(value.data) for value in values if not isinstance(value.data, pa.Scalar)], default=1)
        found = [
            None if between is None else between.join(part for part in parts if part is not None)
            for between, *parts in zip(*(_column(value.data, rows) for value in values), strict=True)
        ]
        return Value(pa.array(found, self.type), *looked_at([(value, None) for value in values]))


@dataclass(frozen=True)
class Spelled(OneOperand):
    """An integer or a boolean as a string."""

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.cast(inner.data, self.type))


@dataclass(frozen=True)
class TextKind:
    """A function of strings: its argument types, its result type, and its code, which raises ValueError to fail."""

    takes: tuple[pa.DataType, ...]
    gives: pa.DataType
    run: Callable[..., Any]


@dataclass(frozen=True)
class TextFunction(Term):
    """A function of `TEXTS`, row by row; NULL if one of its arguments is NULL (`_without` has the exception)."""

    name: str
    arguments: tuple[Term, ...]
    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return self.arguments

    @property
    def raises(self) -> bool:
        return self.name == "like" or super().raises

    def value(self, frame: Frame) -> Value:
        values = [argument.value(frame) for argument in self.arguments]
        failed, why = in_turn(values)
        rows = max([len(value.data) for value in values if not isinstance(value.data, pa.Scalar)], default=1)
        columns = [_column(value.data, rows) for value in values]
        run, found, bad = TEXTS[self.name].run, [], np.zeros(rows, np.bool_)
        for place, given in enumerate(zip(*columns, strict=True)):
            try:
                found.append(run(*given) if None not in given else _without(self.name, given))
            except ValueError:
                found.append(None)
                bad[place] = True
        data = pa.array(found, self.type)
        if not bad.any():
            return Value(data, failed, why)
        words = "The pattern is invalid: the escape character is not allowed to precede that character, or to end it."
        return failing(data, bad, Failure("INVALID_FORMAT", words, self.text), failed, why)


def _without(name: str, given: Sequence[Any]) -> Any:
    """The result of a function if one of its arguments is NULL."""
    return 0 if name == "locate" and given[2] is None else None


def _column(data: Any, rows: int) -> list[Any]:
    return [data.as_py()] * rows if isinstance(data, pa.Scalar) else data.to_pylist()


# -- the functions ----------------------------------------------------------------------------------------------------


def substring(text: str, place: int, length: int) -> str:
    """``length`` characters from a place on, which is counted from 1, or from the end if it is negative."""
    start = place - 1 if place > 0 else len(text) + place if place < 0 else 0
    end = min(max(start + length, _LEAST), _MOST)
    return text[max(start, 0) : max(end, 0)] if end > start else ""


def located(part: str, text: str, place: int) -> int:
    """The first place (counted from 1) at or after ``place`` where ``part`` is found; 0 if there is none."""
    if place < 1:
        return 0
    return 1 if not part else text.find(part, place - 1) + 1


def replaced(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def padded(text: str, length: int, pad: str) -> str:
    """The padding that makes ``text`` ``length`` characters long."""
    lacking = length - len(text)
    return (pad * (lacking // len(pad) + 1))[:lacking] if lacking > 0 and pad else ""


def left_padded(text: str, length: int, pad: str) -> str:
    return (padded(text, length, pad) + text)[: max(length, 0)]


def right_padded(text: str, length: int, pad: str) -> str:
    return (text + padded(text, length, pad))[: max(length, 0)]


@lru_cache(maxsize=10_000)
def pattern_of(like: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression. Raises ValueError for an invalid escape."""
    found, characters = "", iter(like)
    for each in characters:
        if each == "\\":
            each = next(characters, "")
            if each not in ("%", "_", "\\"):
                raise ValueError(like)
            found += re.escape(each)
        else:
            found += {"%": ".*", "_": "."}.get(each) or re.escape(each)
    return re.compile(found, re.DOTALL)


def like(text: str, pattern: str) -> bool:
    return pattern_of(pattern).fullmatch(text) is not None


_S, _I, _B = pa.string(), pa.int32(), pa.bool_()
TEXTS = {
    "substring": TextKind((_S, _I, _I), _S, substring),
    "left": TextKind((_S, _I), _S, lambda text, length: text[: max(length, 0)]),
    "right": TextKind((_S, _I), _S, lambda text, length: text[-length:] if length > 0 else ""),
    "instr": TextKind((_S, _S), _I, lambda text, part: located(part, text, 1)),
    "locate": TextKind((_S, _S, _I), _I, located),
    "contains": TextKind((_S, _S), _B, lambda text, part: part in text),
    "startswith": TextKind((_S, _S), _B, str.startswith),
    "endswith": TextKind((_S, _S), _B, str.endswith),
    "replace": TextKind((_S, _S, _S), _S, replaced),
    "repeat": TextKind((_S, _I), _S, lambda text, times: text * times),
    "lpad": TextKind((_S, _I, _S), _S, left_padded),
    "rpad": TextKind((_S, _I, _S), _S, right_padded),
    "length": TextKind((_S,), _I, len),
    "trim": TextKind((_S,), _S, lambda text: text.strip(" ")),
    "like": TextKind((_S, _S), _B, like),
}
