"""One step of a linear stretch, run in a task: a filter and projection, a generator, or functions of the user's."""

from __future__ import annotations

import pyarrow as pa

from holdfast.operators.expressions.native_stretch import NativeStretch, apply
from holdfast.operators.generate import Explode, generate
from holdfast.operators.user_functions import FunctionCalls, call_all

NativeStep = NativeStretch | Explode | FunctionCalls


def run_step(step: NativeStep, change: pa.Table) -> pa.Table:
    """The change behind the step."""
    match step:
        case NativeStretch():
            return apply(step, change)
        case Explode():
            return generate(step, change)
        case FunctionCalls():
            return call_all(step, change)
