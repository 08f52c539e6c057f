"""Rows of a kept collection by their key, from its sorted layers: no Spark job, no scan.

A collection is kept arranged by a key (`Node.arrangement`): the grouping columns of an aggregate, the columns of a join
or a window, the key of an input; the whole row, if the plan has no key or its columns are not in the result. The layers
are sorted by the hash of that key. So a question that gives all columns of the key is answered by binary searches in
the mapped layers, O(keys · log rows) per layer; further columns only filter the rows found. A question that lacks a
column of the key needs a scan of the whole collection, which the user must allow.

The hash finds candidates; equality decides, as Spark defines it for grouping: NULL equals NULL, NaN equals NaN, 0.0
equals -0.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connectors.pushed_rows import as_rows, to_arrow
from holdfast.errors import ArgumentError, ScanNeeded, UnknownName, Unsupported
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.plan.nodes import Field
from holdfast.task.view_log import ViewLog
from holdfast.trace import physical
from holdfast.trace.equality import equal_rows
from holdfast.trace.hashing import hash_columns, normalise_keys
from holdfast.trace.name import ALL
from holdfast.trace.physical import Ints, Words
from holdfast.trace.rows import Block, consolidate
from holdfast.trace.trace import Trace

_COLLATED = re.compile(r"collate (?!UTF8_BINARY\b)")


@dataclass(frozen=True)
class Question:
    """The rows to look up: those that equal one of ``values`` in these columns."""

    columns: tuple[int, ...]
    """Positions of the columns in the collection."""

    values: tuple[pa.Array, ...]
    scan: bool
    """Whether only a scan can answer the question."""


def key_columns(fields: Sequence[Field], key: Sequence[int]) -> tuple[str, ...]:
    """The names of the columns by which a collection can be looked up."""
    return tuple(dict.fromkeys(fields[index].name for index in key))


def question(
    name: str, fields: Sequence[Field], key: Sequence[int], keys: Any, named: Mapping[str, Any], scan: bool
) -> Question:
    """Return the question that ``lookup(name, keys, **named)`` asks. Raises `ScanNeeded` if a column of the key is
    missing and ``scan`` is False, `SchemaError` if a value does not fit its column."""
    subject = f"view '{name}', lookup"
    columns = key_columns(fields, key)
    if (keys is None) == (not named):
        by = ", ".join(f"{column}=…" for column in columns) or "column=…"
        raise ArgumentError(
            f"{subject}: give the key by names ({by}) or a list of keys, one of the two",
            subject=subject,
            argument="keys",
            expected="names or a list",
            found=keys,
        )
    if named:
        asked, rows = tuple(named), [tuple(named.values())]
    else:
        rows = as_rows(keys)
        asked = _named_in(rows) or columns
    wanted = [_field(subject, fields, each) for each in asked]
    needs_scan = not columns or not set(columns) <= set(asked)
    if needs_scan and not scan:
        raise ScanNeeded(
            f"view '{name}': its rows are kept by {_listed(columns)}, and were asked for by {_listed(asked)}: that "
            "needs a scan of the whole view; give all columns of its key, or say scan=True",
            view=name,
            key=columns,
            given=asked,
        )
    for each in wanted:
        if _COLLATED.search(fields[each].type):
            raise Unsupported(
                f"{subject}: column '{fields[each].name}' has a collation ({fields[each].type}), and keys are compared "
                "by their bytes here; flow.sql compares as Spark does",
                construct="a look-up by a column with a collation",
            )
    table = to_arrow(rows, [fields[index] for index in wanted], subject=subject)
    values = tuple(physical.plain(column) for column in table.columns)
    return Question(tuple(wanted), values, needs_scan)


def suited(asked: Question, kept: ViewLog) -> Question:
    """Return the question as this log can answer it: with a scan, if the log is not arranged by the columns of the
    question. (The log from before a view's edit may have another key, or none.)"""
    searched = bool(kept.spec.key) and set(kept.spec.key) <= set(asked.columns)
    return asked if searched else replace(asked, scan=True)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) if columns else "no column"


