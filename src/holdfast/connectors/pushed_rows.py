"""Rows that code pushes, as Arrow columns of the declared types.

Rows come as tuples, dicts, Rows, named tuples, data classes, or as a table: Arrow, pandas, Polars (and any other object
with Arrow's C stream), Spark. Values that have names are matched by name, in structs inside rows too; only plain tuples
and lists are matched by position.

Arrow's own conversion is too lenient for a schema (1.5 becomes the integer 1, 3 becomes a date). So the classes of
Python values are checked first: one pass at C speed over each column collects the set of classes, and the set decides.
A column is checked value by value only after that failed, in order to name the row.

A Python number fits a type in which it is exact (an int in a double column); a bool is not a number. A datetime without
a zone is UTC; a datetime with a zone does not fit ``timestamp_ntz``, which has no zone. None is NULL, and so are
pandas' NA and NaT everywhere; NaN is NULL in tables of pandas only.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connectors.fit_types import Misfit, first_misfit, fit
from holdfast.errors import SchemaError
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

_NOTHING = type(None)
_BOOLEANS: tuple[type, ...] = (bool, np.bool_)
_INTEGERS: tuple[type, ...] = (int, np.integer)


def to_arrow(rows: Any, fields: Sequence[Field], *, subject: str) -> pa.Table:
    """``rows`` as a table of the types of ``fields``. Raises `SchemaError` if they do not fit; its message begins with
    ``subject`` (``input 'orders'``).
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return _from_table(rows, fields, subject)
    if hasattr(rows, "sparkSession") and hasattr(rows, "toArrow"):
        return _from_table(_of_spark(rows, fields, subject), fields, subject)
    if hasattr(rows, "iloc") and hasattr(rows, "dtypes") and hasattr(rows, "columns"):
        return _from_pandas(rows, fields, subject)
    if hasattr(rows, "__arrow_c_stream__"):
        return _from_table(pa.table(rows), fields, subject)
    return _from_rows(rows, fields, subject)


_VALUES = (str, bytes, int, float, decimal.Decimal, datetime.date, datetime.timedelta, np.generic)
"""The classes of plain values of a key of one column."""


def as_rows(keys: Any) -> Any:
    """Keys of one column as rows: plain values become tuples; anything else is returned unchanged."""
    if not isinstance(keys, list | tuple | set | frozenset | range | np.ndarray):
        return keys
    return [(key,) if isinstance(key, _VALUES) or key is None else key for key in keys]


def _of_spark(frame: Any, fields: Sequence[Field], subject: str) -> pa.Table:
    """The rows of a Spark DataFrame. Its column names are checked before it is run."""
    if getattr(frame, "isStreaming", False):
        raise SchemaError(f"{subject}: a streaming DataFrame has no fixed rows; take its batches one by one")
    _check_names(frame.columns, [field.name for field in fields], subject)
    return frame.toArrow()


def _from_rows(rows: Any, fields: Sequence[Field], subject: str) -> pa.Table:
    if isinstance(rows, str | bytes) or _is_named(type(rows)) or not isinstance(rows, Iterable):
        lazy = not isinstance(rows, Mapping) and callable(getattr(rows, "collect", None))
        hint = "collect() it first" if lazy else "a single row goes in a list: [row]"
        raise SchemaError(f"{subject}: expected a list of rows, found {_shown(rows)}; {hint}")
    held = rows if isinstance(rows, list) else list(rows)
    names = [field.name for field in fields]
    columns = _columns(held, names, subject) if held else [()] * len(fields)
    arrays = [_column(values, field, subject) for values, field in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=names)


def _columns(rows: list[Any], names: list[str], subject: str) -> list[Sequence[Any]]:
    """The rows column by column, in the order of ``names``."""
    if any(map(_is_named, set(map(type, rows)))):
        given = [_by_name(row) for row in rows]
        for number, row in enumerate(given):
            if isinstance(row, Mapping) and len(row) != len(rows[number] if isinstance(rows[number], tuple) else row):
                raise _wrong_names(f"{subject}: row {number}", _names_of(rows[number]), names, row=number)
        if all(isinstance(row, Mapping) for row in given):
            return _columns_of_dicts(given, names, subject)
        # Some rows are plain tuples, which are matched by position; rows with names become tuples in that order.
        for number, row in enumerate(given):
            if isinstance(row, Mapping):
                _check_names(list(row.keys()), names, f"{subject}: row {number}", row=number)
                given[number] = tuple(map(row.__getitem__, names))
        rows = given
    return _columns_of_tuples(rows, names, subject)


def _is_named(kind: type) -> bool:
    """Whether values of this class may have names for their members."""
    if issubclass(kind, Mapping) or dataclasses.is_dataclass(kind):
        return True
    # PySpark's Row is recognised by the name of its class, since this module does not import PySpark.
    return issubclass(kind, tuple) and (hasattr(kind, "_fields") or any(one.__name__ == "Row" for one in kind.__mro__))


