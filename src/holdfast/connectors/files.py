"""A directory of files as a source: every new file is a batch of insertions.

An offer lists the files that an epoch takes: names, sizes, times of change and marks (hashes of their content, see
`connectors.file_identity`); for JSON, CSV and Avro also the options with which they are read. So a replay reads the
same rows, or raises an error. Files come in the order (time of change, name) in which a poll finds them; that order is
part of the offer and not computed again.

Parquet is read by the tasks (`connectors.parquet_files`). JSON lines, CSV and Avro are read by Spark
(`connectors.spark_files`), which is given local copies of files on other filesystems (`connectors.fetched_files`). A
bad Parquet file is found at the poll, except for damage inside its pages; any other bad file is found when Spark reads
it (`reject`). With ``on_bad_file="skip"`` a bad file is left out, and the offer says so. If the file changes later it
counts as a new file, since none of its rows was taken.

Cost of a poll: one ``stat`` per directory that has not changed, one listing per directory that has changed (on another
filesystem, one listing of everything), plus per new file one ``stat``, a mark, and a footer or header.

The file is long because polling, offering and reading again must agree on what a file is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from holdfast.connectors import file_listing, parquet_files, spark_files
from holdfast.connectors.arrow_to_spark_types import spark_type
from holdfast.connectors.avro_header import AvroHeader, read_header
from holdfast.connectors.bad_lines import BAD, FILE, HIDDEN, OnBadRows, Quarantined, reason_column, shown
from holdfast.connectors.change_feed import ChangeFeed, Envelope, feed_form
from holdfast.connectors.column_policies import ColumnPolicies, OnExtraColumn, OnMissingColumn, json_columns
from holdfast.connectors.fetched_files import FetchedFiles
from holdfast.connectors.file_access import File
from holdfast.connectors.file_form import FileForm, InferredFiles, file_form
from holdfast.connectors.file_identity import Identity, Taken, is_whole, marked_as, same_content
from holdfast.connectors.file_offer import Offered, columns_of, files_of, fold_files, offer_of, without_files
from holdfast.connectors.partition_directories import spark_column, values_in
from holdfast.connectors.source import Offer, Part, Source
from holdfast.connectors.upcoming_files import SeenAhead
from holdfast.errors import BadFile, DeclarationError, FileMoved, HoldfastError, InputError, SchemaError
from holdfast.foundation import arguments
from holdfast.log.location import Location
from holdfast.plan.expression import quoted
from holdfast.plan.nodes import Field
from holdfast.plan.schema import parse_schema
from holdfast.plan.types import arrow_type, ddl_type
from holdfast.reporting import redaction
from holdfast.reporting.redaction import logger

_LOG = logger("holdfast.sources")

Format = Literal["parquet", "json", "csv", "avro"]
OnBadFile = Literal["fail", "skip"]
FilePath = str | os.PathLike[str] | Location
"""A path, an address of another filesystem, or a `Location` that ``hf.location`` made of an address."""

T = TypeVar("T")
R = TypeVar("R")

_DECODED = "url_decode(replace(_path, '+', '%2B'))"
_ADVICE = (
    "Nothing of it counts. Mend or remove it, and the next step goes on; or declare the source with on_bad_file='skip'"
)
_PACKED = re.compile(r"(?i)\b(zlib|gzip|zstd|lz4|bz2|brotli|snappy)\b|compressed (stream|data|input)")
"""Matches Arrow's messages about files that do not decompress; Arrow has no class of error for that."""

_CHECKERS = 8
"""The number of threads that read footers and marks: they mostly wait for the disk."""

_FEW = 8
"""The number of files in an offer up to which a source looks ahead."""


