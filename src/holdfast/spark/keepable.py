"""Checks of a view's plan, beyond those of its conversion, that it can be kept up to date.

Every column of every node must have a type that Holdfast can keep, the keys of groups must be comparable, and a
condition on the clock must be reliable in the session's time zone.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import SparkSession

from holdfast.errors import SchemaError, TypeMismatch, Unsupported
from holdfast.plan.expression import readable
from holdfast.plan.nodes import Linear, Node
from holdfast.plan.types import arrow_type, doubled_field
from holdfast.plan.walk import reachable
from holdfast.spark.time_zones import keeps_dates, keeps_days


class Subject(NamedTuple):
    """The collection whose plan is checked."""

    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'"


def check_keepable(name: str, plan: Node, session: SparkSession, kind: str = "view") -> None:
    """Raise `TypeMismatch` or `Unsupported` if a collection with this plan, a view or another ``kind``, cannot be kept
    up to date."""
    subject = Subject(name, kind)
    for node in reachable(plan):
        _check_types(subject, node)
        _check_maps(subject, node)
        if node.calendar:
            _check_zone(subject, node.calendar, session)


def _check_types(subject: Subject, node: Node) -> None:
    for index, field in enumerate(node.fields):
        try:
            arrow_type(field.type)
        except SchemaError as error:
            near = readable(node.outputs[index].expression) if isinstance(node, Linear) else field.name
            raise TypeMismatch(
                f"{subject}: column '{field.name}': {error}: cast it, or compute from it what is to be kept",
                view=subject.name,
                column=field.name,
                near=near.replace("`", ""),
            ) from None
        # Spark itself cannot pass such a struct to Python.
        if (name := doubled_field(field.type)) is not None:
            construct = f"a struct with two fields called {name!r}"
            message = f"{subject}: {construct} is not supported: name one of them with AS"
            raise Unsupported(message, view=subject.name, construct=construct)


def _check_maps(subject: Subject, node: Node) -> None:
    """Refuse maps as keys: equal maps may differ in the order of entries. Spark sorts the entries first, Holdfast does
    not."""
    for name in node.compared:
        kind = node.inputs[0].types[name]
        if "map<" in kind:
            raise Unsupported(
                f"{subject}: grouping by column '{name}' of type {kind} is not supported: "
                "group by array_sort(map_entries(…)) instead",
                view=subject.name,
                construct="grouping by a map",
            )


def _check_zone(subject: Subject, calendar: str, session: SparkSession) -> None:
    """Refuse a condition on the clock whose moments, computed from rows, would be wrong in the session's time zone."""
    zone = session.conf.get("spark.sql.session.timeZone") or ""
    if calendar == "fixed" and not keeps_days(session, zone):
        construct, advice = (
            "days, local time or truncation",
            "write timestampadd(HOUR, 24, …) for a day that passes, or set the session's time zone to UTC",
        )
    elif calendar == "days" and not keeps_dates(session, zone):
        construct, advice = "dates", "compare timestamps with now(), or set the session's time zone to UTC"
    else:
        return
    raise Unsupported(
        f"{subject}: a condition on the current time with {construct} is not supported in the time zone "
        f"{zone}, where clocks are put back: {advice}",
        view=subject.name,
        construct=f"a condition on the current time with {construct}",
    )
