"""Functions of the user's that SQL may call: marking them, and telling whether they changed."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from hashlib import blake2b
from types import CodeType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from holdfast.foundation import arguments
from holdfast.plan.types import type_text

STYLES = {
    100: "plain",
    101: "plain",
    200: "pandas",
    204: "pandas iterator",
    250: "arrow",
    251: "arrow iterator",
}
"""PySpark's eval types of functions of one row, and how they are called."""

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "_holdfast_nondeterministic"
_VALUES = (type(None), bool, int, float, complex, str, bytes)


def nondeterministic(function: Function) -> Function:
    """Mark a function whose answer may be another one each time: it reads a clock, a database, a web service.

    Registered with ``flow.udf``, it is called once for each row that comes; its answer is kept with the row and in the
    epoch's lineage. A row that goes takes the answer with it, and a replay does not call the function again.
    """
    arguments.callable_with("nondeterministic", "what it marks", function, "one row")
    try:
        setattr(function, _MARK, True)
    except (AttributeError, TypeError):  # a built-in function or a method: they have no room for a mark
        marked = functools.wraps(function)(lambda *arguments: function(*arguments))
        setattr(marked, _MARK, True)
        return marked  # type: ignore[return-value]  # it is called as the function is
    return function


class Described(NamedTuple):
    """A function as `Flow.udf` was given it: itself, what it says it returns, how it is called (None: in a way that is
    not per row), and whether its answers must be kept."""

    function: Callable[..., Any]
    returns: str | None
    style: str | None
    nondeterministic: bool


def describe(function: Callable[..., Any]) -> Described:
    """A plain function, one with type hints of pandas or Arrow, or what PySpark's ``udf``, ``pandas_udf`` and
    ``arrow_udf`` made of one."""
    marked = is_nondeterministic(function)
    kind = getattr(function, "evalType", None)
    if kind is None:
        return Described(function, None, _hinted(function), marked)
    made: Any = function
    marked = marked or not made.deterministic or is_nondeterministic(made.func)
    return Described(made.func, type_text(made.returnType), STYLES.get(kind), marked)


def _hinted(function: Callable[..., Any]) -> str | None:
    """The style that its type hints tell, as PySpark reads them."""
    try:
        hints = get_type_hints(function)
    except (TypeError, NameError, AttributeError):  # not a function with hints, or hints that name nothing here
        return "plain"
    found = {name: _columnar(hint) for name, hint in hints.items()}
    result, taken = found.pop("return", ""), set(found.values()) - {""}
    if not result:
        return None if taken else "plain"  # columns in, a value out: an aggregate
    return result if taken <= {result} else None


def _columnar(hint: Any) -> str:
    if get_origin(hint) is Iterator:
        inner = get_args(hint)[0]
        inner = get_args(inner)[0] if get_origin(inner) is tuple else inner
        return f"{_columnar(inner)} iterator" if _columnar(inner) else ""
    module, name = getattr(hint, "__module__", "") or "", getattr(hint, "__name__", "")
    if module.startswith("pandas.") and name in ("Series", "DataFrame"):
        return "pandas"
    return "arrow" if module.startswith("pyarrow.") and name.endswith("Array") else ""


def is_nondeterministic(function: object) -> bool:
    return getattr(function, _MARK, False) is True


def meaning(function: Callable[..., Any]) -> str:
    """A hash of what a function does: its text without comments and layout, and the plain values it closes over.

    Of a function without a text (typed at a prompt) the byte code stands for it. What it calls is not looked into.
    """
    function, given = inspect.unwrap(function), []
    while isinstance(function, functools.partial):
        given += [*function.args, *function.keywords.values()]
        function = function.func
    closed = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_set(cell)]
    values = [*closed, *(getattr(function, "__defaults__", None) or ()), *given, *_globals(function)]
    values += (getattr(function, "__kwdefaults__", None) or {}).values()
    plain = [repr(value) for value in values if isinstance(value, _VALUES)]
    return blake2b(repr((_text(function), plain)).encode(), digest_size=8).hexdigest()


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # looking is the test
    except ValueError:
        return False
    return True


def _globals(function: Any) -> list[Any]:
    """The global values that it reads by name."""
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    return [] if code is None else [known[name] for name in code.co_names if name in known]


def _text(function: Callable[..., Any]) -> object:
    looked_at = function if inspect.isroutine(function) else type(function)
    if getattr(function, "__name__", "") == "<lambda>":  # its line may hold others
        return _code(function.__code__)
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