def _by_name(value: Any) -> Any:
    """A row or struct with names as a mapping; any other value unchanged."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        named = _names_of(value)
        return dict(zip(named, value, strict=True)) if named else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _names_of(value: tuple[Any, ...]) -> list[str]:
    """The names of a named tuple or of a Row; an empty list for a Row that was made without names."""
    named: Any = getattr(value, "__fields__", None) or getattr(type(value), "_fields", ())
    return list(named)


def _columns_of_tuples(rows: list[Any], names: list[str], subject: str) -> list[Sequence[Any]]:
    for number, row in enumerate(rows):
        if not isinstance(row, tuple | list):
            raise SchemaError(
                f"{subject}: row {number}: expected a tuple or dict of ({', '.join(names)}), found {_shown(row)}",
                row=number,
            )
        if len(row) != len(names):
            expected = f"{len(names)} values ({', '.join(names)})"
            raise SchemaError(
                f"{subject}: row {number}: expected {expected}, found {len(row)}: {_shown(row)}",
                row=number,
            )
    return list(zip(*rows, strict=True))


def _columns_of_dicts(rows: list[Mapping[str, Any]], names: list[str], subject: str) -> list[Sequence[Any]]:
    wanted = set(names)
    for number, row in enumerate(rows):
        if row.keys() != wanted:
            raise _wrong_names(f"{subject}: row {number}", list(row.keys()), names, row=number)
    return [list(map(itemgetter(name), rows)) for name in names]


def _check_names(found: Sequence[Any], names: Sequence[str], subject: str, **fields: object) -> None:
    if sorted(map(str, found)) != sorted(names):
        raise _wrong_names(subject, list(found), names, **fields)


def _wrong_names(subject: str, found: Sequence[Any], names: Sequence[str], **fields: object) -> SchemaError:
    for name in found:
        if name not in names:
            hint = did_you_mean(str(name), names) or f"; expected {', '.join(names)}"
            return SchemaError(f"{subject}: column {name!r} is not in the schema{hint}", column=name, **fields)
    missing = next((name for name in names if name not in found), None)
    if missing is None:
        return SchemaError(f"{subject}: a column is there twice: {', '.join(map(str, found))}", **fields)
    return SchemaError(f"{subject}: column {missing!r} is missing (NULL is written None)", column=missing, **fields)


def _column(values: Sequence[Any], field: Field, subject: str) -> pa.Array:
    kind = arrow_type(field.type)
    if any(map(_is_gap, set(map(type, values)))):
        values = [None if _is_gap(type(value)) else value for value in values]
    nested = pa.types.is_nested(kind)
    named = [_with_names(value, kind) for value in values] if nested else values
    try:
        return _converted(named, kind)
    except _REFUSALS:
        for number, value in enumerate(values):
            try:
                _converted([named[number]], kind)
            except _REFUSALS as error:
                gap = isinstance(value, float) and value != value
                detail = "; NULL is written None" if gap else _detail(error)
                raise _unfit(subject, number, field, _shown(value), detail) from None
        # Each value fits by itself, so the column mixes two forms: structs as dicts in some rows, as tuples in others.
        raise SchemaError(
            f"{subject}: column {field.name!r}: write its values all in one way", column=field.name
        ) from None


def _with_names(value: Any, kind: pa.DataType) -> Any:
    """A nested value in which every struct with names is a mapping."""
    types = pa.types
    if value is None or not types.is_nested(kind):
        return None if _is_gap(type(value)) else value
    if types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, Mapping | list | tuple) or not all(isinstance(pair, tuple | list) for pair in pairs):
            return value
        if any(len(pair) != 2 for pair in pairs):
            return value
        return [(_with_names(one, kind.key_type), _with_names(other, kind.item_type)) for one, other in pairs]
    if types.is_list(kind):
        if not isinstance(value, list | tuple):
            return value
        return [_with_names(each, kind.value_type) for each in value]
    named = _by_name(value)
    if isinstance(named, Mapping):
        members = {member.name: member.type for member in kind}
        return {key: _with_names(each, members[key]) if key in members else each for key, each in named.items()}
    if isinstance(named, tuple) and len(named) == kind.num_fields:
        return tuple(_with_names(each, member.type) for each, member in zip(named, kind, strict=True))
    return named


def _is_gap(kind: type) -> bool:
    """Whether ``kind`` is the class of pandas' NA or NaT. It is recognised by its name, since this module does not
    import pandas."""
    return kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas.")


def _unfit(subject: str, number: int, field: Field, found: str, detail: str = "") -> SchemaError:
    return SchemaError(
        f"{subject}: row {number}, column {field.name!r}: expected {field.type}, found {found}{detail}",
        row=number,
        column=field.name,
        expected=field.type,
        found=found,
    )


_REFUSALS = (Misfit, pa.ArrowException, TypeError, ValueError, OverflowError)


def _converted(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    _check_classes(values, kind)
    return pa.array(values, type=kind)


def _check_classes(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise `Misfit` unless every value, also inside nested values, is of a class that fits ``kind``."""
    held = values if isinstance(values, Sequence) else list(values)
    classes = set(map(type, held)) - {_NOTHING}
    allowed, refused = _classes(kind)
    if not all(issubclass(one, allowed) and not issubclass(one, refused) for one in classes):
        raise Misfit("")
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is None and any(each is not None and each.tzinfo for each in held):
        raise Misfit("it has a time zone, and the column has none")
    if not classes or not types.is_nested(kind):
        return
    present = [value for value in held if value is not None]
    if types.is_map(kind):
        pairs = list(itertools.chain.from_iterable(v.items() if isinstance(v, Mapping) else v for v in present))
        _check_classes([pair[0] for pair in pairs], kind.key_type)
        _check_classes([pair[1] for pair in pairs], kind.item_type)
    elif types.is_list(kind):
        _check_classes(list(itertools.chain.from_iterable(present)), kind.value_type)
    else:
        for place, member in enumerate(kind):
            _check_classes([_member(value, member.name, place, kind) for value in present], member.type)


