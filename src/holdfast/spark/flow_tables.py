"""A flow's collections as DataFrames: how Spark reads them when it runs a query.

All tables of one query are read as of one epoch: the epoch that the user gave, or the last one when Spark asked for the
query's first table.
"""

from __future__ import annotations

import secrets
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.errors import DeclarationError, EpochUnavailable
from holdfast.operators.latest import DELETED
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.flow import Flow
    from holdfast.runtime.engine import Engine
    from holdfast.spark.flow_leaves import FlowLeaves

_QUERIES = 1000
"""Queries whose epoch is remembered, in case Spark asks for another of their tables."""


class FlowTables:
    """The rows of a flow's collections, for Spark."""

    def __init__(self, flow: Flow, at: int | None = None) -> None:
        """``at``: the epoch as of which collections are read. None: the last."""
        self._at = at
        # A DataFrame may outlive its flow, and must not keep it alive.
        self._flow = weakref.ref(flow)
        self.mark = secrets.token_hex(4)
        """Marks the flow's own collections in plans."""

        self._epochs: OrderedDict[int, int] = OrderedDict()
        """Query → its epoch."""

        self._leaves: FlowLeaves | None = None

    def leaves(self) -> FlowLeaves:
        if self._leaves is None:
            from holdfast.spark.flow_leaves import FlowLeaves

            flow = self._flow()
            assert flow is not None  # the flow itself called this
            self._leaves = FlowLeaves(flow._session(), self.rows)
        return self._leaves

    def rows(self, name: str, wanted: Sequence[Field], query: int) -> DataFrame:
        """Called when Spark plans a query: the ``wanted`` columns of a collection."""
        flow = self._flow()
        if flow is None:
            raise DeclarationError(f"table '{name}': its flow is not there any more; make the flow and the table again")
        with flow._turns.taken("running a DataFrame", looks=True):
            engine = flow._looking()
            if self._at is not None:
                return self._read(flow, engine, name, wanted, self._at)
            at = self._epochs.setdefault(query, engine.last)
            while len(self._epochs) > _QUERIES:
                self._epochs.popitem(last=False)
            return self._read(flow, engine, name, wanted, at)

    def _read(self, flow: Flow, engine: Engine, name: str, wanted: Sequence[Field], at: int) -> DataFrame:
        from holdfast.spark.read import empty_frame, offered_frame, read_frame

        spark = flow._session()
        fields = flow._catalog.schemas.get(name)
        if fields is None:
            raise DeclarationError(f"table '{name}': it was dropped", name=name)
        if missing := [field.name for field in wanted if field not in fields]:
            raise DeclarationError(
                f"table '{name}': it has other columns than when the DataFrame was made; make it again",
                name=name,
                columns=missing,
            )
        columns = [field.name for field in wanted]
        if engine.views.keeps(name):
            if at < 0:
                return empty_frame(spark, wanted)
            kept, as_of = engine.views.readable(name, at, recorded=self._at is not None)
            order = engine.views.order(name)
            known = [field.name for field in fields]
            hidden = [field.name for field in kept.fields if field.name == DELETED.name not in known]
            wanted_too = [*columns, *hidden]
            frame = read_frame(spark, kept, as_of, engine.partitions, order, flow._placement, engine.lost, wanted_too)
            # A source whose rows are ordered versions also keeps the keys that were deleted.
            return frame.filter(f"NOT {hidden[0]}").select(*map(quoted, columns)) if hidden else frame
        if name not in engine.sources:
            raise _unread(name, "no view reads it, so nothing of it was taken")
        source = engine.declared.sources[name]
        if source.retracts or name in engine.declared.expiring:
            raise _unread(name, "its rows are not kept")
        _check_there(engine, name, at)
        return offered_frame(spark, source, engine.views.taken(name, at), columns)


def _check_there(engine: Engine, name: str, at: int) -> None:
    """Raise `EpochUnavailable` if the input taken from a source up to an epoch is not known."""
    history = engine.history
    if at > history.last:
        raise EpochUnavailable(
            f"source '{name}': epoch {at} is not there yet; the last is {history.last}", name=name, epoch=at
        )
    if history.base is not None and at < history.first:
        raise EpochUnavailable(
            f"source '{name}': what epochs up to {at} took of it is behind what the flow retains; epoch "
            f"{history.first} is the earliest. retain={history.last - max(at, 0)} (or more) would have kept it",
            name=name,
            epoch=at,
            earliest=history.first,
        )


def _unread(name: str, why: str) -> DeclarationError:
    return DeclarationError(
        f"source '{name}': {why}; to read it, keep a view of it: flow.view('{name}_rows', 'SELECT * FROM {name}')",
        name=name,
    )
