"""The session in which a statement is read: a copy of the user's, in which the flow's names hide all others.

Each statement gets its own copy of the user's session (Spark makes one in a millisecond), with its temporary views,
functions and variables, and its current database. So names that are not the flow's mean what they mean to the user at
that moment, and the flow leaves nothing behind in the user's session.
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
    """Reads statements over the names of a flow's collections and functions."""

    def __init__(self, session: SparkSession, meaning: Mapping[str, str], leaves: FlowLeaves, prefix: str) -> None:
        """``meaning``: settings that override the session's. ``prefix``: the beginning of a leaf's alias, which the
        conversion recognises."""
        self._leaves, self._prefix = leaves, prefix
        self._statements = statements(session, session.newSession(), meaning, leaves, prefix)
        self._functions: dict[str, tuple[UserFunction, Any]] = {}

    def plan(self, name: str, fields: Schema) -> Any:
        """Return Spark's plan of a collection."""
        return self._leaves.plan(name, fields, self._prefix)

    def read(self, text: str, schemas: Mapping[str, Schema], functions: Mapping[str, UserFunction]) -> Any:
        """Return the `Analysis` of a statement, read in a session with the flow's names that the text mentions."""
        if not mentioned(text, functions):
            return self._statements.read(text, _names(text, schemas))
        return self._statements.read(text, self.session(text, schemas, functions))

    def session(self, text: str, schemas: Mapping[str, Schema], functions: Mapping[str, UserFunction]) -> Any:
        """Return a session of the JVM with the flow's names that the text mentions."""
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
    """Return the names that occur in the text, as a name or as anything else. A name that needs no quotes must be a
    whole word. All names are returned if the text computes names (``IDENTIFIER('ord' || 'ers')``)."""
    lower = text.lower()
    if "identifier" in lower:
        return list(names)
    words = set(_WORD.findall(lower))
    return [
        name
        for name in names
        if (own := name.lower()) in words or (not _WORD.fullmatch(own) and own.replace("`", "``") in lower)
    ]