def _field(subject: str, fields: Sequence[Field], name: str) -> int:
    names = [field.name for field in fields]
    if name not in names:
        hint = did_you_mean(name, names) or f"; it has {', '.join(names)}"
        raise UnknownName(f"{subject}: column '{name}' not found{hint}", name=name)
    return names.index(name)


def _named_in(rows: Any) -> tuple[str, ...]:
    """The column names that the keys have: those of a table, or of the first dict; none if the keys are plain
    values."""
    if isinstance(rows, list):
        return tuple(rows[0]) if rows and isinstance(rows[0], Mapping) else ()
    names = rows.column_names if hasattr(rows, "column_names") else getattr(rows, "columns", ())
    return tuple(map(str, names))


def find(kept: ViewLog, at: int, asked: Question) -> pa.Table:
    """Return the same as `answer`, where layers may be on several hosts: each host that has some of the keys is
    asked."""
    low, high = 0, ALL
    if not asked.scan and len(searched := _searched(kept, asked)):
        low, high = int(searched.min()), int(searched.max()) + 1
    found = kept.over(low, high, lambda part, low, high: answer(part, part.open(low, high, at), asked))
    return found.take(pa.array(_in_order(found, asked)))


def _in_order(rows: pa.Table, asked: Question) -> Ints:
    """Positions that put the found rows into the order of the keys. Each host returned its own part of them."""
    columns = [physical.plain(rows.column(each)) for each in asked.columns]
    return _matches(hash_columns(columns, rows=rows.num_rows), columns, hash_columns(asked.values), asked.values)


def answer(kept: ViewLog, trace: Trace, asked: Question) -> pa.Table:
    """Return the rows that the question asks for, each as often as the collection has it, in the order of the keys."""
    arrangement = kept.spec.arrangement
    at = {column: arrangement.places.index(column) for column in asked.columns}
    if asked.scan:
        block = trace.scan()
        hashes = hash_columns([block.columns[at[each]] for each in asked.columns], rows=block.rows)
        searched = hash_columns(asked.values)
    else:
        searched = _searched(kept, asked)
        block = _candidates(trace, searched)
        hashes = block.hash
    columns = [block.columns[at[each]] for each in asked.columns]
    rows = _matches(hashes, columns, searched, asked.values)
    return kept.table_of(block.take(rows), trace.as_of)


def _searched(kept: ViewLog, asked: Question) -> Words:
    """The hashes of the keys."""
    by = dict(zip(asked.columns, asked.values, strict=True))
    return hash_columns([by[column] for column in kept.spec.key])


def _candidates(trace: Trace, searched: Words) -> Block:
    """All rows with these hashes as of the trace's epoch, consolidated: each distinct row once, with its count."""
    if not len(searched):
        return Block.empty(trace.layout)
    hashes = np.unique(searched)
    near = trace.near(int(hashes[0]), int(hashes[-1]))
    _, found = near.matching(hashes)
    return consolidate(found.at(trace.as_of), trace.layout)


def _matches(hashes: Words, columns: Sequence[pa.Array], searched: Words, values: Sequence[pa.Array]) -> Ints:
    """Positions of the rows whose columns equal one of the keys, in the order of the keys."""
    order = np.argsort(searched, kind="stable")
    ordered = searched[order]
    first, after = np.searchsorted(ordered, hashes), np.searchsorted(ordered, hashes, side="right")
    rows = np.repeat(np.arange(len(hashes), dtype=np.int64), after - first)
    if not len(rows):
        return rows
    keys = order[physical.ranges(first, after - first)]
    found = physical.take_all([normalise_keys(column) for column in columns], rows)
    wanted = physical.take_all([normalise_keys(column) for column in values], keys)
    equal = np.flatnonzero(equal_rows(found, wanted))
    rows, keys = rows[equal], keys[equal]
    # If the question has a key twice, its rows are returned once, at its first place.
    sequence = np.lexsort((keys, rows))
    rows, keys = rows[sequence], keys[sequence]
    once = np.ones(len(rows), np.bool_)
    once[1:] = rows[1:] != rows[:-1]
    rows, keys = rows[once], keys[once]
    placed: Ints = rows[np.argsort(keys, kind="stable")]
    return placed
