"""Checks of users' arguments at the call, so that the error names the argument and not a line far below it."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from holdfast.errors import ArgumentError


def refuse(subject: str, name: str, expected: str, found: object) -> NoReturn:
    """Raise the `ArgumentError` for a wrong argument."""
    kind = "" if found is None else f" ({type(found).__name__})"
    raise ArgumentError(
        f"{subject}: {name} must be {expected}, not {_shown(found)}{kind}",
        subject=subject,
        argument=name,
        expected=expected,
        found=found,
    )


def whole(subject: str, name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number as an int; numpy's integers are accepted. Raise `ArgumentError` otherwise."""
    expected = "a whole number"
    if least is not None:
        expected += f" from {least} to {most}" if most is not None else f" from {least} on"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse(subject, name, expected, value)
    number = int(value.__index__())
    if (least is not None and number < least) or (most is not None and number > most):
        refuse(subject, name, expected, value)
    return number


def epoch(subject: str, name: str, value: Any, least: int | None = None) -> int:
    """Return the number of an epoch. Raise `ArgumentError` otherwise."""
    if isinstance(value, str):
        refuse(subject, name, "the number of an epoch (left out: the last one)", value)
    return whole(subject, name, value, least)


def number(subject: str, name: str, value: Any, least: float = 0.0, what: str = "seconds") -> float:
    """Return a finite number, by default of seconds, as a float. Raise `ArgumentError` otherwise."""
    expected = f"a number of {what}, {least:g} or more" if what else f"a number, {least:g} or more"
    if isinstance(value, bool | str | bytes) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        refuse(subject, name, expected, value)
    try:
        found = float(value)
    except (TypeError, ValueError):
        refuse(subject, name, expected, value)
    if not math.isfinite(found) or found < least:
        refuse(subject, name, expected, value)
    return found


def text(subject: str, name: str, value: Any, what: str = "a text") -> str:
    """Return a text that is not empty. Raise `ArgumentError` otherwise."""
    if not isinstance(value, str) or not value.strip():
        refuse(subject, name, f"{what}, and not empty", value)
    return value


def callable_with(subject: str, name: str, value: Any, of: str, count: int | None = None) -> Callable[..., Any]:
    """Return a function. Raise `ArgumentError` if it is not callable, or if its signature cannot take ``count``
    arguments."""
    if not callable(value):
        refuse(subject, name, f"a function of {of}", value)
    function: Callable[..., Any] = value
    if count is not None and not _takes(function, count):
        found = getattr(function, "__name__", type(function).__name__)
        raise ArgumentError(
            f"{subject}: {name} must be a function of {of}, not {found}{inspect.signature(function)}",
            subject=subject,
            argument=name,
            expected=f"a function of {of}",
            found=function,
        )
    return function


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions not written in Python may have no signature
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def path(subject: str, name: str, value: Any) -> str:
    """Return a path that is not empty, as a text. Raise `ArgumentError` otherwise."""
    if not isinstance(value, str | os.PathLike):
        refuse(subject, name, "a path", value)
    found = os.fspath(value)
    if not isinstance(found, str) or not found.strip():
        refuse(subject, name, "a path that is not empty", value)
    return found


def one_of(subject: str, name: str, value: Any, choices: Collection[str]) -> str:
    """Return a word that is one of ``choices``. Raise `ArgumentError` otherwise."""
    if not isinstance(value, str) or value not in choices:
        refuse(subject, name, f"one of {', '.join(map(repr, choices))}", value)
    return value


def flag(subject: str, name: str, value: Any) -> bool:
    """Return True or False. Raise `ArgumentError` for any other value."""
    if not isinstance(value, bool):
        refuse(subject, name, "True or False", value)
    return value


def session(subject: str, value: Any) -> None:
    """Raise `ArgumentError` if the value is not a Spark session. It is recognised by its attributes, because importing
    PySpark only for this check would take a second."""
    if not (hasattr(value, "sparkContext") and hasattr(value, "createDataFrame")):
        refuse(subject, "spark", "a SparkSession", value)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"
