"""Terms that evaluate some of their operands under a condition: AND, OR, CASE, COALESCE.

Operands are evaluated in the order in which they are written. If an operand need not be evaluated on a row, its failure
there is ignored. Spark's optimiser may choose another order, so outside loops `compile_term` only gives these terms
operands that cannot fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc

from holdfast.operators.expressions.terms import Frame, Mask, Term, Value, looked_at, truth


@dataclass(frozen=True)
class Logic(Term):
    """AND and OR, three-valued."""

    operator: Literal["and", "or"]
    left: Term
    right: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.left, self.right)

    def value(self, frame: Frame) -> Value:
        kernel = pc.and_kleene if self.operator == "and" else pc.or_kleene
        left, right = self.left.value(frame), self.right.value(frame)
        found = kernel(left.data, right.data)
        if left.failed is None and right.failed is None:
            return Value(found)
        decided = truth(left.data) if self.operator == "or" else truth(pc.invert(left.data))
        return Value(found, *looked_at([(left, None), (right, ~decided)]))


@dataclass(frozen=True)
class Not(Term):
    """NOT; NULL if the operand is NULL."""

    operand: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        return inner._replace(data=pc.invert(inner.data))


@dataclass(frozen=True)
class Choose(Term):
    """CASE: the value of the first branch whose condition is true, else the default."""

    conditions: tuple[Term, ...]
    values: tuple[Term, ...]
    default: Term

    @property
    def operands(self) -> tuple[Term, ...]:
        return (*self.conditions, *self.values, self.default)

    def value(self, frame: Frame) -> Value:
        tests = [condition.value(frame) for condition in self.conditions]
        values = [term.value(frame) for term in self.values]
        default = self.default.value(frame)
        chosen = default.data
        for test, value in zip(reversed(tests), reversed(values), strict=True):
            # A NULL condition counts as false; if_else would make the result NULL.
            chosen = pc.if_else(pc.fill_null(test.data, False), value.data, chosen)
        if all(each.failed is None for each in (*tests, *values, default)):
            return Value(chosen)
        parts: list[tuple[Value, Mask | None]] = []
        still: Mask = np.ones(1, np.bool_)
        for test, value in zip(tests, values, strict=True):
            taken = truth(test.data)
            parts += [(test, still), (value, still & taken)]
            still = still & ~taken
        return Value(chosen, *looked_at([*parts, (default, still)]))


@dataclass(frozen=True)
class Coalesce(Term):
    """The first operand that is not NULL."""

    choices: tuple[Term, ...]

    @property
    def operands(self) -> tuple[Term, ...]:
        return self.choices

    def value(self, frame: Frame) -> Value:
        values = [choice.value(frame) for choice in self.choices]
        found = pc.coalesce(*(value.data for value in values))
        if all(value.failed is None for value in values):
            return Value(found)
        parts: list[tuple[Value, Mask | None]] = []
        still: Mask = np.ones(1, np.bool_)
        for value in values:
            parts.append((value, still))
            still = still & truth(pc.is_null(value.data))
        return Value(found, *looked_at(parts))
