"""A timestamp plus or minus a constant interval of hours, minutes or seconds, in microseconds.

Intervals of a day (24 hours) or more are not native: in Spark they are calendar days of the session's time zone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.expressions.arithmetic import failing, find_overflow
from holdfast.operators.expressions.terms import Frame, Term, Value, overflow


@dataclass(frozen=True)
class Shifted(Term):
    """``operand``, a timestamp, plus ``micros`` microseconds; fails on overflow."""

    operand: Term
    micros: int
    text: str

    @property
    def operands(self) -> tuple[Term, ...]:
        return (self.operand,)

    @property
    def raises(self) -> bool:
        return True

    def value(self, frame: Frame) -> Value:
        inner = self.operand.value(frame)
        numbers, by = pc.cast(inner.data, pa.int64()), pa.scalar(self.micros)
        try:
            return inner._replace(data=pc.cast(pc.add_checked(numbers, by), self.type))
        except pa.ArrowInvalid:
            data, over = find_overflow("+", numbers, by)
            why = overflow(pa.int64(), self.text)
            return failing(pc.cast(data, self.type), over, why, inner.failed, inner.why)
