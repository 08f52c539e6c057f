"""The sources that a flow has or had: their schemas, since which epoch, and where the rows of inputs are kept.

This is part of the flow's description (``collections.json``). Rows that code pushed are in the log and nowhere else, so
the log of an *input* outlives its declaration: a flow that runs without the input for a while keeps the log unchanged
and durable, and when the input is declared again, its log continues. If the schema of an input, or of a source that
keeps its rows, has changed, the source continues if its rows can be converted (`runtime/schema_changes.py`). If not,
the error says so before anything is written. Any other source is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.coordinator.view_versions import ViewVersion
from holdfast.errors import SchemaChanged
from holdfast.plan.nodes import Field
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.schema_changes import FormerLog, why_not


@dataclass(frozen=True)
class Known:
    """A source as it was last declared."""

    fields: tuple[tuple[str, str], ...]
    since: int
    """The first epoch that could take rows of it with these columns."""

    pushed: bool
    """Whether its rows were pushed by code, and so are in the log alone."""

    log: str | None = None
    """The id of the operator that keeps its rows, if one does."""

    key: tuple[int, ...] = ()
    operators: tuple[str, ...] = ()
    """The ids of the operator that keeps its rows and of the operators upstream of it."""

    upto: int | None = None
    """The last epoch in which it was declared; None if it is declared now."""

    versions: Mapping[str, Any] | None = None
    """The columns by which its rows replace each other; None if they do not."""

    kept: tuple[str, ...] = ()
    """The types of the rows in its log; empty: the types of its columns."""

    origin: str = ""
    """Which of Holdfast's own sources it was; empty: another source, or not known."""

    @property
    def version(self) -> ViewVersion:
        assert self.log is not None
        return ViewVersion(self.log, self.kept or tuple(kind for _, kind in self.fields), self.key)

    def to_json(self) -> dict[str, Any]:
        said = {"fields": [list(each) for each in self.fields], "since": self.since, "pushed": self.pushed}
        if self.log is not None:
            said |= {"log": self.log, "key": list(self.key), "operators": list(self.operators)}
        if self.versions is not None:
            said |= {"versions": dict(self.versions), "kept": list(self.kept)}
        if self.origin:
            said |= {"origin": self.origin}
        return said if self.upto is None else {**said, "upto": self.upto}

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Known:
        return Known(
            tuple((name, kind) for name, kind in said["fields"]),
            said.get("since", 0),
            said.get("pushed", True),
            said.get("log"),
            tuple(said.get("key", ())),
            tuple(said.get("operators", ())),
            said.get("upto"),
            said.get("versions"),
            tuple(said.get("kept", ())),
            said.get("origin", ""),
        )

    def columns(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.fields)


def known_of(description: Mapping[str, Any]) -> dict[str, Known]:
    """Return the sources that a description names. A description from before sources were written down names only
    those whose rows the flow keeps."""
    if "sources" in description:
        return {name: Known.from_json(said) for name, said in description["sources"].items()}
    return {
        name: Known.from_json({**said, "log": said["fingerprint"], "operators": [said["fingerprint"]]})
        for name, said in description.get("collections", {}).items()
        if said.get("kind") == "source"
    }


