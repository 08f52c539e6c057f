"""The files of an offer, as few bytes: an offer is in the lineage of its epoch, and so in much that is written.

``{"under": directory, "files": [[name, size, mtime, mark], …]}`` for a few files. For many, ``"packed"`` stands for
``"files"``: names, sizes and mtimes column by column (mtimes as differences), compressed, and ``"marks"`` beside it,
which do not compress. An offer of before marks has entries of three.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.connectors.file_listing import File
from holdfast.connectors.source import Offer

_FEW = 8


class Offered(NamedTuple):
    """A file of an offer."""

    file: File
    mark: bytes
    """What tells its content (`connectors.identity`); empty in an offer of before there were marks."""


def offer_of(files: Sequence[Offered]) -> Offer:
    """An offer of these files, in this order."""
    under = os.path.commonpath([os.path.dirname(each.file.path) for each in files]) if files else ""
    names = [os.path.relpath(each.file.path, under) for each in files]
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
    return {"under": under, "packed": _text(packed), "marks": _text(marks)}


def files_of(offer: Offer) -> list[Offered]:
    """The files of an offer, in its order."""
    under = offer["under"]
    if "packed" not in offer:
        return [
            Offered(File(os.path.join(under, name), size, changed), bytes.fromhex(mark[0]) if mark else b"")
            for name, size, changed, *mark in offer["files"]
        ]
    names, sizes, steps = json.loads(zlib.decompress(base64.b85decode(offer["packed"])))
    marks = base64.b85decode(offer["marks"])
    width = len(marks) // len(names)
    return [
        Offered(File(os.path.join(under, name), size, changed), marks[place * width : (place + 1) * width])
        for place, (name, size, changed) in enumerate(zip(names, sizes, itertools.accumulate(steps), strict=True))
    ]


def fold_files(offers: Sequence[Offer]) -> list[Offer]:
    """One offer of all their files, or as many as there are ways in which these are to be read."""
    folded: list[Offer] = []
    for rest, some in itertools.groupby(offers, key=_way_of_reading):
        together = list(some)
        offer = {**offer_of([file for each in together for file in files_of(each)]), **rest}
        skipped = {said[0]: said for each in together for said in each.get("skipped", ())}
        if skipped:
            offer["skipped"] = list(skipped.values())
        folded.append(offer)
    return folded


def _way_of_reading(offer: Offer) -> Offer:
    return {key: said for key, said in offer.items() if key not in ("under", "files", "packed", "marks", "skipped")}


def _text(data: bytes) -> str:
    return base64.b85encode(data).decode()
