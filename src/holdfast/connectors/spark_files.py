"""JSON, CSV and Avro files as Spark reads them: each path is taken literally, and all options are given explicitly.

**Paths.** Spark treats a path as a pattern: ``a[12].json`` would read ``a1.json`` and ``a2.json``. A path that could be
a pattern is escaped. Hadoop cannot resolve a pattern whose path has a colon; nor can it, with its checksums, open a
file with a colon in its name. So files with a colon are read through the plain local file system, and files with both
a colon and characters of a pattern are read one by one.

**Options.** An option that changes rows is passed on. An option is refused when the source is declared if it would
change which files are read or what a bad record means, or has no effect (Spark infers no schema here). The options are
part of the offer, with the time zone, so a replay in another session or after another declaration reads the same rows.

**Avro.** Spark's reader of Avro files is among Spark's own classes, but has no registered short name; the package
spark-avro only adds that name. So the reader is named by its class here, and no package is needed. Spark decides what
Avro types mean.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from typing import Any
from urllib.parse import unquote

from holdfast.connectors.bad_lines import find_line
from holdfast.connectors.file_access import FileAccess
from holdfast.errors import BadFile, DeclarationError, HoldfastError
from holdfast.foundation.nearest_name import did_you_mean


def _names(text: str) -> list[str]:
    return text.split()


_BOTH = _names("""
    timeZone dateFormat timeFormat timestampFormat timestampNTZFormat enableDateTimeParsingFallback locale
    multiLine lineSep encoding charset
""")
_JSON = _names("""
    allowComments allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros allowNonNumericNumbers
    allowBackslashEscapingAnyCharacter allowUnquotedControlChars maxNestingDepth maxNumLen maxStringLen
    explodeEmbeddedArray
""")
_CSV = _names("""
    sep delimiter header enforceSchema quote escape charToEscapeQuoteEscaping comment
    ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue emptyValue nanValue positiveInf negativeInf
    maxColumns maxCharsPerColumn unescapedQuoteHandling inputBufferSize
""")
_AVRO = _names("""
    datetimeRebaseMode enableStableIdentifiersForUnionType stableIdentifierPrefixForUnionType recursiveFieldMaxDepth
""")
_ACCEPTED = {"json": [*_BOTH, *_JSON], "csv": [*_BOTH, *_CSV], "avro": _AVRO}

_AVRO_CLASS = "org.apache.spark.sql.avro.AvroFileFormat"

_CHOOSING = _names(
    "path paths basePath pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter ignoreExtension"
)
_INFERRING = _names("""
    inferSchema samplingRatio preferDate prefersDate prefersDecimal primitivesAsString dropFieldIfAllNull
    inferTimestamp singleVariantColumn
""")
_WRITING = _names("""
    compression codec quoteAll escapeQuotes ignoreNullFields pretty writeNonAsciiCharacterAsCodePoint extension sortKeys
""")
_REFUSED = {
    **dict.fromkeys(["mode", "ignoreCorruptFiles", "ignoreMissingFiles"], "use on_bad_file to say what to do"),
    "columnNameOfCorruptRecord": "use on_bad_file to say what becomes of a file with a record that does not read",
    **dict.fromkeys(_CHOOSING, "which files are read is what the source's path says"),
    **dict.fromkeys(_INFERRING, "the schema is declared, and nothing is inferred"),
    **dict.fromkeys(_names("avroSchema avroSchemaUrl"), "the schema is declared: schema='id long, name string'"),
    "positionalFieldMatching": "columns go by their names",
    **dict.fromkeys(_names("columnPruning useUnsafeRow"), "it changes no value"),
    **dict.fromkeys(_WRITING, "it is an option for writing"),
}

ZONE = "timeZone"

_HEADER = 32 << 10
"""Bytes: the longest header line of a CSV file that is considered."""

_PLAIN = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
"""Options that make Spark read through Hadoop's local file system without checksum files."""

_PATTERN = re.compile(r"[\[\]{}*?\\]")
_ROOT = re.compile("^file:/+")
_URI = re.compile(r"file:/+([^\s\"'<>]*)")


