"""DataFrames that are planned anew whenever they run.

Spark plans a DataFrame once: collected again it returns the same rows as before, or, where only some parts of its plan
are kept (exchanges, broadcasts), rows of two different times. So the JVM's handle of a flow's DataFrame is a `Renewed`:
a method that runs the plan runs a copy that Spark has not planned yet, and a method that makes another DataFrame
returns a `Renewed` again. PySpark's verbs only call methods of the handle, so this holds for every DataFrame derived
from a flow's. (A verb of *another* DataFrame that takes this one, ``other.join(table)``, returns a DataFrame that Spark
plans once.)
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
"""The methods that run the Dataset's own plan. All other methods that run a plan derive another Dataset first."""

_CLASSIC = "org.apache.spark.sql.classic."
_WRAPPED = frozenset(
    _CLASSIC + name
    for name in ("Dataset", "RelationalGroupedDataset", "DataFrameNaFunctions", "DataFrameStatFunctions")
)
_PLAIN = frozenset(("checkpoint", "localCheckpoint", "toJSON"))
"""The methods whose result has rows of its own, or of another type, and is not wrapped."""

_KEEPS = frozenset(("cache", "persist", "checkpoint", "localCheckpoint"))
"""The methods of an RDD after which its rows are kept."""


def renewed(session: SparkSession, plan: Any, leaves: FlowLeaves) -> DataFrame:
    """Return a DataFrame of an analysed plan that is planned anew whenever it runs."""
    own: Any = session
    return DataFrame(Renewed(dataset(session, own._jsparkSession, plan), leaves), session)


def dataset(session: SparkSession, own: Any, plan: Any) -> Any:
    """Return a Dataset of the JVM's session ``own``."""
    return jvm_class(session, f"{_CLASSIC}Dataset").ofRows(own, plan)


class Renewed(JavaObject):  # type: ignore[misc]  # py4j is not typed
    """Stands for the JVM's object ``inner`` (a Dataset, or an object that a verb made of one), and runs no plan
    twice."""

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
            # Plan in this thread, because some of these methods run the plan in a thread of Spark's.
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
    """Stands for the JVM's RDD behind ``DataFrame.rdd``, which PySpark makes once. An action on it (``foreach``,
    ``rdd.collect()``) runs a new RDD each time, unless its rows are kept."""

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
    """Copy the fields of ``inner``. JavaObject's own constructor is not used, because the JVM would free the object
    when one of two handles is gone."""
    for name in ("_target_id", "_gateway_client", "_auto_field", "_methods", "_field_names", "_gateway_doc"):
        setattr(handle, name, getattr(inner, name))
    handle._fully_populated = False
