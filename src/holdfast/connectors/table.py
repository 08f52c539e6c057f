"""A DataFrame as a source: the first epoch takes all its rows, and no rows come later."""

from __future__ import annotations

from typing import Any

from holdfast.connectors.source import Offer, Source
from holdfast.errors import DeclarationError
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type, type_text


def table(df: Any) -> Table:
    """The rows of the Spark DataFrame ``df``, taken once, in the first epoch.

    ``df`` must give the same rows whenever it is run: a flow that is declared again, or gets another view, reads it
    again. For rows that change use `files`, or ``flow.input``.
    """
    return Table(df)


class Table(Source):
    """See `table`."""

    origin = "a DataFrame"

    def __init__(self, df: Any) -> None:
        schema = getattr(df, "schema", None)
        if schema is None or not hasattr(df, "sparkSession"):
            raise DeclarationError(
                f"table: expected a Spark DataFrame, found {type(df).__name__}; push rows from code with flow.input"
            )
        if getattr(df, "isStreaming", False):
            raise DeclarationError("table: a streaming DataFrame has no fixed rows; use hf.files for arriving files")
        self._frame = df
        self._taken = False
        self.fields = tuple(Field(field.name, type_text(field.dataType)) for field in schema.fields)
        names = [field.name.lower() for field in self.fields]
        for field in self.fields:
            if names.count(field.name.lower()) > 1:
                raise DeclarationError(
                    f"table: column {field.name!r} is there more than once; rename one", column=field.name
                )
            arrow_type(field.type)

    def poll(self) -> Offer | None:
        return None if self._taken else {"table": "all"}

    def advance(self, offer: Offer) -> None:
        self._taken = True

    def frame(self, spark: Any, offer: Offer) -> Any:
        return self._frame
