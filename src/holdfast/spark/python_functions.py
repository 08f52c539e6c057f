"""Python functions in Spark's plans.

A plan has the very function, pickled, whoever made it: PySpark's ``udf``, ``pandas_udf`` and ``arrow_udf``, or
``spark.udf.register``. It is unpickled here to become a function of the flow's, as if `Flow.udf` had been given it.
Functions that were given to `Flow.udf` are known to Spark as `DeclaredFunction`, so that a query can also be run by
Spark.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.udf import UserDefinedFunction

from holdfast.errors import DeclarationError
from holdfast.frontend.user_functions import STYLES, Described
from holdfast.plan.nodes import Function, UserFunction
from holdfast.spark.declared_functions import described
from holdfast.spark.jvm import scala_object
from holdfast.spark.schemas import type_of_json

_EVAL_TYPES = {style: kind for kind, style in reversed(STYLES.items())}


class DeclaredFunction:
    """A function that was given to `Flow.udf`, for Spark to call."""

    def __init__(self, function: UserFunction) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.loaded(*arguments)

    @cached_property
    def loaded(self) -> Callable[..., Any]:
        found: Callable[..., Any] = pickle.loads(self.function.pickled)
        return found


def known_to_spark(function: UserFunction) -> Any:
    """A function of the flow's as the JVM's object, to be registered in a session."""
    deterministic = isinstance(function, Function)
    style = function.style if isinstance(function, Function) else "plain"
    made: Any = UserDefinedFunction(
        DeclaredFunction(function), function.returns, function.name, _EVAL_TYPES[style], deterministic=deterministic
    )
    return made._judf


def function_of(
    subject: str, session: SparkSession, call: Any, names: list[str | None], known: Mapping[str, UserFunction]
) -> UserFunction:
    """The function that a PythonUDF of Spark's calls. ``names``: of its arguments, where they are given by name.
    ``known``: those that were declared for the flow; one that was declared again is meant as it is now."""
    function = _unpickled(f"{subject}: function {str(call.name())!r}", session, call.func())
    if isinstance(function, DeclaredFunction):
        declared = known.get(function.function.name, function.function)
        if not any(names):
            return declared
        function = DeclaredFunction(declared).loaded
    style = STYLES.get(call.evalType())
    name = re.sub(r"\W+", "_", str(call.name())).strip("_") or "function"
    if any(names):
        function = NamedFunction(function, tuple(names))
    found = Described(function, type_of_json(call.dataType().json()), style, not call.udfDeterministic())
    return described(f"{subject}: function {name!r}", name, found)


class NamedFunction:
    """A function some of whose arguments are given by name."""

    def __init__(self, function: Callable[..., Any], names: tuple[str | None, ...]) -> None:
        self.__wrapped__, self.names = function, names

    def __call__(self, *arguments: Any) -> Any:
        pairs = list(zip(self.names, arguments, strict=True))
        by_place = [value for name, value in pairs if name is None]
        return self.__wrapped__(*by_place, **{name: value for name, value in pairs if name is not None})


def _unpickled(subject: str, session: SparkSession, function: Any) -> Any:
    tag = scala_object(session, "scala.reflect.ClassTag").Byte()
    try:
        found = cloudpickle.loads(bytes(function.command().toArray(tag)))
    except PySparkRuntimeError as error:
        if error.getCondition() != "BROADCAST_VARIABLE_NOT_LOADED":
            raise
        raise DeclarationError(
            f"{subject}: it uses a broadcast variable, or is larger than 1 MB, which Spark broadcasts; let it close "
            "over the values themselves, and declare it with flow.udf"
        ) from None
    return found[0]
