"""The lineage of an epoch: everything its result depends on that cannot be computed again.

It is tiny: which part of each source the epoch took (the offers), the clock, and a seed. Its digest is chained to the
epoch's before, ``digest[e] = H(digest[e-1], lineage[e])``, so a digest names the whole history of a state. Two epochs
of the same number but other input have other digests; layers carry the digest in their names, and a layer of a
history that was abandoned is simply never read. The seed is drawn anew for every attempt, so that an epoch number is
never used again under the same digest (trap: times of the past).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

GENESIS = "0" * 16


@dataclass(frozen=True)
class Lineage:
    """What epoch ``epoch`` depends on, after the state named ``parent``."""

    epoch: int
    parent: str
    offers: dict[str, Any]
    """Source → what the epoch took of it. A source that had nothing is not in it."""

    clock: int
    """Microseconds since 1970, taken once."""

    seed: int

    @cached_property
    def digest(self) -> str:
        body = json.dumps(self._body(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(f"{self.parent}{body}".encode(), digest_size=8).hexdigest()

    def _body(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "offers": self.offers, "clock": self.clock, "seed": self.seed}

    def to_json(self) -> str:
        """One line that `from_json` reads back; it carries its own digest, so that damage shows."""
        return json.dumps({"digest": self.digest, "parent": self.parent, **self._body()}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Lineage:
        """Raises ValueError when the text is torn or does not have the digest it carries."""
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError("not a lineage record")
        try:
            lineage = Lineage(record["epoch"], record["parent"], record["offers"], record["clock"], record["seed"])
            carried = record["digest"]
        except KeyError as missing:
            raise ValueError(f"a lineage record without {missing}") from None
        if lineage.digest != carried:
            raise ValueError(f"the record of epoch {lineage.epoch} does not have its digest")
        return lineage
