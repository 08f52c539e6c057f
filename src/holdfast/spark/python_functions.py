"""Python functions in Spark's plans.

A plan contains the pickled function itself, whether it was made by PySpark's ``udf``, ``pandas_udf`` or ``arrow_udf``,
or by ``spark.udf.register``. It is unpickled here and becomes a function of the flow, as if the user had given it to
`Flow.udf`. Functions given to `Flow.udf` are registered in Spark as `DeclaredFunction`, so that Spark can run a query
with them, too.
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
    """A function that was given to `Flow.udf`, in the form that Spark calls."""

    def __init__(self, function: UserFunction) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.loaded(*arguments)

    @cached_property
    def loaded(self) -> Callable[..., Any]:
        found: Callable[..., Any] = pickle.loads(self.function.pickled)
        return found


def known_to_spark(function: UserFunction) -> Any:
    """Return the JVM's object of a flow's function, to be registered in a session."""
    deterministic = isinstance(function, Function)
    style = function.style if isinstance(function, Function) else "plain"
    made: Any = UserDefinedFunction(
        DeclaredFunction(function), function.returns, function.name, _EVAL_TYPES[style], deterministic=deterministic
    )
    return made._judf


def function_of(
    subject: str, session: SparkSession, call: Any, names: list[str | None], known: Mapping[str, UserFunction]
) -> UserFunction:
    """Return the function that a PythonUDF of Spark calls. ``names``: the names of its arguments, where they are given
    by name. ``known``: the functions declared for the flow; a function that was declared again counts as it is now."""
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
    """A function with some arguments given by name."""

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
