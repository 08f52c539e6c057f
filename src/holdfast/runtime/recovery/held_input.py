"""Rows that code pushed, held by the driver until they are safe.

They are in the log and nowhere else (`connectors/input.py`). Where the log's layers are on one host with the driver,
they live and die together. Where each member has its own, the loss of one takes layers along that no copy has yet: then
the rows are taken from here again. When the flow lets go of its log and opens it again (`Flow.rescale`, a declaration),
what is held goes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.connectors.source import Offer, Part, Source
from holdfast.plan.nodes import Field


class HeldInput:
    """What epochs took of sources that cannot be read again."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], list[Part]] = {}

    def hold(self, name: str, epoch: int, parts: Sequence[Part]) -> None:
        self._parts[name, epoch] = list(parts)

    def keep(self, wanted: Callable[[str, int], bool]) -> None:
        """Let go of all else: of a source, what an epoch took."""
        self._parts = {key: parts for key, parts in self._parts.items() if wanted(*key)}

    def release(self, safe: int) -> None:
        """Epochs up to ``safe`` are in the copies."""
        self._parts = {key: parts for key, parts in self._parts.items() if key[1] > safe}

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._parts

    def source(self, name: str, epochs: Sequence[int], fields: tuple[Field, ...]) -> Source:
        """What epochs took of a source, as a source."""
        return _Held(fields, [part for epoch in epochs for part in self._parts[name, epoch]])


class _Held(Source):
    retracts = True

    def __init__(self, fields: tuple[Field, ...], parts: list[Part]) -> None:
        self.fields = fields
        self._parts = parts

    def poll(self) -> Offer | None:
        return None

    def advance(self, offer: Offer) -> None:
        pass

    def parts(self, offer: Offer) -> list[Part]:
        return self._parts
