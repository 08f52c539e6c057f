"""The descriptions of a flow (``collections.json``), in its directory and its log locations: what it kept when it ran
last, and what it keeps now."""

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
    """Return the settings of the Spark session under which the flow first ran, from the first description that has
    them; empty if the flow never ran, or no description can be read now. Nothing is written."""
    with suppress(OSError, ValueError):
        if found := json.loads((local / "collections.json").read_text()).get("session"):
            return dict(found)
    for location in locations:
        with suppress(StoreError, LogDamaged, OSError):
            if found := Replica(location).read_collections().get("session"):
                return dict(found)
    return {}


def recorded_fields(local: Path, locations: Sequence[Location], name: str) -> list[tuple[str, str]] | None:
    """Return the columns of a source when the flow ran last, from the first description that has them; None if none can
    be read. Nothing is written."""

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
"""The internal columns that some sources have after a collection's own; each name can be the first of them."""


class FlowDescription:
    """The descriptions of a flow, in its directory and its locations."""

    def __init__(self, directory: LogDirectory, replicas: Mapping[str, Replica]) -> None:
        self._directory = directory
        self._replicas = replicas
        self._old_forms: dict[str, Any] = {}
        self._description: dict[str, Any] | None = None

    def before(self, history: History) -> dict[str, ViewVersion] | None:
        """Return the versions of the views from the description, for an older log whose history does not have them;
        None if the history has them."""
        if not history or any(lineage.views is not None for lineage in history):
            return None
        for known in self._read():
            if found := known.get("before", known.get("collections")):
                self._old_forms = found
                break
        return described(self._old_forms)

    def sources(self) -> dict[str, Known]:
        """Return the sources that the flow ever had, including those that were not declared when it ran last."""
        found: dict[str, Known] = {}
        for one in reversed(self._read()):
            found |= known_of(one)
        return found

    def fresh(self, state: CompiledFlow, last: int) -> set[str]:
        """Return the ids of operators that the flow did not keep before."""
        known, former = self._known(last)
        # If an edit is taken back, former operators that drew values are not new: the values must not be drawn again.
        # Other former operators are filled, not replayed: their input may have been released since.
        return set(state.flow.operators) - known.keys() - (former.keys() & state.drawing)

    def otherwise(self, state: CompiledFlow) -> list[str]:
        """Return the views whose plan differs from the last run although neither their text nor the views and sources
        that they read changed: another version of Holdfast or Spark plans them differently. Under the same versions the
        list is empty: then a function, or a view that they read, was edited."""
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
        """Write the description to the directory and all locations; ``edited``: the next epoch changes a view's
        version. A location that fails is noted in ``recovery``."""
        if last >= 0 and edited:
            known, former = self._known(last)
            description["former"] = {"upto": last, "operators": {**former, **known}}
        if self._old_forms:
            # Only this description says what the views of an older log were, until an epoch records their versions.
            description["before"] = self._old_forms
        self._description = description = {**description, "versions": _versions()}
        self._directory.write_collections(description)
        for replica in self._replicas.values():
            try:
                replica.write_collections(description)
            except StoreError as error:
                recovery.unreachable[replica.location.uri] = str(error)

    def renew(self, replica: Replica) -> None:
        """Write the description to a location that has lost its files, if there is a description already."""
        if self._description is not None:
            replica.write_collections(self._description)

    def check_session(self, flow: str, session: Mapping[str, str]) -> None:
        """Raise `DeclarationError` if the log says that views were computed under other settings than ``session``."""
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
        """Return the operators (id → kind) that the flow kept when it ran last; and those from before an edit, if no
        epoch was run after that edit."""
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
    """Return the versions of the packages that plan a view, as far as they are known."""
    from holdfast import __version__

    found = {"holdfast": __version__}
    with suppress(metadata.PackageNotFoundError):  # the Spark of a platform may not be an installed package
        found["pyspark"] = metadata.version("pyspark")
    return found
