"""The record of a recovery, written while it runs; users see it as a `Recovery`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.results.flow_results import Recovery


@dataclass
class RecoveryRecord:
    """What a recovery has done so far. The fields are those of `Recovery`."""

    epoch: int = -1
    lineage: dict[str, int] = field(default_factory=dict)
    epochs: list[int] = field(default_factory=list)
    filled: int | None = None
    read: list[str] = field(default_factory=list)
    otherwise: list[str] = field(default_factory=list)
    partitions: dict[str, list[int]] = field(default_factory=dict)
    run: dict[str, list[int]] = field(default_factory=dict)
    sources: dict[str, list[int]] = field(default_factory=dict)
    logs: dict[str, list[int]] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    repaired: list[int] = field(default_factory=list)
    layers_reused: int = 0
    layers_fetched: int = 0
    bytes_fetched: int = 0
    layers_handed: int = 0
    layers_ahead: int = 0
    damaged: list[str] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    followed: int | None = None
    missing: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def note_read(self, where: dict[str, list[int]], name: str, epochs: Iterable[int], filling: bool) -> None:
        """Note that input of these epochs was read. ``where`` is ``self.sources`` or ``self.logs``; ``filling``: it was
        read to fill operators."""
        where[name] = sorted({*where.get(name, ()), *epochs})
        if filling:
            self.read = sorted({*self.read, name})

    def note(
        self, first: int, epoch: int, where: Mapping[str, Iterable[int]], run: Mapping[str, Iterable[int]]
    ) -> None:
        """Note that epochs ``first`` to ``epoch`` were computed again. ``where``: the operators whose layers were
        written, with their partitions; ``run``: the operators that had to run for that."""
        if first == epoch:
            self.epochs = sorted({*self.epochs, epoch})
        else:
            self.filled = epoch
        for operator, partitions in where.items():
            self.partitions[operator] = sorted({*self.partitions.get(operator, ()), *partitions})
        for operator, partitions in run.items():
            self.run[operator] = sorted({*self.run.get(operator, ()), *partitions})

    @property
    def work(self) -> tuple[object, ...]:
        """A value that changes whenever the recovery has done something."""
        return self.layers_fetched, self.layers_handed, tuple(self.epochs), self.filled, len(self.damaged)

    def result(self) -> Recovery:
        """Return an immutable copy of the record as it is now."""
        return Recovery(**{name: _frozen(value) for name, value in vars(self).items()})


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return {key: _frozen(each) for key, each in value.items()} if isinstance(value, dict) else value
