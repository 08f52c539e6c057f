"""Spark's types as DDL text, and their Arrow types.

The text is Spark's ``simpleString`` (``bigint``, ``decimal(10,2)``, ``struct<a:int,b:array<string>>``), which
`plan.schema` also returns. One difference: the name of a struct's field is in back-quotes if it is not a plain word,
since Spark's own text of ``struct<`a,b`:int>`` cannot be parsed. Types map to Arrow as in Spark's own exchange of rows
with Python. One difference: a ``timestamp`` is always in UTC, whatever the session's time zone, so that a layer's bytes
do not depend on the session that wrote it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pyarrow as pa

from holdfast.errors import SchemaError

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    # Spark recognises a variant by this metadata of its field.
    "variant": pa.struct(
        [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]
    ),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TEXT = re.compile(r"(var)?char\(\d+\)|string collate \w+")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`[:\s]*")
_DURATION = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")


@lru_cache(maxsize=1024)
def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type of a Spark type given as text. Raises SchemaError if Holdfast cannot keep the type."""
    text = text.strip()
    if text in _SIMPLE:
        return _SIMPLE[text]
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    if _TEXT.fullmatch(text):
        return pa.string()
    if _DURATION.fullmatch(text):
        return pa.duration("us")
    if text.startswith("array<") and text.endswith(">"):
        return pa.list_(pa.field("element", arrow_type(text[6:-1])))
    if text.startswith("map<") and text.endswith(">"):
        key, value = _split(text[4:-1])
        return pa.map_(arrow_type(key), arrow_type(value))
    if text.startswith("struct<") and text.endswith(">"):
        return pa.struct([pa.field(name, arrow_type(kind)) for name, kind in map(_field, _split(text[7:-1]))])
    raise SchemaError(f"type {text!r} is not one that Holdfast can keep", type=text)


def field_name(name: str) -> str:
    """The name of a struct's field as written in a type: in back-quotes unless it is a plain word."""
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def type_text(kind: Any) -> str:
    """The text of a PySpark type (``pyspark.sql.types.DataType``)."""
    match kind.typeName():
        case "struct":
            return f"struct<{','.join(f'{field_name(each.name)}:{type_text(each.dataType)}' for each in kind.fields)}>"
        case "array":
            return f"array<{type_text(kind.elementType)}>"
        case "map":
            return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return str(kind.simpleString())


@lru_cache(maxsize=1024)
def doubled_field(text: str) -> str | None:
    """A name that two fields of one struct in the type have (ignoring case, like Spark); None if there is none."""
    if "struct<" not in text:
        return None
    kind, inner = text[: text.index("<")], _split(text[text.index("<") + 1 : -1])
    fields = list(map(_field, inner)) if kind == "struct" else []
    names = [name.lower() for name, _ in fields]
    own = (name for index, (name, _) in enumerate(fields) if names[index] in names[:index])
    inside = (doubled_field(each) for each in ([kind for _, kind in fields] if fields else inner))
    return next(own, None) or next(filter(None, inside), None)


def ddl_type(text: str) -> str:
    """The type as Spark can parse it: with all names of fields in back-quotes."""
    if "struct<" not in text:
        return text
    kind, inner = text[: text.index("<")], _split(text[text.index("<") + 1 : -1])
    if kind == "struct":
        inner = [f"`{name.replace('`', '``')}`:{ddl_type(own)}" for name, own in map(_field, inner)]
    else:
        inner = list(map(ddl_type, inner))
    return f"{kind}<{','.join(inner)}>"


def _split(text: str) -> list[str]:
    """Split at the commas that are not inside brackets or backticks."""
    parts: list[str] = []
    depth, start, quoted = 0, 0, False
    for index, char in enumerate(text):
        if char == "`":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if text[start:]:
        parts.append(text[start:])
    return parts


def _field(text: str) -> tuple[str, str]:
    text = text.strip()
    if quoted := _QUOTED.match(text):
        return quoted[1].replace("``", "`"), text[quoted.end() :]
    name, kind = text.split(":", 1)
    return name.strip(), kind