def files(
    path: FilePath | Sequence[FilePath],
    format: Format = "parquet",
    schema: str | None = None,
    max_files_per_epoch: int | None = None,
    on_bad_file: OnBadFile = "fail",
    options: Mapping[str, str] | None = None,
    *,
    identity: Identity = "path",
    replicas: bool = False,
    op: str | None = None,
    envelope: Envelope | None = None,
    envelope_columns: Mapping[str, str] | None = None,
    recursive: bool = True,
    partitioned_by: str | Sequence[str] = (),
    on_missing: OnMissingColumn | None = None,
    on_extra: OnExtraColumn = "ignore",
    on_bad_rows: OnBadRows = "fail",
    keep: Literal["rows"] | None = None,
    fetch_to: str | os.PathLike[str] | None = None,
) -> Source:
    """The files under ``path`` (a directory, searched recursively unless ``recursive=False``; a file; a pattern such as
    ``in/*/2024-??.json`` or ``in/**/*.csv``; or a list of these), as they arrive. Files may be compressed (``.gz``,
    ``.zst``, …). A Parquet or Avro file of no bytes is passed over until it has some.

    ``path`` may be on any filesystem that pyarrow or fsspec can open (``s3://bucket/in``, ``hdfs://…``, ``gs://…``,
    ``sftp://…``), and may be a location made by ``hf.location(address, credentials=…)``. Tasks read Parquet files where
    they are. JSON, CSV and Avro are read by Spark: the driver fetches each file of an epoch to a local directory first,
    and removes it afterwards. On a cluster ``fetch_to`` names a directory that all executors see.

    ``schema`` is a Spark DDL text. Parquet may leave it out: then the schema of the first file is taken.
    ``schema="infer"`` takes the schema that Spark infers from the files that are there; a flow that has run before goes
    on with the schema that it found then. ``max_files_per_epoch`` bounds an epoch. ``on_bad_file="skip"`` leaves out
    files that do not read or fit; skips are recorded. ``options`` are Spark's reader options for JSON, CSV and Avro; an
    option that has no effect, or that changes which files are read, is refused.
    Times without a zone are in the session's time zone, as with ``spark.read``, unless the option ``timeZone`` says
    otherwise. A source keeps the zone that it began with, also in later sessions with another zone.

    ``identity`` says when two files are the same file. ``"path"`` (the default): a file is taken once per path. A file
    that was moved, or copied and removed, is refused (`FileMoved`), so that it does not count twice; a file that is
    rewritten in place is not read again.
    ``"content"``: a file is taken once per content, wherever it is moved or copied to. Equal files count once; each
    file is read one time more, to compute its digest.

    ``partitioned_by`` names columns of ``schema`` whose values are in directory names, as in ``date=2024-05-01/``.
    ``on_missing`` says what happens if a file lacks a declared column: ``"fail"`` (the default for Parquet and Avro),
    ``"warn"`` (once; the default for JSON), or ``"null"``. ``on_extra`` says what happens if a file has a column that
    was not declared. CSV with a header must have the declared columns.
    ``on_bad_rows="quarantine"`` puts lines of JSON and CSV that do not read or fit into a second collection,
    ``NAME_quarantine(reason, record, file)``, which views can read. ``keep="rows"`` keeps the source's rows in the log:
    a view that is declared later is filled from the log, and files that were taken and are safe may be archived.

    ``op`` names a column that says what happened to the row: ``insert``, ``update``, ``delete``, or ``i``, ``u``,
    ``d``. It is not a column of the collection, and not in ``schema``. An update without its before-image needs
    ``flow.source(…, key=…)``. ``envelope="debezium"`` reads Debezium's messages (JSON lines, or Parquet and Avro with
    the columns ``before``, ``after`` and ``op``): ``schema`` is the schema of the rows inside;
    ``envelope_columns={"lsn": "source.lsn bigint"}`` takes columns of the message itself, for ``order_by``.

    With ``replicas`` the directories of the list hold copies of the same files, under the same names (Parquet only);
    each file is read from whichever copy can be read.
    """
    given = [path] if isinstance(path, str | os.PathLike | Location) else path
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        arguments.refuse("files", "path", "a path, or a list of paths", path)
    for one in given:
        if not isinstance(one, Location):
            arguments.path("files", "path", one)
    if fetch_to is not None:
        fetch_to = arguments.path("files", "fetch_to", fetch_to)
    if schema is not None:
        arguments.text("files", "schema", schema, "a Spark schema such as 'id long, name string'")
    if options is not None and not (
        isinstance(options, Mapping) and all(isinstance(key, str) for key in options) and None not in options.values()
    ):
        arguments.refuse("files", "options", "Spark's reader options by name", options)
    if isinstance(max_files_per_epoch, bool):
        arguments.refuse("files", "max_files_per_epoch", "a whole number from 1 on", max_files_per_epoch)
    unusual = [
        name
        for name, is_so in {
            "recursive": recursive is not True,
            "partitioned_by": bool(partitioned_by),
            "on_missing": on_missing is not None,
            "on_extra": on_extra != "ignore",
            "on_bad_rows": on_bad_rows != "fail",
            "keep": keep is not None,
        }.items()
        if is_so
    ]
    if op is not None or envelope is not None or envelope_columns is not None:
        if unusual:
            raise DeclarationError(f"files: a feed of changes (op=, envelope=) has no {', '.join(unusual)}")
        return _feed(path, format, schema, max_files_per_epoch, on_bad_file, options, identity, replicas,
                     op, envelope, envelope_columns, fetch_to)  # fmt: skip
    if arguments.flag("files", "replicas", replicas):
        plain = on_bad_file == "fail" and identity == "path" and not options
        local = [one for one in given if not isinstance(one, Location)]
        if isinstance(path, str | os.PathLike) or len(local) < len(given) or format != "parquet" or not plain:
            raise DeclarationError("files: replicas=True wants a list of directories of Parquet files, and no options")
        if unusual:
            raise DeclarationError(f"files: replicas=True has no {', '.join(unusual)}")
        from holdfast.connectors.replicated_files import Replicated

        return Replicated(local, schema, max_files_per_epoch)
    form = file_form(format, partitioned_by, on_missing, on_extra, on_bad_rows, recursive, keep)
    if schema == "infer":
        if form.partitioned_by:
            raise DeclarationError("files: with partitioned_by the schema must say the types; give schema='…'")
        return InferredFiles(
            lambda found: Files(
                path, format, found, max_files_per_epoch, on_bad_file, options, identity, form, fetch_to
            ),
            format,
            options,
        )
    return Files(path, format, schema, max_files_per_epoch, on_bad_file, options, identity, form, fetch_to)


