"""A generator of rows, the same in every replay.

Row ``i`` is a pure function of ``i`` and the seed: its columns come from a counter-based mixer (splitmix64), so any
part of any offer can be made anywhere, in any order, with vectorised arithmetic alone. The mixer is written out here
and not taken from a library: if another version of a library gave other numbers, an offer would no longer have the same
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.connectors.source import Offer, Part, Source
from holdfast.foundation import arguments
from holdfast.plan.nodes import Field

PART_ROWS = 1 << 18

_START = 1_577_836_800_000_000
"""2020-01-01 00:00 UTC, in microseconds: the time of row 0."""

_MICROSECONDS_PER_ROW = 1000


def rate(rows_per_epoch: int, keys: int = 1000, seed: int = 0, epochs: int | None = None) -> Rate:
    """``rows_per_epoch`` rows in every epoch: ``id bigint, key bigint, value double, at timestamp``.

    ``id`` counts from 0, ``key`` is uniform in [0, keys), ``value`` in [0, 1), and ``at`` is a millisecond later for
    every row. After ``epochs`` epochs the source is idle; with None it is never idle, so run such a flow with
    ``epochs=`` or until stopped.
    """
    return Rate(rows_per_epoch, keys, seed, epochs)


class Rate(Source):
    """See `rate`."""

    origin = "hf.rate"
    fields = (Field("id", "bigint"), Field("key", "bigint"), Field("value", "double"), Field("at", "timestamp"))

    def __init__(self, rows_per_epoch: int, keys: int, seed: int, epochs: int | None) -> None:
        rows_per_epoch = arguments.whole("rate", "rows_per_epoch", rows_per_epoch, 1)
        keys = arguments.whole("rate", "keys", keys, 1)
        seed = arguments.whole("rate", "seed", seed)
        if epochs is not None:
            epochs = arguments.whole("rate", "epochs", epochs, 0)
        self._rows, self._keys, self._seed, self._epochs = rows_per_epoch, keys, seed, epochs
        self._next = 0
        self._done = 0

    def poll(self) -> Offer | None:
        if self._epochs is not None and self._done >= self._epochs:
            return None
        return {"from": self._next, "to": self._next + self._rows, "keys": self._keys, "seed": self._seed}

    def upcoming(self) -> Offer | None:
        return self.poll()

    def advance(self, offer: Offer) -> None:
        self._next = offer["to"]
        # A folded offer says how many epochs have taken offers up to it, since the first.
        self._done = offer.get("epochs", self._done + 1)

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        folded: list[Offer] = []
        epochs = 0
        for offer in offers:
            epochs = offer.get("epochs", epochs + 1)
            same = folded and (folded[-1]["keys"], folded[-1]["seed"]) == (offer["keys"], offer["seed"])
            if same and folded[-1]["to"] == offer["from"]:
                folded[-1] = {**folded[-1], "to": offer["to"], "epochs": epochs}
            else:
                folded.append({**offer, "epochs": epochs})
        return folded

    def parts(self, offer: Offer) -> list[Part]:
        # Keys and seed are in the offer: a flow that is declared again with other ones must still replay past epochs
        # exactly.
        start, stop = offer["from"], offer["to"]
        return [
            RatePart(first, min(first + PART_ROWS, stop), offer["keys"], offer["seed"])
            for first in range(start, stop, PART_ROWS)
        ]


@dataclass(frozen=True)
class RatePart:
    """Rows ``start`` to ``stop``."""

    start: int
    stop: int
    keys: int
    seed: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        place = np.arange(self.start, self.stop, dtype=np.int64)
        columns = [
            pa.array(place),
            pa.array((_mixed(place, self.seed, 0) % np.uint64(self.keys)).astype(np.int64)),
            pa.array((_mixed(place, self.seed, 1) >> np.uint64(11)).astype(np.float64) * 2.0**-53),
            pa.array(_START + place * _MICROSECONDS_PER_ROW).cast(pa.timestamp("us", tz="UTC")),
        ]
        yield pa.Table.from_arrays(columns, schema=schema)


def _mixed(place: np.ndarray, seed: int, stream: int) -> np.ndarray:
    """64 well mixed bits for each place: splitmix64, started at a point that depends on seed and stream."""
    start = _scrambled(np.array([2 * seed + stream], dtype=np.int64).astype(np.uint64))
    return _scrambled(start + place.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def _scrambled(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = bits ^ (bits >> np.uint64(31))
    return bits
