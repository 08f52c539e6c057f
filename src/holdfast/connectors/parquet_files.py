"""Parquet files, read by the tasks themselves with Arrow: no row passes through the JVM.

The driver checks each footer before an epoch starts, so that a truncated file, a missing column or a wrong type is
found before any work is done. A file is cut into parts at its row groups.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connectors.file_access import LOCAL, File, FileAccess
from holdfast.connectors.file_listing import check_unchanged, unreadable
from holdfast.connectors.fit_types import Misfit, fit, fits, without_extra_members
from holdfast.connectors.partition_directories import constant
from holdfast.errors import BadFile, HoldfastError, SchemaError
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

PART_BYTES = 32 << 20
"""Compressed bytes of row groups at which a part is complete. Smaller parts would not be worth a task."""

_BATCH_ROWS = 1 << 19


@dataclass(frozen=True)
class Footer:
    """The facts that the driver keeps of a file's footer."""

    schema: pa.Schema
    groups: tuple[int, ...]
    """The compressed size of each row group."""

    rows: int
    counts: tuple[int, ...] = ()
    """The number of rows of each row group."""


def read_footer(path: str, access: FileAccess = LOCAL) -> Footer:
    """Read the footer of a file. Raises `BadFile` if it has none, as a truncated file."""
    try:
        with _opened(path, access) as file:
            metadata = file.metadata
            groups = tuple(_compressed(metadata.row_group(place)) for place in range(metadata.num_row_groups))
            counts = tuple(metadata.row_group(place).num_rows for place in range(metadata.num_row_groups))
            return Footer(file.schema_arrow, groups, metadata.num_rows, counts)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _bad(path, error) from error


def check_schema(path: str, found: pa.Schema, fields: Sequence[Field], lenient: bool = False) -> None:
    """Raise `SchemaError` unless the file has every declared column, in a type that can fit. With ``lenient`` columns
    may be missing."""
    for field in fields:
        places = found.get_all_field_indices(field.name)
        if lenient and not places:
            continue
        if len(places) != 1:
            what = "is missing" if not places else f"is there {len(places)} times"
            hint = "" if places else f"{did_you_mean(field.name, found.names)}. on_missing='null' takes it as NULL"
            there = ", ".join(found.names)
            raise SchemaError(
                f"file {path!r}: column {field.name!r} ({field.type}) {what}; the file has {there}{hint}",
                path=path,
                column=field.name,
                expected=field.type,
                found=None,
            )
        kind, expected = found.field(places[0]).type, arrow_type(field.type)
        if not fits(without_extra_members(kind, expected), expected):
            raise misfit(path, field.name, field.type, f"found {kind}")


def misfit(path: str, column: str, expected: str, found: str) -> SchemaError:
    """The error for a file's column that does not fit its declared type."""
    return SchemaError(
        f"file {path!r}: column {column!r}: expected {expected}, {found}",
        path=path,
        column=column,
        expected=expected,
        found=found.removeprefix("found "),
    )


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of a file."""

    file: File
    groups: tuple[int, ...]
    fields: tuple[Field, ...]
    size: tuple[int, int] = (0, 0)
    """Rows and compressed bytes, from the footer."""

    said: tuple[tuple[Field, str | None], ...] = ()
    """The columns whose values are in the file's directory names, with these values."""

    lenient: bool = False
    """Whether the file may lack a declared column, which is then NULL."""

    access: FileAccess = LOCAL
    mark: bytes = b""
    """The mark of the file's content, so that parts of two files that differ in it alone are not equal."""

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        check_unchanged(self.file, self.access)
        path = self.file.path
        try:
            with _opened(path, self.access) as file:
                # Checked again: the file may have been replaced by another one of the same size and time of change.
                inside = self._inside()
                check_schema(path, file.schema_arrow, inside, self.lenient)
                names = [field.name for field in inside if field.name in file.schema_arrow.names]
                for batch in file.iter_batches(_BATCH_ROWS, row_groups=list(self.groups), columns=names):
                    yield self._fitted(pa.Table.from_batches([batch]), schema)
        except HoldfastError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _bad(path, error) from error

    def _inside(self) -> list[Field]:
        outside = [field for field, _ in self.said]
        return [field for field in self.fields if field not in outside]

    def _fitted(self, table: pa.Table, schema: pa.Schema) -> pa.Table:
        columns = []
        said = dict(self.said)
        for field, target in zip(self.fields, schema, strict=True):
            if field in said:
                columns.append(constant(said[field], field, table.num_rows))
                continue
            if field.name not in table.column_names:
                columns.append(pa.nulls(table.num_rows, target.type))
                continue
            try:
                column = table.column(field.name)
                declared = without_extra_members(column.type, target.type)
                columns.append(fit(column if declared.equals(column.type) else column.cast(declared), target.type))
            except Misfit as error:
                raise misfit(self.file.path, field.name, field.type, str(error)) from None
        return pa.Table.from_arrays(columns, schema=schema)


def cut(
    file: File,
    footer: Footer,
    fields: tuple[Field, ...],
    said: tuple[tuple[Field, str | None], ...] = (),
    lenient: bool = False,
    access: FileAccess = LOCAL,
    mark: bytes = b"",
) -> list[ParquetPart]:
    """A file as parts of about `PART_BYTES`."""
    parts: list[ParquetPart] = []
    taken: list[int] = []
    size = 0
    for place, group in enumerate(footer.groups):
        taken.append(place)
        size += group
        if size >= PART_BYTES or place == len(footer.groups) - 1:
            rows = sum(footer.counts[each] for each in taken)
            parts.append(ParquetPart(file, tuple(taken), fields, (rows, size), said, lenient, access, mark))
            taken, size = [], 0
    return parts


def _opened(path: str, access: FileAccess = LOCAL) -> pq.ParquetFile:
    # Old writers' 96-bit times are read as nanoseconds by default, which end in the year 2262. The file is not mapped
    # into memory: a file that is truncated while it is read must raise an error, and not kill the process.
    place = access.opened(path) if access.is_remote(path) else path
    return pq.ParquetFile(place, memory_map=False, coerce_int96_timestamp_unit="us")


def _compressed(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(place).total_compressed_size for place in range(group.num_columns))


def _bad(path: str, error: Exception) -> BadFile:
    reason = str(error).split("\n", 1)[0]
    if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
        return unreadable(path, error)
    return BadFile(f"file {path!r}: it does not read as Parquet ({reason}); is it truncated?", path=path, reason=reason)
