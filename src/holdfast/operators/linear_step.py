"""Linear steps of a plan, compiled for tasks."""

from __future__ import annotations

from holdfast.operators.expressions.native_stretch import compile_stretch
from holdfast.operators.generate import Generate, compile_generator
from holdfast.operators.step import NativeStep, StepNode
from holdfast.plan.nodes import Linear, Step


def native_step(step: Step, *, in_loop: bool = False) -> NativeStep | None:
    """Compile a step for tasks; None if Spark must run it."""
    if isinstance(step, Linear):
        return compile_stretch(step, as_written=in_loop)
    if isinstance(step, Generate):
        return compile_generator(step, as_written=in_loop)
    assert isinstance(step, StepNode), f"{type(step).__name__} says not what the tasks run for it"
    return step.compiled()


def is_native_in_loop(steps: tuple[Step, ...]) -> bool:
    """Whether all of ``steps`` can run inside a loop."""
    return all(native_step(step, in_loop=True) is not None for step in steps)


def is_native(steps: tuple[Step, ...]) -> bool:
    """Whether all of ``steps`` can run in tasks, without Spark's expressions."""
    return all(native_step(step) is not None for step in steps)
