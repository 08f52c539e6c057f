"""Makes the `EpochSpec` that tell tasks of an epoch, for its first run or for a replay."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.rewinds import state_clock
from holdfast.runtime.open_flow import OpenFlow
from holdfast.task.stage import EpochSpec


def epoch_spec(
    flow: OpenFlow,
    lineage: Lineage,
    *,
    first: int | None = None,
    again: bool = False,
    deliver: frozenset[str] = frozenset(),
    run: Mapping[str, frozenset[int]] | None = None,
    write: Mapping[str, frozenset[int]] | None = None,
    asking: frozenset[str] = frozenset(),
    partitions: int | None = None,
    undo: int | None = None,
    parts: bool = False,
) -> EpochSpec:
    """Return the spec of an exact epoch. ``first``: the first epoch, if one run covers several. ``again``: a replay,
    in which only the operators ``asking`` ask outside; the others take the answers from the lineage. ``deliver``: the
    logs whose change the tasks return. ``run`` and ``write``: the operators that are run and that write layers, in
    which partitions (None: all). ``undo``: the epoch to which a rewind goes back (`EpochSpec.undo`). ``parts``: tasks
    may write changes for sinks (`EpochSpec.parts`)."""
    declared, runner = flow.compiled.declared, flow.runner
    history = flow.state.history
    return EpochSpec(
        number=lineage.epoch,
        first=lineage.epoch if first is None else first,
        digest=lineage.digest,
        chain=flow.state.epochs.chain(),
        partitions=partitions or runner.partitions,
        traces=str(flow.compiled.directory),
        parent=lineage.parent,
        deliver=deliver,
        clock=lineage.clock if undo is None else state_clock(history, undo),
        before=state_clock(history, (first or lineage.epoch) - 1) if lineage.epoch else -(2**63),
        undo=undo,
        seed=lineage.seed,
        answers=lineage.answers if again else None,
        asking=asking,
        run=run,
        write=write,
        parts=parts,
        copies=declared.locations if runner.scattered and declared.settings.durable else (),
    )
