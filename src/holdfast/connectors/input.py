"""Rows pushed from code: ``flow.input``.

Every call of ``insert``, ``delete`` or ``update`` is one **change**. It is checked and converted to Arrow at the call,
so that a wrong row raises in the caller and never fails an epoch. Changes wait in order. An offer is a prefix of the
waiting changes, and holds whole changes: an update is never split over two epochs. Offers number the changes over the
flow's whole life. The rows themselves wait in memory until an epoch took them; from then on they are in the log, from
which a replay reads them (``replayable`` is False).

All methods may be called from any thread, also while an epoch runs, and from the functions of sinks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connectors.pushed_rows import as_rows, to_arrow
from holdfast.connectors.source import Offer, Part, Source
from holdfast.connectors.versions import OnMissing, Versions, arrivals, missing
from holdfast.errors import DeclarationError, InputError, SchemaError, WrongVerb
from holdfast.foundation.first_names import first_names
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.trace.physical import Bools

PART_BYTES = 16 << 20
"""Bytes in a part, at most: a part travels inside the task that reads it, and large tasks are slow to send."""


class Pending(NamedTuple):
    """The number of changes, inserted rows and deleted rows that no epoch has taken yet."""

    changes: int
    inserted: int
    deleted: int


class PushedRows(Source):
    """A collection whose rows come from code: the common base of `Input` and `KeyedInput`."""

    origin = "rows that code pushes"
    replayable = False

    def __init__(self, name: str, fields: tuple[Field, ...], unique: tuple[str, ...] = ()) -> None:
        """``unique``: the columns of a record's id, if the input counts each record once."""
        self.name = name
        self.fields = fields
        self._unique = unique
        self._lock = threading.Lock()
        self._next = 0
        self._offer: Offer | None = None
        self._offered: list[pa.Table] = []
        self._discarded: Offer | None = None
        """The offer whose changes were discarded: an epoch that is about to read that offer gets no rows."""

        self._taking = False
        """Whether an epoch has begun to read the offered changes, and has neither counted nor failed yet."""

        self._waiting: list[pa.Table] = []
        self._closed = ""
        self._rejected = False
        """Whether the epoch of the last offer failed, maybe because of a row in the offer."""

    def __repr__(self) -> str:
        fields = self.fields if self.versions is None else self.versions.fields
        columns = first_names([f"{field.name} {field.type}" for field in fields])
        key = f"; key {', '.join(self.versions.key)}" if isinstance(self.versions, Versions) else ""
        return f"{type(self).__name__}('{self.name}': {columns}{key})"

    def discard(self) -> Pending:
        """Forget all changes that no epoch has taken, and return how many there were. Use it for a change that fails
        every epoch. Changes that a running epoch reads are not forgotten: they count if that epoch succeeds, and wait
        again if it fails.

        From any thread; it waits for no epoch."""
        with self._lock:
            if self._taking:
                forgotten, self._waiting = _counted(self._waiting), []
                return forgotten
            forgotten = _counted(self._offered + self._waiting)
            self._discarded = self._offer or self._discarded
            self._offer, self._offered, self._waiting = None, [], []
        return forgotten

    @property
    def pending(self) -> Pending:
        """The changes that no epoch has taken yet. From any thread."""
        with self._lock:
            return _counted(self._offered + self._waiting)

    def poll(self) -> Offer | None:
        with self._lock:
            if self._offer is None and self._waiting:
                self._offered, self._waiting = self._waiting, []
                self._offer = {"first": self._next, "changes": len(self._offered)}
            return self._offer

    def advance(self, offer: Offer) -> None:
        with self._lock:
            self._next = offer["first"] + offer["changes"]
            self._rejected = False
            # The rows of an offer of a past epoch do not wait here.
            if offer == self._offer:
                self._offer, self._offered, self._taking = None, [], False

    def reject(self, offer: Offer, error: Exception) -> bool:
        # No epoch took the offer. The next offer also holds what was pushed since: that may repair a wrong change.
        with self._lock:
            if offer == self._offer:
                self._offer, self._offered, self._waiting = None, [], self._offered + self._waiting
                self._taking, self._rejected = False, True
        return False

    def parts(self, offer: Offer) -> list[Part]:
        with self._lock:
            if self._offer is None and offer == self._discarded:
                return []
            if offer != self._offer:
                last = offer["first"] + offer["changes"] - 1
                raise InputError(
                    f"input '{self.name}': changes {offer['first']} to {last} are not held "
                    "any more; they are in the log if their epoch is complete",
                    name=self.name,
                )
            self._taking = True
            rows = self._rows(self._offered, offer["first"])
        return [InlinePart(_encoded(piece)) for piece in _cut(rows)]

    def _rows(self, changes: Sequence[pa.Table], first: int) -> pa.Table:
        """The rows of ``changes``, of which the first has the number ``first``."""
        raise NotImplementedError

    def close(self, why: str) -> None:
        """Refuse rows from now on, for the reason ``why``: no epoch would ever take them from this input."""
        self._closed = why

    def _add(self, change: pa.Table) -> None:
        if self._closed:
            raise DeclarationError(
                f"input '{self.name}': {self._closed}, so these rows would be lost; make the flow again, and push to "
                "its input",
                name=self.name,
            )
        if change.num_rows:
            with self._lock:
                self._waiting.append(change)

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return [{"first": offers[0]["first"], "changes": sum(offer["changes"] for offer in offers)}]

    def waiting(self) -> int:
        with self._lock:
            return sum(table.num_rows for table in self._waiting)


