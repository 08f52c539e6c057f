"""Rows that code pushes, as Arrow columns of the declared types.

Rows come as tuples, dicts, an Arrow table or a pandas DataFrame. Arrow's own conversion is too kind for a schema (1.5
becomes the integer 1, 3 becomes a date), so Python values are first checked by their classes: one pass at C speed over
each column collects the set of classes, and the set decides. Only when something is wrong is a column gone through
value by value, to name the row.

Python numbers that are exact in the declared type fit it (an int in a double column); a bool is no number. A datetime
without a zone is UTC. None is NULL. In pandas, NaN and NaT mean NULL.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connectors.fit import Misfit, first_misfit, fit
from holdfast.errors import SchemaError
from holdfast.frontend.nearest import did_you_mean
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

_NOTHING = type(None)
_BOOLEANS: tuple[type, ...] = (bool, np.bool_)
_INTEGERS: tuple[type, ...] = (int, np.integer)


def to_arrow(rows: Any, fields: Sequence[Field], *, subject: str) -> pa.Table:
    """``rows`` as a table of the types of ``fields``. ``subject`` says in errors whose rows they are (``input
    'orders'``).
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return _from_table(rows, fields, subject)
    if hasattr(rows, "dtypes") and hasattr(rows, "columns"):
        return _from_pandas(rows, fields, subject)
    return _from_rows(rows, fields, subject)


def _from_rows(rows: Any, fields: Sequence[Field], subject: str) -> pa.Table:
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise SchemaError(
            f"{subject}: expected a list of rows, found {_shown(rows)}; a single row goes in a list: [row]"
        )
    held = rows if isinstance(rows, list) else list(rows)
    names = [field.name for field in fields]
    if not held:
        columns: list[Sequence[Any]] = [()] * len(fields)
    elif all(map(_is_mapping, held)):
        columns = _columns_of_dicts(held, names, subject)
    else:
        columns = _columns_of_tuples(held, names, subject)
    arrays = [_column(values, field, subject) for values, field in zip(columns, fields, strict=True)]
    return pa.table(arrays, names=names)


def _is_mapping(row: object) -> bool:
    return isinstance(row, Mapping)


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
    try:
        return _converted(values, kind)
    except _REFUSALS:
        for number, value in enumerate(values):
            try:
                _converted([value], kind)
            except _REFUSALS as error:
                raise _unfit(subject, number, field, _shown(value), _detail(error)) from None
        # Each value fits alone: structs written as dicts in some rows and as tuples in others.
        raise SchemaError(
            f"{subject}: column {field.name!r}: write its values all in one way", column=field.name
        ) from None


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
    """Raise `Misfit` unless every value is of a class that may stand for ``kind``; nested values too."""
    held = values if isinstance(values, Sequence) else list(values)
    classes = set(map(type, held)) - {_NOTHING}
    allowed, refused = _classes(kind)
    if not all(issubclass(one, allowed) and not issubclass(one, refused) for one in classes):
        raise Misfit("")
    types = pa.types
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
    """The classes whose values may stand for ``kind``, and subclasses of them that may not."""
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
    if sorted(rows.column_names) != sorted(names):
        raise _wrong_names(subject, rows.column_names, names)
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
    if sorted(found) != sorted(names):
        raise _wrong_names(subject, found, names)
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
                # A pandas column of integers with gaps is one of floats.
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
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '…'} ({type(value).__name__})"


def _detail(error: Exception) -> str:
    text = str(error).split("\n", 1)[0]
    return f"; {text[:1].lower()}{text[1:]}" if text and not isinstance(error, Misfit) else ""
