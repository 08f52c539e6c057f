"""Files that say what changed: rows with a column for the operation, or envelopes of Debezium.

A feed is read like other files (`connectors.files`), with the columns that are in the files, and then turned into
changes:

    op column    insert, update, delete, …: the row is added or removed
    debezium     {"before": row, "after": row, "op": "c" | "u" | "d" | "r"}: before is removed, after is added

Rows stay in the order of the files and lines. With a key, an update is its new row (and a deletion of the old row, if
that has another key). Without a key, rows are removed in full: then an update needs its before-image, which only
Debezium's envelopes (and Flink's ``-U`` beside ``+U``) have.

A file with an unknown operation, or with an update or deletion that lacks the row it needs, is a bad file; the error
names the operation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connectors.source import Offer, Part, Source
from holdfast.errors import BadFile, DeclarationError
from holdfast.foundation import arguments
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field
from holdfast.plan.schema import parse_schema
from holdfast.plan.types import ddl_type
from holdfast.trace.equality import equal_rows
from holdfast.trace.hashing import normalise_keys
from holdfast.trace.physical import Bools

Envelope = Literal["debezium"]

ADDS = ("i", "c", "r", "insert", "create", "read", "upsert", "+i", "+u")
UPDATES = ("u", "update", "modify")
DELETES = ("d", "delete", "remove", "-d", "-u")
PASSED = ("m",)
"""Operations that are passed over: Debezium's messages, which are not about a row."""

_MESSAGE = ("before", "after", "op")
_DIFF = "_diff"
_PLACES = ("_offer", "_block", "_row")


@dataclass(frozen=True)
class FeedForm:
    """The form of a feed's lines. ``fields`` are the columns of a row, ``op`` is the column of the operation.
    ``before`` says whether lines are envelopes; ``taken`` maps columns of rows to their paths in the envelope."""

    fields: tuple[Field, ...]
    op: str
    before: bool = False
    taken: Mapping[str, tuple[str, ...]] | None = None
    key: tuple[str, ...] | None = None
    """The columns of the key; None for a feed without a key."""

    wrapped: bool = False
    """Whether a line may hold its envelope in a column ``payload``, beside a schema."""

    @property
    def rows(self) -> tuple[Field, ...]:
        """The columns that are in the rows inside an envelope, and not in the envelope itself."""
        return tuple(field for field in self.fields if field.name not in (self.taken or {}))

    @property
    def physical(self) -> str:
        """The columns of the files, as DDL."""
        if not self.before:
            return _ddl((*self.fields, Field(self.op, "string")))
        row = f"struct<{', '.join(f'{quoted(field.name)}: {ddl_type(field.type)}' for field in self.rows)}>"
        columns = [("before", row), ("after", row), ("op", "string"), *_outer(self.fields, self.taken or {})]
        if self.wrapped:
            columns.append(("payload", f"struct<{', '.join(f'{quoted(name)}: {kind}' for name, kind in columns)}>"))
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)


def _ddl(fields: Sequence[Field]) -> str:
    return ", ".join(f"{quoted(field.name)} {ddl_type(field.type)}" for field in fields)


def _outer(fields: Sequence[Field], taken: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Name and type of the envelope's columns that hold columns of the rows; a path is at most one level deep."""
    kinds = {field.name: field.type for field in fields}
    plain = [(path[0], kinds[name]) for name, path in taken.items() if len(path) == 1]
    inside: dict[str, list[str]] = {}
    for name, path in taken.items():
        if len(path) == 2:
            inside.setdefault(path[0], []).append(f"{quoted(path[1])}: {kinds[name]}")
    return [*plain, *((name, f"struct<{', '.join(dict.fromkeys(some))}>") for name, some in inside.items())]


def feed_form(
    subject: str,
    schema: str,
    op: str | None,
    envelope: str | None,
    envelope_columns: Mapping[str, str] | None,
    wrapped: bool = False,
) -> FeedForm:
    """The form of a feed, from its declaration. ``wrapped``: a line may hold its envelope in a column ``payload``.
    Raises `DeclarationError` if the declaration is wrong."""
    if envelope is None:
        if envelope_columns is not None:
            raise DeclarationError(f"{subject}: envelope_columns are for envelopes; give envelope='debezium', too")
        fields = parse_schema(schema, subject=subject)
        name = arguments.text(subject, "op", op, "the name of the column that says what happened")
        if name in [field.name for field in fields]:
            raise DeclarationError(
                f"{subject}: op {name!r} says what happened to the row, and is no column of it; leave it out of schema"
            )
        return FeedForm(fields, name)
    arguments.one_of(subject, "envelope", envelope, ("debezium",))
    if op is not None:
        raise DeclarationError(f"{subject}: an envelope says what happened; leave op out")
    given = {} if envelope_columns is None else envelope_columns
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        arguments.refuse(subject, "envelope_columns", "names, each with a place such as 'source.lsn bigint'", given)
    taken, more = {}, []
    for name, place in given.items():
        path, _, kind = place.strip().partition(" ")
        taken[name] = tuple(path.split("."))
        if not kind.strip() or len(taken[name]) > 2 or not all(taken[name]) or path in ("before", "after", "op"):
            arguments.refuse(subject, "envelope_columns", "a place and a type such as 'source.lsn bigint'", place)
        more.append(f"{quoted(name)} {kind}")
    fields = parse_schema(", ".join([schema, *more]), subject=subject)
    return FeedForm(fields, "op", True, taken, wrapped=wrapped)


class ChangeFeed(Source):
    """A source that turns the lines of a feed into changes of a collection."""

    origin = "a feed of changes"
    retracts = True
    in_order = True

    def __init__(self, inner: Source, form: FeedForm, subject: str) -> None:
        """``inner`` reads the files, with the columns of ``form.physical``."""
        self._inner = inner
        self._form = form
        self._subject = subject
        self.fields = form.fields
        self.patience = inner.patience

    def with_key(self, key: Sequence[str]) -> ChangeFeed:
        return ChangeFeed(self._inner, replace(self._form, key=tuple(key)), self._subject)

    def in_session(self, zone: str) -> None:
        self._inner.in_session(zone)

    def poll(self) -> Offer | None:
        return self._inner.poll()

    def upcoming(self) -> Offer | None:
        return self._inner.upcoming()

    def advance(self, offer: Offer) -> None:
        self._inner.advance(offer)

    def parts(self, offer: Offer) -> list[Part]:
        return [FeedPart(part, self._form, self._inner.fields) for part in self._inner.parts(offer)]

    def frame(self, spark: Any, offer: Offer) -> Any:
        return self.placed_frame(spark, offer)

    def placed_frame(self, spark: Any, offer: Offer) -> Any:
        return self._changes(self._inner.placed_frame(spark, offer))

    def reject(self, offer: Offer, error: Exception) -> bool:
        return self._inner.reject(offer, error)

    def release(self, offer: Offer) -> None:
        self._inner.release(offer)

    @property
    def forgets(self) -> bool:
        return self._inner.forgets

    def names(self, offer: Offer) -> Collection[str]:
        return self._inner.names(offer)

    def without(self, offer: Offer, names: Collection[str]) -> Offer | None:
        return self._inner.without(offer, names)

    def size(self, offer: Offer) -> int | None:
        return self._inner.size(offer)

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return self._inner.fold(offers)

    def waiting(self) -> int | None:
        return self._inner.waiting()

    def _changes(self, frame: Any) -> Any:
        """Turn lines that Spark read into changes, on Arrow batches, with the same code as lines that tasks read."""
        if frame is None:
            return None
        form, physical = self._form, self._inner.fields
        kept = [quoted(field.name) for field in physical]
        lines = frame.selectExpr(*kept, *_PLACES, "_path")

        def changes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                for where in pc.unique(table.column("_path")).to_pylist():
                    some = table.filter(pc.equal(table.column("_path"), where)).drop_columns(["_path"])
                    try:
                        yield from changes_of(form, some, where).to_batches()
                    except BadFile as error:
                        # `Files.reject` parses the file and the reason out of the text of Spark's error.
                        raise ValueError(f"[BAD_LINE] {error.fields['reason']}\nfile:{where}") from None

        schema = ", ".join([_ddl(self.fields), f"{_DIFF} bigint", *(f"{name} bigint" for name in _PLACES)])
        return lines.mapInArrow(changes, schema)


@dataclass(frozen=True)
class FeedPart:
    """A part of the files of a feed, as changes."""

    part: Part
    form: FeedForm
    physical: tuple[Field, ...]

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        from holdfast.plan.types import arrow_type

        inner = pa.schema([(f"c{place}", arrow_type(field.type)) for place, field in enumerate(self.physical)])
        path = getattr(getattr(self.part, "file", None), "path", "")
        for table in self.part.read(inner):
            named = table.rename_columns([field.name for field in self.physical])
            change = changes_of(self.form, named, path)
            columns = [column.cast(field.type) for column, field in zip(change.columns, schema, strict=False)]
            yield pa.table([*columns, change.column(_DIFF)], names=[*schema.names, _DIFF])


def changes_of(form: FeedForm, lines: pa.Table, path: str) -> pa.Table:
    """The changes that lines of a feed stand for, in the order of the lines, at most two per line. Their columns are
    those of a row, ``_diff``, and all other columns of the lines. Raises `BadFile` for a line that cannot be taken."""
    if form.wrapped:
        lines = _unwrapped(lines)
    said = pc.utf8_lower(pc.utf8_trim_whitespace(lines.column(form.op).cast(pa.string())))
    adds, updates, deletes, passed = (_among(said, some) for some in (ADDS, UPDATES, DELETES, PASSED))
    truncated = _among(said, ("t",)) if form.before else np.zeros(len(said), np.bool_)
    if form.before:
        # A line without any message is a tombstone, which Kafka has behind a deletion.
        passed |= ~np.logical_or.reduce([np.asarray(pc.is_valid(lines.column(name))) for name in _MESSAGE])
    _check(path, said, truncated, "a whole table was emptied, which a feed of rows cannot say")
    _check(path, said, ~(adds | updates | deletes | passed), "expected insert, update, delete (or c, u, d, r)")
    if not form.before:
        if form.key is None:
            _check(
                path, said, updates, "an update has no before-image here: declare the source with key='…', so that it "
                "replaces the row of its key",
            )  # fmt: skip
        rows = lines.drop_columns([form.op])
        names = [field.name for field in form.fields]
        more = [name for name in rows.column_names if name not in names]
        kept = pa.array(~passed)
        diff = pa.array(np.where(deletes, -1, 1).astype(np.int64))
        made = rows.select(names).append_column(_DIFF, diff)
        for name in more:
            made = made.append_column(name, rows.column(name))
        return made.filter(kept)
    return _of_envelopes(form, lines, path, said, adds, updates, deletes)


def _unwrapped(lines: pa.Table) -> pa.Table:
    """The lines, with envelopes that are in a column ``payload`` taken out of it."""
    inner = lines.column("payload").combine_chunks()
    lines = lines.drop_columns(["payload"])
    wrapped = pc.is_valid(inner)
    if not pc.any(wrapped).as_py():
        return lines
    for field in inner.type:
        outer = lines.column(field.name).combine_chunks()
        chosen = pc.if_else(wrapped, pc.struct_field(inner, [field.name]), outer)
        lines = lines.set_column(lines.column_names.index(field.name), field.name, chosen)
    return lines


def _of_envelopes(
    form: FeedForm, lines: pa.Table, path: str, said: Any, adds: Bools, updates: Bools, deletes: Bools
) -> pa.Table:
    before, after = (lines.column(name).combine_chunks() for name in ("before", "after"))
    has_before, has_after = (np.asarray(pc.is_valid(each)) for each in (before, after))
    _check(path, said, (adds | updates) & ~has_after, "the envelope has no row in 'after'")
    _check(path, said, deletes & ~has_before, "the envelope has no row in 'before'")
    if form.key is None:
        _check(
            path, said, updates & ~has_before, "the envelope has no row in 'before': declare the source with key='…', "
            "or have the database log whole rows (PostgreSQL: REPLICA IDENTITY FULL)",
        )  # fmt: skip
        gone = deletes | updates
    else:
        gone = deletes | (updates & has_before & _differ(before, after, form.key))
    come = adds | updates
    more = [name for name in lines.column_names if name in _PLACES]
    sides = []
    for rows, which, diff in ((before, gone, -1), (after, come, 1)):
        place = np.flatnonzero(which)
        inside = {field.name: pc.struct_field(rows, [field.name]) for field in form.rows}
        for name, way in (form.taken or {}).items():
            found = lines.column(way[0]).combine_chunks()
            inside[name] = found if len(way) == 1 else pc.struct_field(found, [way[1]])
        columns = {field.name: inside[field.name].take(pa.array(place)) for field in form.fields}
        columns[_DIFF] = pa.array(np.full(len(place), diff, np.int64))
        for name in more:
            found = lines.column(name).combine_chunks().take(pa.array(place))
            columns[name] = found if name != "_row" else pc.add(pc.multiply(found, 2), 1 if diff > 0 else 0)
        sides.append((place * 2 + (diff > 0), pa.table(columns)))
    order = np.argsort(np.concatenate([places for places, _ in sides]), kind="stable")
    return pa.concat_tables([table for _, table in sides]).take(pa.array(order))


def _differ(before: pa.StructArray, after: pa.StructArray, key: Sequence[str]) -> Bools:
    """Whether the keys of two rows differ, for each pair of rows: as in grouping, NULL is NULL, and NaN is NaN."""
    sides = [[normalise_keys(pc.struct_field(rows, [name])) for name in key] for rows in (before, after)]
    return ~equal_rows(*sides, rows=len(before))


def _among(said: Any, words: Sequence[str]) -> Bools:
    found: Bools = np.asarray(pc.is_in(said, pa.array(words, pa.string())))
    return found


def _check(path: str, said: Any, wrong: Bools, why: str) -> None:
    """Raise `BadFile` for the first line for which ``wrong`` holds, if there is one."""
    places = np.flatnonzero(wrong)
    if len(places):
        operation = said[int(places[0])].as_py()
        reason = f"a line with operation {operation!r} cannot be taken: {why}"
        raise BadFile(f"file {path!r}: {reason}", path=path, operation=operation, reason=reason)