def checked_options(given: Mapping[str, object], format: str, subject: str) -> dict[str, str]:
    """The options with Spark's spelling of their names and values. Raises `DeclarationError` for an option that is not
    accepted (see the top of this file)."""
    known = {name.lower(): name for name in _ACCEPTED[format]}
    refused = {name.lower(): reason for name, reason in _REFUSED.items()}
    options: dict[str, str] = {}
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str | bool | int | float):
            raise DeclarationError(
                f"{subject}: options must be texts, numbers or booleans by name, not {key!r}: {value!r}", option=key
            )
        low = key.lower()
        if low not in known:
            hint = f"; {refused[low]}" if low in refused else did_you_mean(key, list(known.values()))
            hint = hint or f"; {format} has {', '.join(sorted(known.values()))}"
            raise DeclarationError(f"{subject}: option {key!r} cannot be set{hint}", option=key)
        if known[low] in options:
            raise DeclarationError(f"{subject}: option {key!r} is there twice", option=key)
        options[known[low]] = str(value).lower() if isinstance(value, bool) else str(value)
    return options


def read(
    spark: Any,
    format: str,
    ddl: str,
    options: Mapping[str, str],
    paths: Sequence[str],
    *,
    placed: bool = False,
    subject: str = "files",
) -> Any:
    """The rows of exactly the files at ``paths``, as a DataFrame; with ``placed`` also the file, block and number of
    each row. If ``ddl`` has a column ``_bad``, lines that do not read are rows, too, with their text in that column."""
    plain = [path for path in paths if not _PATTERN.search(path)]
    patterns = [path for path in paths if _PATTERN.search(path)]
    together = [_escaped(path) for path in patterns if ":" not in path]
    alone = [path for path in patterns if ":" in path]
    frames = []
    if plain or together:
        colons = _PLAIN if any(":" in path for path in plain) else {}
        # A pattern is resolved component by component, so colons in other paths of the list do no harm.
        frames.append(_frame(spark, format, ddl, {**options, **colons}, [*plain, *together], placed, subject))
    for path in alone:
        # With several paths Spark (4.3) reads all of them again for each path that looks like a pattern.
        alike = {**options, **_PLAIN, "__globPaths__": "false"}
        frames.append(_frame(spark, format, ddl, alike, [path], placed, subject))
    return reduce(lambda one, other: one.union(other), frames)


def in_place(frame: Any, paths: Sequence[str]) -> Any:
    """Turn a frame that `read` made with ``placed`` into one with three columns that give the order of its rows
    (``_offer``: the file's place in ``paths``; ``_block`` in the file; ``_row``, which Spark numbers as it reads) and
    with the path of the file (``_path``)."""
    places = {path: number for number, path in enumerate(paths)}
    known = [(_ROOT.sub("/", url), places[_path_of(url)]) for url in frame.inputFiles()]
    files = frame.sparkSession.createDataFrame(known, "_url string, _file bigint").hint("broadcast")
    marked = frame.withColumnRenamed("_path", "_url").join(files, "_url", "left")
    # A row whose file is not in ``paths`` must raise, not vanish.
    lost = "raise_error(concat('a file of no offer: ', _url))"
    found = marked.selectExpr("*", "_url AS _path", f"coalesce(_file, CAST({lost} AS bigint)) AS _offer")
    return found.drop("_url", "_file")


def _path_of(url: str) -> str:
    found = _URI.fullmatch(url)
    return url if found is None else f"/{unquote(found.group(1), errors='surrogateescape')}"


