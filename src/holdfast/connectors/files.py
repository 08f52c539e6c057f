"""A directory of files as a source: every new file is a batch of insertions.

Which files an epoch takes is its offer: their names, sizes and times of change, so a replay reads the same files or
says that it cannot. Files come in the order (time of change, name) in which a poll finds them; that order is part of
the offer and not computed again. A file that an epoch took is never looked at again, whatever becomes of it.

Parquet is read by the tasks (`connectors.parquet`), JSON lines and CSV by Spark. A bad Parquet file shows at the poll,
except for damage inside its pages; a bad JSON or CSV file shows when Spark reads it (`reject`). With
``on_bad_file="skip"`` it is left out, and the offer says so; if it changes later it counts as a new file, since none of
its rows was taken.

Cost of a poll: one listing, plus one ``stat`` and (Parquet) one footer per new file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, get_args
from urllib.parse import quote

from holdfast.connectors import listing, parquet
from holdfast.connectors.infer import spark_type
from holdfast.connectors.listing import File
from holdfast.connectors.source import Offer, Part, Source
from holdfast.errors import BadFile, DeclarationError, HoldfastError, InputError, SchemaError
from holdfast.frontend.schema import parse_schema
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type

Format = Literal["parquet", "json", "csv"]
OnBadFile = Literal["fail", "skip"]

_CHECKERS = 8
"""Threads that read footers: the time is the disk's."""


def files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: Format = "parquet",
    schema: str | None = None,
    max_files_per_epoch: int | None = None,
    on_bad_file: OnBadFile = "fail",
    options: Mapping[str, str] | None = None,
    *,
    replicas: bool = False,
) -> Source:
    """The files under ``path`` (a directory, searched recursively; a file; or a list of these), as they arrive.

    With ``replicas`` the directories of the list hold copies of the same files, under the same names (Parquet only);
    each file is read from whichever copy can be read.

    ``schema`` is a Spark DDL text; Parquet may leave it out, then it is the first file's. ``max_files_per_epoch``
    bounds an epoch. ``on_bad_file="skip"`` leaves out files that do not read or fit; skips are recorded. ``options``
    are Spark's reader options for JSON and CSV; times without a zone are UTC, unless the option ``timeZone`` says
    otherwise.
    """
    if replicas:
        if isinstance(path, str | os.PathLike) or format != "parquet" or on_bad_file != "fail" or options:
            raise DeclarationError("files: replicas=True wants a list of directories of Parquet files, and no options")
        from holdfast.connectors.replicas import Replicated

        return Replicated(path, schema, max_files_per_epoch)
    return Files(path, format, schema, max_files_per_epoch, on_bad_file, options)


