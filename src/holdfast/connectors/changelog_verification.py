"""Verification of a changelog's files: a file that was found whole after it had reached the disk is not read again.

A power cut damages files that had not reached the disk. The newest files are read whole whenever a changelog is opened
(`changelog_files.recent`). Older files have probably reached the disk, but not certainly: a machine may write late. So
each file is synced once and then read whole, and its pages are compared with their checksums; a power cut cannot damage
it after that. ``_progress/verified.json`` records up to which epoch files were verified.

Files are verified in the background, in order of epochs, at most `IN_A_PASS` bytes at a time. When a changelog is
opened, up to `AT_OPENING` bytes of files that are not verified are read, the newest first; the others are verified in
the background later. So opening costs the same however long the changelog is, and each file is read a bounded number of
times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.connectors.changelog_files import DataFile, is_torn, recent
from holdfast.connectors.changelog_progress import NAME
from holdfast.foundation.atomic_files import replace_file, sync_directory, sync_file

AT_OPENING = 256 << 20
IN_A_PASS = 64 << 20
"""Bytes."""

MANY = 1000
"""The greatest number of files that are read in a pass."""


class Verification:
    """The verification of the changelog in the directory ``path``. Methods let OSError through."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = path / NAME / "verified.json"
        self._upto = -1

    @property
    def upto(self) -> int:
        """The epoch up to which files were synced and then found whole; -1 if none were."""
        return self._upto

    def load(self) -> None:
        """Read up to which epoch files were verified. If the record is missing or damaged, all are verified again."""
        self._upto = -1
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            found = json.loads(self._record.read_bytes())
            if found["sum"] == _sum(found["upto"]):
                self._upto = int(found["upto"])

    def to_read(self, files: Sequence[DataFile]) -> set[DataFile]:
        """The files that are to be read whole when the changelog is opened."""
        found = recent(self._path, files)
        left = AT_OPENING
        for each in sorted(files, key=lambda each: each.last, reverse=True):
            if each in found or each.last <= self._upto:
                continue
            with suppress(FileNotFoundError):  # its consumer has removed it
                left -= (self._path / each.name).stat().st_size
                if left < 0:
                    break
                found.add(each)
        return found

    def go_on(self, files: Sequence[DataFile]) -> DataFile | None:
        """Verify some more files. Returns the first torn file that is found, or None."""
        upto, left = self._upto, IN_A_PASS
        torn = None
        unread = sorted((each for each in files if each.last > upto), key=lambda each: each.last)
        young = recent(self._path, unread)
        for each in unread[:MANY]:
            if each in young or left <= 0:
                break  # in order, so that one number says which files are verified
            path = self._path / each.name
            try:
                sync_file(path)
                left -= path.stat().st_size
                if is_torn(path, whole=True):
                    torn = each
                    break
            except FileNotFoundError:
                continue  # its consumer has removed it, or it was put together with others
            upto = each.last
        self._write(upto)
        return torn

    def forget(self, epoch: int) -> None:
        """Verify files from ``epoch`` on again: the file of that epoch was written again."""
        self._write(min(self._upto, epoch - 1))

    def _write(self, upto: int) -> None:
        if upto == self._upto:
            return
        sync_directory(self._path)
        replace_file(self._record, json.dumps({"sum": _sum(upto), "upto": upto}).encode())
        self._upto = upto


def _sum(upto: object) -> str:
    return hashlib.blake2b(json.dumps(upto).encode(), digest_size=8).hexdigest()
