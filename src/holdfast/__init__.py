"""Holdfast keeps SQL views over changing data up to date on Spark, at a cost that follows the change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.connectors.changelog import changelog
    from holdfast.connectors.files import files
    from holdfast.connectors.foreach import foreach
    from holdfast.connectors.rate import rate
    from holdfast.connectors.sink import Sink
    from holdfast.connectors.source import Offer, Part, Source
    from holdfast.connectors.table import table
    from holdfast.coordinator.membership import Change, Member
    from holdfast.errors import Fenced, HoldfastError, LeaseLost, MemberLost
    from holdfast.flow import Flow
    from holdfast.frontend.user_functions import nondeterministic
    from holdfast.log.location import location
    from holdfast.query.one_off import query
    from holdfast.results.flow_results import Approximation, Epoch, Recovery, Status
    from holdfast.results.query_results import Answer, Report
    from holdfast.spark.membership import on_membership
    from holdfast.spark.session import detection
    from holdfast.standby.address import zookeeper
    from holdfast.standby.events import LeaseEvent

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Approximation",
    "Change",
    "Epoch",
    "Fenced",
    "Flow",
    "HoldfastError",
    "LeaseEvent",
    "LeaseLost",
    "Member",
    "MemberLost",
    "Offer",
    "Part",
    "Recovery",
    "Report",
    "Sink",
    "Source",
    "Status",
    "changelog",
    "detection",
    "files",
    "foreach",
    "location",
    "nondeterministic",
    "on_membership",
    "query",
    "rate",
    "table",
    "zookeeper",
]

_HOMES = {
    "Answer": "results.query_results",
    "Approximation": "results.flow_results",
    "Change": "coordinator.membership",
    "Epoch": "results.flow_results",
    "Fenced": "errors",
    "Flow": "flow",
    "HoldfastError": "errors",
    "LeaseEvent": "standby.events",
    "LeaseLost": "errors",
    "Member": "coordinator.membership",
    "MemberLost": "errors",
    "Offer": "connectors.source",
    "Part": "connectors.source",
    "Recovery": "results.flow_results",
    "Report": "results.query_results",
    "Sink": "connectors.sink",
    "Source": "connectors.source",
    "Status": "results.flow_results",
    "changelog": "connectors.changelog",
    "detection": "spark.session",
    "files": "connectors.files",
    "foreach": "connectors.foreach",
    "location": "log.location",
    "nondeterministic": "frontend.user_functions",
    "on_membership": "spark.membership",
    "query": "query.one_off",
    "rate": "connectors.rate",
    "table": "connectors.table",
    "zookeeper": "standby.address",
}


def __getattr__(name: str) -> object:
    # Looked up when first used: a worker that runs a kernel should not import the SQL parser to do so.
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
