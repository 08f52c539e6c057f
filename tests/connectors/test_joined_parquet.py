"""Joining Parquet files: the rows of all of them, as every reader sees them, and clear errors for what is no Parquet
file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.connectors.joined_parquet import join, read, written

SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "flag": pa.bool_(),
        "text": pa.string(),
        "amount": pa.decimal128(20, 2),
        "list": pa.list_(pa.int32()),
        "struct": pa.struct({"a": pa.float64(), "b": pa.string()}),
    }
)

numbers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
rows = st.fixed_dictionaries(
    {
        "number": numbers,
        "flag": st.one_of(st.none(), st.booleans()),
        "text": st.one_of(st.none(), st.text(max_size=8)),
        "amount": st.one_of(st.none(), st.decimals(-(10**9), 10**9, places=2)),
        "list": st.one_of(st.none(), st.lists(st.integers(0, 99), max_size=3)),
        "struct": st.one_of(st.none(), st.fixed_dictionaries({"a": st.floats(-9, 9), "b": st.text(max_size=2)})),
    }
)
forms = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["zstd", "snappy", "none"]),
        "use_dictionary": st.booleans(),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "row_group_size": st.sampled_from([1, 3, 1000]),
    }
)


def put(path: Path, table: pa.Table, **form: Any) -> Path:
    pq.write_table(table, path, **form)
    return path


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(rows, max_size=20), forms), min_size=1, max_size=20))
def test_joined_files_hold_the_rows_of_all(parts: list[tuple[list[dict[str, Any]], dict[str, Any]]]) -> None:
    tables = [pa.Table.from_pylist(some, schema=SCHEMA) for some, _ in parts]
    with tempfile.TemporaryDirectory() as home:
        files = [
            put(Path(home) / f"{number}.parquet", tables[number], **parts[number][1]) for number in range(len(parts))
        ]
        join(files, {b"said": "né".encode()})
        wanted = pa.concat_tables(tables)
        with pq.ParquetFile(files[0], page_checksum_verification=True) as found:
            assert found.read().replace_schema_metadata(None).equals(wanted)
            assert found.metadata.num_rows == wanted.num_rows
            assert found.metadata.metadata[b"said"].decode() == "né"
            groups = [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)]
            assert sum(groups) == wanted.num_rows
        assert duckdb.sql(f"SELECT count(*), count(number) FROM '{files[0]}'").fetchone() == (
            wanted.num_rows,
            wanted.num_rows - wanted["number"].null_count,
        )
        assert pl.read_parquet(files[0])["text"].to_list() == wanted["text"].to_pylist()


def test_every_byte_of_a_footer_is_written_as_it_was_read(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", pa.Table.from_pylist([], schema=SCHEMA).cast(SCHEMA), write_page_index=True)
    data = path.read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert written(read(footer)) == footer


def test_files_with_other_columns_are_not_joined(tmp_path: Path) -> None:
    one = put(tmp_path / "one.parquet", pa.table({"a": [1]}))
    two = put(tmp_path / "two.parquet", pa.table({"b": [1]}))
    with pytest.raises(ValueError, match=r"two\.parquet has other columns than .*one\.parquet"):
        join([one, two], {})


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\xff" * 40 + b"\x08\0\0\0PAR1", b"x" * 40])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    one = put(tmp_path / "one.parquet", pa.table({"a": [1]}))
    two = tmp_path / "two.parquet"
    two.write_bytes(content)
    with pytest.raises(ValueError, match="Parquet"):
        join([one, two], {})
