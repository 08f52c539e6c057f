"""A query that is planned once and run every epoch.

Parsing, analysing, optimising and generating code for a crossing costs a few hundred milliseconds in a fresh JVM and
tens in a warm one, each time. The plan does not change from epoch to epoch, only its input does. So the physical plan
is kept, and each epoch gets a new chain of the same operators over its own input (a new chain, because an operator that
ran keeps its result). This uses Spark's internals, in this file only; if they do not behave as expected, the query is
planned anew each time, in the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession


class Prepared:
    """A query over changing input. ``build`` makes it; it is called once if the plan can be kept, else every time."""

    def __init__(self, spark: SparkSession, build: Callable[[DataFrame], DataFrame]) -> None:
        self._spark = spark
        self._build = build
        self._chain: list[Any] | None = None
        self._schema: Any = None
        self._plain = False

    def over(self, frame: DataFrame) -> DataFrame:
        """Return the query over ``frame``."""
        if self._plain:
            return self._build(frame)
        try:
            if self._chain is None:
                self._keep(self._build(frame))
            return self._again(frame)
        except (Py4JError, AttributeError, TypeError):
            self._plain = True
            return self._build(frame)

    def _keep(self, built: DataFrame) -> None:
        node = built._jdf.queryExecution().executedPlan()
        chain = []
        while node.children().size() == 1:
            chain.append(node)
            node = node.children().apply(0)
        if node.children().size() != 0:
            raise TypeError("not a chain of operators")
        while chain and chain[-1].nodeName().startswith(("WholeStageCodegen", "InputAdapter")):
            chain.pop()  # these belong to the input; the next input has its own
        self._chain, self._schema = chain, built._jdf.schema()

    def _again(self, frame: DataFrame) -> DataFrame:
        assert self._chain is not None
        jvm: Any = self._spark.sparkContext._jvm
        node = frame._jdf.queryExecution().executedPlan()
        for operator in reversed(self._chain):
            node = operator.withNewChildren(jvm.PythonUtils.toSeq([node]))
        session: Any = self._spark
        made = session._jsparkSession.internalCreateDataFrame(node.execute(), self._schema, False)
        return DataFrame(made, self._spark)
