"""Leaves that are not the flow's: tables whose rows never change, and operators whose code only Spark can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, SqlError, Unsupported
from holdfast.frontend.catalyst.relation import Relation
from holdfast.frontend.catalyst.tree import CatalystOperator

if TYPE_CHECKING:
    from holdfast.frontend.catalyst.convert import Convert, Converter

STATIC = (
    "LogicalRDD", "ExternalRDD", "LocalRelation", "EmptyRelation", "OneRowRelation", "Range", "LogicalRelation",
    "DataSourceV2Relation", "HiveTableRelation",
)  # fmt: skip
"""Catalyst's leaves whose rows Spark reads, taken as static tables."""

_AS_SOURCE = "if what it gives never changes, make it a source: flow.source(name, hf.table(df))"
_ROW_BY_ROW = "write a function of one row (udf, pandas_udf), or several operators of Spark's"
_STREAM = "a stream of Spark's keeps its own progress; use hf.files, or a Source of your own"

REFUSED = {
    "MapInPandas": ("mapInPandas", _ROW_BY_ROW),
    "MapInArrow": ("mapInArrow", _ROW_BY_ROW),
    "MapPartitions": ("mapPartitions", _ROW_BY_ROW),
    "FlatMapGroupsInPandas": ("applyInPandas", _AS_SOURCE),
    "FlatMapGroupsInArrow": ("applyInArrow", _AS_SOURCE),
    "FlatMapCoGroupsInPandas": ("cogroup().applyInPandas", _AS_SOURCE),
    "FlatMapCoGroupsInArrow": ("cogroup().applyInArrow", _AS_SOURCE),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState", _AS_SOURCE),
    "TransformWithStateInPySpark": ("transformWithState", _AS_SOURCE),
    "PythonUDTF": ("a Python table function (udtf)", _AS_SOURCE),
    "ScriptTransformation": ("TRANSFORM", _ROW_BY_ROW),
    "StreamingRelation": ("a streaming DataFrame", _STREAM),
    "StreamingRelationV2": ("a streaming DataFrame", _STREAM),
    "StreamingDataSourceV2Relation": ("a streaming DataFrame", _STREAM),
}
"""Catalyst's operator → (the user's name for it, what to do instead)."""


def static(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert a table or DataFrame that is not the flow's to a source whose rows never change."""
    statement = converter.statement
    try:
        source = statement.catalyst.static(operator, converter.view)
    except Unsupported as error:
        raise statement.error(Unsupported, str(error), operator, **error.fields) from None
    except HoldfastError as error:
        raise statement.error(SqlError, str(error), operator) from None
    attributes = operator.expressions("output")
    return Relation(source, tuple((each.id, name) for each, name in zip(attributes, source.columns, strict=False)))


def view(converter: Converter, operator: CatalystOperator) -> Relation:
    """Convert a view of the user's session."""
    before, converter.view = converter.view, operator
    try:
        return converter.relation(operator.child)
    finally:
        converter.view = before


def refused(construct: str, advice: str) -> Convert:
    def convert(converter: Converter, operator: CatalystOperator) -> Relation:
        raise converter.statement.unsupported(construct, operator, advice)

    return convert