class Files(Source):
    """See `files`."""

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        format: Format,
        schema: str | None,
        max_files_per_epoch: int | None,
        on_bad_file: OnBadFile,
        options: Mapping[str, str] | None,
    ) -> None:
        given = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._subject = f"files {', '.join(repr(os.fspath(one)) for one in given)}"
        self._roots = [listing.root(one) for one in given]
        self._format = format
        self._limit = max_files_per_epoch
        self._skips = on_bad_file == "skip"
        self._options = dict(options or {})
        self._check_declaration(on_bad_file)
        self._taken: set[str] = set()
        self._skipped: dict[str, File] = {}
        self._unrecorded: list[tuple[File, str]] = []
        self._offered: Offer | None = None
        self._behind = 0
        self._footers: dict[File, parquet.Footer] = {}
        self.fields = self._first_schema() if schema is None else parse_schema(schema, subject=self._subject)
        for field in self.fields:
            arrow_type(field.type)

    def _check_declaration(self, on_bad_file: str) -> None:
        if not self._roots:
            raise DeclarationError("files: the list of paths is empty")
        for name, value, choices in (
            ("format", self._format, get_args(Format)),
            ("on_bad_file", on_bad_file, get_args(OnBadFile)),
        ):
            if value not in choices:
                known = ", ".join(map(repr, choices))
                raise DeclarationError(f"{self._subject}: {name} must be one of {known}, not {value!r}", name=name)
        if self._limit is not None and (not isinstance(self._limit, int) or self._limit < 1):
            raise DeclarationError(f"{self._subject}: max_files_per_epoch must be at least 1, not {self._limit!r}")
        if self._options and self._format == "parquet":
            raise DeclarationError(f"{self._subject}: options are for json and csv; parquet has none")
        if any(key.lower() == "mode" for key in self._options):
            raise DeclarationError(f"{self._subject}: option 'mode' cannot be set; use on_bad_file to say what to do")

    def _first_schema(self) -> tuple[Field, ...]:
        if self._format != "parquet":
            raise SchemaError(
                f"{self._subject}: a schema is needed for {self._format}, e.g. schema='id long, name string'"
            )
        first = next(iter(self._found()), None)
        if first is None:
            raise SchemaError(f"{self._subject}: there is no file yet to take the schema from; give schema='…'")
        found = parquet.read_footer(first.path).schema
        return tuple(
            Field(field.name, spark_type(field.type, subject=f"file {first.path!r}: column {field.name!r}"))
            for field in found
        )

    def poll(self) -> Offer | None:
        if self._offered is None:
            self._offered = self._next_offer()
        return self._offered

    def advance(self, offer: Offer) -> None:
        for file in _files_of(offer):
            self._taken.add(file.path)
            self._skipped.pop(file.path, None)
        for path, _, size, changed in offer.get("skipped", ()):
            self._skipped[path] = File(path, size, changed)
        recorded = {path for path, *_ in offer.get("skipped", ())}
        self._unrecorded = [(file, reason) for file, reason in self._unrecorded if file.path not in recorded]
        self._offered = None
        self._footers.clear()

    def parts(self, offer: Offer) -> list[Part]:
        parts: list[Part] = []
        for file in _files_of(offer):
            footer = self._footers.get(file)
            if footer is None:
                listing.check_unchanged(file)
                footer = parquet.read_footer(file.path)
            if footer.rows:
                parts += parquet.cut(file, footer, self.fields)
        return parts

    def frame(self, spark: Any, offer: Offer) -> Any:
        if self._format == "parquet":
            return None
        ddl = ", ".join(f"`{field.name.replace('`', '``')}` {field.type}" for field in self.fields)
        paths = []
        for file in _files_of(offer):
            listing.check_unchanged(file)
            paths.append(file.path)
        if not paths:
            return spark.createDataFrame([], ddl)
        options = {"timeZone": "UTC", "enforceSchema": "false", **self._options, "mode": "FAILFAST"}
        reader = spark.read.schema(ddl).options(**options)
        return reader.json(paths) if self._format == "json" else reader.csv(paths)

    def reject(self, offer: Offer, error: Exception) -> bool:
        file = _culprit(offer, error)
        if file is None:
            return False
        if self._skips and offer == self._offered:
            self._skip(file, error if isinstance(error, HoldfastError) else self._bad_file(file, error))
            self._offered = None
            return True
        if isinstance(error, HoldfastError):
            return False
        raise self._bad_file(file, error) from error

    def waiting(self) -> int:
        return self._behind

    def _found(self) -> Iterator[File]:
        """All files that no epoch has taken and that are not skipped, oldest first."""
        found = {file.path: file for root in self._roots for file in listing.find(root, self._taken.__contains__)}
        passed = {**self._skipped, **{file.path: file for file, _ in self._unrecorded}}
        fresh = [file for file in found.values() if passed.get(file.path) != file]
        return iter(sorted(fresh, key=lambda file: (file.changed, file.path)))

    def _next_offer(self) -> Offer | None:
        fresh = list(self._found())
        taken: list[File] = []
        limit = self._limit or len(fresh)
        while fresh and len(taken) < limit:
            chunk, fresh = fresh[: limit - len(taken)], fresh[limit - len(taken) :]
            taken += self._sound(chunk)
        self._behind = len(fresh)
        if not taken and not self._unrecorded:
            return None
        under = os.path.commonpath([os.path.dirname(file.path) for file in taken]) if taken else ""
        offer: Offer = {
            "under": under,
            "files": [[os.path.relpath(file.path, under), file.size, file.changed] for file in taken],
        }
        if self._unrecorded:
            offer["skipped"] = [[file.path, reason, file.size, file.changed] for file, reason in self._unrecorded]
        return offer

    def _sound(self, chunk: list[File]) -> list[File]:
        """Those of ``chunk`` that look right from the outside. The others are skipped, or fail the poll."""
        if self._format != "parquet":
            return chunk
        sound = []
        if len(chunk) == 1:
            checked = [self._check(chunk[0])]
        else:
            with ThreadPoolExecutor(min(_CHECKERS, len(chunk))) as pool:
                checked = list(pool.map(self._check, chunk))
        for file, outcome in zip(chunk, checked, strict=True):
            if isinstance(outcome, parquet.Footer):
                self._footers[file] = outcome
                sound.append(file)
            elif not os.path.exists(file.path):
                continue  # removed before it was offered: nobody misses it
            elif self._skips:
                self._skip(file, outcome)
            else:
                raise outcome
        return sound

    def _check(self, file: File) -> parquet.Footer | HoldfastError:
        try:
            footer = parquet.read_footer(file.path)
            parquet.check_schema(file.path, footer.schema, self.fields)
        except (InputError, SchemaError) as error:
            return error
        return footer

    def _skip(self, file: File, error: HoldfastError) -> None:
        self._unrecorded.append((file, str(error)))

    def _bad_file(self, file: File, error: Exception) -> BadFile:
        reason = _reason(str(error))
        return BadFile(
            f"file {file.path!r}: it does not read as {self._format} ({reason})", path=file.path, reason=reason
        )


def _files_of(offer: Offer) -> list[File]:
    return [File(os.path.join(offer["under"], name), size, changed) for name, size, changed in offer["files"]]


def _culprit(offer: Offer, error: Exception) -> File | None:
    """The file of ``offer`` that ``error`` is about. Spark names it in the text, as a URI."""
    if isinstance(error, HoldfastError):
        return next((file for file in _files_of(offer) if file.path == error.fields.get("path")), None)
    text = str(error)
    named = [file for file in _files_of(offer) if file.path in text or quote(file.path) in text]
    # One file's name may begin with another's.
    return max(named, key=lambda file: len(file.path), default=None)


def _reason(text: str) -> str:
    """What Spark says was wrong, without the file (said already), the stack and the state codes."""
    sentences = re.findall(r"\[([A-Z][A-Z_.0-9]+)\] ([^\n]*)", text)
    told = [sentence for condition, sentence in sentences if not condition.startswith("FAILED_READ_FILE")]
    sentence = told[-1] if told else text.split("\n", 1)[0]
    return re.sub(r"\s*SQLSTATE:? \w+.*", "", sentence).strip()