class KnownSources:
    """The sources of a flow that is being opened: as declared now, compared with what its description says."""

    def __init__(self, before: Mapping[str, Known], state: CompiledFlow, last: int) -> None:
        """``before``: the sources that the description names. ``last``: the last epoch of the flow."""
        declared = state.declared.sources
        self._now: dict[str, Known] = {}
        self.changed: dict[str, SchemaChanged] = {}
        """Source whose schema changed in a way that its rows cannot follow → the error that says so."""

        self.former: dict[str, FormerLog] = {}
        """Input whose schema changed → its former log, if its rows can be converted."""

        self._rekeyed: dict[str, SchemaChanged] = {}
        """Source → an error: its rows now replace each other by another key, or it is now another kind of source."""

        self.returned: set[str] = set()
        """The operators of inputs that are declared again after they were not declared for a while."""

        for name, source in declared.items():
            log = state.flow.views.get(name)
            operators = () if log is None else tuple(sorted({log, *state.flow.ancestors({log})}))
            key = () if log is None else tuple(state.flow.operators[log].keys[0])
            fields = tuple((field.name, field.type) for field in source.fields)
            earlier = before.get(name)
            since = earlier.since if earlier is not None and earlier.fields == fields else last + 1
            versions = None if source.versions is None else source.versions.said()
            kept = () if versions is None or log is None else tuple(f.type for f in state.flow.operators[log].fields)
            self._now[name] = Known(
                fields, since, not source.replayable, log, key, operators, None, versions, kept, source.origin
            )
            if (
                earlier is not None
                and last >= 0
                and earlier.origin != source.origin
                and earlier.origin
                and source.origin
            ):
                self._rekeyed[name] = _origin_changed(name, earlier, source.origin)
            elif earlier is not None and earlier.versions != versions and last >= 0:
                self._rekeyed[name] = _key_changed(name, earlier, self._now[name])
            elif earlier is not None and earlier.fields != fields and last >= 0:
                self._changed(name, earlier, last, state)
            elif earlier is not None and earlier.upto is not None and not source.replayable:
                self.returned |= set(operators)
        self.absent = {
            name: known if known.upto is not None else _until(known, last)
            for name, known in before.items()
            if name not in declared and known.pushed and known.log is not None
        }
        """Input that is not declared now → as it was last declared."""

    def _changed(self, name: str, before: Known, last: int, state: CompiledFlow) -> None:
        now = self._now[name]
        why = why_not(before.fields, now.fields)
        draws = [each for each in state.drawing if name in state.flow.ancestors({each})]
        is_kept = now.pushed or state.declared.sources[name].keeps_rows
        if is_kept and why is None and before.log is not None and not draws:
            names = [column for column, _ in before.fields]
            kinds = before.version.types
            fields = tuple(Field(column, kind) for column, kind in zip(names, kinds, strict=False))
            self.former[name] = FormerLog(before.version, fields, last if before.upto is None else before.upto)
        else:
            why = why or ("views have drawn values for its rows, which would be drawn anew" if draws else None)
            self.changed[name] = _schema_changed(name, before, now, last, why)

    @property
    def absent_traces(self) -> frozenset[str]:
        """The traces of inputs that are not declared now."""
        operators = [each for known in self.absent.values() for each in known.operators]
        return frozenset(f"{each}.{suffix}" for each in operators for suffix in ("rows", "pending", "ids", "ends"))

    def check(self, taken: Mapping[str, object], owed: Collection[str]) -> None:
        """Raise `SchemaChanged` for an input whose rows in the log have other columns, and for a source with another
        key or origin. ``taken``: the sources of which an epoch took rows; no error is raised for other sources.
        ``owed``: the sources of which a rewind has undone input that is still to be taken again. It is read from their
        logs, epoch by epoch, and a log that is made of a former one has only the rows that are there now."""
        for name, error in self._rekeyed.items():
            if name in taken:
                raise error
        for name, error in self.changed.items():
            if self._now[name].pushed and name in taken:
                raise error
        for name, former in self.former.items():
            if name in owed:
                raise SchemaChanged(
                    f"source '{name}': it is declared with other columns than before ({_named(former.fields)}), and "
                    "rows of it that a rewind has undone are still to be taken again, from its log. Declare it as it "
                    "was, run the flow until flow.status().owed is 0, and change it then",
                    name=name,
                )

    def to_json(self) -> dict[str, Any]:
        return {name: known.to_json() for name, known in {**self.absent, **self._now}.items()}


def _named(fields: Sequence[Field]) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in fields)


def _until(known: Known, last: int) -> Known:
    return replace(known, upto=last)


def _origin_changed(name: str, before: Known, now: str) -> SchemaChanged:
    return SchemaChanged(
        f"source '{name}': it is declared as {now}, and what the log has of it came from {before.origin}, which cannot "
        "be read so. Declare it as it was; or give what comes from now on another name, and have views read both "
        "(UNION ALL)",
        name=name,
        before=before.origin,
        now=now,
    )


def _key_changed(name: str, before: Known, now: Known) -> SchemaChanged:
    def said(versions: Mapping[str, Any] | None) -> str:
        if versions is None:
            return "no key"
        by = f", order_by={versions['order_by']!r}" if versions["order_by"] else ""
        whole = "whole versions, " if versions.get("whole") else ""
        return f"{whole}key={', '.join(versions['key']) or None}{by}"

    kind = "input" if now.pushed else "source"
    return SchemaChanged(
        f"{kind} '{name}': it is declared with {said(now.versions)}, and its rows were taken with "
        f"{said(before.versions)}. Declare it as it was, or give it another name",
        name=name,
        before=before.versions,
        now=now.versions,
    )


def _schema_changed(name: str, before: Known, now: Known, last: int, why: str | None) -> SchemaChanged:
    kind = "input" if now.pushed else "source"
    upto = last if before.upto is None else before.upto
    what_to_do = (
        f"Rows that were pushed cannot be read as that{f': {why}' if why else ''}. Declare it as it was; or give what "
        "comes from now on another name, and have views read both (UNION ALL)"
        if now.pushed
        else "What was taken of it is read again, and does not read as that. Declare it as it was, or give it another "
        "name"
    )
    return SchemaChanged(
        f"{kind} '{name}': its schema changed: in epochs {before.since} to {upto} it was ({before.columns()}), and now "
        f"it is declared as ({now.columns()}). {what_to_do}",
        name=name,
        before=[list(each) for each in before.fields],
        now=[list(each) for each in now.fields],
        first=before.since,
        last=upto,
    )
