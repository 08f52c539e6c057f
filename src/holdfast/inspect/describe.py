"""The description of a log, seen from outside: a flow's collections and status, without Spark and without stopping it.

This module only reads, and takes no lock. Layers never change, and a layer counts only if it has the digest of an epoch
that is complete by the lineage; so the result always describes a complete epoch, also while the flow runs. The working
directory is enough, or a log location, or several of these, which then make up for each other's damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from holdfast.coordinator.copy_plan import Holding, reached, safe_point, trusting
from holdfast.coordinator.forecast import Circumstances, Rates, forecasts, most_telling
from holdfast.coordinator.rewinds import Rewinds
from holdfast.errors import EpochUnavailable, LogDamaged
from holdfast.foundation.retries import relisted
from holdfast.inspect.places import (
    LOCAL,
    REPLICA,
    Named,
    Place,
    declared,
    holding_of,
    live_traces,
    open_places,
    read_history,
    running,
)
from holdfast.log.location import Location
from holdfast.results.flow_results import RewindInfo
from holdfast.trace.cover import cover
from holdfast.trace.name import ALL, LayerName


def describe(log: Named | Sequence[Named], *, min_replicas: int = 1) -> dict[str, Any]:
    """The status of a log's flow, as plain values: flow, epoch, the running driver, views and inputs, levels of
    persistence, and what is at risk. An epoch is safe if ``min_replicas`` locations hold it; without a log location
    among the places the safe epoch is not known, and None."""
    flow, places = open_places(_several(log))
    return describe_places(flow, places, min_replicas)


def describe_places(flow: str, places: Sequence[Place], min_replicas: int) -> dict[str, Any]:
    """The status, from places that are known to be of one flow."""
    return relisted(lambda: _describe(flow, places, min_replicas))


def _describe(flow: str, places: Sequence[Place], min_replicas: int) -> dict[str, Any]:
    kept = declared(places)
    traces = live_traces(places, kept)
    # Layers are listed before lineage is read, so that the lineage has all epochs of the listed layers.
    listed = {place: {trace: place.layers(trace) for trace in {*place.traces(), *traces}} for place in places}
    history, lineage = read_history(places)
    last = history.last
    holdings = {
        place: holding_of({trace: layers[trace] for trace in traces}, history, lineage[place])
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
        "rewinds": [asdict(RewindInfo.of(record)) for record in history if record.rewind is not None],
        "owed": len(Rewinds(history).owed),
        "levels": [_level(place, holdings[place], traces, listed[place], last) for place in places],
        "safe": safe,
        "at_risk": None if safe is None else _at_risk(local, holdings, safe, last),
        "crash_now": _crash_now(places, {place.uri: holdings[place] for place in replicas}, traces, last),
        "traces": [
            {"trace": trace, "layers": len(layers), "bytes": sum(layers.values())}
            for trace, layers in sorted(shown.items())
            if layers
        ],
        "bytes": sum(sum(layers.values()) for layers in shown.values()),
    }


def _crash_now(
    places: Sequence[Place], holdings: dict[str, Holding], traces: Sequence[str], last: int
) -> list[dict[str, Any]]:
    """What each loss would cost now, from the rates that the flow keeps in its log; empty if there are none."""
    rates = Rates()
    for place in places:
        rates = rates.known(place.rates())
    if last < 0 or rates == Rates():
        return []
    known = next((said for place in places if (said := place.circumstances()) is not None), Circumstances())
    beside = [place.uri for place in places if place.level == LOCAL]
    found = forecasts(rates, holdings, traces, last, known, beside)
    shown = {each.what: title for title, each in most_telling(found)}
    return [{**asdict(each), "title": shown.get(each.what), "shown": str(each)} for each in found]


def _claim(replicas: Sequence[Place]) -> dict[str, Any] | None:
    """The driver that opened the log last, by the greatest claim; None if there is no claim."""
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
    """What would be computed again after a loss of the working directory: the number of epochs, and the bytes of their
    layers."""
    layers = holdings[local].layers.values() if local is not None else ()
    size = sum(size for sizes in layers for name, size in sizes.items() if name.last > safe)
    return {"epochs": last - safe, "bytes": size if local is not None else None}


def _several(log: Named | Sequence[Named]) -> list[Named]:
    return [log] if isinstance(log, (str, os.PathLike, Location)) else list(log)


def _earliest(names: Iterable[LayerName], last: int) -> int | None:
    """The first epoch as of which a trace with these layers can be read; None if it cannot be read."""
    try:
        pieces = cover(names, 0, ALL, last, trusting(last))
    except (EpochUnavailable, LogDamaged):
        return None
    return max((piece.name.floor for piece in pieces if piece.name.since >= 0), default=0)
