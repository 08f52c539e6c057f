"""The delivered epochs of a changelog: a directory of small records, apart from the data files, which consumers delete.

``_progress/000000000042.json`` says that epoch 42 was delivered: the view, the number of rows, the hidden name of the
file with the rows, and the lineage that came with the epoch. A record is created by a link, which fails if that epoch
has a record already; so if two drivers commit an epoch at once only one succeeds, whether the epoch has rows or not.

Invariant: the newest record is never removed. Older records are removed as soon as their lineage is durable elsewhere.
As long as it is not (the log's storage cannot be reached), `CHUNK` records at a time become one file
``<first>-<last>.json``, once: so ``n`` epochs cost O(n) bytes and n / `CHUNK` files.

A record holds its checksum. A record whose checksum does not match was torn by a power cut, and is set aside. Any other
error says nothing about the record, and is raised.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from holdfast.foundation.atomic_files import create_file, remove_temporary, replace_file

NAME = "_progress"
DAMAGED = "_damaged"
CHUNK = 64
_RECORD = re.compile(r"(?:(\d{12})-)?(\d{12})\.json")


class Torn(Exception):
    """A record whose checksum does not match, or that does not parse."""


@dataclass(frozen=True)
class DeliveryRecord:
    """One delivered epoch; for a chunk of records, its last epoch, with the lineage of all its epochs."""

    epoch: int
    view: str
    fields: str
    """The view's columns, as JSON."""

    rows: int
    file: str
    """The hidden name under which the rows were written before they were published; empty if there are no rows."""

    start: int
    """The first epoch that the changelog was ever given."""

    released: int
    """The epoch up to which lineage was durable elsewhere."""

    lineage: bytes

    def to_bytes(self) -> bytes:
        body = {**asdict(self), "lineage": base64.b64encode(self.lineage).decode()}
        return json.dumps({"sum": _sum(body), **body}).encode()

    @staticmethod
    def from_bytes(data: bytes) -> DeliveryRecord:
        """Parse a record. Raises `Torn` if the data are damaged."""
        try:
            body = json.loads(data)
            if body.pop("sum") != _sum(body):
                raise Torn("a record of a changelog does not have its checksum")
            return DeliveryRecord(**{**body, "lineage": base64.b64decode(body["lineage"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Torn(f"a record of a changelog does not read: {error}") from None


class ChangelogProgress:
    """The records in the changelog's directory ``path``. Methods let OSError through."""

    def __init__(self, path: Path) -> None:
        self._directory = path / NAME
        self._damaged = path / DAMAGED

    def create(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        remove_temporary(self._directory)

    def epochs(self) -> list[int]:
        """The epochs of all records, in order; for a chunk of records, its last epoch."""
        return [last for _, last in self._spans()]

    def _spans(self) -> list[tuple[int, int]]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        found = [match for name in names if (match := _RECORD.fullmatch(name))]
        return sorted((int(match[1] or match[2]), int(match[2])) for match in found)

    def read(self, epoch: int) -> DeliveryRecord | None:
        """The record of an epoch; None if there is none. Raises `Torn` if it is damaged."""
        return self._read(epoch, epoch)

    def _read(self, first: int, last: int) -> DeliveryRecord | None:
        try:
            return DeliveryRecord.from_bytes(self._path(first, last).read_bytes())
        except FileNotFoundError:
            return None

    def load(self) -> list[DeliveryRecord]:
        """All records, in order. Torn records are set aside."""
        found = []
        for first, last in self._spans():
            try:
                record = self._read(first, last)
            except Torn:
                set_aside(self._path(first, last), self._damaged)
                continue
            if record is not None:
                found.append(record)
        return sorted(found, key=lambda record: record.epoch)

    def claim(self, record: DeliveryRecord) -> DeliveryRecord | None:
        """Write a record, and return None. If the epoch or a later one has a record already, return the newest record
        instead, and leave none of this epoch."""
        final = self._path(record.epoch, record.epoch)
        if (newest := self._newest(record.epoch)) is not None:
            return newest
        if not create_file(final, record.to_bytes()):
            return self._newest(record.epoch)
        later = self._newest(record.epoch + 1)
        if later is not None:
            # Another driver has delivered later epochs, and has removed its own record of this epoch.
            final.unlink(missing_ok=True)
        return later

    def _newest(self, since: int) -> DeliveryRecord | None:
        later = [span for span in self._spans() if span[1] >= since]
        return self._read(*later[-1]) if later else None

    def trim(self, released: int) -> None:
        """Remove records of epochs up to ``released``, except the newest one, and fold older records into chunks."""
        spans = self._spans()
        kept = []
        for span in spans[:-1]:
            if span[1] <= released:
                self._path(*span).unlink(missing_ok=True)
            else:
                kept.append(span)
        single = [last for first, last in kept if first == last]
        if len(single) > CHUNK:
            self._fold(single[:CHUNK])

    def _fold(self, epochs: list[int]) -> None:
        records = [record for epoch in epochs if (record := self.read(epoch)) is not None]
        chunk = replace(records[-1], lineage=b"".join(record.lineage for record in records))
        replace_file(self._path(epochs[0], epochs[-1]), chunk.to_bytes())
        for epoch in epochs:
            self._path(epoch, epoch).unlink(missing_ok=True)

    def _path(self, first: int, last: int) -> Path:
        return self._directory / (f"{last:012d}.json" if first == last else f"{first:012d}-{last:012d}.json")


def set_aside(path: Path, directory: Path) -> None:
    """Move a damaged file to ``directory``, under a name that is not in use."""
    directory.mkdir(exist_ok=True)
    with suppress(FileNotFoundError):
        os.rename(path, directory / f"{path.name}.{uuid.uuid4().hex[:8]}")


def _sum(body: dict[str, object]) -> str:
    text = json.dumps({key: value for key, value in body.items() if key != "sum"}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
