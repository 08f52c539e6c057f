"""Users' deterministic functions, called on the rows of a change in the task itself.

A deterministic function needs no state: when a row is deleted, the same value is computed again. The *style* of a
function decides how it is called. ``plain`` functions take the values of one row, as in PySpark (a struct is a
`Record`, a map a dict, a timestamp a naive datetime in UTC). ``pandas`` functions take Series (a struct is a
DataFrame), ``arrow`` functions take Arrow arrays; both return as many values as they got. The ``iterator`` forms take
an iterator of batches and return an iterator. A batch is any part of a change, so a function whose value for a row
depends on other rows of the batch is not deterministic.

An exception in the function, or a wrong return value, becomes an `EvaluationError` that names the function.
"""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.errors import EvaluationError
from holdfast.foundation.user_code import raised_at
from holdfast.operators.step import NativeStep, StepNode
from holdfast.plan.fingerprint import digest, positions
from holdfast.plan.nodes import Field, Function, Node, Order, only
from holdfast.plan.types import arrow_type
from holdfast.trace import physical

_LONGEST = 200
BAD_VALUE = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError, AttributeError)
"""What is raised where the result of a function is converted and is not of the declared type."""


@dataclass(frozen=True)
class Applied:
    """A column of an `Apply`: its name, the function that computes it, and the function's argument columns."""

    name: str
    function: Function
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Apply(StepNode):
    """Each row of the input with the results of users' functions. Columns: the input's, then the calls'. An `Apply`
    without calls is its input."""

    calls: tuple[Applied, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + tuple(Field(call.name, call.function.returns) for call in self.calls)

    def compiled(self) -> FunctionCalls:
        return FunctionCalls(
            tuple(
                Called(
                    call.function.name,
                    call.function.style,
                    call.function.pickled,
                    positions(call.arguments, self.input.columns),
                    arrow_type(call.function.returns),
                )
                for call in self.calls
            )
        )

    def texts(self) -> list[str]:
        calls = [f"{each.function.name}({', '.join(each.arguments)}) as {each.name}" for each in self.calls]
        return ["call " + ", ".join(calls)]

    def meaning(self, *inputs: str) -> str:
        calls = tuple(
            (each.function.meaning, each.function.returns, positions(each.arguments, self.input.columns))
            for each in self.calls
        )
        return digest("apply", inputs[0], calls)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        passed = (name for name in self.input.columns if name in wanted)
        return ({*passed, *(name for call in self.calls if call.name in wanted for name in call.arguments)},)

    def pruned(self, wanted: Collection[str], inputs: Sequence[Node]) -> Node:
        calls = tuple(call for call in self.calls if call.name in wanted)
        below = only(inputs[0], self.needs(wanted)[0])
        if not calls:
            return below
        return self if below is self.input and len(calls) == len(self.calls) else Apply(below, calls)

    @property
    def shown_order(self) -> tuple[Order, ...]:
        return self.input.shown_order


@dataclass(frozen=True)
class Called:
    """One call as tasks run it: see `Applied`. ``arguments`` are positions in the row."""

    name: str
    style: str
    pickled: bytes
    arguments: tuple[int, ...]
    type: pa.DataType


@dataclass(frozen=True)
class FunctionCalls(NativeStep):
    """The calls of an `Apply`."""

    calls_users: ClassVar[bool] = True

    calls: tuple[Called, ...]

    def run(self, change: pa.Table) -> pa.Table:
        """Return the change with a column per call after the row's own columns."""
        width = change.num_columns - 1
        kinds = [field.type for field in change.schema][:-1] + [call.type for call in self.calls]
        schema = pa.schema([*((f"c{index}", kind) for index, kind in enumerate(kinds)), ("_diff", pa.int64())])
        made = []
        for batch in change.to_batches():
            if batch.num_rows:
                answers = [
                    answer(call, [batch.column(index) for index in call.arguments], batch.num_rows)
                    for call in self.calls
                ]
                made.append(
                    pa.RecordBatch.from_arrays([*batch.columns[:width], *answers, batch.column(width)], schema=schema)
                )
        return pa.Table.from_batches(made, schema)


class Record(tuple[Any, ...]):
    """A struct as a plain function gets it: a tuple with names, like PySpark's Row."""

    _names: tuple[str, ...]

    def __new__(cls, names: Sequence[str], values: Sequence[Any]) -> Record:
        made = super().__new__(cls, values)
        made._names = tuple(names)
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._names:
            raise AttributeError(name)
        return self[self._names.index(name)]

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(self._names.index(index) if isinstance(index, str) else index)

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self._names, tuple(self))

    def asDict(self) -> dict[str, Any]:
        return dict(zip(self._names, self, strict=True))


def answer(call: Called, arguments: Sequence[pa.Array], rows: int) -> pa.Array:
    """Call the function for the rows of a batch; return its results as an array of the declared type. Raises
    EvaluationError."""
    function = _function(call.pickled, call.name)
    if call.style == "plain":
        return _row_by_row(call, function, arguments, rows)
    given = [_series(each) if call.style.startswith("pandas") else each for each in arguments]
    try:
        if call.style.endswith("iterator"):
            result = _only(function(iter([given[0] if len(given) == 1 else tuple(given)])))
        else:
            result = function(*given)
    except (Exception, SystemExit) as error:
        raise EvaluationError(
            f"function '{call.name}' raised {type(error).__name__}: {error}{raised_at(error)}", function=call.name
        ) from error
    return _checked(call, result, rows)


