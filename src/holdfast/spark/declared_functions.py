"""A user's function, declared by name: what SQL needs to know to call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import DeclarationError
from holdfast.frontend.user_functions import Described, describe, meaning
from holdfast.plan import nodes
from holdfast.plan.schema import parse_type
from holdfast.plan.types import arrow_type
from holdfast.spark.pickled_functions import pickled


def user_function(name: str, function: Callable[..., Any], returns: str | None) -> nodes.UserFunction:
    """Check the arguments of `Flow.udf`, and return the function. Raises `DeclarationError`."""
    subject = f"udf {name!r}"
    if not isinstance(name, str) or not name.isidentifier():
        raise DeclarationError(f"{subject}: the name must be one that SQL can call, such as 'geocode'")
    if not callable(function):
        raise DeclarationError(f"{subject}: expected a function, found {function!r}", name=name)
    return described(subject, name, describe(function), returns)


def described(subject: str, name: str, found: Described, returns: str | None = None) -> nodes.UserFunction:
    """Return a function whose style of call is known. ``returns``: a declared return type, which must equal the
    function's own, if it has one. Raises `DeclarationError`."""
    if found.style is None:
        raise DeclarationError(f"{subject}: expected a function of one row, found one of groups or batches", name=name)
    given = [parse_type(each, subject=subject) for each in (returns, found.returns) if each is not None]
    if not given:
        raise DeclarationError(f"{subject}: say what it returns, as a Spark type: returns='string'", name=name)
    if len(set(given)) > 1:
        raise DeclarationError(f"{subject}: it returns {given[1]}, not {given[0]}", name=name)
    arrow_type(given[0])
    body = pickled(subject, found.function)
    if not found.nondeterministic:
        mark = f"{found.style} {meaning(found.function)}"
        return nodes.Function(name.lower(), given[0], mark, found.style, body)
    if found.style != "plain":
        advice = "its answers are kept one by one; write it for plain values"
        raise DeclarationError(
            f"{subject}: a nondeterministic function of columns is not supported: {advice}", name=name
        )
    return nodes.Outside(name.lower(), given[0], meaning(found.function), body)
