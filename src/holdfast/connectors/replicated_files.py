"""Copies of the same files in several directories, each file read from any copy that can be read.

A file is identified by its name below the directories and by its size. Copies of one size are assumed to have the same
bytes; a copy of another size is passed over. A missing directory, or a copy that does not read, does no harm as long as
another copy reads; a task whose copy fails in the middle goes on with the next copy, after the rows that it has read
already. With *n* copies, *n* - 1 directories may be lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from holdfast.connectors import file_listing, parquet_files
from holdfast.connectors.arrow_to_spark_types import spark_type
from holdfast.connectors.file_access import LOCAL, File
from holdfast.connectors.file_identity import ends_of
from holdfast.connectors.source import Offer, Part, Source
from holdfast.errors import BadFile, DeclarationError, FileMoved, HoldfastError, InputError, SchemaError
from holdfast.plan.nodes import Field
from holdfast.plan.schema import parse_schema
from holdfast.plan.types import arrow_type


class Replicated(Source):
    """See ``replicas=True`` in `holdfast.files`."""

    origin = "copies of files"
    patience = 2.0

    def __init__(
        self, paths: Sequence[str | os.PathLike[str]], schema: str | None, max_files_per_epoch: int | None
    ) -> None:
        texts = [os.fspath(path) for path in paths]
        self._subject = f"files {', '.join(map(repr, texts))}"
        if any("://" in text for text in texts):
            raise DeclarationError(f"{self._subject}: copies of the same files can only be read from local directories")
        self._roots = [os.path.abspath(os.path.expanduser(text)) for text in texts]
        self._trees = [file_listing.FileTree(root) for root in self._roots]
        self._limit = max_files_per_epoch
        if self._limit is not None and (not isinstance(self._limit, int) or self._limit < 1):
            raise DeclarationError(f"{self._subject}: max_files_per_epoch must be at least 1, not {self._limit!r}")
        if not any(os.path.isdir(root) for root in self._roots):
            raise DeclarationError(f"{self._subject}: none of these directories exists; create one, it may be empty")
        self._taken: set[str] = set()
        self._marks: dict[tuple[int, str], str] = {}
        """Size and mark → the name of the last taken file with this size and mark."""
        self._offered: Offer | None = None
        self._behind = 0
        self.fields = self._first_schema() if schema is None else parse_schema(schema, subject=self._subject)
        for field in self.fields:
            arrow_type(field.type)

    def _first_schema(self) -> tuple[Field, ...]:
        first = next(iter(self._found()), None)
        if first is None:
            raise SchemaError(f"{self._subject}: there is no file yet to take the schema from; give schema='…'")
        path, footer, _ = self._sound(*first)
        return tuple(
            Field(field.name, spark_type(field.type, subject=f"file {path!r}: column {field.name!r}"))
            for field in footer.schema
        )

    def _found(self) -> list[tuple[str, list[int]]]:
        """Name and sizes of the copies of each file that no epoch has taken, oldest first. Raises `BadFile` if none of
        the directories can be read."""
        sizes: dict[str, list[int]] = {}
        times: dict[str, int] = {}
        listed = False
        for tree in self._trees:
            root = tree.path
            try:
                for file in tree.unknown(partial(self._is_taken, root)):
                    name = os.path.relpath(file.path, root)
                    sizes.setdefault(name, []).append(file.size)
                    times[name] = min(file.changed, times.get(name, file.changed))
                listed = True
            except BadFile:
                continue  # this directory cannot be read; another one has the files
        if not listed:
            raise BadFile(f"{self._subject}: none of these places can be read any more", path=self._roots[0])
        return [(name, sizes[name]) for name in sorted(sizes, key=lambda name: (times[name], name))]

    def _is_taken(self, root: str, path: str, look: object) -> bool:
        return path[len(root) :].lstrip(os.sep) in self._taken

    def poll(self) -> Offer | None:
        if self._offered is None:
            fresh = self._found()
            taken = fresh[: self._limit or len(fresh)]
            self._behind = len(fresh) - len(taken)
            offered = []
            for name, sizes in taken:
                path, footer, size = self._sound(name, sizes)
                parquet_files.check_schema(path, footer.schema, self.fields)
                mark = self._mark(name, path, size)
                offered.append([name, size, mark])
            self._offered = {"replicated": offered} if offered else None
        return self._offered

    def _mark(self, name: str, path: str, size: int) -> str:
        """The mark of a file (`connectors.file_identity`). Raises if the file was taken already under another name."""
        try:
            mark = ends_of(path).hex()
        except OSError as error:
            raise BadFile(f"file {path!r}: {error.strerror}", path=path) from error
        before = self._marks.get((size, mark))
        if (
            before is not None
            and before != name
            and not any(os.path.lexists(os.path.join(root, before)) for root in self._roots)
        ):
            raise FileMoved(
                f"file {name!r}: it was taken already, as {before!r}, and has been moved; its rows would count twice. "
                "Move it back, in all places",
                path=path,
                before=before,
            )
        return mark

    def advance(self, offer: Offer) -> None:
        for name, size, *mark in offer["replicated"]:
            self._taken.add(name)
            if mark:
                self._marks[size, mark[0]] = name
        self._offered = None

    def parts(self, offer: Offer) -> list[Part]:
        parts: list[Part] = []
        for name, size, *_ in offer["replicated"]:
            _, footer = self._footer(name, size)
            copies = tuple(os.path.join(root, name) for root in self._roots)
            for part in parquet_files.cut(File(copies[0], size, 0), footer, self.fields):
                parts.append(ReplicatedPart(part.file, copies, part.groups, self.fields, part.size))
        return parts

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return [{"replicated": [each for offer in offers for each in offer["replicated"]]}]

    def waiting(self) -> int:
        return self._behind

    def _sound(self, name: str, sizes: Sequence[int]) -> tuple[str, parquet_files.Footer, int]:
        """Path, footer and size of the first copy that reads, where copies may differ in size. Raises `BadFile` if none
        does."""
        errors: list[str] = []
        for size in dict.fromkeys(sizes):
            try:
                return *self._footer(name, size), size
            except BadFile as error:
                errors.append(str(error))
        raise BadFile("; ".join(errors), path=name)

    def _footer(self, name: str, size: int) -> tuple[str, parquet_files.Footer]:
        errors: list[str] = []
        for root in self._roots:
            path = os.path.join(root, name)
            try:
                _check_size(path, size)
                return path, parquet_files.read_footer(path)
            except InputError as error:
                errors.append(str(error))
        raise _none_left(name, errors)


@dataclass(frozen=True)
class ReplicatedPart:
    """Some row groups of a file of which there are several copies."""

    file: File
    """The first copy."""

    copies: tuple[str, ...]
    groups: tuple[int, ...]
    fields: tuple[Field, ...]
    size: tuple[int, int]
    """Rows and bytes."""

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        done = 0
        errors: list[str] = []
        for path in self.copies:
            try:
                _check_size(path, self.file.size)
                file = LOCAL.described(path)
                # Copies have the same bytes, so they are read in the same pieces.
                for place, table in enumerate(parquet_files.ParquetPart(file, self.groups, self.fields).read(schema)):
                    if place >= done:
                        yield table
                        done = place + 1
                return
            except SchemaError:
                raise
            except (HoldfastError, OSError) as error:
                errors.append(str(error))
        raise _none_left(os.path.basename(self.file.path), errors)


def _check_size(path: str, size: int) -> None:
    try:
        found = os.stat(path).st_size
    except OSError as error:
        raise BadFile(f"file {path!r}: {error.strerror}", path=path) from error
    if found != size:
        raise BadFile(f"file {path!r}: it has {found} bytes, and should have {size}", path=path)


def _none_left(name: str, errors: Sequence[str]) -> BadFile:
    return BadFile(f"file {name!r}: none of its copies can be read: {'; '.join(errors)}", path=name)
