"""A flow's dataflow, from its log alone: the structure from the log's description, and sizes from its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.errors import LogError
from holdfast.inspect.places import LOCAL, Named, Working, declared, live_traces, open_places
from holdfast.plan.drawing import Drawing, Measured
from holdfast.runtime.statistics import held, operators_of


def drawing_of(logs: Sequence[Named]) -> tuple[str, Drawing]:
    """The name of the flow of a log, and the drawing of its dataflow. The flow may be running. Raises `LogError` if the
    log does not describe its dataflow."""
    flow, places = open_places(logs)
    kept = declared(places)
    try:
        found = Drawing.from_dict(kept["dataflow"])
    except (KeyError, TypeError):
        raise LogError(
            f"log {places[0].uri}: it was written before logs described their dataflow; "
            "give the file that declares the flow instead, or run the flow once",
            path=places[0].uri,
        ) from None
    place = next((each for each in places if each.level == LOCAL), places[0])
    measured = {}
    for operator, names in operators_of(live_traces(places, kept), [box.id for box in found.boxes]).items():
        if isinstance(place, Working):
            measured[operator] = Measured(*held(place.layers_directory / trace for trace in names))
        else:
            sizes = [size for trace in names for size in place.layers(trace).values()]
            measured[operator] = Measured(len(sizes), sum(sizes))
    return flow, replace(found, measured=measured)