def _only(results: Iterator[Any]) -> Any:
    found = list(results)
    if len(found) != 1:
        raise ValueError(f"it gave {len(found)} batches for one")
    return found[0]


def _row_by_row(call: Called, function: Callable[..., Any], arguments: Sequence[pa.Array], rows: int) -> pa.Array:
    columns = [python_values(each) for each in arguments]
    made: list[Any] = []
    for row in zip(*columns, strict=True) if columns else ((),) * rows:
        try:
            made.append(function(*row))
        except (Exception, SystemExit) as error:
            raise EvaluationError(
                f"{_shown(call, row)} raised {type(error).__name__}: {error}{raised_at(error)}",
                function=call.name,
                arguments=repr(row),
            ) from error
    try:
        return pa.array([arrow_value(value, call.type) for value in made], call.type)
    except BAD_VALUE:
        index = next(index for index, value in enumerate(made) if not _fits(value, call.type))
        row = tuple(column[index] for column in columns)
        raise EvaluationError(
            f"{_shown(call, row)} returned {made[index]!r}, which is not of the declared type {call.type}",
            function=call.name,
            arguments=repr(row),
        ) from None


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([arrow_value(value, kind)], kind)
    except BAD_VALUE:
        return False
    return True


def _shown(call: Called, row: tuple[Any, ...]) -> str:
    text = f"function '{call.name}'({', '.join(map(repr, row))})"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


@lru_cache(maxsize=64)
def _function(pickled: bytes, name: str) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = pickle.loads(pickled)
    except Exception as error:
        raise EvaluationError(
            f"function '{name}' cannot be loaded by a worker: {type(error).__name__}: {error}; the modules it needs "
            "must be importable there",
            function=name,
        ) from error
    return function


def _checked(call: Called, result: Any, rows: int) -> pa.Array:
    """Convert the result of a pandas or Arrow function to an array of the declared type. Raises EvaluationError."""
    if not hasattr(result, "__len__"):
        raise EvaluationError(
            f"function '{call.name}' returned {type(result).__name__}, expected as many values as it was given",
            function=call.name,
        )
    if len(result) != rows:
        raise EvaluationError(
            f"function '{call.name}' returned {len(result)} values for {rows} rows", function=call.name
        )
    try:
        return _as_array(result, call.type)
    except BAD_VALUE as error:
        raise EvaluationError(
            f"function '{call.name}' returned a {type(result).__name__} which is not of the declared type {call.type}: "
            f"{error}",
            function=call.name,
        ) from error


def _as_array(result: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(result, (pa.Array, pa.ChunkedArray)):
        array = physical.plain(result)
        return array if array.type == kind else array.cast(kind)
    if pa.types.is_struct(kind) and hasattr(result, "columns"):  # a DataFrame
        fields = [_as_array(result[field.name], field.type) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind))
    if pa.types.is_nested(kind):
        return pa.array([arrow_value(value, kind) for value in result], kind)
    return pa.Array.from_pandas(result, type=kind)


def _series(array: pa.Array) -> Any:
    """An argument of a pandas function, converted as in PySpark."""
    kind = array.type
    if pa.types.is_struct(kind):
        import pandas

        fields = array.flatten()
        return pandas.DataFrame({kind.field(i).name: _series(field) for i, field in enumerate(fields)})
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        array = array.cast(pa.timestamp("us"))
    return (
        array.to_pandas(date_as_object=True, maps_as_pydicts="strict")
        if pa.types.is_map(kind)
        else array.to_pandas(date_as_object=True)
    )


def python_values(array: pa.Array) -> list[Any]:
    """An argument of a plain function, as Python values."""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        plain: list[Any] = array.cast(pa.timestamp("us")).to_pylist()
        return plain
    values: list[Any] = array.to_pylist()
    return [_given(value, kind) for value in values] if pa.types.is_nested(kind) else values


def _given(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return Record([field.name for field in kind], [_given(value[field.name], field.type) for field in kind])
    if pa.types.is_map(kind):
        return {_given(key, kind.key_type): _given(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_given(each, kind.value_type) for each in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return value


def arrow_value(value: Any, kind: pa.DataType) -> Any:
    """Convert the result of a plain function to a value that Arrow accepts for ``kind``."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        if hasattr(value, "asDict"):
            value = value.asDict()
        if not isinstance(value, Mapping):
            value = dict(zip((field.name for field in kind), value, strict=True))
        return {field.name: arrow_value(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        items = value.items() if isinstance(value, Mapping) else value
        return [(arrow_value(key, kind.key_type), arrow_value(item, kind.item_type)) for key, item in items]
    if isinstance(value, (str, bytes)):
        raise TypeError("a text is not an array")
    return [arrow_value(each, kind.value_type) for each in value]
