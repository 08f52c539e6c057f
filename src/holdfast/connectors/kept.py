"""A source's own rows as the log keeps them, read again to fill an operator that is new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.connectors.source import Offer, Part, Source
from holdfast.operators.kept import Kept
from holdfast.operators.program import partition_range
from holdfast.plan.nodes import Field


@dataclass(frozen=True)
class KeptPart:
    """The rows of one partition."""

    kept: Kept
    at: int
    low: int
    high: int

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        table = self.kept.rows(self.low, self.high, self.at)
        yield table.rename_columns(schema.names).append_column("_diff", pa.array(np.ones(table.num_rows, dtype=np.int64)))


class KeptRows(Source):
    """All rows of a kept source as of an epoch."""

    retracts = True

    def __init__(self, fields: tuple[Field, ...], kept: Kept, at: int, partitions: int) -> None:
        self.fields = fields
        self._parts: list[Part] = [
            KeptPart(kept, at, *partition_range(partition, partitions)) for partition in range(partitions)
        ]

    def poll(self) -> Offer | None:
        return None

    def advance(self, offer: Offer) -> None:
        pass

    def parts(self, offer: Offer) -> list[Part]:
        return self._parts
