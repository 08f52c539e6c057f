"""A directory of Parquet files as a sink: one file per epoch that changed the view, written whole or not at all.

``epoch-000000000042.parquet`` holds the view's columns, ``_epoch`` and ``_diff``; adding up ``_diff`` over all files
gives the view. An epoch that changed nothing leaves no file. ``_progress/`` records which epochs were delivered
(`changelog_progress.py`), apart from the data: a consumer may delete data files that it has read.

A commit has three steps, and can be finished after a crash between any two of them:

1. the rows are written to a file with a hidden name, with their lineage in the file's metadata (invariant 6, causal);
2. the epoch's record is linked into ``_progress``: from now on the epoch is delivered, and no other driver can
   deliver it;
3. the file is renamed to its visible name. If a crash prevents that, the next opening renames the hidden file that a
   record names.

Tasks write the rows of large changes themselves, as parts that the commit joins to the one file
(`changelog_parts.py`).

Files are not synced to disk, so a power cut may tear the last ones. A torn record is set aside, and so is a torn data
file at the end that no record names; their epochs are delivered again. Any other torn data file is restored from the
view's log (`Sink.restore`), and the damaged file is kept in ``_damaged/``. A file that cannot be read because of an
error of the file system is left alone, and the error is raised. All files but the newest are synced and verified in the
background, each once (`changelog_verification.py`).

The file is long because each step of a commit is next to the code that finishes it after a crash.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.connectors.changelog_compaction import put_together
from holdfast.connectors.changelog_files import DataFile, is_torn, leftover, listed, metadata_of
from holdfast.connectors.changelog_parts import ChangelogParts, epochs_of, in_form, write_file
from holdfast.connectors.changelog_progress import DAMAGED, ChangelogProgress, DeliveryRecord, Torn, set_aside
from holdfast.connectors.changelog_verification import Verification
from holdfast.connectors.part_writer import PartWriter
from holdfast.connectors.row_ids import ID
from holdfast.connectors.sink import LostEpochs, Sink
from holdfast.errors import DeclarationError, Fenced, SinkError
from holdfast.foundation import arguments
from holdfast.foundation.atomic_files import temporary_path
from holdfast.foundation.os_errors import fix
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.reporting.redaction import logger

_LOG = logger("holdfast.sinks")

_LINEAGE, _VIEW, _FIELDS = b"holdfast.lineage", b"holdfast.view", b"holdfast.fields"
_RELEASED = b"holdfast.released"
_OLD_HIDDEN = re.compile(r"\.epoch-\d{12}\.parquet\.\d{1,7}\.tmp")
"""The hidden names of old versions of Holdfast, which end with the number of the process."""

_HIDDEN = re.compile(r"\.epoch.*\.tmp")
_ABANDONED = 3600.0
"""Seconds: a hidden file of that age that no record names does not belong to a driver that still runs."""


def changelog(path: str | os.PathLike[str], *, compact: int | None = None, ids: bool = False) -> Changelog:
    """Write a view's changes to the directory ``path``, as Parquet, exactly once: a file per epoch that has any.

    A consumer may delete the files of epochs that it has read. Or the flow keeps the number of files small: with
    ``compact=64``, files of older epochs are put together 64 at a time, again and again, and the newest 64 epochs stay
    as they are. Rows keep their ``_epoch`` and ``_diff``. Then a consumer must expect files
    ``epochs-<first>-<last>.parquet``, which replace files that it may have read already (docs/format.md says how to
    read such a directory).

    With ``ids`` each row has a stable id, ``_id``, and is one copy: ``_diff`` is 1 or -1. All files of a directory have
    ids, or none has."""
    return Changelog(path, compact=compact, ids=ids)


class Changelog(Sink):
    """See `changelog`."""

    keeps_lineage = True

    def __init__(self, path: str | os.PathLike[str], *, compact: int | None = None, ids: bool = False) -> None:
        self.ids = arguments.flag("changelog", "ids", ids)
        if compact is not None and (not isinstance(compact, int) or isinstance(compact, bool) or compact < 2):
            raise DeclarationError(f"changelog: compact must be a number of files from 2 on, or None, not {compact!r}")
        self._factor = compact
        self.path = Path(os.path.abspath(os.path.expanduser(arguments.path("changelog", "path", path))))
        self._view = ""
        self._schema = pa.schema([])
        self._fields = "[]"
        self._progress = ChangelogProgress(self.path)
        self._verification = Verification(self.path)
        self._parts = ChangelogParts(self.path)
        self._last = -1
        self._start = -1
        self._released = -1
        self._lost: list[LostEpochs] = []

    @property
    def compact(self) -> int | None:
        """The number of files that are put together at a time; None if files are not put together."""
        return self._factor

    def target(self) -> str:
        return os.path.realpath(self.path)

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, view: str, fields: tuple[Field, ...]) -> int | None:
        self._view = view
        for field in fields:
            if field.name.lower() in ("_epoch", "_diff"):
                raise self._error(f"the changelog has a column {field.name!r} of its own; rename the view's")
        fields = (*fields, Field(ID, "string")) if self.ids else fields
        self._schema = _schema_of(fields)
        self._fields = json.dumps([[field.name, field.type] for field in fields])
        with self._system("cannot use the directory"):
            if self.path.is_file():
                raise self._error(f"{self.path} is a file, and a changelog is a directory; give another path")
            self.path.mkdir(parents=True, exist_ok=True)
        if not os.access(self.path, os.W_OK):
            raise self._error(f"cannot write to {self.path}: permission denied")
        with self._system("cannot read what it has, and leaves it as it is"):
            self._check_owner()
            self._progress.create()
            records = self._progress.load()
            for record in records:
                self._publish(record)
            self._remove_hidden({record.file for record in records})
            self._parts.open(_ABANDONED)
            self._last = records[-1].epoch if records else -1
            self._released = records[-1].released if records else -1
            files = self._without_leftovers()
            self._start = records[-1].start if records else min((each.first for each in files), default=-1)
            self._find_torn(files)
        return self._last

    def _check_owner(self) -> None:
        """Raise `SinkError` if the directory holds records or files of another view. Changes nothing."""
        for epoch in reversed(self._progress.epochs()):
            with suppress(Torn):  # `load` sets torn records aside
                if (record := self._progress.read(epoch)) is not None:
                    self._check_view(record.view, record.fields)
                    break
        for file in reversed(listed(self.path)):
            try:
                said = metadata_of(self.path / file.name)
            except FileNotFoundError:
                continue
            if said is not None:
                self._check_metadata(self.path / file.name, said)
                break

    def _check_metadata(self, path: Path, said: dict[bytes, bytes]) -> None:
        if _VIEW not in said:
            raise self._error(f"{path} was not written by Holdfast; give the changelog a directory of its own")
        self._check_view(said[_VIEW].decode(), said.get(_FIELDS, b"[]").decode())

    def _check_view(self, view: str, fields: str) -> None:
        if view != self._view:
            raise self._error(f"{self.path} holds the changelog of view '{view}'; give each view its own", found=view)
        if fields != self._fields:
            there, now = (
                ", ".join(f"{name} {kind}" for name, kind in json.loads(text)) for text in (fields, self._fields)
            )
            raise self._error(
                f"{self.path} holds its changelog with other columns: there ({there}), now ({now}); "
                f"let go of it (flow.unsink('{self._view}')) and use another directory for the new form of the view"
            )

    def _without_leftovers(self) -> list[DataFile]:
        """The data files. Files whose epochs a larger file holds are removed: they were put together, and a crash came
        before they were removed."""
        files = listed(self.path)
        gone = set()
        for each in leftover(files):
            larger = [other for other in files if other.holds(each)]
            if not any(is_torn(self.path / other.name, whole=True) for other in larger):
                (self.path / each.name).unlink(missing_ok=True)
                gone.add(each)
        return [each for each in files if each not in gone]

    def _find_torn(self, files: Sequence[DataFile]) -> None:
        """Find files that a power cut has torn. Torn files at the end that no record names were not delivered and are
        set aside; any other torn file is lost, and is restored."""
        self._lost = []
        self._verification.load()
        checked = self._verification.to_read(files)
        tail = True
        for each in sorted(files, key=lambda each: each.last, reverse=True):
            path = self.path / each.name
            try:
                torn = is_torn(path, whole=each in checked)
            except FileNotFoundError:
                continue  # its consumer has removed it
            if not torn:
                self._last = max(self._last, each.last)
                tail = False
            elif tail and each.last > self._last:
                set_aside(path, self.path / DAMAGED)
            else:
                self._lost.append(LostEpochs(each.first, each.last, self._start, str(path)))

    def _remove_hidden(self, named: set[str]) -> None:
        """Remove hidden files of commits that a crash broke off. A young hidden file is kept: another driver may still
        be writing it."""
        for name in os.listdir(self.path):
            path = self.path / name
            if name in named or not _HIDDEN.fullmatch(name):
                continue
            with suppress(FileNotFoundError):
                if _OLD_HIDDEN.fullmatch(name) or time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()

    # -- commits ------------------------------------------------------------------------------------------------------

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        def write(file: DataFile) -> Path:
            return self._write(file, change.append_column("_epoch", epochs_of(change, epoch)), lineage)

        with self._system(f"epoch {epoch}: cannot write to {self.path}", epoch=epoch):
            self._commit(epoch, change.num_rows, write, lineage)

    def part_writer(self, view: str, fields: tuple[Field, ...]) -> PartWriter | None:
        return self._parts.writer(_schema_of(fields))

    def commit_parts(self, epoch: int, parts: Sequence[Any], change: pa.Table, lineage: bytes) -> None:
        rest = in_form(change, self._schema, epochs_of(change, epoch))
        rows = change.num_rows + sum(count for _, count in parts)

        def write(file: DataFile) -> Path:
            return self._parts.join([path for path, _ in parts], rest, self._pairs(lineage), file.name)

        with self._system(f"epoch {epoch}: cannot write to {self.path}", epoch=epoch):
            self._commit(epoch, rows, write, lineage)

    def drop_parts(self, attempt: str) -> None:
        with self._system("cannot remove parts that are not needed any more"):
            self._parts.drop(attempt)

    def close(self) -> None:
        with suppress(OSError):
            self._parts.close()

    def _commit(self, epoch: int, rows: int, write: Callable[[DataFile], Path], lineage: bytes) -> None:
        """Deliver an epoch. ``write`` writes its rows to a file with a hidden name, and returns the path."""
        file = DataFile(epoch, epoch)
        start = self._start if self._start >= 0 else epoch
        record = DeliveryRecord(epoch, self._view, self._fields, rows, "", start, self._released, lineage)
        hidden: Path | None = None
        if rows and not self._is_there(file, lineage):
            hidden = write(file)
            record = replace(record, file=hidden.name)
        try:
            held = self._progress.claim(record)
        except BaseException:
            if hidden is not None and self._surely_not(record):
                hidden.unlink(missing_ok=True)
            raise
        if held is not None:
            if hidden is not None:
                hidden.unlink(missing_ok=True)
            self._check_same(epoch, lineage, held.view, held.lineage)
            record = held
        self._publish(record)
        self._last, self._start = max(self._last, record.epoch), record.start
        with suppress(OSError, Torn):
            # The epoch is delivered. Records that are not removed now are removed with the next commit.
            self._progress.trim(self._released)
        if self._factor is not None and (epoch + 1) % self._factor == 0 and not self.lost():
            self._compact(self._factor)

    def _compact(self, factor: int) -> None:
        """Put older files together. A failure is only logged: the epoch is delivered already."""
        try:
            # Files with lineage that is durable nowhere else stay as they are; so do the newest epochs.
            put_together(self.path, factor, min(self._released, self._last - factor), self._write_together)
        except (OSError, pa.ArrowException) as error:
            _LOG.warning(
                "changelog %s: files were not put together, and will be: %s",
                self.path,
                error,
                extra={"path": str(self.path), "error": str(error)},
            )

    def _write_together(self, file: DataFile, rows: pa.Table, newest: dict[bytes, bytes]) -> Path:
        return self._write(file, rows, _lineage_in(newest))

    def _is_there(self, file: DataFile, lineage: bytes) -> bool:
        """Whether the file of this epoch is there already, because its record was lost in a power cut or was deleted.
        Raises if the file is of another view or another driver."""
        path = self.path / file.name
        try:
            said = metadata_of(path)
        except FileNotFoundError:
            return False
        if said is None:
            return False
        self._check_metadata(path, said)
        self._check_same(file.first, lineage, self._view, _lineage_in(said))
        return True

    def _surely_not(self, record: DeliveryRecord) -> bool:
        """Whether a record is certainly not there after writing it has raised."""
        try:
            there = self._progress.read(record.epoch)
        except (OSError, Torn):
            return False
        return there is None or there.file != record.file

    def _publish(self, record: DeliveryRecord) -> None:
        if record.file:
            with suppress(FileNotFoundError):  # already published, and maybe removed by its consumer since
                os.rename(self.path / record.file, self.path / DataFile(record.epoch, record.epoch).name)

    def _write(self, file: DataFile, change: pa.Table, lineage: bytes) -> Path:
        """Write a data file under a hidden name. It is renamed to its visible name when the record that names it is
        there: a crash between the two steps must not lose it."""
        table = in_form(change, self._schema, change.column("_epoch"))
        with temporary_path(self.path, file.name) as hidden:
            write_file(table.replace_schema_metadata(self._pairs(lineage)), hidden)
        return hidden

    def _pairs(self, lineage: bytes) -> dict[bytes, bytes]:
        """The key-value pairs in a file's footer. Their values are texts: readers in other languages would garble raw
        bytes."""
        return {
            _VIEW: self._view.encode(),
            _FIELDS: self._fields.encode(),
            _RELEASED: str(self._released).encode(),
            _LINEAGE: base64.b64encode(lineage),
        }

    def _check_same(self, epoch: int, lineage: bytes, view: str, there: bytes) -> None:
        """Check that the delivery of this epoch that is there already comes from another attempt at the same commit.
        Raises `SinkError` if it is of another view, `Fenced` if it is of another driver."""
        if view != self._view:
            raise self._error(
                f"{self.path} holds the changelog of view '{view}'; give each view its own", epoch=epoch, found=view
            )
        # Attempts differ in how much lineage they carry, which depends on what was durable then; the last record of the
        # lineage is the same for all attempts at a commit.
        mine = _lines(lineage)[-1:]
        if there != lineage and not (mine and mine[0] in _lines(there)):
            raise Fenced(
                f"view '{self._view}': {self.path} has epoch {epoch} of another driver, which has taken over; "
                "this one must stop, and nothing that it did since counts",
                view=self._view,
                epoch=epoch,
            )

    def taken(self) -> int | None:
        with self._system("cannot read what it has"):
            records = self._progress.load()
            for record in records:
                self._publish(record)
        return max([self._last, *(record.epoch for record in records)])

    # -- lineage ------------------------------------------------------------------------------------------------------

    def lineage(self) -> bytes:
        with self._system("cannot read its lineage"):
            records = self._progress.load()
            given = [record.lineage for record in records]
            given += self._in_footers(records[-1].epoch if records else -1)
        lines = dict.fromkeys(line for each in given for line in _lines(each))
        return b"".join(line + b"\n" for line in lines)

    def _in_footers(self, after: int) -> list[bytes]:
        """The lineage in the files of epochs after ``after``, as far as it was not durable elsewhere, oldest first."""
        found: list[bytes] = []
        released = -1
        for file in reversed(listed(self.path)):
            if file.last <= max(after, released):
                break
            try:
                said = metadata_of(self.path / file.name)
            except FileNotFoundError:
                continue
            if said is None:
                continue
            if not found:
                # A file without this entry carries all lineage that was not durable then, so the newest is enough.
                released = int(said.get(_RELEASED, str(file.last - 1).encode()))
            found.append(_lineage_in(said))
        return found[::-1]

    def release_lineage(self, upto: int) -> None:
        self._released = max(self._released, upto)

    # -- what was lost ------------------------------------------------------------------------------------------------

    def lost(self) -> Sequence[LostEpochs]:
        # A damaged file that is gone now was removed by its consumer, and need not be restored.
        return tuple(lost for lost in self._lost if os.path.lexists(lost.what))

    def restore(self, lost: LostEpochs, change: pa.Table, lineage: bytes) -> None:
        file = DataFile(lost.first, lost.last)
        final, aside = self.path / file.name, self.path / DAMAGED
        with self._system(f"cannot restore {final}", first=lost.first, last=lost.last):
            hidden = self._write(file, change, lineage)
            aside.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                os.link(final, aside / f"{final.name}.{uuid.uuid4().hex[:8]}")
            os.replace(hidden, final)
            self._verification.forget(lost.first)
        self._lost.remove(lost)

    def maintain(self) -> None:
        if self.lost():
            return  # lost epochs are restored first
        with self._system("cannot verify what it has"):
            torn = self._verification.go_on(listed(self.path))
        if torn is not None:
            self._lost.append(LostEpochs(torn.first, torn.last, self._start, str(self.path / torn.name)))

    # -- errors -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _system(self, what: str, **fields: object) -> Iterator[None]:
        """Raise errors of the file system as `SinkError`. They say nothing about what the files hold, so no file is
        changed because of them."""
        try:
            yield
        except Torn as error:
            raise self._error(f"{what}: {error}; close the flow and open it again", **fields) from error
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise self._error(f"{what}: {fix(error)}{where}", **fields) from error

    def _error(self, what: str, **fields: object) -> SinkError:
        return SinkError(f"view '{self._view}': {what}", view=self._view, path=str(self.path), **fields)


def committed(path: Path) -> list[int]:
    """The epochs that have a file of their own in the changelog at ``path``, in order."""
    return [file.first for file in listed(path) if file.first == file.last]


def delivered(path: Path) -> int:
    """The last epoch that the changelog at ``path`` was given, with or without rows; -1 if there is none."""
    files = listed(path) if path.exists() else []
    return max([*ChangelogProgress(path).epochs(), *(file.last for file in files)], default=-1)


def lineage_of(path: Path, epoch: int) -> bytes:
    """The lineage that was committed with ``epoch``; empty if neither its file nor its record is there any more."""
    try:
        return _lineage_in(metadata_of(path / DataFile(epoch, epoch).name) or {})
    except FileNotFoundError:
        record = ChangelogProgress(path).read(epoch)
        return b"" if record is None else record.lineage


def _schema_of(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])


def _lineage_in(said: dict[bytes, bytes]) -> bytes:
    return base64.b64decode(said.get(_LINEAGE, b""))


def _lines(lineage: bytes) -> list[bytes]:
    return [line for line in lineage.split(b"\n") if line]
