"""A source whose rows are versions of a key: it wraps an inner source, and adds to each row the place at which it came.

An offer is the inner source's offer with a growing number: ``{"at": n, "of": offer}``. A folded offer has the number of
the first offer in it, and the number of the last one (``"upto"``); the inner source folds offers in order. So a later
row always has a greater place (offer and part, block, row) than an earlier row, also when folded offers are read.
Without an order column, offers of an inner source whose rows do not come in order are therefore not folded.

A row that the source deletes (``_diff`` below 0) deletes its key. If the inner source does not say that its rows come
in the order in which they happened (``in_order``), the deletions of an offer come before its other rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.connectors.bad_lines import Quarantined
from holdfast.connectors.source import Offer, Part, Source
from holdfast.connectors.versions import Versions, arrivals, missing, versions
from holdfast.errors import DeclarationError
from holdfast.operators.latest import DELETED, PLACE, STRICT
from holdfast.plan.expression import quoted

_PARTS = 1 << 24
"""A bound that the number of parts of an offer never reaches."""


class KeyedSource(Source):
    """The source ``inner``, whose rows become versions of a key."""

    def __init__(self, subject: str, inner: Source, key: Any, order_by: Any, on_missing: Any) -> None:
        if isinstance(inner.versions, Quarantined):
            raise DeclarationError(f"{subject}: key and on_bad_rows='quarantine' cannot be had together")
        if inner.versions is not None:
            raise DeclarationError(f"{subject}: hf.replaced(…) has its own key: give it there")
        self.versions: Versions = versions(subject, inner.fields, key, order_by)
        self.inner = inner.with_key(self.versions.key)
        self.fields = self.versions.arrivals
        self.replayable = inner.replayable
        self.keeps_rows = inner.keeps_rows
        self.origin = inner.origin
        self.patience = inner.patience
        self._strict = missing(subject, on_missing, self.versions.order, default="error") == "error"
        self._next = 0

    def in_session(self, zone: str) -> None:
        self.inner.in_session(zone)

    def poll(self) -> Offer | None:
        offer = self.inner.poll()
        return None if offer is None else {"at": self._next, "of": offer}

    def upcoming(self) -> Offer | None:
        offer = self.inner.upcoming()
        return None if offer is None else {"at": self._next, "of": offer}

    def advance(self, offer: Offer) -> None:
        self.inner.advance(offer["of"])
        self._next = max(self._next, _last(offer) + 1)

    def parts(self, offer: Offer) -> list[Part]:
        first = offer["at"] * _PARTS
        return [
            VersionsPart(part, self.versions, self._strict, first + number, None if self.inner.in_order else first)
            for number, part in enumerate(self.inner.parts(offer["of"]), 1)
        ]

    def frame(self, spark: Any, offer: Offer) -> Any:
        found = self.inner.placed_frame(spark, offer["of"])
        if found is None:
            return None
        deleted = "_diff < 0" if self.inner.retracts else "false"
        columns = [quoted(field.name) for field in self.versions.fields]
        columns += [f"{deleted} AS {DELETED.name}", f"{str(self._strict).lower()} AND {deleted} AS {STRICT.name}"]
        if self.versions.order is None:
            whole = f"{offer['at']}L * {_PARTS}L + "
            names = [field.name for field in PLACE]
            places = names if set(names) <= set(found.columns) else ["0L", "0L", "0L"]
            if not self.inner.in_order and self.inner.retracts:
                places[0] = f"IF({deleted}, 0L, 1L)"
            columns += [
                f"{whole}{places[0]} AS {names[0]}",
                *(f"{p} AS {n}" for p, n in zip(places[1:], names[1:], strict=True)),
            ]
        return found.selectExpr(*columns)

    def reject(self, offer: Offer, error: Exception) -> bool:
        return self.inner.reject(offer["of"], error)

    def release(self, offer: Offer) -> None:
        self.inner.release(offer["of"])

    @property
    def forgets(self) -> bool:
        return self.inner.forgets

    def names(self, offer: Offer) -> Collection[str]:
        return self.inner.names(offer["of"])

    def without(self, offer: Offer, names: Collection[str]) -> Offer | None:
        left = self.inner.without(offer["of"], names)
        return None if left is None else {**offer, "of": left}

    def size(self, offer: Offer) -> int | None:
        return self.inner.size(offer["of"])

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        if self.versions.order is None and not self.inner.in_order:
            return list(offers)  # only the offers say which row of a key is the later one
        fewer = self.inner.fold([offer["of"] for offer in offers])
        if len(fewer) == len(offers):
            return list(offers)
        first, last = offers[0]["at"], _last(offers[-1])
        return [{"at": first + number, "upto": last, "of": offer} for number, offer in enumerate(fewer)]

    def waiting(self) -> int | None:
        return self.inner.waiting()


def _last(offer: Offer) -> int:
    last: int = offer["upto"] if "upto" in offer else offer["at"]
    return last


@dataclass(frozen=True)
class VersionsPart:
    """A part of the inner source, whose rows become versions at one place, in order."""

    part: Part
    versions: Versions
    strict: bool
    place: int
    removal: int | None
    """The place of deletions, if they come before all other rows of the offer; None if they keep their order."""

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        width = len(self.versions.fields)
        plain = pa.schema(list(schema)[:width])
        first = 0
        for table in self.part.read(plain):
            diff = table.column("_diff").to_numpy() if "_diff" in table.column_names else np.ones(table.num_rows)
            deleted = diff < 0
            rows = table.drop_columns(["_diff"]) if "_diff" in table.column_names else table
            removal = self.place if self.removal is None else self.removal
            places = np.where(deleted, removal, self.place)
            found = arrivals(rows, self.versions, deleted, self.strict, places, 0, first)
            first += table.num_rows
            yield pa.Table.from_arrays(found.columns, schema=schema)
