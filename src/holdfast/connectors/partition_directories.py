"""Columns whose values are in directory names: ``date=2024-05-01/`` in the path of a file is a column of its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

import pyarrow as pa

from holdfast.errors import BadFile
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

_AS_THEY_ARE = "!$&'()*+,;=:@-._~"
"""The characters that are not escaped in the path of a URL, beside letters and digits."""

NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""The value that Hive and Spark write for NULL."""


def values_in(path: str, fields: Sequence[Field]) -> tuple[str | None, ...]:
    """The values of these columns in the directory names of ``path``, as texts. Raises `BadFile` if one is missing or
    does not fit its type."""
    said = dict(part.partition("=")[::2] for part in path.split("/")[:-1] if "=" in part)
    found: list[str | None] = []
    for field in fields:
        if field.name not in said:
            raise BadFile(
                f"file {path!r}: no directory of its path says '{field.name}=…'", path=path, column=field.name
            )
        text = unquote(said[field.name])
        value = None if text == NOTHING else text
        try:
            constant(value, field, 0)
        except (pa.ArrowException, ValueError):
            raise BadFile(
                f"file {path!r}: its directory says {field.name}={text}, expected {field.type}",
                path=path,
                column=field.name,
                expected=field.type,
                found=text,
            ) from None
        found.append(value)
    return tuple(found)


def constant(value: str | None, field: Field, rows: int) -> pa.Array:
    """A column of ``rows`` rows that all have the value ``value``."""
    kind = arrow_type(field.type)
    one = pa.array([value], pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        one = one.cast(pa.timestamp("us"))
        return pa.repeat(pa.array(one, pa.timestamp("us")).cast(kind)[0], rows)
    return pa.repeat(one.cast(kind)[0], rows)


def spark_column(field: Field) -> str:
    """A Spark expression for the value of ``field`` in the column ``_path``, which holds a file's path as a URL."""
    name = re.escape(quote(field.name, safe=_AS_THEY_ARE)).replace("\\", "\\\\").replace("'", "\\'")
    text = f"regexp_extract(_path, '.*/{name}=([^/]*)/', 1)"
    for _ in range(2):  # once for the URL, once because Hive and Spark escape characters such as a colon
        text = f"url_decode(replace({text}, '+', '%2B'))"
    return f"CAST(nullif({text}, '{NOTHING}') AS {field.type}) AS {quoted(field.name)}"
