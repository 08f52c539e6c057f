"""Spark's refusals of queries as Holdfast's errors: what is wrong, where in the text, and the likely fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql.functions import builtin

from holdfast.errors import AmbiguousName, DeclarationError, SqlError, TypeMismatch, UnknownName, Unsupported
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.frontend.view_order import in_a_cycle
from holdfast.plan.nodes import Field
from holdfast.spark.quiet_errors import quietly

Schema = Sequence[Field]


@contextmanager
def explained(
    subject: str, view: str, sql: str, schemas: Mapping[str, Schema], functions: Iterable[str]
) -> Iterator[None]:
    """Raise Spark's refusal of a query in the block as an error of Holdfast, with its place in the text."""
    try:
        with quietly():
            yield
    except PySparkException as refusal:
        raise refused(subject, view, sql, refusal, schemas, functions) from None
    except Py4JJavaError as failure:
        # Some errors of Spark have no exception class in PySpark.
        raise SqlError(f"{subject}: {_plainly(str(failure.java_exception.getMessage()))}", view=view) from None


def refused(
    subject: str,
    view: str,
    sql: str,
    refusal: PySparkException,
    schemas: Mapping[str, Schema],
    functions: Iterable[str] = (),
) -> DeclarationError:
    """Return Spark's refusal as an error of Holdfast. ``sql``: the text of the query. ``functions``: the user's own."""
    about = refusal.getMessageParameters() or {}
    condition = refusal.getCondition() or ""
    message = _sentence(refusal)
    kind: type[DeclarationError] = SqlError
    fields: dict[str, object] = {"view": view, "condition": condition}
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        kind, name = UnknownName, about.get("relationName", "").strip("`")
        if name.lower() == view.lower() and view not in schemas:
            return in_a_cycle((view, view))
        message = f"table {name!r} not found{did_you_mean(name, schemas)}"
        fields |= {"name": name, "candidates": list(schemas)}
    elif condition.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD")):
        kind, name = UnknownName, about.get("objectName", "").replace("`", "")
        known = [each.replace("`", "") for each in about.get("proposal", "").split(", ") if each]
        message = f"column {name!r} not found{did_you_mean(name, known)}"
        fields |= {"name": name, "candidates": known}
    elif condition.startswith("UNRESOLVED_ROUTINE"):
        kind, name = UnknownName, about.get("routineName", "").replace("`", "")
        message = f"function {name!r} not found{did_you_mean(name, [*functions, *_FUNCTIONS])}"
        fields["name"] = name
    elif condition == "UNBOUND_SQL_PARAMETER":
        name = about.get("name", "")
        message = f"the parameter {name!r} has no value: a view takes no parameters, so write the value into the text"
        fields["name"] = name
    elif condition == "UNION_NOT_SUPPORTED_IN_RECURSIVE_CTE":
        message = (
            "UNION in a WITH RECURSIVE is taken in the text of a view, and not in a DataFrame, whose text Spark alone "
            "reads: give the text to flow.view"
        )
    elif "through WithCTE" in message:
        kind = Unsupported
        message = (
            "WITH in a subquery that refers to the query around it is not supported: define the name at the beginning "
            "of the statement"
        )
        fields["construct"] = "WITH in a correlated subquery"
    elif condition.startswith("AMBIGUOUS_REFERENCE"):
        kind = AmbiguousName
        fields["name"] = about.get("name", "").replace("`", "")
    elif isinstance(refusal, ParseException):
        message = f"syntax error: {message}"
    elif condition.startswith(("DATATYPE_MISMATCH", "INCOMPATIBLE_COLUMN_TYPE", "CANNOT_")):
        kind = TypeMismatch
    place = _place(refusal, sql)
    if place is None and kind is Unsupported and (inside := re.search(r"(?i)\(\s*(with)\b", sql)) is not None:
        place = _line_and_column(sql, inside.start(1))
    if place is None:
        return kind(f"{subject}: {message}", **fields)
    line, column = place
    return kind(f"{subject}, line {line}, column {column}: {message}", line=line, column=column, **fields)


_FUNCTIONS = [name for name in dir(builtin) if name.islower() and name not in ("col", "lit", "sys", "udf")]
"""The names of Spark's functions that PySpark has."""


def _place(refusal: PySparkException, sql: str) -> tuple[int, int] | None:
    if not sql:
        return None
    for context in refusal.getQueryContext() or ():
        try:
            start = context.startIndex()
        except PySparkException:  # the context of DataFrame code is a line of Python
            continue
        if start >= 0:
            return _line_and_column(sql, start)
    found = re.search(r"line (\d+),? pos(?:ition)? (\d+)", str(refusal))
    return (int(found[1]), int(found[2]) + 1) if found else _named_in(refusal, sql)


def _named_in(refusal: PySparkException, sql: str) -> tuple[int, int] | None:
    """Find in the text what Spark's message names: expressions first, then words such as UNION."""
    named = sorted((refusal.getMessageParameters() or {}).values(), key=lambda each: each[:1] not in '"`')
    for each in named:
        text = each.replace("`", "").strip('"')
        found = re.search(rf"(?<![\w.]){re.escape(text)}(?!\w)", sql, re.I) if re.search("[A-Za-z]", text) else None
        if found is not None:
            return _line_and_column(sql, found.start())
    return None


def _line_and_column(text: str, place: int) -> tuple[int, int]:
    """Line and column of a place in a text, both from 1."""
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def placed(error: DeclarationError, subject: str, text: str) -> DeclarationError:
    """Return an error about a construct with the place of its first word in the text, if the error has no place."""
    word = re.match(r"\w+", str(error.fields.get("construct", "")))
    found = None if word is None or "line" in error.fields else re.search(rf"(?i)(?<![\w.]){word[0]}\s*\(", text)
    if found is None:
        return error
    line, column = _line_and_column(text, found.start())
    said = str(error).removeprefix(f"{subject}: ")
    return type(error)(f"{subject}, line {line}, column {column}: {said}", line=line, column=column, **error.fields)


def start_of(sql: str) -> tuple[int, int]:
    """Line and column of the first word of a statement."""
    found = re.match(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", sql, re.S)
    return _line_and_column(sql, found.end() if found else 0)


def _sentence(refusal: PySparkException) -> str:
    return _plainly(refusal.getMessage() or str(refusal))


def _plainly(text: str) -> str:
    """Spark's message without its plan, positions, column numbers and state code."""
    text = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", text.strip())
    text = re.split(r"\n\s*\n|\n== SQL|\n[+'!]|;\n", text, maxsplit=1)[0]
    text = re.sub(r"\s*(SQLSTATE:? \w+|\(line \d+, pos \d+\)|; line \d+ pos \d+;?)\s*", " ", text)
    text = re.sub(r"#\d+L?\b", "", re.sub(r"\borg\.apache\.[a-z.]*", "", text))  # ids, and Java packages
    return " ".join(text.split()).rstrip(";")
