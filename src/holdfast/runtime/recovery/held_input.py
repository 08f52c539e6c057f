"""Rows that code pushed, held by the driver until they are safe.

These rows are in the log and nowhere else (`connectors/input.py`). If the layers are on the driver's host, rows and
driver are lost together. If each member has layers of its own, the loss of a member may take along layers that have no
copy yet: the rows are then taken from here again. When a flow closes its log and opens it again (`Flow.rescale`, a
declaration), the next engine gets the held rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.connectors.source import Offer, Part, Source
from holdfast.plan.nodes import Field


class HeldInput:
    """The rows that epochs took of sources that cannot be read again."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], list[Part]] = {}

    def hold(self, name: str, epoch: int, parts: Sequence[Part]) -> None:
        self._parts[name, epoch] = list(parts)

    def keep(self, wanted: Callable[[str, int], bool]) -> None:
        """Forget the rows of every (source, epoch) for which ``wanted`` is False."""
        self._parts = {key: parts for key, parts in self._parts.items() if wanted(*key)}

    def release(self, safe: int) -> None:
        """Forget the rows of epochs up to ``safe``, which copies hold."""
        self._parts = {key: parts for key, parts in self._parts.items() if key[1] > safe}

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._parts

    def source(self, name: str, epochs: Sequence[int], fields: tuple[Field, ...]) -> Source:
        """Return a source that gives what these epochs took of a source."""
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
