"""The value of each window function for each row, given the rows of whole partitions in order.

The functions follow Spark: a frame without rows has the sum NULL and the count 0; the first buckets of ``ntile`` are
the larger ones; ``lag`` and ``lead`` give their default (computed from the row itself) only where the partition has no
such row; IGNORE NULLS counts only rows that have a value. Sums are exact and rounded once, so they depend only on the
rows of the frame. Of values that are equal in Spark's order (0.0 and -0.0), ``min`` gives the first in the order of the
rows, ``max`` the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.operators.aggregates.calls import MOMENTS, SUMS, CallSpec
from holdfast.operators.aggregates.results import Sums, summed
from holdfast.operators.numbers import sums
from holdfast.operators.numbers.digits import Bools, Floats, Ints
from holdfast.operators.ordering import ranks
from holdfast.operators.window_frames import Ends, Frame, Places, bounds, exact_totals, extremes, totals
from holdfast.trace import physical

WHOLE = Frame(True, None, None)
_RANKINGS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
_NUMBERED = frozenset({"lag", "lead", "nth_value", "ntile"})


@dataclass(frozen=True)
class Reach:
    """An end of a frame by value (``RANGE 5 PRECEDING``).

    ``column`` holds, for each row, the outermost value of the order column that is in the row's frame. ``text`` is the
    end as the user wrote it."""

    column: str
    text: str


@dataclass(frozen=True)
class WindowCall:
    """One function of a `Window`: output column, function, type, argument columns (the second one of ``lag`` and
    ``lead`` is their default).

    ``function`` is a ranking (``row_number, rank, dense_rank, percent_rank, cume_dist, ntile``), a neighbour (``lag,
    lead``), a value of the frame (``first_value, last_value, nth_value``) or an aggregate of the frame. ``number`` is
    the count of buckets (``ntile``), the distance (``lag, lead``) or the place in the frame (``nth_value``). ``frame``
    is None if the function has no frame. ``reach`` has the ends of a frame by value; None: the frame ends at the row's
    peers, or where ``frame`` says.
    """

    name: str
    function: str
    type: str
    arguments: tuple[str, ...] = ()
    number: int = 1
    frame: Frame | None = None
    ignore_nulls: bool = False
    reach: tuple[Reach | None, Reach | None] = (None, None)

    @property
    def reads(self) -> tuple[str, ...]:
        """All columns that the call reads, without the partition and order columns."""
        return self.arguments + tuple(each.column for each in self.reach if each is not None)

    @property
    def text(self) -> str:
        """The call, for people: ``lag(x, 2, d) IGNORE NULLS``."""
        arguments = list(self.arguments)
        if self.function in _NUMBERED:
            arguments.insert(1, str(self.number))
        elif not arguments and self.function not in _RANKINGS:
            arguments = ["*"]
        return f"{self.function}({', '.join(arguments)}){' IGNORE NULLS' if self.ignore_nulls else ''}"


@dataclass(frozen=True)
class OverSpec:
    """One window function over positions: its arguments are positions in the row."""

    function: str
    arguments: tuple[int, ...]
    argument_types: tuple[pa.DataType, ...]
    result_type: pa.DataType
    number: int = 1
    frame: Frame = WHOLE
    ignore_nulls: bool = False
    reach: tuple[int | None, int | None] = (None, None)
    """The positions of the columns with the first and the last value of the order column that is in the row's frame."""


