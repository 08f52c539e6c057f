"""The session in which a statement is read: the user's own as it is now, with the flow's names before all others.

Every statement has a copy of the user's session (Spark makes one in a millisecond): its temporary views, functions and
variables, its current database. So names that are not the flow's mean what they mean to the user at that moment, and
nothing of the flow's is left behind in the user's session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from holdfast.plan.nodes import Field, UserFunction
from holdfast.spark.flow_leaves import FlowLeaves
from holdfast.spark.python_functions import known_to_spark
from holdfast.spark.schemas import ddl
from holdfast.spark.statements import statements, text_of

Schema = Sequence[Field]

_WORD = re.compile(r"\w+")


class StatementSession:
    """The names of a flow's collections and functions."""

    def __init__(self, session: SparkSession, meaning: Mapping[str, str], leaves: FlowLeaves, prefix: str) -> None:
        """``meaning``: settings that hold whatever the session says. ``prefix``: how the alias of a leaf begins that
        the conversion recognises."""
        self._leaves, self._prefix = leaves, prefix
        self._statements = statements(session, session.newSession(), meaning, leaves, prefix)
        self._functions: dict[str, tuple[UserFunction, Any]] = {}

    def plan(self, name: str, fields: Schema) -> Any:
        """A plan of Spark's that reads a collection."""
        return self._leaves.plan(name, fields, self._prefix)

    def read(self, text: str, schemas: Mapping[str, Schema], functions: Mapping[str, UserFunction]) -> Any:
        """The `Analysis` of a statement, in a session that has those of the flow's names that the text mentions."""
        if not mentioned(text, functions):
            return self._statements.read(text, _names(text, schemas))
        return self._statements.read(text, self.session(text, schemas, functions))

    def session(self, text: str, schemas: Mapping[str, Schema], functions: Mapping[str, UserFunction]) -> Any:
        """A session of the JVM's that has those of the flow's names that the text mentions."""
        session = self._statements.session(_names(text, schemas))
        for name in mentioned(text, functions):
            session.udf().registerPython(name, self._function(functions[name]))
        return session

    def _function(self, function: UserFunction) -> Any:
        known = self._functions.get(function.name)
        if known is None or known[0] != function:
            known = self._functions[function.name] = (function, known_to_spark(function))
        return known[1]


def _names(text: str, schemas: Mapping[str, Schema]) -> str:
    return text_of({name: ddl(schemas[name]) for name in mentioned(text, schemas)})


def mentioned(text: str, names: Iterable[str]) -> list[str]:
    """Those of the names that occur in the text, as names or as anything else; all, if it puts names together
    (``IDENTIFIER('ord' || 'ers')``). A name that needs no quotes is a whole word."""
    lower = text.lower()
    if "identifier" in lower:
        return list(names)
    words = set(_WORD.findall(lower))
    return [
        name
        for name in names
        if (own := name.lower()) in words or (not _WORD.fullmatch(own) and own.replace("`", "``") in lower)
    ]
