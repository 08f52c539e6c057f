"""The coordinator's facts, as other threads see them while an epoch is being counted."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from holdfast.coordinator.epochs import WINDOW, EpochSequence
from holdfast.trace.cover import Chain


def test_a_chain_that_is_taken_while_an_epoch_is_counted_has_each_digest_at_its_epoch() -> None:
    coordinator = EpochSequence()
    digests: dict[int, str] = {}
    taken: list[Chain] = []

    def look(frame: FrameType, event: str, _: object) -> Any:
        """Between any two lines of `complete` another thread takes the chain."""
        if frame.f_code is EpochSequence.complete.__code__:
            taken.append(coordinator.chain())
            return look
        return None

    for epoch in range(WINDOW + 3):
        lineage = coordinator.begin({}, epoch, 0)
        digests[epoch] = lineage.digest
        before = sys.gettrace()
        sys.settrace(look)
        try:
            coordinator.complete(lineage)
        finally:
            sys.settrace(before)
        assert coordinator.last == epoch and coordinator.head == lineage.digest
    assert len(taken) > WINDOW
    for chain in taken:
        for epoch in range(chain.base + 1, chain.end + 1):
            assert chain.digest(epoch) == digests[epoch]
    assert coordinator.chain().base == 2, "it does not grow for ever"
