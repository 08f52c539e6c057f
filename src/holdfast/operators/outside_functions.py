"""Outside functions: users' functions that are called once per inserted row, and whose answers go into the lineage.

A question identifies a draw (``2:00ab…:0``: number of the draw, hash of the row, number of the copy). An answer is a
value of the declared type as JSON text. The answers go into the lineage of the epoch, and a replay reads them from
there instead of calling the function. So a function may read a clock, a database or a web service, and every epoch can
still be computed again.

Rows are processed one by one in Python here, since the user's function takes one row. It takes and returns the values
that a deterministic function does (`operators.apply`).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from holdfast.errors import EvaluationError, LogDamaged
from holdfast.foundation.user_code import raised_at
from holdfast.operators.apply import BAD_VALUE, arrow_value, python_values
from holdfast.operators.step import Context

_LONGEST = 200


def ask(
    pickled: bytes, kind: pa.DataType, questions: Sequence[str], arguments: Sequence[pa.Array], subject: str,
    context: Context,
) -> tuple[pa.Array, dict[str, str]]:  # fmt: skip
    """Return the answers as a column of type ``kind``, and as question → text for the lineage.

    A replay takes them from ``context.answers``, and raises LogDamaged if one is missing. Raises EvaluationError if the
    function fails."""
    if context.answers is not None:
        texts = _recall(questions, context.answers, subject, context.epoch)
    else:
        texts = _call(pickled, kind, questions, arguments, subject)
    return pa.array([_value(json.loads(text), kind) for text in texts], kind), dict(zip(questions, texts, strict=True))


def _recall(questions: Sequence[str], answers: Mapping[str, str], subject: str, epoch: int) -> list[str]:
    for question in questions:
        if question not in answers:
            raise LogDamaged(
                f"{subject}: the lineage of epoch {epoch} holds no answer to question {question}, so the epoch cannot "
                "be computed again",
                epoch=epoch,
                question=question,
            )
    return [answers[question] for question in questions]


def _call(
    pickled: bytes, kind: pa.DataType, questions: Sequence[str], arguments: Sequence[pa.Array], subject: str
) -> list[str]:
    if not questions:
        return []
    function = _function(pickled, subject)
    columns = [python_values(column) for column in arguments]
    rows = zip(*columns, strict=True) if columns else (() for _ in questions)
    return [_answer(function, row, kind, subject) for row in rows]


@lru_cache(maxsize=64)
def _function(pickled: bytes, subject: str) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = pickle.loads(pickled)
    except Exception as error:
        raise EvaluationError(
            f"{subject} cannot be loaded by a worker: {type(error).__name__}: {error}; the modules it needs must be "
            "importable there",
            function=subject,
        ) from error
    return function


def _answer(function: Callable[..., Any], row: tuple[Any, ...], kind: pa.DataType, subject: str) -> str:
    call = f"{subject}({', '.join(map(repr, row))})"
    if len(call) > _LONGEST:
        call = call[:_LONGEST] + "…"
    try:
        value = function(*row)
    except (Exception, SystemExit) as error:
        raise EvaluationError(
            f"{call} raised {type(error).__name__}: {error}{raised_at(error)}", function=subject, arguments=repr(row)
        ) from error
    try:
        typed = pa.array([arrow_value(value, kind)], kind)[0].as_py()
        return json.dumps(_plain(typed, kind), separators=(",", ":"))
    except BAD_VALUE as error:
        raise EvaluationError(
            f"{call} returned {value!r}, which is not of the declared type {kind}: {error}",
            function=subject,
            arguments=repr(row),
        ) from error


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Convert a value of type ``kind`` to JSON without loss."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return str(value)
    if pa.types.is_binary(kind):
        return value.hex()
    if pa.types.is_temporal(kind):
        return pa.scalar(value, kind).value
    if pa.types.is_map(kind):
        return [[_plain(key, kind.key_type), _plain(item, kind.item_type)] for key, item in value]
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return value


def _value(plain: Any, kind: pa.DataType) -> Any:
    """The inverse of ``_plain``: convert JSON to a value that Arrow accepts for ``kind``."""
    if plain is None:
        return None
    if pa.types.is_decimal(kind):
        return pa.scalar(plain).cast(kind).as_py()
    if pa.types.is_binary(kind):
        return bytes.fromhex(plain)
    if pa.types.is_map(kind):
        return [(_value(key, kind.key_type), _value(item, kind.item_type)) for key, item in plain]
    if pa.types.is_list(kind):
        return [_value(each, kind.value_type) for each in plain]
    if pa.types.is_struct(kind):
        return {field.name: _value(plain[field.name], field.type) for field in kind}
    return plain
