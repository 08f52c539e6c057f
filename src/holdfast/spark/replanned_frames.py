"""DataFrames that are planned anew whenever they are run.

Spark plans a DataFrame once: collected again it gives what it read before, or, where only some of its parts are kept
(exchanges, broadcasts), rows of two times. So the JVM's handle of a flow's DataFrame is a `Renewed`: what runs the plan
runs a copy of it that Spark has not planned yet, and what makes a DataFrame of it gives a `Renewed` again. PySpark's
verbs only ever call methods of the handle, so this holds for whatever they make of a flow's DataFrame. (A verb of
*another* DataFrame that takes this one, ``other.join(table)``, gives one that Spark plans once.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.flow_leaves import FlowLeaves
from holdfast.spark.jvm import jvm_class

_RUNS = frozenset((
    "collectToPython", "collectAsArrowToPython", "toPythonIterator", "tailToPython", "javaToPython", "checkpoint",
    "localCheckpoint",
))  # fmt: skip
"""The methods that run the plan of the Dataset itself. All others that run something make another one first."""

_CLASSIC = "org.apache.spark.sql.classic."
_WRAPPED = frozenset(
    _CLASSIC + name
    for name in ("Dataset", "RelationalGroupedDataset", "DataFrameNaFunctions", "DataFrameStatFunctions")
)
_PLAIN = frozenset(("checkpoint", "localCheckpoint", "toJSON"))
"""What these give has rows of its own, or of another type."""

_KEEPS = frozenset(("cache", "persist", "checkpoint", "localCheckpoint"))
"""The methods of an RDD after which its rows are kept."""


def renewed(session: SparkSession, plan: Any, leaves: FlowLeaves) -> DataFrame:
    """A DataFrame of an analysed plan of Spark's, planned anew whenever it is run."""
    own: Any = session
    return DataFrame(Renewed(dataset(session, own._jsparkSession, plan), leaves), session)


def dataset(session: SparkSession, own: Any, plan: Any) -> Any:
    """A Dataset of the JVM's session ``own``."""
    return jvm_class(session, f"{_CLASSIC}Dataset").ofRows(own, plan)


class Renewed(JavaObject):  # type: ignore[misc]  # py4j is not typed
    """The JVM's object ``inner`` (a Dataset, or what verbs take from one), whose plan is never run twice."""

    def __init__(self, inner: JavaObject, leaves: FlowLeaves) -> None:
        _take_the_place(self, inner)
        self._inner, self._leaves = inner, leaves

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_inner", "_leaves"):
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        inner, leaves = self._inner, self._leaves
        if name in _RUNS:
            inner = dataset(leaves.session, inner.sparkSession(), inner.queryExecution().analyzed())
            # Some are run by a thread of Spark's: it is to find a plan that is ready.
            leaves.call(inner.queryExecution().executedPlan)
        found = leaves.call(getattr(inner, name), *arguments)
        if name in _PLAIN:
            return found
        if name == "javaToPython":
            return RenewedRows(found, lambda: self._call(name)._inner)
        return list(map(self._wrapped, found)) if name == "randomSplit" else self._wrapped(found)

    def _wrapped(self, found: Any) -> Any:
        if isinstance(found, JavaObject) and found.getClass().getName() in _WRAPPED:
            return Renewed(found, self._leaves)
        return found


class RenewedRows(JavaObject):  # type: ignore[misc]  # py4j is not typed
    """The JVM's RDD behind ``DataFrame.rdd``, which PySpark makes once: what runs it (``foreach``, ``rdd.collect()``)
    runs a new one, unless its rows are kept."""

    def __init__(self, inner: JavaObject, renew: Callable[[], JavaObject]) -> None:
        _take_the_place(self, inner)
        self._inner, self._renew = inner, renew
        self._used = self._kept = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "rdd" or name in _KEEPS:
            if self._used and not self._kept:
                self._inner = self._renew()
                _take_the_place(self, self._inner)
            self._used, self._kept = True, self._kept or name in _KEEPS
        return getattr(self._inner, name)


def _take_the_place(handle: Any, inner: JavaObject) -> None:
    """Not as JavaObject's own constructor does it: the JVM would let go of the object when one handle is gone."""
    for name in ("_target_id", "_gateway_client", "_auto_field", "_methods", "_field_names", "_gateway_doc"):
        setattr(handle, name, getattr(inner, name))
    handle._fully_populated = False
