"""A log, seen from outside: what a flow keeps and where it stands, without Spark and without stopping it.

Only reads, and takes no lock. Layers never change, and a layer counts only if it carries the digest of an epoch that
the lineage says is complete; so what is read here is always some complete epoch, also while the flow runs. Any place
will do: the working directory, a log location, or several of them, which then make up for each other's damage.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.coordinator.copy_plan import Copied, Failed, Holding, reached, safe_point, trusting
from holdfast.coordinator.history import History
from holdfast.errors import EpochUnavailable, LogDamaged, LogUnreadable, UnknownName
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.foundation.retries import relisted
from holdfast.frontend.sql_words import Word, words
from holdfast.inspect.places import (
    LOCAL,
    REPLICA,
    Named,
    Place,
    Working,
    chain_of,
    declared,
    live_traces,
    open_places,
    read_history,
    running,
)
from holdfast.log.copying import Fetch, fetch_all
from holdfast.log.location import Location
from holdfast.log.replica import is_true
from holdfast.operators.log import LogSpec
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.task.view_log import ViewLog
from holdfast.trace.cover import Chain, cover, covered
from holdfast.trace.layer import retain
from holdfast.trace.name import ALL, LayerName


def describe(log: Named | Sequence[Named], *, min_replicas: int = 1) -> dict[str, Any]:
    """How the flow of a log stands, as plain values: flow, epoch, who runs it, its views and inputs, its levels of
    persistence, and what is at risk. ``min_replicas`` locations make an epoch safe; without a log location among the
    places, what is safe is not known, and None."""
    flow, places = open_places(_several(log))
    return describe_places(flow, places, min_replicas)


def describe_places(flow: str, places: Sequence[Place], min_replicas: int) -> dict[str, Any]:
    """The same of places that are known to be of one flow."""
    return relisted(lambda: _describe(flow, places, min_replicas))


def _describe(flow: str, places: Sequence[Place], min_replicas: int) -> dict[str, Any]:
    kept = declared(places)
    traces = live_traces(places, kept)
    # The layers are listed before the lineage is read, so that a merge in between is of epochs that it knows.
    listed = {place: {trace: place.layers(trace) for trace in {*place.traces(), *traces}} for place in places}
    history, lineage = read_history(places)
    last = history.last
    holdings = {
        place: Holding(
            {trace: {n: size for n, size in layers[trace].items() if is_true(n, history)} for trace in traces},
            lineage[place],
        )
        for place, layers in listed.items()
    }
    local = next((place for place in places if place.level == LOCAL), None)
    replicas = [place for place in places if place.level == REPLICA]
    safe = safe_point([holdings[place] for place in replicas], traces, last, min_replicas) if replicas else None
    shown = listed[local or places[0]]
    return {
        "flow": flow,
        "log": (local or places[0]).uri,
        "epoch": last,
        "at": history[-1].clock / 1e6 if history else None,
        "running": running(places),
        "claim": _claim(replicas),
        "collections": {
            name: _collection(entry, holdings, last) for name, entry in kept.get("collections", {}).items()
        },
        "offers": dict(history[-1].offers) if history else {},
        "levels": [_level(place, holdings[place], traces, listed[place], last) for place in places],
        "safe": safe,
        "at_risk": None if safe is None else _at_risk(local, holdings, safe, last),
        "traces": [
            {"trace": trace, "layers": len(layers), "bytes": sum(layers.values())}
            for trace, layers in sorted(shown.items())
            if layers
        ],
        "bytes": sum(sum(layers.values()) for layers in shown.values()),
    }


def _claim(replicas: Sequence[Place]) -> dict[str, Any] | None:
    """Who opened the log last, as the greatest claim says."""
    claims = [(claim, place) for place in replicas for claim in place.replica.claims()]
    if not claims:
        return None
    claim, place = max(claims, key=lambda pair: pair[0])
    return {"term": claim.term, "owner": claim.owner, **place.replica.claimed_by(claim)}


def _collection(entry: dict[str, Any], holdings: dict[Place, Holding], last: int) -> dict[str, Any]:
    trace = f"{entry['fingerprint']}.rows"
    names = [name for holding in holdings.values() for name in holding.layers.get(trace, ())]
    return {
        "kind": entry["kind"],
        "sql": entry.get("sql", ""),
        "fields": entry["fields"],
        "earliest": _earliest(names, last),
        "levels": {_label(place): reached(holding, [trace], last) for place, holding in holdings.items()},
    }


def _level(
    place: Place, holding: Holding, traces: Sequence[str], listed: dict[str, dict[LayerName, int]], last: int
) -> dict[str, Any]:
    epoch = reached(holding, traces, last)
    return {
        "level": _label(place),
        "place": place.uri,
        "epoch": epoch,
        "behind": last - epoch,
        "lineage": holding.lineage,
        "layers": sum(map(len, listed.values())),
        "bytes": sum(sum(layers.values()) for layers in listed.values()),
    }


def _label(place: Place) -> str:
    return LOCAL if place.level == LOCAL else place.uri


def _at_risk(local: Place | None, holdings: dict[Place, Holding], safe: int, last: int) -> dict[str, Any]:
    """What a loss of the working directory would have computed again: epochs, and the bytes of their layers."""
    layers = holdings[local].layers.values() if local is not None else ()
    size = sum(size for sizes in layers for name, size in sizes.items() if name.last > safe)
    return {"epochs": last - safe, "bytes": size if local is not None else None}


def read_collection(log: Named, name: str, at: int | None = None, others: Sequence[Named] = ()) -> pa.Table:
    """The rows of a view (or of an input that the log keeps) as of epoch ``at``, by default the last.

    ``log`` may be a working directory or a log location; layers that are damaged or missing there are taken from the
    ``others``. The last epoch of log locations alone is the last that they hold completely: they may be behind."""
    flow, places = open_places([log, *others])
    kept = declared(places)
    collections = kept.get("collections", {})
    if name not in collections:
        hint = did_you_mean(name, collections)
        keeps = f"; it keeps {', '.join(sorted(collections))}" if collections and not hint else hint
        raise UnknownName(f"log {places[0].uri}: flow '{flow}' keeps no view '{name}'{keeps}", name=name)
    entry = collections[name]
    try:
        fields = tuple(Field(*pair) for pair in entry["fields"])
        spec = LogSpec(tuple(arrow_type(field.type) for field in fields), tuple(entry["key"]), False, name)
        trace = f"{entry['fingerprint']}.rows"
    except (KeyError, TypeError) as error:
        raise LogDamaged(
            f"log {places[0].uri}: collections.json does not describe view '{name}'", path=places[0].uri
        ) from error
    history, _ = read_history(places)
    at = _epoch_to_read(name, trace, at, places, history)
    chain = chain_of(history)
    working = [place for place in places if isinstance(place, Working) and trace in place.traces()]
    for place in working:
        try:
            return _rows(ViewLog(str(place.layers_directory / trace), spec, fields, chain), name, at, entry)
        except (LogDamaged, LogUnreadable, EpochUnavailable):
            if len(places) == 1:
                raise
    with tempfile.TemporaryDirectory(prefix="holdfast-") as directory:
        _gather(places, trace, at, chain, Path(directory))
        try:
            return _rows(ViewLog(directory, spec, fields, chain), name, at, entry)
        finally:
            retain(Path(directory), ())


def _rows(kept: ViewLog, name: str, at: int, entry: dict[str, Any]) -> pa.Table:
    kept.check(name, at)
    rows = kept.rows(0, ALL, at)
    if entry.get("kind") == "source" and "_deleted" in rows.column_names:
        # A source whose rows are ordered versions also keeps keys that are gone.
        rows = rows.filter(pc.invert(rows.column("_deleted"))).drop_columns(["_deleted"])
    return _ordered(rows, entry.get("sql", ""))


def _epoch_to_read(name: str, trace: str, at: int | None, places: Sequence[Place], history: History) -> int:
    last = history.last
    if not 0 <= (last if at is None else at) <= last:
        there = f"epochs 0 to {last} are complete" if history else "no epoch is complete yet"
        raise EpochUnavailable(
            f"view '{name}': there is no epoch {last if at is None else at}; {there}", view=name, epoch=at
        )
    if any(place.level == LOCAL for place in places):
        return last if at is None else at
    # Lineage goes to the locations before layers do: its end may be ahead of what can be read.
    held = covered([n for place in places for n in place.layers(trace) if is_true(n, history)], 0, ALL, trusting(last))
    if held < 0 or (at is not None and at > held):
        there = f"there are the layers of epochs 0 to {held}" if held >= 0 else "layers are missing"
        raise EpochUnavailable(
            f"view '{name}': epoch {last if at is None else at} cannot be read from {places[0].uri}: {there}; "
            "give further log locations with --from",
            view=name,
            epoch=at,
            latest=held,
        )
    return held if at is None else at


def _gather(places: Sequence[Place], trace: str, at: int, chain: Chain, directory: Path) -> None:
    """Bring intact layers that cover the trace as of ``at`` into one directory. A damaged one is done without."""
    useless: set[LayerName] = set()
    damage: LogDamaged | LogUnreadable | None = None
    locations = [place.location for place in places]
    while True:
        listed = [place.layers(trace) for place in places]
        names = {name for layers in listed for name in layers if name not in useless}
        try:
            pieces = cover(names, 0, ALL, at, chain)
        except LogDamaged as error:
            raise damage or error from None
        wanted = {piece.name: tuple(n for n, layers in enumerate(listed) if piece.name in layers) for piece in pieces}
        lost = False
        for name, where in wanted.items():
            problem = _bring(places, locations, trace, name, where, directory)
            if problem is not None:
                lost = True
                useless.add(name)
                damage = problem if isinstance(problem, LogDamaged | LogUnreadable) else damage
        if not lost:
            return


def _bring(
    places: Sequence[Place],
    locations: Sequence[Location],
    trace: str,
    name: LayerName,
    where: tuple[int, ...],
    directory: Path,
) -> Exception | None:
    """Bring one layer; why it could not be brought."""
    problem: Exception | None = None
    for number in where:
        place = places[number]
        if isinstance(place, Working):
            try:
                place.check(trace, name)
            except (LogDamaged, LogUnreadable, FileNotFoundError) as error:
                problem = error
                continue
            target = directory / name.text()
            if not target.is_symlink():
                os.symlink(place.directory / place.path(trace, name), target)
            return None
        for result in fetch_all([Fetch(trace, name, str(directory), (number,))], locations):
            match result:
                case Copied():
                    return None
                case Failed():
                    problem = result.error
    return problem


def _several(log: Named | Sequence[Named]) -> list[Named]:
    return [log] if isinstance(log, (str, os.PathLike, Location)) else list(log)


def _earliest(names: Iterable[LayerName], last: int) -> int | None:
    """The first epoch as of which a trace can be read; None if it cannot be read at all."""
    try:
        pieces = cover(names, 0, ALL, last, trusting(last))
    except (EpochUnavailable, LogDamaged):
        return None
    return max((piece.name.floor for piece in pieces if piece.name.since >= 0), default=0)


def _ordered(rows: pa.Table, sql: str) -> pa.Table:
    """A view is a bag; for people it is shown in its own ORDER BY if it has one, else by its columns."""
    kinds = {field.name: field.type for field in rows.schema}
    keys = [(name, order) for name, order in _order_by(sql, rows.column_names) if not pa.types.is_nested(kinds[name])]
    said = {name for name, _ in keys}
    keys += [(name, "ascending") for name in kinds if name not in said and _sorts(kinds[name])]
    return rows.sort_by(keys) if keys and rows.num_rows else rows


def _sorts(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def _order_by(sql: str, columns: list[str]) -> list[tuple[str, str]]:
    """The columns of the outermost ORDER BY, as far as they are columns of the view."""
    spelled = {name.lower(): name for name in columns}
    found = []
    for item in _sorted_by(sql):
        own = [word for word in item if not word.says("ASC", "DESC", "NULLS", "FIRST", "LAST")]
        *before, last = own or item
        name = spelled.get(last.name.lower())
        if name is None or not all(word.name or word.says(".") for word in before):
            break
        found.append((name, "descending" if any(word.says("DESC") for word in item) else "ascending"))
    return found


def _sorted_by(sql: str) -> list[list[Word]]:
    """The items of the outermost ORDER BY, each as its words."""
    depth, outermost = 0, []
    for word in words(sql):
        if depth == 0:
            outermost.append(word)
        depth += word.says("(") - word.says(")")
    starts = [place for place, word in enumerate(outermost) if word.says("BY") and outermost[place - 1].says("ORDER")]
    items: list[list[Word]] = [[]]
    for word in outermost[starts[-1] + 1 :] if starts else ():
        if word.says("LIMIT", "OFFSET", ";"):
            break
        if word.says(","):
            items.append([])
        else:
            items[-1].append(word)
    return [item for item in items if item]
