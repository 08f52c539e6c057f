"""The plan of a flow: what running it as it is declared would add, rebuild and drop in its log, and what it would read.

Nothing is changed (`inspect/unopened_flow.py`): the flow's present dataflow is compared with the description in the
log. An operator_id is a hash of the operator's meaning, so operators with the same id are kept. All others are
computed, from the nearest logs of views and inputs that are kept, else from all input of the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from holdfast.coordinator.history import History
from holdfast.inspect.unopened_flow import UnopenedLog
from holdfast.results.flow_results import RunningDriver
from holdfast.runtime.compiled_flow import CompiledFlow
from holdfast.runtime.known_sources import known_of

Kind: TypeAlias = Literal["view", "source", "input"]
Action: TypeAlias = Literal["adds", "rebuilds", "drops", "keeps"]


@dataclass(frozen=True)
class PlannedChange:
    """What happens to one view, or to one source whose rows are kept."""

    name: str
    kind: Kind
    action: Action

    reads: tuple[str, ...] = ()
    """The collections that are read again for it: ``view 'v'`` (from its log), ``source 's'`` (from the beginning)."""

    bytes: int = 0
    """The bytes of these logs, and of those of the sources that know their size (files)."""

    is_all: bool = True
    """Whether `bytes` is everything; False if a source does not know how many bytes it has."""

    def __str__(self) -> str:
        what = self.name if self.kind == "view" else f"{self.kind} {self.name}"
        if not self.reads:
            return f"{self.action} {what}"
        least = "" if self.is_all else "at least "
        size = f": {least}{_size(self.bytes)}" if self.bytes else ""
        return f"{self.action} {what} (reads {', '.join(self.reads)} again{size})"


@dataclass(frozen=True)
class FlowPlan:
    """What running a flow would do; see ``flow.plan()``."""

    flow: str
    epoch: int
    """The last epoch of the log; -1: no epoch is complete yet."""

    changes: tuple[PlannedChange, ...] = ()
    running: RunningDriver | None = None
    """The driver that runs the flow right now, by the lock of its working directory; None if none does."""

    @property
    def adds(self) -> list[str]:
        return self._of("adds")

    @property
    def rebuilds(self) -> list[str]:
        return self._of("rebuilds")

    @property
    def drops(self) -> list[str]:
        return self._of("drops")

    @property
    def keeps(self) -> list[str]:
        return self._of("keeps")

    @property
    def empty(self) -> bool:
        """Whether nothing changes: the log keeps exactly what is declared."""
        return not (self.adds or self.rebuilds or self.drops)

    def _of(self, action: Action) -> list[str]:
        return [change.name for change in self.changes if change.action == action]

    def to_dict(self) -> dict[str, Any]:
        return {
            "flow": self.flow,
            "epoch": self.epoch,
            "running": self.running.to_dict() if self.running is not None else None,
            "changes": [asdict(change) for change in self.changes],
        }

    def __str__(self) -> str:
        there = f"its log ends with epoch {self.epoch}" if self.epoch >= 0 else "it has not run yet"
        who = ""
        if self.running is not None:
            who = f"; a driver runs it (process {self.running.pid or '?'} on {self.running.host or '?'})"
        lines = [f"flow '{self.flow}': {there}{who}"]
        lines += [f"  {change}" for change in self.changes if change.action != "keeps"]
        if self.empty:
            lines.append("  nothing changes")
        return "\n".join(lines)


def foresee(state: CompiledFlow, log: UnopenedLog) -> FlowPlan:
    """Compare the declared flow with what its log keeps."""
    history = log.history()
    kept: Mapping[str, Any] = log.kept.get("collections", {})
    known = set(log.kept.get("operators", {})) if history else set()
    sources = known_of(log.kept)
    changes = []
    for name, operator_id in state.flow.views.items():
        kind: Kind = "view" if name in state.declared.views else _kind(state.declared.sources[name].replayable)
        action: Action
        if not history or name not in kept:
            action = "adds"
        elif kept[name].get("fingerprint") == operator_id:
            action = "keeps"
        else:
            action = "rebuilds"
        sizes = {} if action == "keeps" or not history else _read_again(state, log, history, operator_id, known)
        counted = [size for size in sizes.values() if size is not None]
        is_all = len(counted) == len(sizes)
        changes.append(PlannedChange(name, kind, action, tuple(sorted(sizes)), sum(counted), is_all))
    for name, entry in kept.items():
        if name not in state.flow.views:
            is_source = entry.get("kind") == "source"
            kind = _kind(name in sources and not sources[name].pushed) if is_source else "view"
            changes.append(PlannedChange(name, kind, "drops"))
    return FlowPlan(state.declared.name, history.last, tuple(changes), log.driver())


def _kind(is_replayable: bool) -> Kind:
    return "source" if is_replayable else "input"


def _read_again(
    state: CompiledFlow, log: UnopenedLog, history: History, operator_id: str, known: set[str]
) -> dict[str, int | None]:
    """Collection → bytes (None: not known), for the collections that are read to compute an operator that is not kept:
    those that recovery would read to fill it (`CompiledFlow.reading`)."""
    names = {operator: name for name, operator in state.flow.views.items()}
    fresh = ({operator_id} | state.flow.ancestors({operator_id})) & state.flow.operators.keys() - known
    logs = {one for one in state.flow.views.values() if one in known}
    if not fresh:
        return {}
    reads: dict[str, int | None] = {}
    filled = state.reading(fresh, logs)[0]
    for one in filled.ancestors({operator_id}) & filled.sources.keys():
        if one in logs:
            kind = "view" if names[one] in state.declared.views else "input"
            reads[f"{kind} '{names[one]}'"] = log.sizes(f"{one}.rows")
            continue
        source = state.declared.sources[one]
        former = log.kept.get("collections", {}).get(one, {}).get("fingerprint")
        if former and (source.keeps_rows or not source.replayable):
            # The source's schema changed: its rows are read from the log that it had before.
            reads[f"{_kind(source.replayable)} '{one}'"] = log.sizes(f"{former}.rows")
        else:
            reads[f"source '{one}'"] = _taken(state, history, one)
    return reads


def _taken(state: CompiledFlow, history: History, name: str) -> int | None:
    """The bytes of all input that epochs took from a source; None if the source does not know."""
    base = history.base
    offers = [] if base is None else [offer for _, offer in base.taken.get(name, ())]
    offers += [lineage.offers[name] for lineage in history if name in lineage.offers]
    sizes = [state.declared.sources[name].size(offer) for offer in offers]
    return None if any(size is None for size in sizes) else sum(size for size in sizes if size is not None)


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