class Input(PushedRows):
    """A collection whose rows come from code, as insertions and deletions of whole rows."""

    retracts = True

    if not TYPE_CHECKING:  # a type checker reports missing methods by itself

        def __getattr__(self, verb: str) -> NoReturn:
            if verb in ("upsert", "delete_keys"):
                raise WrongVerb(
                    f"input '{self.name}': {verb} is for inputs with a key; declare it with key='…', or use insert, "
                    "delete and update, with whole rows",
                    name=self.name,
                )
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{verb}'", name=verb, obj=self)

    def apart(self) -> Input:
        """A new, empty input with the same declaration, for another flow. From any thread."""
        return Input(self.name, self.fields, self._unique)

    def insert(self, rows: Any) -> None:
        """Add rows (a list of tuples or dicts, an Arrow table, a pandas DataFrame). Takes effect in the next epoch.

        From any thread; it waits for no epoch."""
        self._push((rows, 1))

    def delete(self, rows: Any) -> None:
        """Remove rows, given in full. A row that is not there fails the epoch that takes the change; then call
        `discard`.

        From any thread; it waits for no epoch."""
        self._push((rows, -1))

    def update(self, old: Any, new: Any) -> None:
        """Remove ``old`` and add ``new``, in the same epoch. Raises `InputError` if the input counts each record once
        by its id: there a new record needs a new id.

        From any thread; it waits for no epoch."""
        if self._unique:
            raise InputError(
                f"input '{self.name}': records count once by {', '.join(self._unique)}, so a row cannot be updated: "
                "delete it, and insert the new one with a new id",
                name=self.name,
            )
        self._push((old, -1), (new, 1))

    def _push(self, *changes: tuple[Any, int]) -> None:
        tables = []
        for rows, diff in changes:
            table = to_arrow(rows, self.fields, subject=f"input '{self.name}'")
            tables.append(table.append_column("_diff", pa.array(np.full(table.num_rows, diff, dtype=np.int64))))
        self._add(pa.concat_tables(tables))

    def _rows(self, changes: Sequence[pa.Table], first: int) -> pa.Table:
        rows = pa.concat_tables(changes)
        return _net(rows) if self._rejected else rows


