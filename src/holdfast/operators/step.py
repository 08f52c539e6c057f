"""What every keyed operator takes and gives.

A keyed operator is a module with three functions, all pure:

``layouts(spec)``
    the traces it keeps: suffix → layout.
``prepare(spec, port, change)``
    runs before the exchange, once per batch: cuts the change to what the operator needs, combines locally, and puts
    the hash of the key in front as ``_hash``.
``step(spec, arrived, traces, context)``
    runs after the exchange, once per epoch and partition: ``arrived[port]`` is what ``prepare`` made, from any number
    of tasks, in any order.

The result of ``step`` depends on the bags that arrived and on the traces as of the epoch before, never on order,
splitting, partitioning or merges (invariant 1, functional).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.trace.rows import Block


@dataclass(frozen=True)
class Context:
    """Where and when a step runs: the epoch, and the partition's range of key hashes [low, high)."""

    epoch: int
    low: int
    high: int
    initial: bool
    """True in the operator's very first epoch: its traces are empty."""

    clock: int = 0
    seed: int = 0
    """The lineage's: microseconds since 1970, and the epoch's seed."""

    before: int = -(2**63)
    """The clock of the epoch before."""

    answers: Mapping[str, str] | None = None
    """In a replay: question → answer, what the operator's outside functions returned, from the lineage."""


@dataclass(frozen=True)
class Step:
    """What a step did: the rows of each trace's new layer, and the output change (``c0…``, ``_diff``)."""

    layers: dict[str, Block]
    output: pa.Table
    answers: Mapping[str, str] = field(default_factory=dict)
    """Question → answer, for the lineage: what outside functions returned. No two partitions ask the same question."""

    due: int | None = None
    """At what clock something will happen although nothing arrives; not later than that. None: never."""
