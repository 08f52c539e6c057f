"""Rows in the formats that people and programs read."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.foundation.atomic_files import replace_file

_SHOWN = 50
"""So many rows of a table fit a person's patience; the other formats give all."""

_CHUNK = 10_000


class Format(StrEnum):
    """The formats of ``holdfast read``."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def write_rows(rows: pa.Table, format: Format, out: BinaryIO) -> None:
    """Write ``rows`` as CSV, JSON lines or Parquet."""
    match format:
        case Format.CSV:
            flat = [_text(column) if pa.types.is_nested(column.type) else column for column in rows.columns]
            pyarrow.csv.write_csv(pa.table(flat, names=rows.column_names), out)
        case Format.PARQUET:
            pq.write_table(rows, out, compression="zstd")
        case _:
            for start in range(0, rows.num_rows, _CHUNK):
                for row in rows.slice(start, _CHUNK).to_pylist():
                    out.write(json.dumps(plain(row), ensure_ascii=False).encode() + b"\n")


def print_rows(rows: pa.Table, console: Console, title: str) -> None:
    """Show ``rows`` as a table."""
    # Text, not str, throughout: rich takes brackets in a str for markup, and rows may hold anything.
    console.print(Text(title))
    table = Table()
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(Text(field.name), justify="right" if number else "left", overflow="fold")
    for row in rows.slice(0, _SHOWN).to_pylist():
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    console.print(table)
    if rows.num_rows > _SHOWN:
        console.print(f"… and {rows.num_rows - _SHOWN:,} more rows", highlight=False)


def write_file(rows: pa.Table, format: Format, path: Path) -> None:
    """Write to a file, complete or not at all."""
    replace_file(path, lambda out: write_rows(rows, format, out))


def _text(column: pa.ChunkedArray) -> pa.Array:
    values = [None if value is None else json.dumps(plain(value), ensure_ascii=False) for value in column.to_pylist()]
    return pa.array(values, pa.string())


def plain(value: Any) -> Any:
    """A value as JSON has it. What JSON lacks is written as text; decimals too, so that no digit is lost."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case decimal.Decimal() | datetime.timedelta():
            return str(value)
        case _:
            return value


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else str(plain(value))
