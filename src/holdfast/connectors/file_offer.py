"""The files of an offer in few bytes: an offer is part of the lineage of its epoch, which is written to many places.

``{"under": directory, "files": [[name, size, mtime, mark], …]}`` for a few files. For many files ``"packed"`` replaces
``"files"``: names, sizes and mtimes column by column (mtimes as differences), compressed. Beside it are ``"marks"``,
which do not compress, and ``"count"``, the number of files. Offers from before there were marks have entries without
a mark: ``[name, size, mtime]``.

Offers are folded to offers of a thousand files each. An offer of that size is not folded again, so folding costs the
new files and the last folded offer, however many files were ever taken.
"""

from __future__ import annotations

import itertools
import json
import os
import zlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from holdfast.connectors.file_access import File
from holdfast.connectors.source import Offer
from holdfast.foundation import base85

_FEW = 8
_FULL = 1024
"""The number of files from which on an offer is not folded any more."""

_WIDTHS = (4, 16)
"""The bytes of a mark: for identity "path" and for identity "content" (`connectors.file_identity`)."""


class Offered(NamedTuple):
    """A file of an offer."""

    file: File
    mark: bytes
    """The hash that identifies the file's content (`connectors.file_identity`); empty in an offer from before there
    were marks."""


class Columns(NamedTuple):
    """The files of an offer, in its order, column by column."""

    under: str
    names: list[str]
    sizes: list[int]
    times: list[int]
    marks: list[bytes]


def offer_of(files: Sequence[Offered]) -> Offer:
    """An offer of these files, in this order."""
    under = _directory_of([each.file.path for each in files])
    names = [each.file.path[len(os.path.join(under, "")) :] if under else each.file.path for each in files]
    if len(files) <= _FEW:
        rows: list[list[Any]] = [
            [name, each.file.size, each.file.changed, each.mark.hex()] for name, each in zip(names, files, strict=True)
        ]
        return {"under": under, "files": rows}
    times = [each.file.changed for each in files]
    steps = [later - earlier for earlier, later in itertools.pairwise([0, *times])]
    columns = [names, [each.file.size for each in files], steps]
    packed = zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)
    marks = b"".join(each.mark for each in files)
    return {"under": under, "count": len(files), "packed": base85.encode(packed), "marks": base85.encode(marks)}


def _directory_of(paths: Sequence[str]) -> str:
    """The common directory of all files; an empty text if there is none, as for files of two filesystems."""
    schemes = {path.partition("://")[0] if "://" in path else None for path in paths}
    if len(schemes) != 1:
        return ""
    scheme = schemes.pop()
    if scheme is None:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    directories = [os.path.dirname(path.partition("://")[2]) for path in paths]
    common = os.path.commonpath(directories) if all(directories) else ""
    return f"{scheme}://{common}" if common else ""


def columns_of(offer: Offer) -> Columns:
    """The files of an offer."""
    under = offer["under"]
    if "packed" not in offer:
        rows = offer["files"]
        names, sizes, times = ([row[place] for row in rows] for place in range(3))
        return Columns(under, names, sizes, times, [bytes.fromhex(row[3]) if len(row) > 3 else b"" for row in rows])
    names, sizes, steps = json.loads(zlib.decompress(base85.decode(offer["packed"])))
    marks = base85.decode(offer["marks"])
    width = len(marks) // len(names)
    if width not in _WIDTHS or width * len(names) != len(marks):
        # An old version of Holdfast folded marks of both identities together: which mark belongs to which file is lost.
        return Columns(under, names, sizes, list(itertools.accumulate(steps)), [b""] * len(names))
    cut = [marks[place : place + width] for place in range(0, len(marks), width)]
    return Columns(under, names, sizes, list(itertools.accumulate(steps)), cut)


def files_of(offer: Offer) -> list[Offered]:
    """The files of an offer, in its order."""
    under, *columns = columns_of(offer)
    return [
        Offered(File(os.path.join(under, name), size, changed), mark)
        for name, size, changed, mark in zip(*columns, strict=True)
    ]


def without_files(offer: Offer, paths: Collection[str]) -> Offer | None:
    """The offer without the files at ``paths``; None if no file is left."""
    left = [each for each in files_of(offer) if each.file.path not in paths]
    return {**offer_of(left), **_way_of_reading(offer)} if left else None


def fold_files(offers: Sequence[Offer]) -> list[Offer]:
    """Fewer offers of the same files, in the same order. Offers that are read with different options, or have marks of
    different identities, are not put together."""
    folded: list[Offer] = []
    for (rest, _), some in itertools.groupby(offers, key=lambda offer: (_way_of_reading(offer), _width(offer))):
        together: list[Offer] = []
        for offer in some:
            if _count(offer) < _FULL:
                together.append(offer)
                continue
            folded += [*_folded(together, rest), offer]
            together = []
        folded += _folded(together, rest)
    return folded


def _folded(offers: Sequence[Offer], rest: Offer) -> list[Offer]:
    if len(offers) <= 1:
        return list(offers)
    offer = {**offer_of([file for each in offers for file in files_of(each)]), **rest}
    skipped = {said[0]: said for each in offers for said in each.get("skipped", ())}
    if skipped:
        offer["skipped"] = list(skipped.values())
    return [offer]


def _way_of_reading(offer: Offer) -> Offer:
    own = ("under", "files", "count", "packed", "marks", "skipped")
    return {key: said for key, said in offer.items() if key not in own}


def _count(offer: Offer) -> int:
    """How many files an offer has."""
    if "packed" not in offer:
        return len(offer["files"])
    count: int | None = offer.get("count")
    return len(columns_of(offer).names) if count is None else count


def _width(offer: Offer) -> int:
    """The bytes of the marks of an offer's files; 0 if they have none, or if it has no files."""
    if "packed" not in offer:
        return len(offer["files"][0][3]) // 2 if offer["files"] and len(offer["files"][0]) > 3 else 0
    return len(offer["marks"]) * 4 // 5 // _count(offer)
