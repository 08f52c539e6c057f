"""Users' functions that SQL may call: how to mark them, and how to tell whether they changed."""

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
"""PySpark's eval type of a function of one row → its style of call."""

Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "_holdfast_nondeterministic"
_VALUES = (type(None), bool, int, float, complex, str, bytes)


def nondeterministic(function: Function) -> Function:
    """Mark a function whose answer may differ each time: it reads a clock, a database, a web service.

    Registered with ``flow.udf``, it is called once for each row that is inserted; its answer is kept with the row and
    in the epoch's lineage. When the row is deleted, the answer goes with it, and a replay does not call the function
    again.
    """
    arguments.callable_with("nondeterministic", "what it marks", function, "one row")
    try:
        setattr(function, _MARK, True)
    except (AttributeError, TypeError):  # a built-in function or a method, which cannot be marked
        marked = functools.wraps(function)(lambda *arguments: function(*arguments))
        setattr(marked, _MARK, True)
        return marked  # type: ignore[return-value]  # its signature is the function's
    return function


class Described(NamedTuple):
    """A function as it was given to `Flow.udf`: itself, its declared return type, its style of call (None: not per
    row), and whether its answers must be kept."""

    function: Callable[..., Any]
    returns: str | None
    style: str | None
    nondeterministic: bool


def describe(function: Callable[..., Any]) -> Described:
    """Describe a plain function, a function with type hints of pandas or Arrow, or a result of PySpark's ``udf``,
    ``pandas_udf`` or ``arrow_udf``."""
    marked = is_nondeterministic(function)
    kind = getattr(function, "evalType", None)
    if kind is None:
        return Described(function, None, _hinted(function), marked)
    made: Any = function
    marked = marked or not made.deterministic or is_nondeterministic(made.func)
    return Described(made.func, type_text(made.returnType), STYLES.get(kind), marked)


def _hinted(function: Callable[..., Any]) -> str | None:
    """The style of a function by its type hints, as PySpark reads them; None if it is not called per row."""
    try:
        hints = get_type_hints(function)
    except (TypeError, NameError, AttributeError):  # no hints, or hints that cannot be resolved
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
    """Return a hash of a function's behaviour: its text without comments and layout, and the plain values it closes
    over.

    If a function has no text (typed at a prompt), its byte code is used. Functions that it calls are not examined.
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
    """The global values that the function reads by name."""
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    return [] if code is None else [known[name] for name in code.co_names if name in known]


def _text(function: Callable[..., Any]) -> object:
    looked_at = function if inspect.isroutine(function) else type(function)
    if getattr(function, "__name__", "") == "<lambda>":  # its line may hold other lambdas
        return _code(function.__code__)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(looked_at)))
        if sum(isinstance(each, ast.Lambda) for each in ast.walk(tree)) < 2:
            return ast.unparse(tree)
        # Several lambdas on one line share a text, which does not tell them apart.
    except (OSError, TypeError, SyntaxError):  # no source, or a piece of a statement (a lambda inside a call)
        pass
    code = getattr(function, "__code__", None)
    return _code(code) if code is not None else getattr(function, "__qualname__", type(function).__qualname__)


def _code(code: CodeType) -> tuple[object, ...]:
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return (code.co_code.hex(), code.co_names, code.co_varnames, tuple(constants))
