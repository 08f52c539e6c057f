"""A column that says whether another is odd: the sample of a linear step, which needs neither key nor trace."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.operators.step import NativeStep, StepNode
from holdfast.plan.fingerprint import digest
from holdfast.plan.nodes import Field


@dataclass(frozen=True)
class Parity(StepNode):
    """Each row of the input, and whether ``column_name``, a whole number that is never NULL, is odd in it."""

    column_name: str
    name: str

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, Field(self.name, "boolean"))

    def compiled(self) -> NativeStep:
        return ParityStep(self.input.columns.index(self.column_name))

    def texts(self) -> list[str]:
        return [f"{self.column_name} is odd as {self.name}"]

    def meaning(self, *inputs: str) -> str:
        return digest("parity", inputs[0], self.input.columns.index(self.column_name))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return ({self.column_name, *(name for name in self.input.columns if name in wanted)},)


@dataclass(frozen=True)
class ParityStep(NativeStep):
    """Whether the column at ``index`` is odd."""

    index: int

    def run(self, change: pa.Table) -> pa.Table:
        odd = pa.array(change.column(self.index).to_numpy() & 1 == np.int64(1))
        width = change.num_columns - 1
        return change.add_column(width, f"c{width}", odd)
