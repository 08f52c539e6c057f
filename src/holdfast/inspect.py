"""A log, seen from outside: what a flow keeps and where it stands, without Spark and without stopping it.

Only reads, and takes no lock. Layers never change, and a layer counts only if it carries the digest of an epoch that
the lineage says is complete; so what is read here is always some complete epoch, also while the flow runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from holdfast.coordinator.lineage import Lineage
from holdfast.errors import EpochUnavailable, LogDamaged, UnknownName
from holdfast.frontend.nearest import did_you_mean
from holdfast.operators.kept import Kept
from holdfast.operators.log import LogSpec
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.store.directory import LogDirectory
from holdfast.store.lineage import read_lineage
from holdfast.trace.cover import Chain, cover
from holdfast.trace.name import ALL, LayerName


def describe(log_path: str | os.PathLike[str]) -> dict[str, Any]:
    """How the flow of a log stands, as plain values: flow, epoch, who runs it, its views and inputs, its traces."""
    log = LogDirectory.open(log_path)
    history = _history(log)
    chain, last = _chain(history), len(history) - 1
    collections: dict[str, Any] = {}
    for name, entry in log.read_collections().items():
        collections[name] = {
            "kind": entry["kind"],
            "sql": entry.get("sql", ""),
            "fields": entry["fields"],
            "earliest": _earliest(log.trace_path(entry["fingerprint"], "rows"), last, chain),
        }
    traces = [_trace(path) for path in sorted(log.traces.iterdir())] if log.traces.is_dir() else []
    return {
        "flow": log.flow,
        "log": str(log.path),
        "epoch": last,
        "at": history[-1].clock / 1e6 if history else None,
        "running": log.holder(),
        "collections": collections,
        "offers": {name: history[-1].offers[name] for name in history[-1].offers} if history else {},
        "traces": traces,
        "bytes": sum(trace["bytes"] for trace in traces),
    }


def read_collection(log_path: str | os.PathLike[str], name: str, at: int | None = None) -> pa.Table:
    """The rows of a view (or of an input that the log keeps) as of epoch ``at``, by default the last."""
    log = LogDirectory.open(log_path)
    collections = log.read_collections()
    if name not in collections:
        hint = did_you_mean(name, collections)
        kept = f"; it keeps {', '.join(sorted(collections))}" if collections and not hint else hint
        raise UnknownName(f"log {log.path}: flow '{log.flow}' keeps no view '{name}'{kept}", name=name)
    history = _history(log)
    last = len(history) - 1
    if not 0 <= (at := last if at is None else at) <= last:
        there = f"epochs 0 to {last} are complete" if history else "no epoch is complete yet"
        raise EpochUnavailable(f"view '{name}': there is no epoch {at}; {there}", view=name, epoch=at)
    entry = collections[name]
    try:
        fields = tuple(Field(*pair) for pair in entry["fields"])
        spec = LogSpec(tuple(arrow_type(field.type) for field in fields), tuple(entry["key"]), False, name)
        directory = log.trace_path(entry["fingerprint"], "rows")
    except (KeyError, TypeError) as error:
        raise LogDamaged(
            f"log {log.path}: collections.json does not describe view '{name}'", path=str(log.path)
        ) from error
    kept_rows = Kept(str(directory), spec, fields, _chain(history))
    kept_rows.check(name, at)
    return _ordered(kept_rows.rows(0, ALL, at), entry.get("sql", ""))


def _history(log: LogDirectory) -> list[Lineage]:
    return read_lineage(log.lineage / "log.jsonl")


def _chain(history: list[Lineage]) -> Chain:
    """Nothing is trusted: the flow may be running, and the layers of an epoch that it abandoned may still be there."""
    return Chain(-1, tuple(lineage.digest for lineage in history))


def _names(directory: Path) -> list[LayerName]:
    if not directory.is_dir():
        return []
    return [name for entry in directory.iterdir() if (name := LayerName.parse(entry.name)) is not None]


def _earliest(directory: Path, last: int, chain: Chain) -> int | None:
    """The first epoch as of which a trace can be read; None if it cannot be read at all."""
    try:
        pieces = cover(_names(directory), 0, ALL, last, chain)
    except (EpochUnavailable, LogDamaged):
        return None
    return max((piece.name.floor for piece in pieces if piece.name.since >= 0), default=0)


def _trace(directory: Path) -> dict[str, Any]:
    sizes = [entry.stat().st_size for entry in directory.iterdir() if LayerName.parse(entry.name) is not None]
    return {"trace": directory.name, "layers": len(sizes), "bytes": sum(sizes)}


def _ordered(rows: pa.Table, sql: str) -> pa.Table:
    """A view is a bag; for people it is shown in its own ORDER BY if it has one, else by its columns."""
    kinds = {field.name: field.type for field in rows.schema}
    keys = [(name, order) for name, order in _order_by(sql, rows.column_names) if not pa.types.is_nested(kinds[name])]
    said = {name for name, _ in keys}
    keys += [(name, "ascending") for name in kinds if name not in said and _sorts(kinds[name])]
    return rows.sort_by(keys) if keys and rows.num_rows else rows


def _sorts(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def _order_by(sql: str, columns: list[str]) -> list[tuple[str, str]]:
    """The columns of the outermost ORDER BY, as far as they are columns of the view."""
    try:
        order = sqlglot.parse_one(sql, dialect="spark").args.get("order") if sql else None
    except sqlglot.errors.SqlglotError:
        return []
    spelled = {name.lower(): name for name in columns}
    found = []
    for item in order.expressions if order else ():
        name = spelled.get(item.this.name.lower()) if isinstance(item.this, exp.Column) else None
        if name is None:
            break
        found.append((name, "descending" if item.args.get("desc") else "ascending"))
    return found
