"""Any keyed operator except an inner join, inside a loop: it runs with its usual kernel, which ignores rounds.

Let A(r) be an operator's input as of this epoch, in rounds up to *r*, and B(r) the same as of the epoch before. Let F
be the operator. Its output changes at round *r* by

    F(A(r)) - F(A(r-1))  -  (F(B(r)) - F(B(r-1)))

A key must be processed in round *r* if its input changes at *r*. It must also be processed (it is *due*) if it changed
at an earlier round of this epoch and an earlier epoch changed it at *r* (the least upper bound of the two times). The
rounds in which earlier epochs changed a key are read from the stored traces when the epoch first touches the key.

* No earlier epoch changed the key at *r*, or this epoch has not touched it before *r*: the kernel runs once, on the
  change at *r*, over the stored rows of rounds up to *r* and this epoch's rows of rounds before *r*. Its output is the
  change of the output.
* Otherwise the kernel runs twice over stored rows: over those up to round *r*, with all changes of this epoch up to
  round *r*, and over those up to *r*-1, with all changes up to *r*-1. The difference of the two outputs is the change
  of the output; the difference of the two layers is the change of the operator's traces.

If this epoch has touched only a few keys, and a good part of them is due, one run over all touched keys up to round *r*
is enough. It gives the whole difference F(A(r)) - F(B(r)). The epoch has already output all of it except the change of
this round, so subtracting the earlier outputs gives this change.

So no state but the operator's traces is kept, and any incremental operator can be inside a loop. This includes a loop:
it is an operator with one key, which is due in every round in which an earlier epoch changed any of its rows. To find
these rounds, the rounds of all of its rows are read, once per epoch that touches the loop.
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
"""One run over all touched keys is cheaper than two runs over the due keys if the epoch has at most `_FEW` rows and has
touched at most `_SHARE` times as many keys as are due."""


def difference_layouts(spec: KeyedOperator) -> dict[str, Layout]:
    """The traces of an operator inside a loop: suffix → layout."""
    return {suffix: with_rounds(layout) for suffix, layout in spec.layouts().items()}


@dataclass(frozen=True)
class DifferencesState:
    """The state of an operator in the middle of an epoch: the fields of `DifferencesInRounds`."""

    earlier: dict[str, list[Block]]
    written: dict[str, list[Block]]
    arrivals: list[list[pa.Table]]
    touched: Words
    due: dict[int, list[Words]]
    given: list[pa.Table] | None
    has_history: bool


class DifferencesInRounds:
    """A keyed operator in one epoch of a loop, for all of its keys or a share of them."""

    def __init__(
        self,
        spec: KeyedOperator,
        schemas: Sequence[pa.Schema],
        stored: Mapping[str, Trace],
        context: Context,
        *,
        has_history: bool,
    ) -> None:
        """``schemas``: for each port, the schema of what ``prepare`` makes. ``has_history``: whether the traces have
        rows of earlier epochs, in any share of the keys. This is determined once per epoch and then passed on with the
        state, since a merge during the epoch may remove all rows of a history that has cancelled."""
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
        """The output of this epoch so far, if the operator has a history. None: not known (see `share_of`)."""

    def next_round(self) -> int | None:
        """The next round with due keys, in which the operator must run even if no row arrives; None if there is
        none."""
        return min(self._due, default=None)

    def pending(self, round: int) -> int:
        """The number of keys that are due at a round."""
        return sum(map(len, self._due.get(round, ())))

    def state(self) -> DifferencesState:
        """The state of the epoch so far."""
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
        """Add the state of a share of the keys, from another task."""
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
        """The part of a state that belongs to a share of the keys. Rows that are only needed at the end go to the first
        share. The output so far cannot be divided, since it does not have the keys' hashes: it becomes None."""
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
        """The change of the output at a round, given the changes of the inputs; None if there is none."""
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
        """Whether one run over all touched keys is cheaper than two runs over the due keys."""
        if self._given is None:
            return False
        few = sum(each.rows for each in self._arrivals) + self._given.rows <= _FEW
        return few and len(self._touched) <= _SHARE * len(due)

    def layers(self) -> dict[str, Block]:
        """The rows of each trace's new layer, not consolidated."""
        return {suffix: Block.concat(blocks.pieces) for suffix, blocks in self._written.items() if blocks.pieces}

    def _plain(self, round: int, arrived: list[pa.Table], begins: bool) -> pa.Table:
        """Run the kernel once, for keys that no earlier epoch changed at this round or that this epoch has not touched
        before."""
        traces = {
            suffix: stored.until(round, self._earlier[suffix].slices()) for suffix, stored in self._stored.items()
        }
        step = self._spec.step(arrived, traces, replace(self._context, initial=begins))
        for suffix, block in step.layers.items():
            self._keep(suffix, block, round)
        return step.output

    def _once(self, round: int, arrived: list[pa.Table]) -> pa.Table:
        """Run the kernel once, for all keys that this epoch has touched, up to this round."""
        now = [each.together([each.all(), new]) for each, new in zip(self._arrivals, arrived, strict=True)]
        traces = {suffix: stored.until(round) for suffix, stored in self._stored.items()}
        step = self._spec.step(now, traces, replace(self._context, initial=False))
        for suffix, layout in self._layouts.items():
            blocks = [_of(step, suffix, layout), _negated(self._earlier[suffix].block())]
            self._keep(suffix, consolidate(Block.concat(blocks), layout), round)
        given = [] if self._given is None else self._given.pieces
        return consolidated(pa.concat_tables([step.output, *map(negated, given)]))

    def _twice(self, round: int, due: Words, arrived: list[pa.Table]) -> list[pa.Table]:
        """Run the kernel twice, for the due keys: up to this round and up to the round before."""
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
            block = consolidate(block, self._layouts[suffix])  # sorted and searched without its round
            self._earlier[suffix].add(block)
            self._written[suffix].add(at_round(block, round))

    def _note(self, round: int, arrived: list[pa.Table]) -> None:
        """Keep the rows that arrived, and find the later rounds in which newly touched keys are due."""
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
    """The hashes, sorted and without repetitions."""
    return np.unique(hashes)


def _only(part: pa.Table, hashes: Words) -> pa.Table:
    return part.filter(pa.array(np.isin(_hashes(part), hashes))) if part.num_rows else part


def _without(part: pa.Table, hashes: Words) -> pa.Table:
    return part.filter(pa.array(~np.isin(_hashes(part), hashes))) if part.num_rows else part
