"""Holdfast keeps SQL views over changing data up to date on Spark, at a cost that follows the change.

This module is the public surface: whatever is in ``__all__``, and `holdfast.testing`, which has what users test their
flows with. All other modules are private, and may change from one version to the next.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.connectors.changelog import changelog
    from holdfast.connectors.files import files
    from holdfast.connectors.foreach import foreach
    from holdfast.connectors.input import Input, KeyedInput, Pending
    from holdfast.connectors.rate import rate
    from holdfast.connectors.sink import LostEpochs, Sink
    from holdfast.connectors.source import Offer, Part, Source
    from holdfast.connectors.table import table
    from holdfast.coordinator.membership import Change, Member
    from holdfast.errors import (
        AfterEpoch,
        AmbiguousName,
        ArgumentError,
        BadFile,
        ClockJumped,
        DeclarationError,
        EpochUnavailable,
        EvaluationError,
        ExchangeFailed,
        Fenced,
        FileMoved,
        FlowBusy,
        HoldfastError,
        InputError,
        LeaseError,
        LeaseLost,
        LogBusy,
        LogDamaged,
        LogError,
        LogForeign,
        LogFormat,
        LogUnreadable,
        MemberLost,
        MembershipError,
        MemberUnreachable,
        MultiplicityOverflow,
        NegativeMultiplicity,
        SchemaChanged,
        SchemaError,
        SinkError,
        SqlError,
        StoreError,
        TasksLost,
        TooFewLocations,
        TooFewMembers,
        TypeMismatch,
        UnknownName,
        Unsupported,
        ViewCycle,
    )
    from holdfast.flow import Flow
    from holdfast.foundation.choices import OnLoss, Strategy
    from holdfast.frontend.user_functions import nondeterministic
    from holdfast.inspect.flow_plan import FlowPlan, PlannedChange
    from holdfast.log.location import Entry, Location, location
    from holdfast.plan.drawing import Drawing
    from holdfast.plan.nodes import Field
    from holdfast.queries.one_off import query
    from holdfast.results.flow_results import (
        Approximation,
        ClockStatus,
        DurabilityStatus,
        Epoch,
        Latency,
        LocationStatus,
        MaintenanceStatus,
        PlacementStatus,
        Recovery,
        RunningDriver,
        SinkStatus,
        SourceStatus,
        Status,
        TraceStatus,
        Unsafe,
        ViewStatus,
    )
    from holdfast.results.query_results import Answer, Coverage, QueryInput, Recomputed, Report
    from holdfast.spark.membership import Watch, on_membership
    from holdfast.spark.session import detection
    from holdfast.standby.address import zookeeper
    from holdfast.standby.events import LeaseEvent
    from holdfast.standby.lease import Holder, Lease

__version__ = "0.1.0"
"""The version of the package; pyproject.toml reads it from here."""

__all__ = [
    "AfterEpoch",
    "AmbiguousName",
    "Answer",
    "Approximation",
    "ArgumentError",
    "BadFile",
    "Change",
    "ClockJumped",
    "ClockStatus",
    "Coverage",
    "DeclarationError",
    "Drawing",
    "DurabilityStatus",
    "Entry",
    "Epoch",
    "EpochUnavailable",
    "EvaluationError",
    "ExchangeFailed",
    "Fenced",
    "Field",
    "FileMoved",
    "Flow",
    "FlowBusy",
    "FlowPlan",
    "Holder",
    "HoldfastError",
    "Input",
    "InputError",
    "KeyedInput",
    "Latency",
    "Lease",
    "LeaseError",
    "LeaseEvent",
    "LeaseLost",
    "Location",
    "LocationStatus",
    "LogBusy",
    "LogDamaged",
    "LogError",
    "LogForeign",
    "LogFormat",
    "LogUnreadable",
    "LostEpochs",
    "MaintenanceStatus",
    "Member",
    "MemberLost",
    "MemberUnreachable",
    "MembershipError",
    "MultiplicityOverflow",
    "NegativeMultiplicity",
    "Offer",
    "OnLoss",
    "Part",
    "Pending",
    "PlacementStatus",
    "PlannedChange",
    "QueryInput",
    "Recomputed",
    "Recovery",
    "Report",
    "RunningDriver",
    "SchemaChanged",
    "SchemaError",
    "Sink",
    "SinkError",
    "SinkStatus",
    "Source",
    "SourceStatus",
    "SqlError",
    "Status",
    "StoreError",
    "Strategy",
    "TasksLost",
    "TooFewLocations",
    "TooFewMembers",
    "TraceStatus",
    "TypeMismatch",
    "UnknownName",
    "Unsafe",
    "Unsupported",
    "ViewCycle",
    "ViewStatus",
    "Watch",
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
    "AfterEpoch": "errors",
    "AmbiguousName": "errors",
    "Answer": "results.query_results",
    "Approximation": "results.flow_results",
    "ArgumentError": "errors",
    "BadFile": "errors",
    "Change": "coordinator.membership",
    "ClockJumped": "errors",
    "ClockStatus": "results.flow_results",
    "Coverage": "results.query_results",
    "DeclarationError": "errors",
    "Drawing": "plan.drawing",
    "DurabilityStatus": "results.flow_results",
    "Entry": "log.location",
    "Epoch": "results.flow_results",
    "EpochUnavailable": "errors",
    "EvaluationError": "errors",
    "ExchangeFailed": "errors",
    "Fenced": "errors",
    "Field": "plan.nodes",
    "FileMoved": "errors",
    "Flow": "flow",
    "FlowBusy": "errors",
    "FlowPlan": "inspect.flow_plan",
    "Holder": "standby.lease",
    "HoldfastError": "errors",
    "Input": "connectors.input",
    "InputError": "errors",
    "KeyedInput": "connectors.input",
    "Latency": "results.flow_results",
    "Lease": "standby.lease",
    "LeaseError": "errors",
    "LeaseEvent": "standby.events",
    "LeaseLost": "errors",
    "Location": "log.location",
    "LocationStatus": "results.flow_results",
    "LogBusy": "errors",
    "LogDamaged": "errors",
    "LogError": "errors",
    "LogForeign": "errors",
    "LogFormat": "errors",
    "LogUnreadable": "errors",
    "LostEpochs": "connectors.sink",
    "MaintenanceStatus": "results.flow_results",
    "Member": "coordinator.membership",
    "MemberLost": "errors",
    "MemberUnreachable": "errors",
    "MembershipError": "errors",
    "MultiplicityOverflow": "errors",
    "NegativeMultiplicity": "errors",
    "Offer": "connectors.source",
    "OnLoss": "foundation.choices",
    "Part": "connectors.source",
    "Pending": "connectors.input",
    "PlacementStatus": "results.flow_results",
    "PlannedChange": "inspect.flow_plan",
    "QueryInput": "results.query_results",
    "Recomputed": "results.query_results",
    "Recovery": "results.flow_results",
    "Report": "results.query_results",
    "RunningDriver": "results.flow_results",
    "SchemaChanged": "errors",
    "SchemaError": "errors",
    "Sink": "connectors.sink",
    "SinkError": "errors",
    "SinkStatus": "results.flow_results",
    "Source": "connectors.source",
    "SourceStatus": "results.flow_results",
    "SqlError": "errors",
    "Status": "results.flow_results",
    "StoreError": "errors",
    "Strategy": "foundation.choices",
    "TasksLost": "errors",
    "TooFewLocations": "errors",
    "TooFewMembers": "errors",
    "TraceStatus": "results.flow_results",
    "TypeMismatch": "errors",
    "UnknownName": "errors",
    "Unsafe": "results.flow_results",
    "Unsupported": "errors",
    "ViewCycle": "errors",
    "ViewStatus": "results.flow_results",
    "Watch": "spark.membership",
    "changelog": "connectors.changelog",
    "detection": "spark.session",
    "files": "connectors.files",
    "foreach": "connectors.foreach",
    "location": "log.location",
    "nondeterministic": "frontend.user_functions",
    "on_membership": "spark.membership",
    "query": "queries.one_off",
    "rate": "connectors.rate",
    "table": "connectors.table",
    "zookeeper": "standby.address",
}
"""Where each of them is defined. A test compares this with the imports above."""


def __getattr__(name: str) -> object:
    # Looked up when first used: a worker that runs a kernel should not import the SQL parser to do so.
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(f"holdfast.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
