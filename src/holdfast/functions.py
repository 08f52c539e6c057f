"""Functions of the user's that SQL may call: marking them, and telling whether they changed."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from hashlib import blake2b
from types import CodeType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "_holdfast_nondeterministic"
_VALUES = (type(None), bool, int, float, complex, str, bytes)


def nondeterministic(function: Function) -> Function:
    """Mark a function whose answer may be another one each time: it reads a clock, a database, a web service.

    Registered with ``flow.udf``, it is called once for each row that comes; its answer is kept with the row and in the
    epoch's lineage. A row that goes takes the answer with it, and a replay does not call the function again.
    """
    try:
        setattr(function, _MARK, True)
    except (AttributeError, TypeError):  # a built-in function or a method: they have no room for a mark
        marked = functools.wraps(function)(lambda *arguments: function(*arguments))
        setattr(marked, _MARK, True)
        return marked  # type: ignore[return-value]  # it is called as the function is
    return function


def is_nondeterministic(function: object) -> bool:
    return getattr(function, _MARK, False) is True


def meaning(function: Callable[..., Any]) -> str:
    """A hash of what a function does: its text without comments and layout, and the plain values it closes over.

    Of a function without a text (typed at a prompt) the byte code stands for it. What it calls is not looked into.
    """
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    closed = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_set(cell)]
    values = [*closed, *(getattr(function, "__defaults__", None) or ())]
    plain = [repr(value) for value in values if isinstance(value, _VALUES)]
    return blake2b(repr((_text(function), plain)).encode(), digest_size=8).hexdigest()


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # looking is the test
    except ValueError:
        return False
    return True


def _text(function: Callable[..., Any]) -> object:
    looked_at = function if inspect.isroutine(function) else type(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(looked_at)))
        if sum(isinstance(each, ast.Lambda) for each in ast.walk(tree)) < 2:
            return ast.unparse(tree)
        # Several lambdas on one line have one text: it does not say which of them this is.
    except (OSError, TypeError, SyntaxError):  # no source, or a piece of a statement (a lambda inside a call)
        pass
    code = getattr(function, "__code__", None)
    return _code(code) if code is not None else getattr(function, "__qualname__", type(function).__qualname__)


def _code(code: CodeType) -> tuple[object, ...]:
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return (code.co_code.hex(), code.co_names, code.co_varnames, tuple(constants))
