"""A durable layer: one zstd Parquet file of canonical rows, for Holdfast and for any other tool that reads Parquet.

The columns and the metadata are those of an Arrow layer (`trace.layer`). The column ``_epoch`` is always written, so
that other tools can tell the epoch of a row. pyarrow keeps the Arrow types in the file, but Parquet has its own names
for the fields inside lists and maps, and no structs without fields: such a struct is stored as a boolean (true where it
is not NULL). So if columns are nested, their original types are in the metadata (``holdfast.types``: base64 of an Arrow
schema message).

Invariant: decoding returns the block bit for bit, so writing it with `write_layer` makes the Arrow file that it was
encoded from, byte for byte; and for one version of pyarrow the bytes are a function of the rows, the layout and the
metadata. The name ends with the checksum of the Parquet bytes, which is compared before anything is decoded.

Cost: O(bytes), once to encode or decode and once to checksum.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from holdfast.errors import LogDamaged, LogFormat
from holdfast.trace import physical
from holdfast.trace.canonical import canonical
from holdfast.trace.layer import Layer, as_batch, check_bytes, check_types, describe, unreadable
from holdfast.trace.name import LayerName
from holdfast.trace.rows import Block, Layout

_GROUP = 1 << 20
"""Rows per row group."""
_LEVEL = 1
_HASHES = ("_hash", "_sub")
_TYPES = b"holdfast.types"


def durable_name(low: int, high: int, first: int, last: int, digest: str, since: int, data: bytes) -> LayerName:
    """The name of a durable layer with these bytes."""
    return LayerName(low, high, first, last, digest, since, xxhash.xxh3_64_hexdigest(data))


def encode_layer(block: Block, layout: Layout, *, metadata: dict[str, str]) -> bytes:
    """A canonical block as the bytes of a Parquet file."""
    if block.rows == 0 and all(pa.types.is_null(column.type) for column in block.columns):
        return _empty(layout, tuple(sorted(metadata.items())))
    return _encoded(block, layout, metadata)


@lru_cache(maxsize=256)
def _empty(layout: Layout, metadata: tuple[tuple[str, str], ...]) -> bytes:
    """The bytes of a layer without rows. Cached, because a round copies many equal ones."""
    return _encoded(Block.empty(layout), layout, dict(metadata))


def _encoded(block: Block, layout: Layout, metadata: dict[str, str]) -> bytes:
    batch = as_batch(block, layout, metadata=metadata)
    if "_epoch" not in batch.schema.names:
        place = next(i for i, name in enumerate(batch.schema.names) if name.startswith("+"))
        batch = batch.add_column(place, pa.field("_epoch", pa.int64()), pa.array(block.epoch, pa.int64()))
    sink = pa.BufferOutputStream()
    table = _storable(pa.Table.from_batches([batch]))
    # This takes a third of the time of the defaults, and files are no larger: hashes do not compress, and dictionaries
    # of keys and values that rarely repeat are wasted work.
    packed = [field.name for field in table.schema if field.name not in _HASHES]
    integers = [field.name for field in table.schema if field.name not in _HASHES and _is_integer(field.type)]
    pq.write_table(
        table,
        sink,
        row_group_size=_GROUP,
        compression={name: "zstd" if name in packed else "none" for name in table.column_names},
        compression_level=dict.fromkeys(packed, _LEVEL),
        use_dictionary=False,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        write_statistics=True,
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_layer(data: bytes, name: LayerName, where: str) -> tuple[Block, Layout, dict[str, str]]:
    """The rows of a durable layer, their layout, and the metadata that the writer added. Raises `LogDamaged` if the
    bytes do not have the checksum in the name, or do not parse; ``where`` names the file in errors."""
    check_bytes(data, name, where)
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        described = describe(table.schema, where)
        table = _restored(table)
        if described.epoch is not None:
            table = table.drop_columns(["_epoch"])
        arrays = [canonical(column) for column in table.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
        check_types(batch.schema)
        layer = Layer(Path(where), name, batch)
        rows = layer.whole.filter(layer.epoch <= name.last) if name.part else layer.whole
        return rows, layer.layout, layer.metadata
    except LogFormat:
        raise
    except (MemoryError, pa.ArrowCancelled) as error:
        raise unreadable(where, error) from error
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        # The checksum matches, so the bytes are those that were written: their content is wrong.
        raise LogDamaged(f"layer {where} does not read: {error}", path=where) from error


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _storable(table: pa.Table) -> pa.Table:
    """The same rows, in types that Parquet can store; the original types go into the metadata."""
    if not any(pa.types.is_nested(kind) for kind in table.schema.types):
        return table
    arrays = [_recast(canonical(column), _stored_type(column.type)) for column in table.columns]
    kept = base64.b64encode(table.schema.remove_metadata().serialize())
    return pa.table(arrays, names=table.schema.names, metadata={**table.schema.metadata, _TYPES: kept})


def _restored(table: pa.Table) -> pa.Table:
    """The rows of `_storable` in their original types, without the metadata entry for them."""
    metadata = dict(table.schema.metadata or {})
    kept = metadata.pop(_TYPES, None)
    if kept is None:
        return table
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(kept)))
    arrays = [_recast(canonical(column), kind) for column, kind in zip(table.columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema.with_metadata(metadata))


def _is_bare(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) and kind.num_fields == 0)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """The type, with booleans in place of structs without fields, at any depth."""
    if _is_bare(kind):
        return pa.bool_()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_stored_type(key.type)), item.with_type(_stored_type(item.type)), kind.keys_sorted)
    if physical.is_list(kind):
        field = kind.value_field.with_type(_stored_type(kind.value_type))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(field, kind.list_size)
        return pa.large_list(field) if pa.types.is_large_list(kind) else pa.list_(field)
    return kind


def _recast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A canonical array with another type, which differs only in the names of inner fields, and in structs without
    fields and the booleans in place of them."""
    # To pyarrow, types that differ in the names of inner fields are equal; but the bytes of a layer differ.
    if not pa.types.is_nested(kind) and not pa.types.is_nested(array.type):
        return array
    rows, validity = len(array), array.buffers()[0]
    if _is_bare(kind):
        return pa.Array.from_buffers(kind, rows, [validity])
    if _is_bare(array.type):
        return pc.if_else(array.is_valid(), True, pa.scalar(None, pa.bool_()))
    if pa.types.is_struct(kind):
        children = [_recast(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, rows, [validity], children=children)
    inner = physical.elements(array)
    if pa.types.is_map(kind):
        entries = _recast(inner, pa.struct([kind.key_field, kind.item_field]))
        return pa.Array.from_buffers(kind, rows, array.buffers()[:2], children=[entries])
    buffers = [validity] if pa.types.is_fixed_size_list(kind) else array.buffers()[:2]
    return pa.Array.from_buffers(kind, rows, buffers, children=[_recast(inner, kind.value_type)])
