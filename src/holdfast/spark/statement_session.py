"""The session in which a statement is read: the user's own as it is now, with the flow's names before all others.

Every statement has a copy of the user's session (Spark makes one in a millisecond): its temporary views, functions and
variables, its current database. So names that are not the flow's mean what they mean to the user at that moment, and
nothing of the flow's is left behind in the user's session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field, UserFunction
from holdfast.spark.flow_leaves import FlowLeaves
from holdfast.spark.jvm import jvm_class, kept
from holdfast.spark.python_functions import known_to_spark
from holdfast.spark.replanned_frames import dataset

Schema = Sequence[Field]


class StatementSession:
    """The names of a flow's collections and functions."""

    def __init__(self, session: SparkSession, meaning: Mapping[str, str], leaves: FlowLeaves, prefix: str) -> None:
        """``meaning``: settings that hold whatever the session says. ``prefix``: how the alias of a leaf begins that
        the conversion recognises."""
        self._session, self._leaves, self._prefix = session, leaves, prefix
        self._settings: Any = jvm_class(session, "java.util.Properties")()
        for setting, value in meaning.items():
            self._settings.setProperty(setting, value)
        self._own: Any = session.newSession()
        """Where Spark makes relations, once each."""

        self._relations: dict[str, tuple[tuple[Field, ...], Any]] = {}
        self._functions: dict[str, tuple[UserFunction, Any]] = {}

    def plan(self, name: str, fields: Schema) -> Any:
        """A plan of Spark's that reads a collection."""
        return self._leaves.plan(name, fields, [self._prefix + name, name])

    def session(self, text: str, schemas: Mapping[str, Schema], functions: Mapping[str, UserFunction]) -> Any:
        """A session of the JVM's for a statement: it has those of the flow's names that the text mentions."""
        user: Any = self._session
        copy = user._jsparkSession.cloneSession()
        self._share_variables(user._jsparkSession, copy)
        copy.sessionState().conf().setConf(self._settings)
        catalog = copy.sessionState().catalog()
        for name in mentioned(text, schemas):
            catalog.createTempView(name, self._relation(name, tuple(schemas[name])), True)
        for name in mentioned(text, functions):
            copy.udf().registerPython(name, self._function(functions[name]))
        return copy

    def _share_variables(self, user: Any, copy: Any) -> None:
        """Let a copy of a session see the session's variables: of all that a session has, Spark does not copy these."""
        mine, own = (session.sessionState().catalogManager() for session in (copy, user))

        def variables() -> Any:
            field = mine.getClass().getDeclaredField("tempVariableManager")
            field.setAccessible(True)
            return field

        kept(self._session, "variables of a session", variables).set(mine, own.tempVariableManager())

    def _relation(self, name: str, fields: tuple[Field, ...]) -> Any:
        known = self._relations.get(name)
        if known is None or known[0] != fields:
            own = self._own._jsparkSession
            dataset(self._session, own, self.plan(name, fields)).createOrReplaceTempView(quoted(name))
            known = self._relations[name] = (fields, own.sessionState().catalog().getRawTempView(name).get())
        return known[1]

    def _function(self, function: UserFunction) -> Any:
        known = self._functions.get(function.name)
        if known is None or known[0] != function:
            known = self._functions[function.name] = (function, known_to_spark(function))
        return known[1]


def mentioned(text: str, names: Iterable[str]) -> list[str]:
    """Those of the names that occur in the text, as names or as anything else; all, if it puts names together
    (``IDENTIFIER('ord' || 'ers')``)."""
    lower = text.lower()
    if "identifier" in lower:
        return list(names)
    return [name for name in names if name.lower().replace("`", "``") in lower]
