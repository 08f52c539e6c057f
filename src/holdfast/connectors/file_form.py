"""The options of a source of files beside path, format and schema: columns, bad rows, recursion, kept rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.connectors.bad_lines import HIDDEN
from holdfast.connectors.column_policies import ColumnPolicies
from holdfast.connectors.source import Offer, Source
from holdfast.connectors.spark_files import load, refusing
from holdfast.errors import DeclarationError, SchemaError
from holdfast.foundation import arguments
from holdfast.foundation.nearest_name import did_you_mean
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field
from holdfast.plan.types import ddl_type, type_text


@dataclass(frozen=True)
class FileForm:
    """The declared options, checked."""

    policies: ColumnPolicies = field(compare=False)
    partitioned_by: tuple[str, ...] = ()
    quarantine: bool = False
    recursive: bool = True
    keeps_rows: bool = False

    @property
    def lenient(self) -> bool:
        """Whether a file may lack a declared column, which is then NULL."""
        return self.policies.on_missing != "fail"

    def split(self, fields: Sequence[Field], subject: str) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """Split ``fields`` into the columns whose values are in directory names and the columns inside the files.
        Raises `DeclarationError` if a column of ``partitioned_by`` is not among ``fields``."""
        named = {each.name: each for each in fields}
        for name in self.partitioned_by:
            if name not in named:
                raise DeclarationError(
                    f"{subject}: partitioned_by {name!r} is not a column of ({', '.join(named)})"
                    f"{did_you_mean(name, list(named))}; the schema says its type",
                    column=name,
                )
        for hidden in HIDDEN if self.quarantine else ():
            if hidden.name in named:
                raise DeclarationError(f"{subject}: column {hidden.name!r}: with a quarantine that name is taken")
        said = tuple(named[name] for name in self.partitioned_by)
        return said, tuple(each for each in fields if each not in said)


def file_form(
    format: str,
    partitioned_by: Any = (),
    on_missing: Any = None,
    on_extra: Any = "ignore",
    on_bad_rows: Any = "fail",
    recursive: Any = True,
    keep: Any = None,
) -> FileForm:
    """Check the declared options. Raises `DeclarationError` for a combination that does not work."""
    names = [partitioned_by] if isinstance(partitioned_by, str) else partitioned_by
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        arguments.refuse("files", "partitioned_by", "the names of columns", partitioned_by)
    if on_missing is not None:
        arguments.one_of("files", "on_missing", on_missing, ("fail", "warn", "null"))
    arguments.one_of("files", "on_extra", on_extra, ("ignore", "warn", "fail"))
    arguments.one_of("files", "on_bad_rows", on_bad_rows, ("fail", "quarantine"))
    arguments.flag("files", "recursive", recursive)
    if keep is not None:
        arguments.one_of("files", "keep", keep, ("rows",))
    if format == "csv" and (on_missing is not None or on_extra != "ignore"):
        raise DeclarationError(
            "files: on_missing and on_extra are for Parquet, Avro and JSON; the columns of CSV go by position, and a "
            "header (options={'header': 'true'}) must name them all"
        )
    if format in ("parquet", "avro") and on_bad_rows != "fail":
        raise DeclarationError(
            f"files: on_bad_rows is for JSON and CSV; a file of {format} fits as a whole or not: use on_bad_file"
        )
    policies = ColumnPolicies(on_missing or ("warn" if format == "json" else "fail"), on_extra)
    return FileForm(policies, tuple(names), on_bad_rows == "quarantine", recursive, keep == "rows")


class InferredFiles(Source):
    """Files with ``schema="infer"``: a placeholder that `resolved` replaces when the source is declared in a flow."""

    fields = ()

    def __init__(self, made: Callable[[str | None], Source], format: str, options: Mapping[str, str] | None) -> None:
        """``made`` makes the source for a schema; for Parquet the schema may be None."""
        self._made = made
        self._format = format
        self._options = dict(options or {})

    def resolved(self, spark: Any, recorded: Sequence[tuple[str, str]] | None) -> Source:
        """The source with its schema: the schema that a log has ``recorded``, else the one that Spark infers from the
        files that are there now. Raises `SchemaError` if there is no file yet."""
        if recorded:
            return self._made(", ".join(f"{quoted(name)} {ddl_type(kind)}" for name, kind in recorded))
        if self._format == "parquet":
            return self._made(None)
        listed = self._made("_unknown string")
        paths = listed.readable(spark)  # type: ignore[attr-defined]  # it is of files
        if not paths:
            raise SchemaError("files: there is no file yet to infer the schema from; give schema='…'")
        reader = spark.read.options(**self._options, inferSchema="true")
        with refusing("files", paths):
            found = load(reader, self._format, paths).schema
        return self._made(
            ", ".join(f"{quoted(each.name)} {ddl_type(type_text(each.dataType))}" for each in found.fields)
        )

    def poll(self) -> Offer | None:
        return None

    def advance(self, offer: Offer) -> None:
        raise SchemaError("files: the schema was not inferred; declare the source with flow.source")
