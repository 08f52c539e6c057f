"""A history as it grows: a base, and the lineage of the epochs after it, by their numbers.

Epochs are numbers, not places in a list: ``history[e]`` is the lineage of epoch ``e``, ``history.last`` the number of
the last epoch, and a slice has the records of its epochs. All epochs up to the base are in one record (`Folded`), which
has the number of the base's epoch and is the first record of any slice that reaches back to it.

One thread appends and folds; any thread may read. A fold replaces the list, so a reader sees the list before or after
the fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import EpochUnavailable


class History(Sequence[Lineage]):
    """The complete epochs of a flow."""

    def __init__(self, records: Iterable[Lineage] = ()) -> None:
        """``records``: all epochs from 0 on, or a base and the epochs after it."""
        self._held: tuple[int, list[Lineage]] = (0, [])
        found = list(records)
        if found and isinstance(found[0], Folded):
            self._held = (found[0].epoch, found)
        else:
            self._held = (0, found)

    @property
    def base(self) -> Folded | None:
        """The base: the folded epochs; None if no epoch was folded."""
        _, records = self._held
        return records[0] if records and isinstance(records[0], Folded) else None

    @property
    def first(self) -> int:
        """The first epoch that has a record: the base's, or 0."""
        return self._held[0]

    @property
    def last(self) -> int:
        """The last epoch; -1 before the first."""
        return len(self) - 1

    def __len__(self) -> int:
        first, records = self._held
        return first + len(records)

    @overload
    def __getitem__(self, epoch: int) -> Lineage: ...

    @overload
    def __getitem__(self, epoch: slice) -> list[Lineage]: ...

    def __getitem__(self, epoch: int | slice) -> Lineage | list[Lineage]:
        first, records = self._held
        if isinstance(epoch, slice):
            start, stop, _ = epoch.indices(first + len(records))
            return records[max(0, start - first) : max(0, stop - first)]
        index = epoch - first if epoch >= 0 else epoch + len(records)
        if 0 <= index < len(records):
            return records[index]
        if 0 <= epoch < first:
            raise EpochUnavailable(
                f"the lineage of epoch {epoch} was folded: epochs up to {first} are behind what the flow retains",
                epoch=epoch,
                earliest=first,
            )
        raise IndexError(f"epoch {epoch} is not there; the last is {first + len(records) - 1}")

    def __iter__(self) -> Iterator[Lineage]:
        return iter(self._held[1])

    def __reversed__(self) -> Iterator[Lineage]:
        return reversed(self._held[1])

    def since(self, epoch: int) -> list[Lineage]:
        """The records of the epochs after this one. The base is the first of them if it holds some of these epochs."""
        return self[epoch + 1 :]

    def digest(self, epoch: int) -> str | None:
        """The digest of an epoch; None if there is no such epoch, or if it was folded and its digest was not kept."""
        first, records = self._held
        if first <= epoch < first + len(records):
            return records[epoch - first].digest
        base = records[0] if records else None
        return base.ends.get(epoch) if isinstance(base, Folded) else None

    def digests(self) -> dict[int, str]:
        """All digests that are known, by epoch."""
        base = self.base
        return {**(base.ends if base else {}), **{record.epoch: record.digest for record in self}}

    def append(self, lineage: Lineage) -> None:
        self._held[1].append(lineage)

    def fold(self, base: Folded) -> None:
        """Replace the records of all epochs up to the base's by the base."""
        first, records = self._held
        self._held = (base.epoch, [base, *records[base.epoch + 1 - first :]])

    def copy(self) -> History:
        """A copy with the same epochs, which grows by itself."""
        return History(self._held[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes
