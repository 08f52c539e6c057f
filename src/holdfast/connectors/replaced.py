"""A file, a directory or a query whose result is replaced as a whole: a change is the difference of two versions.

An offer is a version: its number and, for files, the files. The source looks for a new version at most every ``every``
seconds. Files are compared by name, size and time of change first, and if these differ by content: files that were
written again with the same content are not a new version. A query does not tell whether its result changed: each look
is a new version, and rows that are in both versions cancel.

Past versions cannot be read again, so the log keeps the rows of the last version (`operators.replaced`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from holdfast.connectors.file_access import File
from holdfast.connectors.file_offer import columns_of
from holdfast.connectors.files import Files, Format
from holdfast.connectors.source import Offer, Part, Source
from holdfast.connectors.table import Table
from holdfast.connectors.versions import Snapshots, versions
from holdfast.coordinator.retention import parse_retention
from holdfast.errors import DeclarationError, InputError
from holdfast.foundation import arguments
from holdfast.operators.replaced import HIDDEN
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field
from holdfast.plan.schema import parse_schema
from holdfast.plan.types import ddl_type

_TICK = 2.0
"""Seconds: the coarsest resolution of a filesystem's times."""

_QUERY = re.compile(r"\s*(select|with|table|from|values)\b[\s(]", re.I)