def _feed(
    path: FilePath | Sequence[FilePath],
    format: Format,
    schema: str | None,
    max_files_per_epoch: int | None,
    on_bad_file: OnBadFile,
    options: Mapping[str, str] | None,
    identity: Identity,
    replicas: bool,
    op: str | None,
    envelope: str | None,
    envelope_columns: Mapping[str, str] | None,
    fetch_to: str | None,
) -> Source:
    subject = _subject(_listed(path))
    if replicas or schema is None:
        raise DeclarationError(f"{subject}: a feed of changes needs a schema, and has no replicas")
    if envelope is not None and format == "csv":
        raise DeclarationError(f"{subject}: an envelope has rows inside it; format must be 'json', 'avro' or 'parquet'")
    form = feed_form(subject, schema, op, envelope, envelope_columns, wrapped=envelope is not None and format == "json")
    # JSON leaves out columns that are NULL: an envelope of an insertion need not have 'before'.
    lines = FileForm(
        ColumnPolicies("warn" if op else "null", "ignore", (form.op, *(("payload",) if form.wrapped else ())))
    )
    files = Files(
        path, format, form.physical, max_files_per_epoch, on_bad_file, options, identity,
        lines if format == "json" else None, fetch_to,
    )  # fmt: skip
    return ChangeFeed(files, form, subject)