def evaluate(
    call: OverSpec, arguments: Sequence[pa.Array], places: Places, explain: sums.Explain, ends: Ends = (None, None)
) -> pa.Array:
    """The function's value for each row. ``explain`` gives the text of a row's partition, for errors. ``ends`` are the
    ends of frames by value; they replace those of ``call.frame``."""
    if (ranking := RANKINGS.get(call.function)) is not None:
        found = pa.array(ranking(places, call.number))
    elif call.function in ("lag", "lead"):
        found = _neighbours(call, arguments, places)
    else:
        # Adjacent rows often have the same frame: the whole partition, or all rows up to the last peer.
        low, high = bounds(call.frame, places, ends)
        fresh = np.ones(len(low), np.bool_)
        fresh[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
        once = _framed(call, arguments, low[fresh], high[fresh], np.flatnonzero(fresh), explain)
        found = once if len(once) == len(low) else physical.take(once, np.cumsum(fresh) - 1)
    return found if found.type.equals(call.result_type) else found.cast(call.result_type)


def _row_number(places: Places, number: int) -> Ints:
    return places.here - places.start + 1


def _rank(places: Places, number: int) -> Ints:
    return places.peer - places.start + 1


def _dense_rank(places: Places, number: int) -> Ints:
    runs: Ints = np.cumsum(places.peer == places.here)
    found: Ints = runs - runs[places.start] + 1
    return found


def _percent_rank(places: Places, number: int) -> Floats:
    others = places.end - places.start - 1
    found: Floats = (places.peer - places.start) / np.maximum(others, 1)
    return found


def _cume_dist(places: Places, number: int) -> Floats:
    found: Floats = (places.peer_end - places.start) / (places.end - places.start)
    return found


def _ntile(places: Places, number: int) -> Ints:
    size, left = np.divmod(places.end - places.start, number)
    place = places.here - places.start
    in_larger = left * (size + 1)
    found: Ints = np.where(place < in_larger, place // (size + 1), left + (place - in_larger) // np.maximum(size, 1))
    return found + 1


RANKINGS: dict[str, Callable[[Places, int], Ints | Floats]] = {
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
    "percent_rank": _percent_rank,
    "cume_dist": _cume_dist,
    "ntile": _ntile,
}


def _neighbours(call: OverSpec, arguments: Sequence[pa.Array], places: Places) -> pa.Array:
    column, here = arguments[0], places.here
    step = -call.number if call.function == "lag" else call.number
    if call.ignore_nulls and step:
        having, before = _having(column)
        which = before[here] + step if step < 0 else before[here + 1] + step - 1
        inside = (which >= before[places.start]) & (which < before[places.end])
        at = having[np.where(inside, which, 0)] if len(having) else here
    else:
        at = here + step
        inside = (at >= places.start) & (at < places.end)
    if len(arguments) == 1:
        return _picked(column, at, inside)
    default = arguments[1]
    both = physical.concat([column, default if default.type.equals(column.type) else default.cast(column.type)])
    return physical.take(both, np.where(inside, at, len(column) + here))


def _framed(
    call: OverSpec, arguments: Sequence[pa.Array], low: Ints, high: Ints, rows: Ints, explain: sums.Explain
) -> pa.Array:
    """A value or an aggregate of each frame [low, high). Frame i belongs to the row ``rows[i]``."""
    if call.function == "count":
        valid = physical.valid(arguments[0]) if arguments else None
        return pa.array(high - low if valid is None else totals(valid, low, high))
    column = arguments[0]
    if call.function in SUMS | MOMENTS:
        return _summed(call, column, low, high, lambda place: explain(int(rows[place])))
    if call.function in ("min", "max"):
        return _extreme(column, low, high, greatest=call.function == "max")
    if call.ignore_nulls:
        having, before = _having(column)
        low, high = before[low], before[high]
    at = {"first_value": low, "last_value": high - 1}.get(call.function, low + call.number - 1)
    inside = (at >= low) & (at < high)
    if call.ignore_nulls:
        at = having[np.where(inside, at, 0)] if len(having) else at
    return _picked(column, at, inside)


def _summed(call: OverSpec, column: pa.Array, low: Ints, high: Ints, explain: sums.Explain) -> pa.Array:
    encoded = sums.encode(column)
    counts = high - low if encoded.valid is None else totals(encoded.valid, low, high)
    squared = exact_totals(sums.squares(encoded), low, high) if call.function in MOMENTS else {}
    specials = {name: totals(mask, low, high) for name, mask in encoded.specials.items() if mask.any()}
    aggregate = CallSpec(call.function, call.arguments, call.argument_types, call.result_type)
    found = Sums(exact_totals(encoded.digits, low, high), squared, specials, counts)
    return summed(aggregate, found, lambda place: f"{aggregate.text} over {explain(place)}")


def _extreme(column: pa.Array, low: Ints, high: Ints, *, greatest: bool) -> pa.Array:
    rank, size = ranks(column), len(column)
    nothing = -1 if greatest else np.iinfo(np.int64).max
    # Rank and place are packed into one number, so the extreme also gives its place.
    keys = np.where(rank > 0, rank * size + np.arange(size), nothing)
    best = extremes(keys, low, high, nothing, greatest=greatest)
    return _picked(column, best % max(size, 1), best != nothing)


def _having(column: pa.Array) -> tuple[Ints, Ints]:
    """The places that have a value, and for each place (and the end) the number of values before it."""
    mask = physical.valid(column)
    valid = np.ones(len(column), np.bool_) if mask is None else mask
    return np.flatnonzero(valid), np.concatenate(([0], np.cumsum(valid)))


def _picked(column: pa.Array, at: Ints, there: Bools) -> pa.Array:
    """The values at these places; NULL where ``there`` is False."""
    if there.all():
        return physical.take(column, at)
    return pc.take(column, pa.array(np.where(there, at, 0), mask=~there), boundscheck=False)
