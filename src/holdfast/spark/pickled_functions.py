"""Functions of the user's as bytes that a worker can load, with what they close over."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from holdfast.errors import DeclarationError


def pickled(subject: str, function: Callable[..., Any]) -> bytes:
    """The function, pickled by Spark's own means. Plain pickle loads it."""
    try:
        result: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise DeclarationError(
            f"{subject}: it cannot be sent to workers: {type(error).__name__}: {error}; what it closes over must be "
            "picklable (make connections inside the function)"
        ) from error
    return result


def ship_by_value(module: ModuleType) -> None:
    """Have a module's functions and classes travel with the tasks: workers cannot import the user's own file."""
    cloudpickle.register_pickle_by_value(module)