class Files(Source):
    """See `files`."""

    origin = "files"
    patience = 2.0
    in_order = True

    def __init__(
        self,
        path: FilePath | Sequence[FilePath],
        format: Format,
        schema: str | None,
        max_files_per_epoch: int | None,
        on_bad_file: OnBadFile,
        options: Mapping[str, str] | None,
        identity: Identity = "path",
        form: FileForm | None = None,
        fetch_to: str | None = None,
    ) -> None:
        self._form = form = file_form(format) if form is None else form
        given = _listed(path)
        self._subject = _subject(given)
        self._trees = [file_listing.declared_tree(one, form.recursive) for one in given]
        self._access = file_listing.access_to(self._trees)
        self._fetched = FetchedFiles(self._subject, self._access, fetch_to)
        self._format = format
        self._zoned = format in ("json", "csv")
        """Whether the format allows times without a zone."""

        self._limit = max_files_per_epoch
        local = not any(isinstance(tree, file_listing.RemoteTree) for tree in self._trees)
        self._looks_ahead = local and format == "parquet" and identity == "path"
        """Whether tasks read the files, and to look at one takes no time."""

        self._skips = on_bad_file == "skip"
        self._check_declaration(on_bad_file, identity, options)
        self._options = {} if format == "parquet" else spark_files.checked_options(options or {}, format, self._subject)
        self._zone: str | None = None
        self._taken = Taken(identity, self._access)
        self.counts_once = True
        """Whether equal files count once, with identity "content"."""

        self._skipped: dict[str, File] = {}
        self._unrecorded: list[tuple[File, str]] = []
        self._offered: Offer | None = None
        self._behind = 0
        self._footers: dict[File, parquet_files.Footer] = {}
        self._ahead = SeenAhead()
        self._moved: dict[bytes, str] = {}
        self._warned = False
        self._spark: Any = None
        fields = self._first_schema() if schema is None else parse_schema(schema, subject=self._subject)
        for field in fields:
            arrow_type(field.type)
        self._said, self._inside = form.split(fields, self._subject)
        """The columns whose values are in directory names, and the columns inside the files."""

        self.keeps_rows = form.keeps_rows
        self.fields = fields
        if form.quarantine:
            self.versions = Quarantined(fields)
            self.fields = (*fields, *HIDDEN)

    def _check_declaration(self, on_bad_file: str, identity: str, options: object) -> None:
        if not self._trees:
            raise DeclarationError("files: the list of paths is empty")
        for name, value, choices in (
            ("format", self._format, get_args(Format)),
            ("on_bad_file", on_bad_file, get_args(OnBadFile)),
            ("identity", identity, get_args(Identity)),
        ):
            if value not in choices:
                known = ", ".join(map(repr, choices))
                raise DeclarationError(f"{self._subject}: {name} must be one of {known}, not {value!r}", name=name)
        limit = self._limit
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise DeclarationError(f"{self._subject}: max_files_per_epoch must be at least 1, not {limit!r}")
        if options is not None and not isinstance(options, Mapping):
            raise DeclarationError(f"{self._subject}: options must be a dict, not {options!r}")
        if options and self._format == "parquet":
            raise DeclarationError(f"{self._subject}: options are for json, csv and avro; parquet has none")

    def _first_schema(self) -> tuple[Field, ...]:
        if self._format != "parquet":
            raise SchemaError(
                f"{self._subject}: a schema is needed for {self._format}, e.g. schema='id long, name string', "
                "or schema='infer'"
            )
        first = next(iter(self._found()), None)
        if first is None:
            raise SchemaError(f"{self._subject}: there is no file yet to take the schema from; give schema='…'")
        found = parquet_files.read_footer(first.path, self._access).schema
        if self._form.partitioned_by:
            raise SchemaError(f"{self._subject}: with partitioned_by the schema must say the types; give schema='…'")
        return tuple(
            Field(field.name, spark_type(field.type, subject=f"file {first.path!r}: column {field.name!r}"))
            for field in found
        )

    # -- the contract of a source ---------------------------------------------------------------------------------

    def in_session(self, zone: str) -> None:
        if self._zone is None:
            self._zone = zone
        elif self._zone != zone and self._zoned and spark_files.ZONE not in self._options:
            _LOG.warning(
                "%s: times without a zone go on being read in %s, as they were so far, although the session is in %s; "
                "options={'timeZone': …} says it for new files",
                self._subject,
                self._zone,
                zone,
                extra={"zone": self._zone, "session_zone": zone},
            )

    def poll(self) -> Offer | None:
        if self._offered is None:
            self._offered = self._next_offer()
        return self._offered

    def upcoming(self) -> Offer | None:
        if not self._looks_ahead:
            return None
        backlog = self._found()
        some = backlog[: self._limit]
        # To look at many files takes long, and the epoch before waits for it.
        outcomes = _side_by_side(self._check, some) if 0 < len(some) <= _FEW else []
        sound = [each for each in outcomes if isinstance(each, Offered) and not any(self._taken.others(each))]
        self._ahead.saw(backlog, self._limit, sound)
        # Whatever is wrong with a file, the poll says.
        return offer_of(sound) if sound and len(sound) == len(outcomes) else None

    def advance(self, offer: Offer) -> None:
        offered = columns_of(offer)
        self._taken.add_all(offered)
        if self._skipped:
            for name in offered.names:
                self._skipped.pop(os.path.join(offered.under, name), None)
        for path, _, size, changed in offer.get("skipped", ()):
            self._skipped[path] = File(path, size, changed)
        recorded = {path for path, *_ in offer.get("skipped", ())}
        self._unrecorded = [(file, reason) for file, reason in self._unrecorded if file.path not in recorded]
        if self._zoned and spark_files.ZONE not in self._options:
            self._zone = self._options_of(offer).get(spark_files.ZONE, self._zone)
        if offer == self._offered:
            self._fetched.forget([os.path.join(offered.under, name) for name in offered.names])
        self._offered = None
        self._footers.clear()
        self._ahead.forget()

    def names(self, offer: Offer) -> list[str]:
        return [each.file.path for each in files_of(offer)]

    def without(self, offer: Offer, names: Collection[str]) -> Offer | None:
        return without_files(offer, names)

    def parts(self, offer: Offer) -> list[Part]:
        parts: list[Part] = []
        for file, mark in zip(self._files_now(offer), columns_of(offer).marks, strict=True):
            footer = self._footers.get(file) or parquet_files.read_footer(file.path, self._access)
            if footer.rows:
                values = values_in(file.path, self._said)
                said = tuple(zip(self._said, values, strict=True))
                parts += parquet_files.cut(file, footer, self.fields, said, self._form.lenient, self._access, mark)
        return parts

    def frame(self, spark: Any, offer: Offer) -> Any:
        return None if self._format == "parquet" else self._read(spark, offer)[0]

    def placed_frame(self, spark: Any, offer: Offer) -> Any:
        if self._format == "parquet":
            return None
        frame, paths = self._read(spark, offer, placed=True)
        return spark_files.in_place(frame, paths) if paths else frame

    def _read(self, spark: Any, offer: Offer, *, placed: bool = False) -> tuple[Any, list[str]]:
        """The rows of an offer as a frame, and the paths at which Spark reads its files, in the offer's order."""
        self._spark = spark
        files = self._files_now(offer)
        if not files:
            places = ", _path string, _offer bigint, _block bigint, _row bigint" if placed else ""
            return spark.createDataFrame([], _ddl(self.fields) + places), []
        marks = [each.mark for each in files_of(offer)]
        paths = self._fetched.fetch(spark, list(map(Offered, files, marks)))
        ddl, derived = _ddl(self._inside), bool(self._said) or self._form.quarantine
        if self._form.quarantine:
            ddl += f", {_ddl([BAD])}"
        frame = spark_files.read(
            spark, self._format, ddl, self._options_of(offer), paths, placed=placed or derived, subject=self._subject
        )
        spark_files.check_whole(frame, sum(file.size for file in files), self._subject)
        if derived:
            frame = frame.selectExpr(*self._columns(), *(("_path", "_block", "_row") if placed else ()))
        return frame, paths

    def _columns(self) -> list[str]:
        """The expressions that make the source's columns of the columns that Spark reads."""
        said = {field.name: spark_column(field) for field in self._said}
        columns = [said.get(field.name, quoted(field.name)) for field in (*self._inside, *self._said)]
        if not self._form.quarantine:
            return columns
        return [
            *columns,
            BAD.name,
            f"{self._fetched.origin_column(_DECODED)} AS {FILE.name}",
            reason_column(self._format, self._inside),
        ]

    def _options_of(self, offer: Offer) -> dict[str, str]:
        """The options with which an offer's files are read. An old offer without options is read with the declared ones
        and the zone UTC."""
        said: dict[str, str] | None = offer.get("options")
        return {spark_files.ZONE: "UTC", **self._options} if said is None else said

    def _options_now(self) -> dict[str, str]:
        return {spark_files.ZONE: self._zone or "UTC", **self._options} if self._zoned else self._options

    def size(self, offer: Offer) -> int:
        return sum(columns_of(offer).sizes)

    def fold(self, offers: Sequence[Offer]) -> list[Offer]:
        return fold_files(offers)

    def reject(self, offer: Offer, error: Exception) -> bool:
        file = self._culprit(offer, error)
        if file is None or (isinstance(error, HoldfastError) and "errno" in error.fields):
            return False
        if offer != self._offered:
            if isinstance(error, HoldfastError):
                return False
            raise self._bad_file(file, error) from error
        # No epoch took the offer: the next poll makes an offer of the files that are there then.
        self._offered = None
        self._ahead.forget()
        if not self._access.is_there(file.path):
            if self._skips:
                self._unrecorded.append((File(file.path, -1, -1), "it was removed before an epoch took it"))
                return True
            raise BadFile(
                f"file {file.path!r}: it was removed before an epoch took it, and none of its rows counts; put it back "
                "if it is wanted: the next step goes on with the files that are there then",
                path=file.path,
                removed=True,
            ) from error
        if self._skips:
            self._skip(file, error if isinstance(error, HoldfastError) else self._bad_file(file, error))
            return True
        if isinstance(error, HoldfastError):
            _advised(error)
            return False
        raise self._bad_file(file, error) from error

    def _culprit(self, offer: Offer, error: Exception) -> File | None:
        """The file of ``offer`` that ``error`` is about."""
        known = {offered.file.path: offered.file for offered in files_of(offer)}
        if isinstance(error, HoldfastError):
            return known.get(str(error.fields.get("path")))
        read = {self._fetched.place(path): file for path, file in known.items()}
        path = spark_files.named_in(str(error), list(read))
        return None if path is None else read[path]

    def waiting(self) -> int:
        return self._behind

    def there(self) -> list[File]:
        """The files that no epoch has taken, oldest first; none of them is opened."""
        return self._found()

    def readable(self, spark: Any) -> list[str]:
        """The paths at which Spark reads the files that no epoch has taken."""
        return self._fetched.fetch(spark, [Offered(file, b"") for file in self._found()])

    # -- offers ---------------------------------------------------------------------------------------------------

    def _found(self) -> list[File]:
        """All files that no epoch has taken and that are not skipped, oldest first."""
        found = {file.path: file for tree in self._trees for file in tree.unknown(self._taken.knows)}
        for passed in (*self._skipped.values(), *(file for file, _ in self._unrecorded)):
            if passed.path in found:
                try:
                    found[passed.path] = self._access.described(passed.path)
                except OSError:
                    del found[passed.path]
                    continue
                if found[passed.path] == passed:
                    del found[passed.path]
        if self._format in ("parquet", "avro"):
            found = {path: file for path, file in found.items() if file.size or self._access.size(path)}
        return sorted(found.values(), key=lambda file: (file.changed, file.path))

    def _next_offer(self) -> Offer | None:
        fresh = self._ahead.backlog() or self._found()
        taken: list[Offered] = []
        limit = self._limit or len(fresh)
        while fresh and len(taken) < limit:
            chunk, fresh = fresh[: limit - len(taken)], fresh[limit - len(taken) :]
            taken += self._sound(chunk, taken)
        self._ahead.forget()
        self._behind = len(fresh)
        if not taken and not self._unrecorded:
            return None
        offer = offer_of(taken)
        if self._format != "parquet":
            offer["options"] = self._options_now()
        if self._unrecorded:
            offer["skipped"] = [[file.path, reason, file.size, file.changed] for file, reason in self._unrecorded]
        return offer

    def _sound(self, chunk: list[File], taken: Sequence[Offered]) -> list[Offered]:
        """The files of ``chunk`` whose metadata is right. A file whose content was taken already is passed over; a bad
        file is skipped or, without ``on_bad_file="skip"``, raises."""
        sound: list[Offered] = []
        contents = {each.mark for each in taken}
        for path, outcome in zip((file.path for file in chunk), _side_by_side(self._check, chunk), strict=True):
            if isinstance(outcome, Offered):
                offered = outcome
                if self.counts_once and self._taken.has_content(offered, contents):
                    self._taken.pass_over(offered.file)
                    self._moved[offered.mark] = path
                    continue
                error = self._moved_from(offered)
                if error is None:
                    contents.add(offered.mark)
                    sound.append(offered)
                    continue
                outcome = error
            if not self._access.is_there(path):
                continue  # removed before it was offered: none of its rows was taken
            if not self._skips or "errno" in outcome.fields:
                raise _advised(outcome)
            self._skip(self._access.described(path), outcome)
        return sound

    def _check(self, found: File) -> Offered | HoldfastError:
        """The file as it is now, with its mark; or the error, if its footer, columns or directories are not right."""
        try:
            file = self._access.described(found.path)
            if self._format == "parquet" and not self._ahead.is_sound(file, partial(self._taken.mark, file.path)):
                footer = parquet_files.read_footer(file.path, self._access)
                parquet_files.check_schema(file.path, footer.schema, self._inside, self._form.lenient)
                self._check_columns(file.path, footer.schema.names)
                self._footers[file] = footer
            columns = self._columns_of(file) if self._form.policies.look else None
            if columns is not None:
                self._check_columns(file.path, columns)
            values_in(file.path, self._said)
            return Offered(file, self._taken.mark(file.path))
        except (InputError, SchemaError) as error:
            return error
        except OSError as error:
            if error.errno is None and _PACKED.search(str(error)):
                return BadFile(f"file {found.path!r}: it does not unpack ({error}); is it truncated?", path=found.path)
            return file_listing.unreadable(found.path, error)

    def _columns_of(self, file: File) -> Collection[str] | None:
        """The columns of a file that Spark reads; None if the format does not tell them."""
        if self._format == "json":
            return json_columns(file.path, self._access)
        return self._avro_header(file).columns if self._format == "avro" else None

    def _avro_header(self, file: File) -> AvroHeader:
        with self._access.opened(file.path) as opened:
            return read_header(opened, file.path)

    def _check_columns(self, path: str, found: Collection[str]) -> None:
        self._form.policies.check(path, found, [field.name for field in self._inside])

    def _moved_from(self, offered: Offered) -> FileMoved | None:
        """The error for a file that was taken at another path, and moved; else None. Logs a warning, once, if the file
        only may be a copy."""
        path = offered.file.path
        others = list(self._taken.others(offered))
        there = any(other.there for other in others)
        for other in others:
            if not other.there and (other.same_time or not (there or other.repeated or self._is_empty(offered.file))):
                return FileMoved(
                    f"file {path!r}: it was taken already, as {other.path!r}, and has been moved; its rows would count "
                    "twice. Move it back; or declare the source with identity='content', which knows files wherever "
                    "they are; or with on_bad_file='skip', which leaves it out. If it is another file that happens to "
                    f"be equal, and has a time of its own, have {other.path!r} there until this one was taken",
                    path=path,
                    before=other.path,
                )
            if offered.file.size and other.same_time == other.there and not self._warned:
                self._warned = True
                what = "is a copy of or link to" if other.there else "looks like"
                gone = "" if other.there else ", which is gone"
                _LOG.warning(
                    "file %r %s %r%s; both count, since identity='path' says that a file is its path (said once)",
                    path,
                    what,
                    other.path,
                    gone,
                    extra={"path": path, "before": other.path},
                )
        return None

    def _is_empty(self, file: File) -> bool:
        """Whether a file has no rows, as far as that can be found out without Spark."""
        if self._format == "parquet":
            return file in self._footers and self._footers[file].rows == 0
        if self._format == "avro":
            return self._avro_header(file).length == file.size
        return spark_files.is_empty(file.path, file.size, self._format, self._options, self._access)

    def _files_now(self, offer: Offer) -> list[File]:
        """The files of an offer, at their current paths. Raises `BadFile` if a file has changed."""
        if offer == self._offered:  # the offer was just made, so its marks are current
            files = [offered.file for offered in files_of(offer)]
            for file in files:
                if file not in self._footers:
                    file_listing.check_unchanged(file, self._access)
            return files
        return _side_by_side(self._found_again, files_of(offer))

    def _found_again(self, offered: Offered) -> File:
        file = offered.file
        try:
            file_listing.check_unchanged(file, self._access)
            if marked_as(file.path, offered.mark, self._access):
                return file
            raise BadFile(
                f"file {file.path!r}: it has the size and time of change of the file that was offered, but another "
                "content; put back the one that was there",
                path=file.path,
            )
        except BadFile:
            place = self._place_of(offered) or self._touched(offered)
            if place is None:
                raise
            return self._access.described(place)

    def _touched(self, offered: Offered) -> str | None:
        """The path of a file whose time of change differs but whose mark is the same; None if its mark differs."""
        path = offered.file.path
        sized = self._access.size(path) == offered.file.size
        return path if offered.mark and sized and marked_as(path, offered.mark, self._access) else None

    def _place_of(self, offered: Offered) -> str | None:
        """The current path of a file that has a mark of its whole content; None if it is not found."""
        for path in (offered.file.path, self._moved.get(offered.mark)):
            if path is not None and same_content(path, offered, self._access):
                return path
        for tree in self._trees if is_whole(offered.mark) else ():
            for file in file_listing.all_of(tree):
                if same_content(file.path, offered, self._access):
                    self._moved[offered.mark] = file.path
                    return file.path
        return None

    def _skip(self, file: File, error: HoldfastError) -> None:
        self._unrecorded.append((file, str(error)))

    def _bad_file(self, file: File, error: Exception) -> BadFile:
        reason = spark_files.reason(str(error))
        line, text = None, ""
        with suppress(Exception):  # without the line the error is still worth raising
            [path] = self._fetched.fetch(self._spark, [Offered(file, b"")])
            found = spark_files.first_bad_line(self._spark, self._format, _ddl(self._inside), self._options_now(), path)
            line, text = found or (None, "")
        where = f", line {line}" if line is not None else ""
        lines = ", or with on_bad_rows='quarantine'" if self._zoned else ""
        what = f": {shown(text)}" if text else ""
        return BadFile(
            f"file {file.path!r}{where}: it does not read as {self._format} ({reason}){what}. {_ADVICE}{lines}",
            path=file.path,
            reason=reason,
            line=line,
        )


def _advised(error: HoldfastError) -> HoldfastError:
    """Add to the error of a bad file that nothing of it counts and what to do, unless the message says so already."""
    if isinstance(error, BadFile | SchemaError) and "errno" not in error.fields and "on_bad_file" not in str(error):
        said = str(error)
        error.args = (f"{said}{'' if said.endswith('?') else '.'} {_ADVICE}",)
    return error


def _listed(path: FilePath | Sequence[FilePath]) -> list[FilePath]:
    return [path] if isinstance(path, str | os.PathLike | Location) else list(path)


def _subject(given: Sequence[FilePath]) -> str:
    named = [one.uri if isinstance(one, Location) else redaction.shown(os.fspath(one)) for one in given]
    return f"files {', '.join(map(repr, named))}"


def _ddl(fields: Sequence[Field]) -> str:
    return ", ".join(f"{quoted(field.name)} {ddl_type(field.type)}" for field in fields)


def _side_by_side(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    if len(items) == 1:
        return [work(items[0])]
    with ThreadPoolExecutor(min(_CHECKERS, len(items) or 1)) as pool:
        return list(pool.map(work, items))