class KeyedInput(PushedRows):
    """A collection whose rows come from code, with one row for each key."""

    if not TYPE_CHECKING:  # a type checker reports missing methods by itself

        def __getattr__(self, verb: str) -> NoReturn:
            if verb in ("insert", "delete", "update"):
                raise WrongVerb(
                    f"input '{self.name}': it has a key ({', '.join(self.versions.key)}): upsert(rows) sets rows, "
                    "whether they are there or not, and delete_keys(keys) removes them",
                    name=self.name,
                )
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{verb}'", name=verb, obj=self)

    def __init__(self, name: str, versions: Versions, on_missing: OnMissing) -> None:
        super().__init__(name, versions.arrivals)
        self.versions: Versions = versions
        self.on_missing = on_missing

    def apart(self) -> KeyedInput:
        """A new, empty input with the same declaration, for another flow. From any thread."""
        return KeyedInput(self.name, self.versions, self.on_missing)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self.versions.key

    def upsert(self, rows: Any) -> None:
        """Set rows: each replaces the row of its key, if there is one. If a key occurs twice in a call, or between two
        epochs, its last row counts; with ``order_by``, the row that is last by that column. Rows come as for
        `Input.insert`. Takes effect in the next epoch.

        From any thread; it waits for no epoch."""
        table = to_arrow(rows, self.versions.fields, subject=f"input '{self.name}'")
        self._add(self._change(table, np.zeros(table.num_rows, np.bool_), strict=False))

    def delete_keys(self, keys: Any, on_missing: OnMissing | None = None) -> None:
        """Remove the rows of these keys: values (for a key of one column), tuples in the order of the key's columns,
        dicts, or a table of these columns. With ``order_by`` a key also needs a value of the order column, after the
        key's columns. A key that is not there fails the epoch that takes the change (then call `discard`), unless
        ``on_missing="ignore"``.

        From any thread; it waits for no epoch."""
        subject = f"input '{self.name}'"
        what = missing(subject, on_missing, self.versions.order, default=self.on_missing)
        fields = self.versions.key_fields
        table = to_arrow(as_rows(keys) if len(fields) == 1 else keys, fields, subject=f"{subject}, delete_keys")
        columns = [
            table.column(field.name) if field in fields else pa.nulls(table.num_rows, arrow_type(field.type))
            for field in self.versions.fields
        ]
        rows = pa.table(columns, names=[field.name for field in self.versions.fields])
        self._add(self._change(rows, np.ones(rows.num_rows, np.bool_), strict=what == "error"))

    def _change(self, rows: pa.Table, deleted: Bools, *, strict: bool) -> pa.Table:
        found = arrivals(rows, self.versions, deleted, strict, 0, 0, 0)
        return found.append_column("_diff", pa.array(np.where(deleted, -1, 1).astype(np.int64)))

    def _rows(self, changes: Sequence[pa.Table], first: int) -> pa.Table:
        placed = []
        for number, change in enumerate(changes, first):
            ones = pa.array(np.ones(change.num_rows, np.int64))
            change = change.set_column(change.num_columns - 1, "_diff", ones)
            if self.versions.order is None:
                place = change.column_names.index("_offer")
                change = change.set_column(place, "_offer", pa.array(np.full(change.num_rows, number, np.int64)))
            placed.append(change)
        return pa.concat_tables(placed)


def same_input(known: Input | KeyedInput, declared: Input | KeyedInput) -> bool:
    """Whether ``declared`` is the same declaration as ``known``. What it says about missing keys may differ, and is
    taken over into ``known``."""
    if (known.fields, known.versions) != (declared.fields, declared.versions):
        return False
    if isinstance(known, KeyedInput) and isinstance(declared, KeyedInput):
        known.on_missing = declared.on_missing
    return True


@dataclass(frozen=True)
class InlinePart:
    """A part that holds its rows itself, as an Arrow IPC stream."""

    buffer: bytes

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        with pa.ipc.open_stream(self.buffer) as reader:
            table = reader.read_all()
        if not [field.type for field in table.schema][:-1] == [field.type for field in schema]:
            raise SchemaError(f"rows of schema {table.schema.types} cannot be read as {schema.types}")
        yield table.rename_columns([*schema.names, "_diff"])


def _counted(changes: Sequence[pa.Table]) -> Pending:
    diffs = [table.column("_diff").to_numpy() for table in changes]
    inserted = sum(int(np.count_nonzero(diff > 0)) for diff in diffs)
    return Pending(len(changes), inserted, sum(len(diff) for diff in diffs) - inserted)


def _net(rows: pa.Table) -> pa.Table:
    """The change without copies of rows that it both inserts and deletes, so that no expression can fail on them.

    Cost: a text for every deleted row, and for every inserted row that may be equal to a deleted one.
    """
    gone = rows.filter(pc.less(rows.column("_diff"), 0))
    maybe = pc.greater(rows.column("_diff"), 0)
    for name in rows.column_names[:-1]:
        if not pa.types.is_nested(rows.schema.field(name).type):
            maybe = pc.and_(maybe, pc.is_in(rows.column(name), gone.column(name).combine_chunks()))
    inserted, deleted = maybe.to_numpy(), rows.column("_diff").to_numpy() < 0
    copies = Counter(_texts(gone)) & Counter(_texts(rows.filter(maybe)))
    kept = np.ones(rows.num_rows, np.bool_)
    for some in (inserted, deleted):
        left = copies.copy()
        for place, text in zip(np.flatnonzero(some), _texts(rows.filter(pa.array(some))), strict=True):
            if left[text] > 0:
                left[text] -= 1
                kept[place] = False
    return rows.filter(pa.array(kept))


def _texts(rows: pa.Table) -> list[str]:
    """A text for each row: equal rows have equal texts."""
    columns = [column.to_pylist() for column in rows.columns[:-1]]
    return [repr(row) for row in zip(*columns, strict=True)]


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    pieces = max(1, -(-rows.nbytes // PART_BYTES))
    step = max(1, -(-rows.num_rows // pieces))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    buffer: bytes = sink.getvalue().to_pybytes()
    return buffer
