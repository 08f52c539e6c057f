"""The piece of the input that each partition of a scan reads, with its number of rows, if the source knows it."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.results.query_results import QueryInput


def pieces_of(table: str, node: Any) -> list[QueryInput]:
    """Return the pieces of the scan below a physical node, in the order of its partitions."""
    while node.children().size() == 1:
        node = node.children().apply(0)
    kind = node.getClass().getSimpleName()
    if kind == "FileSourceScanExec":
        parquet = node.relation().fileFormat().getClass().getSimpleName() == "ParquetFileFormat"
        partitions = node.inputRDDs().apply(0).partitions()
        return [_of_files(table, place, one.files(), parquet) for place, one in enumerate(partitions)]
    if kind == "RangeExec":
        slices, count = node.numSlices(), int(str(node.numElements()))
        return [
            QueryInput(table, place, (), (place + 1) * count // slices - place * count // slices)
            for place in range(slices)
        ]
    return [QueryInput(table, place) for place in range(node.execute().getNumPartitions())]


def _of_files(table: str, partition: int, files: Any, parquet: bool) -> QueryInput:
    found = tuple((_path(file.filePath().toString()), int(file.start()), int(file.length())) for file in files)
    rows = [rows_of(*one) if parquet else None for one in found]
    known = None if any(one is None for one in rows) else sum(one or 0 for one in rows)
    return QueryInput(table, partition, found, known, sum(length for _, _, length in found))


def _path(address: str) -> str:
    return unquote(urlparse(address).path) if address.startswith("file:") else address


def rows_of(path: str, start: int, length: int) -> int | None:
    """Return the number of rows that Spark reads for a byte range of a Parquet file: the rows of the row groups whose
    middle is in the range. None if the footer cannot be read here."""
    if not os.path.exists(path):
        return None
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return None
    rows = 0
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        first = group.column(0)
        offset = first.data_page_offset
        if first.has_dictionary_page and 0 < first.dictionary_page_offset < offset:
            offset = first.dictionary_page_offset
        size = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
        if start <= offset + size // 2 < start + length:
            rows += group.num_rows
    return rows