def check_whole(frame: Any, size: int, subject: str) -> None:
    """Raise `BadFile` unless Spark finds ``size`` bytes in the files of a frame. To Java a file that it cannot look at
    is empty, and Spark would read no rows of it."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = sum(leaves.apply(place).relation().location().sizeInBytes() for place in range(leaves.size()))
    if found != size:
        raise BadFile(
            f"{subject}: Spark finds {found:,} bytes in the files of an epoch, which have {size:,}: one of them cannot "
            "be looked at now; nothing of them counts until it can",
            errno=errno.EIO,
        )


def first_bad_line(
    spark: Any, format: str, ddl: str, options: Mapping[str, str], path: str
) -> tuple[int | None, str] | None:
    """The first line of a file that does not read or fit: its number (None if it is not found again) and its text. None
    if there is no such line, or lines cannot be told apart (``multiLine``, Avro)."""
    if options.get("multiLine") == "true" or format == "avro":
        return None
    frame = read(spark, format, f"{ddl}, `_bad` string", options, [path])
    found = frame.filter("_bad IS NOT NULL").limit(1).collect()
    return (find_line(path, found[0]["_bad"]), found[0]["_bad"]) if found else None


def is_empty(path: str, size: int, format: str, options: Mapping[str, str], access: FileAccess) -> bool:
    """Whether a file has no rows: it holds only blank lines and, in CSV with a header, one other line."""
    if size > _HEADER:
        return False
    with access.opened(path) as file:
        lines = [line for line in file.read(_HEADER).splitlines() if line.strip()]
    return len(lines) <= (format == "csv" and options.get("header") == "true")


def _frame(
    spark: Any,
    format: str,
    ddl: str,
    options: Mapping[str, str],
    paths: list[str],
    placed: bool = False,
    subject: str = "files",
) -> Any:
    lenient = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"}
    strict = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
    fixed = {**strict, **(lenient if "`_bad`" in ddl else {"mode": "FAILFAST"})}
    given = {"enforceSchema": "false", **options, **fixed}
    tried = (format, *sorted(given.items()))
    with refusing(subject, paths) if tried not in _TRIED else nullcontext():
        frame = load(spark.read.schema(ddl).options(**given), format, paths)
        if tried not in _TRIED:
            # Spark checks the values of options only when it is about to read.
            frame._jdf.queryExecution().toRdd()
            _TRIED.add(tried)
    return frame.selectExpr("*", *_WHERE) if placed else frame


_TRIED: set[tuple[object, ...]] = set()
"""The options that Spark has accepted in this process."""


@contextmanager
def refusing(subject: str, paths: Sequence[str]) -> Iterator[None]:
    """Raise `DeclarationError` for an error of Spark's that names none of ``paths``: Spark then refused the options
    before it read a file."""
    try:
        yield
    except Exception as error:
        java = getattr(error, "java_exception", None)
        said = reason(" ".join((str(error) if java is None else str(java.getMessage())).split()))
        if isinstance(error, HoldfastError) or named_in(str(error), paths) is not None:
            raise
        raise DeclarationError(
            f"{subject}: Spark refuses these options: {said.removeprefix('requirement failed: ')}", reason=said
        ) from None


def load(reader: Any, format: str, paths: Sequence[str]) -> Any:
    """The DataFrame that ``reader``, a DataFrameReader of Spark's, makes of the files at ``paths``."""
    listed = list(paths)
    if format == "avro":
        return reader.format(_AVRO_CLASS).option("ignoreExtension", "true").load(listed)
    return reader.json(listed) if format == "json" else reader.csv(listed)


_WHERE = (
    "regexp_replace(_metadata.file_path, '^file:/+', '/') AS _path",
    "_metadata.file_block_start AS _block",
    "monotonically_increasing_id() AS _row",
)


def _escaped(path: str) -> str:
    return _PATTERN.sub(lambda found: f"\\{found.group()}", path)


def named_in(text: str, paths: Sequence[str]) -> str | None:
    """The one of ``paths`` that an error of Spark's is about; None if there is none. Spark names a file as a URI or, if
    it was not found, by its path."""
    known = set(paths)
    for found in _URI.finditer(text):
        path = f"/{unquote(found.group(1), errors='surrogateescape')}"
        while path:  # the name may be followed by punctuation
            if path in known:
                return path
            path = path[:-1] if path[-1:] in ".,;:)]'" else ""
    # One path may be the beginning of another, so the longest counts.
    return max((path for path in known if path in text), key=len, default=None)


def reason(text: str) -> str:
    """The sentence in Spark's error that says what was wrong, without the file, the stack trace and the SQL state."""
    avro = re.findall(r"Caused by: [\w.$]*(?:IncompatibleSchema|Avro\w*)Exception: ([^\n]*)", text)
    if avro:
        return str(avro[-1]).strip()
    sentences = re.findall(r"\[([A-Z][A-Z_.0-9]+)\] ([^\n]*)", text)
    told = [sentence for condition, sentence in sentences if not condition.startswith("FAILED_READ_FILE")]
    causes = re.findall(r"^Caused by: [\w.$]+: (.*(?:\n(?!\s+at |\s*\.\.\. |Caused by).+)*)", text, re.M)
    plain = [" ".join(cause.split()) for cause in causes if not cause.startswith("[")]
    sentence = told[-1] if told else plain[-1] if plain else text.split("\n", 1)[0]
    sentence = re.sub(r"\s*CSV file: \S+", "", sentence)
    return re.sub(r"\s*SQLSTATE:? \w+.*", "", sentence).strip()
