"""What a flow kept when it ran last, as its directory and its log locations say, and what it keeps now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from holdfast.coordinator.history import History
from holdfast.coordinator.view_versions import ViewVersion, described
from holdfast.errors import DeclarationError, LogDamaged, StoreError
from holdfast.log.location import Location
from holdfast.log.replica import Replica
from holdfast.log.working_directory import LogDirectory
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.known_sources import Known, known_of
from holdfast.runtime.recovery.record import RecoveryRecord


def recorded_session(local: Path, locations: Sequence[Location]) -> dict[str, str]:
    """What the Spark session said when the flow first ran, as the first place that knows it says; nothing if it never
    ran, or no place can be read now. Only looks."""
    with suppress(OSError, ValueError):
        if found := json.loads((local / "collections.json").read_text()).get("session"):
            return dict(found)
    for location in locations:
        with suppress(StoreError, LogDamaged, OSError):
            if found := Replica(location).read_collections().get("session"):
                return dict(found)
    return {}


def recorded_fields(local: Path, locations: Sequence[Location], name: str) -> list[tuple[str, str]] | None:
    """The columns of a source's rows when the flow ran last, as the first place that knows it says. Only looks."""

    def told(said: Mapping[str, Any]) -> list[tuple[str, str]] | None:
        known = known_of(said).get(name)
        if known is None:
            return None
        hidden = [place for place, (column, _) in enumerate(known.fields) if column in _HIDDEN]
        return [*known.fields[: min(hidden, default=len(known.fields))]]

    with suppress(OSError, ValueError):
        if found := told(json.loads((local / "collections.json").read_text())):
            return found
    for location in locations:
        with suppress(StoreError, LogDamaged, OSError):
            if found := told(Replica(location).read_collections()):
                return found
    return None


_HIDDEN = ("_deleted", "_version", "_bad")
"""The first of the columns that are behind a collection's own, of sources that have such."""


class FlowDescription:
    """The descriptions of a flow, in all the places that have one."""

    def __init__(self, directory: LogDirectory, replicas: Mapping[str, Replica]) -> None:
        self._directory = directory
        self._replicas = replicas
        self._old_forms: dict[str, Any] = {}
        self._description: dict[str, Any] | None = None

    def before(self, history: History) -> dict[str, ViewVersion] | None:
        """What the views were before the history said so: a log of old says it in its description alone."""
        if not history or any(lineage.views is not None for lineage in history):
            return None
        for known in self._read():
            if found := known.get("before", known.get("collections")):
                self._old_forms = found
                break
        return described(self._old_forms)

    def sources(self) -> dict[str, Known]:
        """The sources that the flow had, also those that it did not have when it ran last."""
        found: dict[str, Known] = {}
        for one in reversed(self._read()):
            found |= known_of(one)
        return found

    def fresh(self, state: CompiledFlow, last: int) -> set[str]:
        """The operators that the flow did not keep before."""
        known, former = self._known(last)
        # An edit that is taken back: values that were drawn must not be drawn anew. All else is better filled than
        # replayed: input may have been released since.
        return set(state.flow.operators) - known.keys() - (former.keys() & state.drawing)

    def otherwise(self, state: CompiledFlow) -> list[str]:
        """The views that have another plan than when the flow ran last although nobody changed their text, nor what
        they read: another version of Holdfast or of Spark reads them. Under the same versions it is a function, or a
        view that they read, that was edited."""
        last: dict[str, Any] = next((one for one in self._read() if one.get("collections")), {})
        before = last.get("collections", {})
        if not before or last.get("versions") == _versions():
            return []
        now, known = state.description()["collections"], self.sources()
        changed = {
            name
            for name, source in state.declared.sources.items()
            if name in known and known[name].fields != tuple((field.name, field.type) for field in source.fields)
        }
        same = {name: was["fingerprint"] for name, was in before.items() if name in now and was.get("sql")}
        edited = {now[name]["fingerprint"] for name in same if now[name]["sql"] != before[name]["sql"]}
        return [
            name
            for name, fingerprint in same.items()
            if now[name]["sql"] == before[name]["sql"] and now[name]["fingerprint"] != fingerprint
            if not state.flow.ancestors({now[name]["fingerprint"]}) & (changed | edited)
        ]

    def write(self, description: dict[str, Any], last: int, edited: bool, recovery: RecoveryRecord) -> None:
        """Write down what the flow keeps; ``edited``: the next epoch changes what a view is."""
        if last >= 0 and edited:
            known, former = self._known(last)
            description["former"] = {"upto": last, "operators": {**former, **known}}
        if self._old_forms:
            # Nothing else says what they were, until an epoch does.
            description["before"] = self._old_forms
        self._description = description = {**description, "versions": _versions()}
        self._directory.write_collections(description)
        for replica in self._replicas.values():
            try:
                replica.write_collections(description)
            except StoreError as error:
                recovery.unreachable[replica.location.uri] = str(error)

    def renew(self, replica: Replica) -> None:
        """Have a location that has lost what it held say what the flow keeps, once that is written down at all."""
        if self._description is not None:
            replica.write_collections(self._description)

    def check_session(self, flow: str, session: Mapping[str, str]) -> None:
        """DeclarationError if the log says that views were computed under other settings than ``session``."""
        for one in self._read():
            for name, recorded in one.get("session", {}).items():
                if session.get(name, recorded) != recorded:
                    raise DeclarationError(
                        f"flow '{flow}': its views were computed with {name}={recorded}, and this process was prepared "
                        f"with {name}={session[name]}, before it could read that in the log; open the flow again, or "
                        f"set {name} to {recorded!r} in the Spark session",
                        flow=flow,
                        setting=name,
                        recorded=recorded,
                        found=session[name],
                    )

    def _known(self, last: int) -> tuple[dict[str, str], dict[str, str]]:
        """The operators that the flow kept before; and those before an edit, if no epoch was run after it."""
        known: dict[str, str] = {}
        former: dict[str, str] = {}
        for one in self._read():
            known |= one.get("operators", {})
            if one.get("former", {}).get("upto") == last:
                former |= one["former"].get("operators", {})
        return known, former

    def _read(self) -> list[dict[str, Any]]:
        known = [self._directory.read_collections()]
        for replica in self._replicas.values():
            with suppress(StoreError, LogDamaged):
                known.append(replica.read_collections())
        return known


@cache
def _versions() -> dict[str, str]:
    """The versions that read a view's text, as far as they are known."""
    from holdfast import __version__

    found = {"holdfast": __version__}
    with suppress(metadata.PackageNotFoundError):  # a platform's own Spark
        found["pyspark"] = metadata.version("pyspark")
    return found
