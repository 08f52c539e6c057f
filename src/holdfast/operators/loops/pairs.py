"""An inner join inside a loop: pairs of rows, each at the later of its two rows' rounds.

A join is bilinear, so its change is computed pair by pair: a row of (epoch *e*, round *i*) and a row of (epoch *f*,
round *j*) form a pair at (the later epoch, the later round). The kernel is that of any inner join (`join`), with the
round as one more column of each side, over the stored trace and the rows of earlier rounds of this epoch. At round *r*
the rows that change are matched with all rows of the other side. A pair with a stored row of a later round waits for
that round.

Cost: that of an inner join, in every round; a row is matched once in an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import without_cancelled
from holdfast.operators.join import InnerJoin
from holdfast.operators.loops.round_traces import ROUND
from holdfast.operators.loops.shares import Share
from holdfast.operators.step import Context
from holdfast.trace import physical
from holdfast.trace.memory_layer import Run
from holdfast.trace.rows import Block, Layout
from holdfast.trace.trace import Trace


@dataclass(frozen=True)
class PairsState:
    """The state of a join in the middle of an epoch: the rows of each side, and the pairs that wait for a round."""

    earlier: dict[str, list[Block]]
    waiting: dict[int, list[pa.Table]]


def join_with_rounds(spec: InnerJoin) -> InnerJoin:
    """The join of the same rows, with a round as the last column of each."""
    return replace(spec, left_types=(*spec.left_types, ROUND), right_types=(*spec.right_types, ROUND))


class PairsInRounds:
    """An inner join in one epoch of a loop."""

    def __init__(self, spec: InnerJoin, stored: Mapping[str, Trace], context: Context, *, exact: bool) -> None:
        """``exact``: whether pairs that cancel each other must not be in the output."""
        self._exact = exact
        self._spec = join_with_rounds(spec)
        self._widths = (len(spec.left_types), len(spec.right_types))
        self._stored, self._context = stored, context
        self._earlier = {side: Run(layout) for side, layout in self._spec.layouts().items()}
        self._waiting: dict[int, list[pa.Table]] = {}

    def next_round(self) -> int | None:
        """The next round for which pairs wait; None if there is none."""
        return min(self._waiting, default=None)

    def advance(self, round: int, arrived: list[pa.Table]) -> pa.Table | None:
        """The change of the pairs at a round, given the changes of the two sides; None if there is none."""
        ready = self._waiting.pop(round, [])
        if any(part.num_rows for part in arrived):
            traces = {side: self._with_earlier(side) for side in self._earlier}
            step = self._spec.step(arrived, traces, self._context)
            for side, run in self._earlier.items():
                run.add(step.layers[side])
            ready += self._now(round, step.output)
        if not ready:
            return None
        change = pa.concat_tables(ready)
        # Pairs of rows that never existed at the same time cancel each other.
        return without_cancelled(change) if self._exact else change

    def layers(self) -> dict[str, Block]:
        return {side: run.block() for side, run in self._earlier.items()}

    def pending(self, round: int) -> int:
        """The number of pairs that wait for a round."""
        return sum(table.num_rows for table in self._waiting.get(round, ()))

    def state(self) -> PairsState:
        """The state of the epoch so far."""
        earlier = {side: [layer.whole for layer in run.layers] for side, run in self._earlier.items()}
        return PairsState(earlier, {round: list(tables) for round, tables in self._waiting.items()})

    def absorb(self, state: PairsState) -> None:
        """Add the state of a share of the keys, from another task."""
        for side, blocks in state.earlier.items():
            self._earlier[side].absorb(blocks)
        for round, tables in state.waiting.items():
            self._waiting.setdefault(round, []).extend(tables)

    def share_of(self, state: PairsState, share: Share) -> PairsState:
        """The part of a state that belongs to a share of the keys."""
        earlier = {side: share.blocks(blocks) for side, blocks in state.earlier.items()}
        waiting = {
            round: [share.rows_by(table, self._spec.left_keys) for table in tables]
            for round, tables in state.waiting.items()
        }
        return PairsState(earlier, waiting)

    def _with_earlier(self, side: str) -> Trace:
        stored = self._stored[side]
        trace = Trace(stored.directory, stored.layout, stored.low, stored.high, stored.as_of, stored.chain)
        trace.slices = [*(piece for piece in stored.slices if piece.stop > piece.start), *self._earlier[side].slices()]
        return trace

    def _now(self, round: int, pairs: pa.Table) -> list[pa.Table]:
        """The pairs of this round, without their rounds. Pairs of later rounds are kept waiting."""
        left, right = self._widths
        if not pairs.num_rows:
            return []
        places = (left, left + 1 + right)
        rounds = np.maximum(*(physical.fixed(physical.plain(pairs.column(place))) for place in places))
        kept = [name for index, name in enumerate(pairs.column_names) if index not in places]
        bare = pairs.select(kept).rename_columns([*(f"c{index}" for index in range(left + right)), "_diff"])
        if int(rounds.max()) == round:
            return [bare]
        for later in np.unique(rounds[rounds > round]).tolist():
            self._waiting.setdefault(later, []).append(bare.take(pa.array(np.flatnonzero(rounds == later))))
        now = np.flatnonzero(rounds == round)
        return [bare.take(pa.array(now))] if len(now) else []


def pair_layouts(spec: InnerJoin) -> dict[str, Layout]:
    """The traces of an inner join inside a loop: suffix → layout."""
    return join_with_rounds(spec).layouts()