def _member(value: Any, name: str, place: int, kind: pa.StructType) -> Any:
    if isinstance(value, Mapping):
        if value.keys() != {member.name for member in kind}:
            raise Misfit("")
        return value[name]
    if len(value) != kind.num_fields:
        raise Misfit("")
    return value[place]


def _classes(kind: pa.DataType) -> tuple[tuple[type, ...], tuple[type, ...]]:
    """The classes whose values fit ``kind``, and subclasses of these whose values do not."""
    types = pa.types
    if types.is_boolean(kind):
        return _BOOLEANS, ()
    if types.is_integer(kind):
        return _INTEGERS, _BOOLEANS
    if types.is_floating(kind):
        return (*_INTEGERS, float, np.floating), _BOOLEANS
    if types.is_decimal(kind):
        return (decimal.Decimal, *_INTEGERS), _BOOLEANS
    if types.is_string(kind):
        return (str,), ()
    if types.is_binary(kind):
        return (bytes, bytearray, memoryview), ()
    if types.is_date(kind):
        return (datetime.date,), (datetime.datetime,)
    if types.is_timestamp(kind):
        return (datetime.datetime,), ()
    if types.is_duration(kind):
        return (datetime.timedelta,), ()
    if types.is_map(kind):
        return (Mapping, list, tuple), ()
    if types.is_list(kind):
        return (list, tuple, np.ndarray), ()
    if types.is_struct(kind):
        return (Mapping, tuple), ()
    return (), ()


def _from_table(rows: pa.Table, fields: Sequence[Field], subject: str) -> pa.Table:
    names = [field.name for field in fields]
    _check_names(rows.column_names, names, subject)
    columns = []
    for field in fields:
        column, kind = rows.column(field.name), arrow_type(field.type)
        try:
            columns.append(fit(column, kind))
        except Misfit as error:
            number = first_misfit(column, kind)
            raise _unfit(subject, number, field, f"{_shown(column[number].as_py())} ({column.type})") from error
    return pa.table(columns, names=names)


def _from_pandas(rows: Any, fields: Sequence[Field], subject: str) -> pa.Table:
    names = [field.name for field in fields]
    found = [str(name) for name in rows.columns]
    _check_names(found, names, subject)
    columns = []
    for field in fields:
        series, kind = rows[field.name], arrow_type(field.type)
        if series.dtype == object:
            missing = series.isna()
            columns.append(
                _column([None if gap else value for gap, value in zip(missing, series, strict=True)], field, subject)
            )
            continue
        try:
            if series.dtype.kind == "f" and pa.types.is_integer(kind):
                # pandas stores a column of integers with missing values as floats.
                columns.append(pa.array(series, type=kind, from_pandas=True))
            else:
                columns.append(fit(pa.chunked_array([pa.array(series, from_pandas=True)]), kind))
        except (Misfit, pa.ArrowException) as error:
            raise SchemaError(
                f"{subject}: column {field.name!r}: expected {field.type}, found {series.dtype}: {error}",
                column=field.name,
                expected=field.type,
                found=str(series.dtype),
            ) from None
    return pa.table(columns, names=names)


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= 60 else text[:57] + '…'} ({type(value).__name__})"


def _detail(error: Exception) -> str:
    text = str(error).split("\n", 1)[0]
    return f"; {text[:1].lower()}{text[1:]}" if text else ""
