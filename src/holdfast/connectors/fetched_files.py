"""Copies of remote files on a local disk, for Spark to read: JSON, CSV and Avro are read by the JVM, which cannot use
the filesystems of pyarrow or fsspec.

The driver fetches the files of an offer when the offer is read, and removes the copies when an epoch took the offer.
Copies keep their names below the directory, since names say how a file is compressed and may have values of columns
(``date=…/``). Executors on other hosts must see the directory of the copies: on a cluster the user names it
(``fetch_to``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from holdfast.connectors.file_access import FileAccess
from holdfast.connectors.file_identity import marked_as
from holdfast.connectors.file_offer import Offered
from holdfast.errors import BadFile, InputError
from holdfast.foundation.atomic_files import temporary_name
from holdfast.foundation.os_errors import fix

_SIDE_BY_SIDE = 4
_BLOCK = 4 << 20


class FetchedFiles:
    """The fetched copies of one source's files."""

    def __init__(self, subject: str, access: FileAccess, fetch_to: str | None) -> None:
        self._subject = subject
        self._access = access
        self._parent = fetch_to
        self._directory: str | None = None

    def fetch(self, spark: Any, files: Sequence[Offered]) -> list[str]:
        """Copy the remote ones of ``files``, and return the path at which the JVM reads each file: its own, or that of
        its copy, which has the same mark."""
        remote = [each for each in files if self._access.is_remote(each.file.path)]
        if not remote:
            return [each.file.path for each in files]
        self._check_executors(spark)
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            list(pool.map(self._copy, remote))
        return [self.place(each.file.path) for each in files]

    def place(self, path: str) -> str:
        """The path at which the JVM reads a file: ``path`` itself, or the path of its copy."""
        if self._directory is None or not self._access.is_remote(path):
            return path
        scheme, _, rest = path.partition("://")
        return f"{self._directory}/{scheme}/{rest}"

    def origin_column(self, path: str) -> str:
        """A Spark expression for the path of the original file. ``path`` is the expression for the path that Spark
        read, which may be that of a copy."""
        if self._directory is None:
            return path
        length = len(self._directory) + 1
        inside = f"substring({path}, {length + 1})"
        escaped = self._directory.replace("\\", "\\\\").replace("'", "\\'")
        there = f"concat(substring_index({inside}, '/', 1), '://', substring({inside}, locate('/', {inside}) + 1))"
        return f"IF(startswith({path}, '{escaped}/'), {there}, {path})"

    def forget(self, paths: Sequence[str]) -> None:
        """Remove the copies of the files at ``paths``."""
        for path in paths if self._directory is not None else ():
            with suppress(OSError):
                if self._access.is_remote(path):
                    os.unlink(self.place(path))

    def _copy(self, offered: Offered) -> None:
        file, path = offered.file, self.place(offered.file.path)
        # Object stores keep times in seconds: within a second, a file may be replaced by another one of its size.
        if file.changed and _outside(path) == (file.size, file.changed) and marked_as(path, offered.mark):
            return
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            hidden = os.path.join(os.path.dirname(path), temporary_name())
            with self._access.opened(file.path) as source, open(hidden, "wb") as target:
                shutil.copyfileobj(source, target, _BLOCK)
            os.utime(hidden, ns=(file.changed, file.changed))
            if _outside(hidden)[0] != file.size or not marked_as(hidden, offered.mark):
                os.unlink(hidden)
                raise BadFile(
                    f"file {file.path!r}: it changed while it was fetched (then {file.size} bytes)", path=file.path
                )
            os.rename(hidden, path)
        except OSError as error:
            raise BadFile(
                f"file {file.path!r}: it cannot be fetched now: {fix(error)}; nothing of it counts until it can",
                path=file.path,
                errno=error.errno,
            ) from error

    def _check_executors(self, spark: Any) -> None:
        if self._directory is not None:
            return
        master = str(spark.sparkContext.master)
        if self._parent is None and not (master == "local" or master.startswith("local[")):
            raise InputError(
                f"{self._subject}: JSON, CSV and Avro files of another filesystem are fetched by the driver, and the "
                f"executors of {master} cannot see its disk; give fetch_to='…', a directory that all of them see. "
                "Parquet needs none: tasks read it where it is"
            )
        try:
            if self._parent is None:
                self._directory = tempfile.mkdtemp(prefix="holdfast-fetched-")
            else:
                self._directory = os.path.join(os.path.abspath(self._parent), f"fetched-{os.getpid()}-{id(self):x}")
                os.makedirs(self._directory, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self._subject}: no directory for fetched files can be made in "
                f"{self._parent or tempfile.gettempdir()!r}: {fix(error)}",
                errno=error.errno,
            ) from error
        weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)


def _outside(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns
