"""The versions of views: which log held a view's rows at each epoch, so that sinks stay right when its query is edited.

A view's rows are kept by a log, and the log's name is a hash of what the view means. A *version* is a log with the
types of its columns and the key by which it is arranged. If versions change at an epoch, the lineage of that epoch
names all versions from then on. So the past of every view is part of the history itself: it is as durable as the
history, it goes out with every commit to a sink, and the epochs of two drivers that edited the same log at once have
different digests.

The **content** of a view as of epoch *e* is the rows, as of *e*, of the log that was its version at *e*. A view that is
dropped for some epochs keeps in them the rows that it had last. For epoch *e* a sink is given

    content(e) - content(e - 1)

whatever the versions: the log's own change if the version is the same, the difference of two logs if the view was
edited. This is a function of the history and the logs alone, so it is the same however often a commit is tried; and the
sum of all that a sink was given up to *e* is content(e), in whatever order edits, crashes and commits came.

Before the first record that names a view's version, the view is assumed to have had that version already: no change of
a log is delivered before an epoch names it as the view's version (`runtime/delivery.py`).

Pure: history in, spans out. O(n) for n records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.lineage import Lineage


@dataclass(frozen=True)
class ViewVersion:
    """How a view's rows are kept: the operator_id of the log, the Spark types of its columns, the positions of the
    columns of its key."""

    log: str
    types: tuple[str, ...]
    key: tuple[int, ...]
    names: tuple[str, ...] = field(default=(), compare=False)
    """The names of its columns when it became the view's version; empty if they are not known. Versions that differ in
    names only are equal."""

    @property
    def trace(self) -> str:
        return f"{self.log}.rows"

    def to_json(self) -> dict[str, Any]:
        said = {"log": self.log, "types": list(self.types), "key": list(self.key)}
        return {**said, "names": list(self.names)} if self.names else said

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> ViewVersion:
        return ViewVersion(str(said["log"]), tuple(said["types"]), tuple(said["key"]), tuple(said.get("names", ())))

    def fits(self, other: ViewVersion) -> bool:
        """Whether rows of this version can be read as rows of another one: the columns have the same types, and no name
        has moved to another column."""
        places = {name: place for place, name in enumerate(other.names)} if self.names else {}
        return self.types == other.types and all(
            places.get(name, place) == place for place, name in enumerate(self.names)
        )

    @property
    def columns(self) -> str:
        """Its columns, for messages."""
        names = self.names or ("",) * len(self.types)
        return ", ".join(f"{name} {kind}".strip() for name, kind in zip(names, self.types, strict=True))


@dataclass(frozen=True)
class Span:
    """Epochs in which a view had one version. ``last`` is None for the present version."""

    first: int
    last: int | None
    version: ViewVersion


def described(collections: Mapping[str, Mapping[str, Any]]) -> dict[str, ViewVersion]:
    """The versions in a log's description (``collections.json``)."""
    return {
        name: ViewVersion(
            entry["fingerprint"],
            tuple(kind for _, kind in entry["fields"]),
            tuple(entry["key"]),
            tuple(column for column, _ in entry["fields"]),
        )
        for name, entry in collections.items()
    }


class ViewVersions:
    """The versions of all views of a flow, from the first epoch on."""

    def __init__(self, history: Iterable[Lineage] = (), before: Mapping[str, ViewVersion] | None = None) -> None:
        """``before``: the first versions of the views, for a log whose history does not name them."""
        self._spans: dict[str, list[Span]] = {}
        self.changed = -1
        """The last epoch whose lineage names versions; -1 if none does."""

        self.revision = 0
        """Counts how often versions were taken in."""

        if before is not None:
            self._take(-1, before)
        for lineage in history:
            self.add(lineage)

    def folded(self, epoch: int) -> dict[str, Any]:
        """The record that a base of epochs up to this one needs, for `add`: of each view the version at ``epoch``, or
        its last one before."""
        spans = {}
        for name, past in self._spans.items():
            known = [span for span in past if span.first <= epoch]
            # A version that ends after ``epoch`` is ended by the record of a later epoch.
            spans[name] = [
                [span.first, None if span.last is None or span.last > epoch else span.last, span.version.to_json()]
                for span in [span for span in known if span.last is None or span.last >= epoch] or known[-1:]
            ]
        changed = self.changed
        if changed > epoch:
            moments = [each for past in self._spans.values() for span in past for each in (span.first, span.last)]
            changed = max((each for each in moments if each is not None and 0 <= each <= epoch), default=-1)
        return {"changed": changed, "spans": {name: past for name, past in spans.items() if past}}

    def add(self, lineage: Lineage) -> None:
        """Take in the record of a complete epoch, or the base with which a history begins."""
        if isinstance(lineage, Folded):
            self.revision += 1
            self.changed = lineage.forms.get("changed", -1)
            for name, past in lineage.forms.get("spans", {}).items():
                self._spans[name] = [Span(first, last, ViewVersion.from_json(said)) for first, last, said in past]
            return
        if lineage.views is not None:
            self.changed = lineage.epoch
            self._take(lineage.epoch, {name: ViewVersion.from_json(said) for name, said in lineage.views.items()})

    def _take(self, epoch: int, versions: Mapping[str, ViewVersion]) -> None:
        self.revision += 1
        for name in {**self._spans, **versions}:
            past, version = self._spans.setdefault(name, []), versions.get(name)
            present = past[-1] if past and past[-1].last is None else None
            if present is not None and present.version == version:
                continue
            if present is not None:
                past[-1] = replace(present, last=epoch - 1)
            if version is not None:
                past.append(Span(epoch, None, version))

    def of(self, view: str) -> Sequence[Span]:
        """All versions that a view had so far, in order."""
        return self._spans.get(view, ())

    @property
    def views(self) -> Collection[str]:
        """All views that the history names, also dropped ones."""
        return self._spans.keys()

    def present(self) -> dict[str, ViewVersion]:
        """The present versions of all views that are not dropped, by the history."""
        return {name: past[-1].version for name, past in self._spans.items() if past and past[-1].last is None}

    def former(
        self, view: str, epoch: int, last: int, now: ViewVersion, recorded: bool = False
    ) -> tuple[Span, int] | None:
        """The version that a view had as of ``epoch``, and the epoch at which it was edited after that; None if the
        view has the same version ``now``. As of the ``last`` epoch a view has its declared version, also if no epoch
        has made that edit yet; with ``recorded`` it has the version in the history there, too."""
        past = self._spans.get(view, ())
        if (epoch >= last and not recorded) or not past or past[index := self.at(view, epoch)].version == now:
            return None
        return past[index], past[index + 1].first if index + 1 < len(past) else last + 1

    def at(self, view: str, epoch: int) -> int:
        """The index of the view's span that has its content as of ``epoch``; 0 for epochs before the first span."""
        past = self._spans[view]
        return max((index for index, span in enumerate(past) if span.first <= epoch), default=0)
