"""Users' functions as bytes that a worker can load, with the values they close over."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from holdfast.errors import DeclarationError


def pickled(subject: str, function: Callable[..., Any]) -> bytes:
    """Pickle a function with Spark's cloudpickle; plain pickle can load it. Raises `DeclarationError` if that fails."""
    try:
        result: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise DeclarationError(
            f"{subject}: it cannot be sent to workers: {type(error).__name__}: {error}; what it closes over must be "
            "picklable (make connections inside the function)"
        ) from error
    return result


def ship_by_value(module: ModuleType) -> None:
    """Make a module's functions and classes travel with the tasks, because workers cannot import the user's own
    file."""
    cloudpickle.register_pickle_by_value(module)
