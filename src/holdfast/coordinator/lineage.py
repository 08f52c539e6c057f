"""The lineage of an epoch: everything its result depends on that cannot be computed again.

The lineage is tiny: the part of each source that the epoch took (the offers), the clock, a seed, and the term of the
driver that ran the epoch. Its digest is chained to that of the epoch before, ``digest[e] = H(digest[e-1],
lineage[e])``, so a digest names the whole history of a state. Two epochs of the same number with other input have other
digests; layers carry the digest in their names, and a layer of an abandoned history is never read. Every attempt at an
epoch draws a new seed, so that an epoch number is never used again under the same digest (trap: times of the past).

Answers come last: the values that functions marked nondeterministic returned are known only when the epoch has run, and
by then its layers have their names. So answers are not part of the digest; the record has a checksum over everything.
A digest still determines the answers: it belongs to one attempt of one driver, which had one set of answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

GENESIS = "0" * 16


@dataclass(frozen=True)
class Lineage:
    """What epoch ``epoch`` depends on, beside the state before it, whose digest is ``parent``."""

    epoch: int
    parent: str
    offers: dict[str, Any]
    """Source → the offer that the epoch took. A source without an offer is not in it."""

    clock: int
    """Microseconds since 1970, read once per epoch."""

    seed: int
    term: int = 0
    """The term of the driver that ran the epoch. A driver that opens the log takes a higher term than it finds."""

    answers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operator → question → answer: the values that its nondeterministic functions returned, in the operator's own
    encoding."""

    views: Mapping[str, Any] | None = None
    """The versions of the flow's collections from this epoch on (`coordinator/view_versions.py`); None if they did not
    change."""

    rewind: Mapping[str, Any] | None = None
    """For an epoch that took no input and undid others: ``{"to": epoch, "reason": …, "skip": …}``
    (`coordinator/rewinds.py`)."""

    again: int | None = None
    """For an epoch that takes input again that a rewind undid: the epoch whose input it is. Sources were told of that
    input before."""

    @cached_property
    def digest(self) -> str:
        return _hash(f"{self.parent}{_canonical(self._body())}")

    def answered(self, answers: Mapping[str, Mapping[str, str]]) -> Lineage:
        """A copy with the answers that were given in its epoch."""
        return replace(self, answers=dict(answers))

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "epoch": self.epoch,
            "offers": self.offers,
            "clock": self.clock,
            "seed": self.seed,
            "term": self.term,
        }
        if self.views is not None:
            body["views"] = dict(self.views)
        if self.rewind is not None:
            body["rewind"] = dict(self.rewind)
        if self.again is not None:
            body["again"] = self.again
        return body

    def _sum(self) -> str:
        return _hash(f"{self.digest}{_canonical(dict(self.answers))}")

    def to_json(self) -> str:
        """One line, which `from_json` reads back. It has its own digest and checksum, so that damage is found."""
        record = {"digest": self.digest, "sum": self._sum(), "parent": self.parent, **self._body()}
        if self.answers:
            record["answers"] = dict(self.answers)
        return json.dumps(record, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Lineage:
        """Parse a line of `to_json`. Raises ValueError if it is torn, or if its digest or checksum does not match."""
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError("not a lineage record")
        if "base" in record:
            from holdfast.coordinator.folded import Folded  # which is a Lineage

            try:
                return Folded.from_record(record)
            except (KeyError, TypeError, AttributeError) as missing:
                raise ValueError(f"a record of folded epochs without {missing}") from None
        try:
            lineage = Lineage(
                record["epoch"],
                record["parent"],
                record["offers"],
                record["clock"],
                record["seed"],
                record["term"],
                record.get("answers", {}),
                record.get("views"),
                record.get("rewind"),
                record.get("again"),
            )
            carried = (record["digest"], record["sum"])
        except KeyError as missing:
            raise ValueError(f"a lineage record without {missing}") from None
        if (lineage.digest, lineage._sum()) != carried:
            raise ValueError(f"the record of epoch {lineage.epoch} does not have its digest")
        return lineage


def to_lines(lineages: Iterable[Lineage]) -> bytes:
    """Lineages as lines of JSON."""
    return "".join(f"{lineage.to_json()}\n" for lineage in lineages).encode()


def from_lines(text: bytes) -> list[Lineage]:
    """The lineages in lines of JSON. Raises ValueError at the first line that is damaged."""
    return [Lineage.from_json(line.decode()) for line in text.split(b"\n") if line]


def _canonical(record: dict[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