def replaced(
    of: str | os.PathLike[str] | Any,
    format: Format = "parquet",
    schema: str | None = None,
    every: float | str = 1.0,
    key: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Source:
    """The current contents of ``of``, as a collection: when they are replaced, the change is the difference.

    ``of`` is a file or a directory (``format``, ``schema`` and ``options`` as for `files`), a Spark DataFrame, which is
    run again each time, or the text of a query over tables of the Spark session (then ``schema`` gives its columns).
    It is looked at every ``every`` seconds (``"10s"``, ``"5m"``). Files count as replaced when their content differs.
    ``key``: columns by which rows are unique; a version in which they are not is refused.

    A version must be complete when it is looked at: write it to another place, and rename it.
    """
    every = arguments.number("replaced", "every", every) if not isinstance(every, str) else _seconds(every)
    if schema is not None:
        arguments.text("replaced", "schema", schema, "a Spark schema such as 'id long, name string'")
    if hasattr(of, "sparkSession"):
        table = Table(of)
        return Replaced("replaced", _OfFrame(lambda spark: of), table.fields, every, key)
    if isinstance(of, str) and _QUERY.match(of):
        if schema is None:
            raise DeclarationError("replaced: give the columns of a query as schema='id long, name string'")
        return Replaced(
            "replaced", _OfFrame(lambda spark: spark.sql(of)), parse_schema(schema, subject="replaced"), every, key
        )
    arguments.path("replaced", "of", of)
    files = _OfFiles(of, format, schema, options)
    return Replaced(f"replaced {os.fspath(of)!r}", files, files.fields, every, key)


def _seconds(text: str) -> float:
    try:
        found = parse_retention(text).seconds
    except ValueError:
        found = None
    if not found:
        arguments.refuse("replaced", "every", "seconds, or a time such as '10s'", text)
    return found


class _OfFiles:
    """The files of a version, read by a source of files that has not taken any file before."""

    def __init__(
        self, path: str | os.PathLike[str], format: Format, schema: str | None, options: Mapping[str, str] | None
    ) -> None:
        def made() -> Files:
            found = Files(path, format, schema, None, "fail", options, "content")
            found.counts_once = False  # a version holds the rows of all its files, also of equal ones
            return found

        self._made: Callable[[], Files] = made
        self._now = self._made()
        self.fields = self._now.fields
        self._zone = "UTC"
        self._checked: tuple[list[File], str] | None = None
        """The files found by the last look, and the digest of their content; None if one of them was so young that it
        may have changed since with the same time of change."""

    def in_session(self, zone: str) -> None:
        self._zone = zone

    def look(self, known: object) -> Offer | None:
        """An offer of the files that are there now; None if they are the version ``known``."""
        fresh = self._made()
        fresh.in_session(self._zone)
        found = fresh.there()
        # A filesystem may have no times of change, or coarse ones: a new file may be replaced without a change of its
        # time.
        recent = (time.time() - _TICK) * 1e9
        timed = all(0 < file.changed < recent for file in found)
        if timed and self._checked == (found, known):
            return None
        offer = fresh.poll() or {"under": "", "files": []}
        content = xxhash.xxh3_128_hexdigest(b"".join(sorted(columns_of(offer).marks)))
        self._checked = (found, content) if timed else None
        if content == known:
            return None
        self._now = fresh
        return {"content": content, "of": offer}

    def parts(self, offer: Offer) -> list[Part]:
        return self._now.parts(offer["of"]) if columns_of(offer["of"]).names else []

    def frame(self, spark: Any, offer: Offer) -> Any:
        return self._now.frame(spark, offer["of"]) if columns_of(offer["of"]).names else None

    def forget(self) -> None:
        """Nothing is kept of a version that was taken or rejected."""


class _OfFrame:
    """A query: each look is a version."""

    def __init__(self, made: Callable[[Any], Any]) -> None:
        self._made = made
        self._read: tuple[Offer, Any] | None = None
        """The last offer that was read, and its result."""

    def in_session(self, zone: str) -> None:
        pass

    def look(self, known: object) -> Offer | None:
        return {"content": None}

    def parts(self, offer: Offer) -> list[Part]:
        raise InputError(
            "replaced: a query is read by Spark in its epoch alone; on a cluster whose executors keep state "
            "(HOLDFAST_LOCAL) write its result to a Parquet file, and give that"
        )

    def frame(self, spark: Any, offer: Offer) -> Any:
        # Spark may run a frame several times, an epoch may ask for it several times, and it may run twice (after a
        # damaged layer was brought back). The result must not change in between.
        if self._read is None or self._read[0] != offer:
            self._read = None
            self._read = (offer, self._made(spark).localCheckpoint())
        return self._read[1]

    def forget(self) -> None:
        self._read = None


class Replaced(Source):
    """See `replaced`."""

    origin = "hf.replaced"
    replayable = False

    def __init__(
        self, subject: str, inner: _OfFiles | _OfFrame, fields: Sequence[Field], every: float, key: Any
    ) -> None:
        keys = () if key is None else versions(subject, fields, key, None).key
        for field in HIDDEN:
            if field.name in [each.name for each in fields]:
                raise DeclarationError(f"{subject}: column {field.name!r}: that name is taken here; rename it")
        self.versions: Snapshots = Snapshots(tuple(fields), keys)
        self.fields = (*fields, *HIDDEN)
        self.patience = every
        self._inner = inner
        self._every = every
        self._next = 0
        self._content: object = None
        self._looked: float | None = None
        self._offer: Offer | None = None

    def in_session(self, zone: str) -> None:
        self._inner.in_session(zone)

    def poll(self) -> Offer | None:
        now = time.monotonic()
        if self._offer is None and (self._looked is None or now - self._looked >= self._every):
            self._looked = now
            found = self._inner.look(self._content)
            self._offer = None if found is None else {"version": self._next, **found}
        return self._offer

    def advance(self, offer: Offer) -> None:
        self._next = offer["version"] + 1
        self._content = offer["content"]
        self._offer = None
        self._inner.forget()

    def reject(self, offer: Offer, error: Exception) -> bool:
        self._offer = self._looked = None  # the next poll looks again
        self._inner.forget()
        return False

    def parts(self, offer: Offer) -> list[Part]:
        return [_Mark(offer["version"]), *(_Rows(part, offer["version"]) for part in self._inner.parts(offer))]

    def frame(self, spark: Any, offer: Offer) -> Any:
        rows = self._inner.frame(spark, offer)
        if rows is None:
            return None
        named = [(quoted(field.name), ddl_type(field.type)) for field in self.versions.fields]
        casts = [f"CAST({name} AS {kind}) AS {name}" for name, kind in named]
        nulls = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in named]
        version = f"{offer['version']}L AS _version"
        mark = spark.range(1).selectExpr(*nulls, version, "true AS _mark")
        return rows.selectExpr(*casts, version, "false AS _mark").union(mark)

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return [offers[-1]]


@dataclass(frozen=True)
class _Rows:
    """A part of a version."""

    part: Part
    version: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        plain = pa.schema(list(schema)[: -len(HIDDEN)])
        for table in self.part.read(plain):
            number = pa.array(np.full(table.num_rows, self.version, np.int64))
            marks = pa.array(np.zeros(table.num_rows, np.bool_))
            yield pa.Table.from_arrays([*table.columns, number, marks], schema=schema)


@dataclass(frozen=True)
class _Mark:
    """A part with one row, which says that a version has come, even if the version has no rows."""

    version: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        nulls = [pa.nulls(1, field.type) for field in list(schema)[: -len(HIDDEN)]]
        yield pa.Table.from_arrays([*nulls, pa.array([self.version], pa.int64()), pa.array([True])], schema=schema)
