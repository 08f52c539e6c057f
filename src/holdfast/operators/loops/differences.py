"""Any keyed operator but an inner join, in a loop: with its own kernel, which knows nothing of rounds.

Let A(r) be an operator's input as of this epoch, rounds up to *r*, and B(r) as of the epoch before. Its output changes
at round *r* by

    F(A(r)) - F(A(r-1))  -  (F(B(r)) - F(B(r-1)))

A key needs to be looked at in round *r* if its input changes at *r*; and if it has changed at an earlier round of this
epoch, and an earlier epoch did something to it at *r* (the least upper bound of the two times). What earlier epochs did
is found from the stored traces when the key is first touched.

* B did nothing to the key at *r*, or this epoch has not touched it before *r*: then the output changes by what the
  kernel gives for the change at *r* over the stored rows of rounds up to *r* and this epoch's of rounds before *r*.
* Otherwise the kernel runs twice, over stored rows alone, up to round *r* and up to *r*-1, each time with all that this
  epoch has changed up to then. The output changes by the difference; and so do the operator's own traces.

Where this epoch has touched but a few keys, and a good part of them must be looked at, one run does: over all of them,
up to round *r*. What it gives is the whole difference F(A(r)) - F(B(r)), and of that the epoch has given all but the
change of this round already.

So no state but the operator's traces is kept, and any operator that keeps up with changes can be in a loop. A loop can,
too: it is an operator with one key, which is looked at in every round in which an earlier epoch did anything in it. To
find these, the rounds of all of its rows are read, once in an epoch that touches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.operators.arrangement import consolidated, negated
from holdfast.operators.loops.arrivals import Arrivals
from holdfast.operators.loops.pieces import Blocks, Tables
from holdfast.operators.loops.round_traces import StoredRounds, at_round, with_rounds
from holdfast.operators.loops.shares import Share
from holdfast.operators.step import Context, KeyedOperator, StepResult
from holdfast.trace import physical
from holdfast.trace.memory_layer import Run
from holdfast.trace.physical import Words
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.trace import Trace

_NONE: Words = np.zeros(0, np.uint64)
_FEW = 1024
_SHARE = 4
"""One run over all keys of an epoch is cheaper than two over those that are due, up to so many rows, and if so many
times those that are due are all."""


def difference_layouts(spec: KeyedOperator) -> dict[str, Layout]:
    """The traces that an operator in a loop keeps."""
    return {suffix: with_rounds(layout) for suffix, layout in spec.layouts().items()}


@dataclass(frozen=True)
class DifferencesState:
    """What an epoch has done in an operator: the fields of `DifferencesInRounds`."""

    earlier: dict[str, list[Block]]
    written: dict[str, list[Block]]
    arrivals: list[list[pa.Table]]
    touched: Words
    due: dict[int, list[Words]]
    given: list[pa.Table] | None
    has_history: bool


class DifferencesInRounds:
    """A keyed operator in one epoch of a loop, or a share of its keys."""

    def __init__(
        self,
        spec: KeyedOperator,
        schemas: Sequence[pa.Schema],
        stored: Mapping[str, Trace],
        context: Context,
        *,
        has_history: bool,
    ) -> None:
        """``schemas``: of what ``prepare`` makes, port by port. ``has_history``: whether earlier epochs have done
        anything, be it in other shares of the keys. It is found once in an epoch, and then goes with the state: a merge
        beside the epoch may leave nothing of a history that has cancelled."""
        self._spec, self._context = spec, context
        self._layouts = spec.layouts()
        self._stored = {suffix: StoredRounds(stored[suffix], layout) for suffix, layout in self._layouts.items()}
        self._earlier = {suffix: Run(layout) for suffix, layout in self._layouts.items()}
        self._written = {suffix: Blocks() for suffix in self._layouts}
        self._has_history = has_history
        self._arrivals = [Arrivals(schema) for schema in schemas]
        self._touched = _NONE
        self._due: dict[int, list[Words]] = {}
        self._given: Tables | None = Tables()
        """What the operator has given in this epoch, if there are earlier ones. None: nobody knows."""

    def next_round(self) -> int | None:
        """The next round in which something happens although nothing arrives."""
        return min(self._due, default=None)

    def pending(self, round: int) -> int:
        """Keys that are due at a round."""
        return sum(map(len, self._due.get(round, ())))

    def state(self) -> DifferencesState:
        """What the epoch has done so far."""
        return DifferencesState(
            {suffix: [layer.whole for layer in run.layers] for suffix, run in self._earlier.items()},
            {suffix: list(blocks.pieces) for suffix, blocks in self._written.items()},
            [each.tables for each in self._arrivals],
            self._touched,
            {round: list(keys) for round, keys in self._due.items()},
            None if self._given is None else list(self._given.pieces),
            self._has_history,
        )

    def absorb(self, state: DifferencesState) -> None:
        """Take over what the epoch has done in a share of the keys."""
        self._has_history = state.has_history
        for suffix, blocks in state.earlier.items():
            self._earlier[suffix].absorb(blocks)
        for suffix, blocks in state.written.items():
            self._written[suffix].absorb(blocks)
        for each, tables in zip(self._arrivals, state.arrivals, strict=True):
            each.absorb(tables)
        self._touched = np.union1d(self._touched, state.touched)
        for round, keys in state.due.items():
            self._due.setdefault(round, []).extend(keys)
        if state.given is None:
            self._given = None
        elif self._given is not None:
            self._given.absorb(state.given)

    def share_of(self, state: DifferencesState, share: Share) -> DifferencesState:
        """The part of a state that is of a share of the keys. What is only there for the end goes to the first; of what
        was given nobody knows any more of which key it was."""
        if self._spec.one_key:
            nothing = DifferencesState({}, {}, [[] for _ in state.arrivals], _NONE, {}, [], state.has_history)
            return state if share.is_first else nothing
        return DifferencesState(
            {suffix: share.blocks(blocks) for suffix, blocks in state.earlier.items()},
            state.written if share.is_first else {},
            [[share.rows(table) for table in tables] for tables in state.arrivals],
            share.hashes(state.touched),
            {round: [share.hashes(each) for each in keys] for round, keys in state.due.items()},
            None,
            state.has_history,
        )

    def advance(self, round: int, arrived: list[pa.Table]) -> pa.Table | None:
        """The change of the output at a round, given that of the inputs; None if there is none."""
        begins = self._context.initial and round == 0
        due = _once(np.concatenate([_NONE, *self._due.pop(round, ())]))
        parts: list[pa.Table] = []
        if not len(due):
            if begins or any(part.num_rows for part in arrived):
                parts.append(self._plain(round, arrived, begins))
        elif self._are_most(due):
            parts.append(self._once(round, arrived))
        else:
            others = [_without(part, due) for part in arrived]
            if any(part.num_rows for part in others):
                parts.append(self._plain(round, others, begins))
            parts += self._twice(round, due, arrived)
        if self._has_history:
            self._note(round, arrived)
            if self._given is not None:
                for part in parts:
                    self._given.add(part)
        change = pa.concat_tables(parts) if parts else None
        return change if change is not None and change.num_rows else None

    def _are_most(self, due: Words) -> bool:
        """Whether all keys that the epoch has touched may be looked at for those that are due."""
        if self._given is None:
            return False
        few = sum(each.rows for each in self._arrivals) + self._given.rows <= _FEW
        return few and len(self._touched) <= _SHARE * len(due)

    def layers(self) -> dict[str, Block]:
        """The rows of each trace's new layer, not consolidated."""
        return {suffix: Block.concat(blocks.pieces) for suffix, blocks in self._written.items() if blocks.pieces}

    def _plain(self, round: int, arrived: list[pa.Table], begins: bool) -> pa.Table:
        """Keys to which no earlier epoch did anything at this round, or that this epoch has not touched before."""
        traces = {
            suffix: stored.until(round, self._earlier[suffix].slices()) for suffix, stored in self._stored.items()
        }
        step = self._spec.step(arrived, traces, replace(self._context, initial=begins))
        for suffix, block in step.layers.items():
            self._keep(suffix, block, round)
        return step.output

    def _once(self, round: int, arrived: list[pa.Table]) -> pa.Table:
        """All keys that this epoch has touched, up to this round."""
        now = [each.together([each.all(), new]) for each, new in zip(self._arrivals, arrived, strict=True)]
        traces = {suffix: stored.until(round) for suffix, stored in self._stored.items()}
        step = self._spec.step(now, traces, replace(self._context, initial=False))
        for suffix, layout in self._layouts.items():
            blocks = [_of(step, suffix, layout), _negated(self._earlier[suffix].block())]
            self._keep(suffix, consolidate(Block.concat(blocks), layout), round)
        given = [] if self._given is None else self._given.pieces
        return consolidated(pa.concat_tables([step.output, *map(negated, given)]))

    def _twice(self, round: int, due: Words, arrived: list[pa.Table]) -> list[pa.Table]:
        """Keys that this epoch and earlier ones have changed, at this round or before."""
        before = [each.of(due) for each in self._arrivals]
        now = [
            each.together([part, _only(new, due)])
            for each, part, new in zip(self._arrivals, before, arrived, strict=True)
        ]
        context = replace(self._context, initial=False)
        after, less = (
            self._spec.step(given, {suffix: stored.until(upto) for suffix, stored in self._stored.items()}, context)
            for given, upto in ((now, round), (before, round - 1))
        )
        for suffix, layout in self._layouts.items():
            blocks = [_of(after, suffix, layout), _negated(_of(less, suffix, layout))]
            self._keep(suffix, consolidate(Block.concat(blocks), layout), round)
        return [consolidated(pa.concat_tables([after.output, negated(less.output)]))]

    def _keep(self, suffix: str, block: Block, round: int) -> None:
        if block.rows:
            block = consolidate(block, self._layouts[suffix])  # sorted, and found, by what it is without its round
            self._earlier[suffix].add(block)
            self._written[suffix].add(at_round(block, round))

    def _note(self, round: int, arrived: list[pa.Table]) -> None:
        """Remember what arrived, and when the keys that are touched for the first time must be looked at again."""
        for each, part in zip(self._arrivals, arrived, strict=True):
            each.add(part)
        hashes = _once(np.concatenate([_hashes(part) for part in arrived]))
        fresh = np.setdiff1d(hashes, self._touched, assume_unique=True)
        if not len(fresh):
            return
        self._touched = np.union1d(self._touched, fresh)
        if self._spec.one_key:
            for later in {each for stored in self._stored.values() for each in stored.rounds(round)}:
                self._due.setdefault(later, []).append(fresh)
            return
        found = [stored.rounds_of(fresh, round) for stored in self._stored.values()]
        rounds, keys = (np.concatenate(each) for each in zip(*found, strict=True))
        for later in np.unique(rounds).tolist():
            self._due.setdefault(later, []).append(keys[rounds == later])


def _of(step: StepResult, suffix: str, layout: Layout) -> Block:
    found = step.layers.get(suffix)
    return Block.empty(layout) if found is None else found


def _negated(block: Block) -> Block:
    return replace(block, adds={name: -values for name, values in block.adds.items()})


def _hashes(part: pa.Table) -> Words:
    found: Words = physical.fixed(physical.plain(part.column("_hash")))
    return found


def _once(hashes: Words) -> Words:
    """Hashes, sorted, each once."""
    return np.unique(hashes)


def _only(part: pa.Table, hashes: Words) -> pa.Table:
    return part.filter(pa.array(np.isin(_hashes(part), hashes))) if part.num_rows else part


def _without(part: pa.Table, hashes: Words) -> pa.Table:
    return part.filter(pa.array(~np.isin(_hashes(part), hashes))) if part.num_rows else part
