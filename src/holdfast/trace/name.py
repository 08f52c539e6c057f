"""The name of a layer. It has everything that a reader needs to choose the layer, so choosing needs only a listing.

    000000000012-000000000015-0000000000000000-08000000000000000-none-3f…-9a….arrow
    first        last         low              high              since digest checksum

The directory names the trace (by the operator's fingerprint), so a layer's name does not. Names sort by epoch, then by
key range. Two files with the same name hold the same bytes (invariant 2, append-only): the name ends with their
checksum. A durable layer is named in the same way, with the checksum of its own bytes, and ends in ``.parquet``.
``-part`` after the checksum: the file also holds rows of later epochs, which do not belong to the layer. A branch uses
such names for the parent's layers that have epochs after the branch's root (`log/branches.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

SUFFIX = ".arrow"
DURABLE = ".parquet"
ALL = 1 << 64
"""The end of the whole hash range [0, 2^64)."""

_PATTERN = re.compile(
    r"(\d{12,})-(\d{12,})-([0-9a-f]{16})-([0-9a-f]{17})-(none|\d{12,})-([0-9a-f]{16})-([0-9a-f]{16})(-part)?"
)


@dataclass(frozen=True, order=True)
class LayerName:
    """Rows with hash in [low, high) of the epochs first … last; ``digest`` is the lineage digest of ``last``.
    Epochs ≤ ``since`` have been collapsed into ``since`` (-1: none have)."""

    low: int
    high: int
    first: int
    last: int
    digest: str
    since: int
    checksum: str
    part: bool = False
    """Whether the file also has rows of epochs after ``last``, which do not belong to this layer."""

    def __hash__(self) -> int:
        # Plans of copies keep names in sets, by the ten thousand; these three tell most names of a trace apart.
        return hash((self.low, self.first, self.last))

    @property
    def floor(self) -> int:
        """The earliest epoch as of which this layer can be read; its epochs first … floor are collapsed into one."""
        return max(self.first, min(self.since, self.last))

    def text(self) -> str:
        """The file name of the layer."""
        return self._stem() + SUFFIX

    def durable(self) -> str:
        """The file name of the layer's copy in a location."""
        return self._stem() + DURABLE

    def _stem(self) -> str:
        since = "none" if self.since < 0 else f"{self.since:012d}"
        stem = (
            f"{self.first:012d}-{self.last:012d}-{self.low:016x}-{self.high:017x}-{since}-{self.digest}-{self.checksum}"
        )
        return f"{stem}-part" if self.part else stem

    def until(self, epoch: int, digest: str) -> LayerName | None:
        """The name of the part of the layer up to ``epoch``, whose digest is ``digest``; None if compaction has passed
        ``epoch``, so that this part cannot be read alone."""
        if self.last <= epoch:
            return self
        return replace(self, last=epoch, digest=digest, part=True) if self.floor <= epoch else None

    @staticmethod
    def parse(text: str) -> LayerName | None:
        """Parse the file name of a layer; None if it is not a layer's."""
        return _parse(text.removesuffix(SUFFIX)) if text.endswith(SUFFIX) else None

    @staticmethod
    def parse_durable(text: str) -> LayerName | None:
        """Parse the file name of a durable layer; None if it is not a durable layer's."""
        return _parse(text.removesuffix(DURABLE)) if text.endswith(DURABLE) else None


@lru_cache(maxsize=8192)  # bounded: names of a listing come again, but names of merged layers do not
def _parse(stem: str) -> LayerName | None:
    match = _PATTERN.fullmatch(stem)
    if match is None:
        return None
    first, last, low, high, since, digest, checksum, part = match.groups()
    name = LayerName(
        int(low, 16),
        int(high, 16),
        int(first),
        int(last),
        digest,
        -1 if since == "none" else int(since),
        checksum,
        part is not None,
    )
    return name if name.low < name.high <= ALL and name.first <= name.last else None
