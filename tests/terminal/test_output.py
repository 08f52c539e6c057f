"""Rows as CSV, JSON lines, Parquet and tables."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from holdfast.terminal.output import Format, print_rows, write_file, write_rows

ROWS = pa.table(
    {
        "n": pa.array([1, None], pa.int64()),
        "x": pa.array([float("nan"), float("-inf")], pa.float64()),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "at": pa.array([dt.datetime(2020, 1, 2), None], pa.timestamp("us", tz="UTC")),
        "b": pa.array([b"\xff", None], pa.binary()),
        "tags": pa.array([["a", None], None], pa.list_(pa.string())),
        "s": pa.array(['quo"te, ü', "line\nbreak"], pa.string()),
    }
)


def written(format: Format) -> bytes:
    out = io.BytesIO()
    write_rows(ROWS.drop_columns(["b"]) if format is Format.CSV else ROWS, format, out)
    return out.getvalue()


def test_json_is_one_valid_object_per_row() -> None:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    first, second = (json.loads(line, parse_constant=refuse) for line in written(Format.JSON).decode().splitlines())
    assert first == {
        "n": 1, "x": "NaN", "d": "1.50", "at": "2020-01-02T00:00:00+00:00", "b": "/w==", "tags": ["a", None],
        "s": 'quo"te, ü',
    }  # fmt: skip
    assert second["x"] == "-Infinity" and second["n"] is None and second["s"] == "line\nbreak"


def test_csv_has_a_header_and_nested_values_as_json() -> None:
    text = written(Format.CSV).decode()
    assert text.splitlines()[0] == '"n","x","d","at","tags","s"'
    assert '"[""a"", null]"' in text


def test_parquet_reads_back_the_same() -> None:
    back = pq.read_table(io.BytesIO(written(Format.PARQUET)))
    assert back.drop_columns(["x"]).to_pylist() == ROWS.drop_columns(["x"]).to_pylist()
    assert str(back["x"].to_pylist()) == "[nan, -inf]"


def test_a_table_shows_the_first_rows_and_says_how_many_are_left() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    print_rows(pa.table({"n": list(range(120))}), console, "numbers")
    text = console.export_text()
    assert "numbers" in text and " 49 " in text and " 50 " not in text and "and 70 more rows" in text


def test_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    print_rows(pa.table({"[b]": ["[red]x[/red]", "[/]"]}), console, "t")
    text = console.export_text()
    assert "[red]x[/red]" in text and "[/]" in text and "[b]" in text


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("before")
    with pytest.raises(pa.ArrowException):
        write_file(pa.table({"i": pa.array([None], pa.month_day_nano_interval())}), Format.CSV, path)
    assert path.read_text() == "before"
    write_file(ROWS, Format.JSON, path)
    assert [one.name for one in tmp_path.iterdir()] == ["rows.csv"]
    assert path.read_bytes() == written(Format.JSON)
