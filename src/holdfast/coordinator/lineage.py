"""The lineage of an epoch: everything its result depends on that cannot be computed again.

It is tiny: which part of each source the epoch took (the offers), the clock, a seed, and the term of the driver that
ran it. Its digest is chained to the epoch's before, ``digest[e] = H(digest[e-1], lineage[e])``, so a digest names the
whole history of a state. Two epochs of the same number but other input have other digests; layers carry the digest in
their names, and a layer of a history that was abandoned is simply never read. The seed is drawn anew for every attempt,
so that an epoch number is never used again under the same digest (trap: times of the past).

Answers from outside come last: what functions marked nondeterministic returned is known when the epoch is complete, and
by then its layers have their names. So answers are not part of the digest; the record has a checksum over all of it.
The digest still decides them: it belongs to one attempt of one driver, and that attempt had one set of answers.
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
    """What epoch ``epoch`` depends on, after the state named ``parent``."""

    epoch: int
    parent: str
    offers: dict[str, Any]
    """Source → what the epoch took of it. A source that had nothing is not in it."""

    clock: int
    """Microseconds since 1970, taken once."""

    seed: int
    term: int = 0
    """Which driver ran it: each one that opens the log takes a higher number than it finds there."""

    answers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operator → question → answer: what its nondeterministic functions returned, in the operator's own words."""

    views: Mapping[str, Any] | None = None
    """What the flow keeps from this epoch on (`coordinator/view_versions.py`); None where that is as it was."""

    rewind: Mapping[str, Any] | None = None
    """The epoch took nothing and undid others: ``{"to": epoch, "reason": …, "skip": …}`` (`coordinator/rewinds.py`)."""

    again: int | None = None
    """The epoch that took this input first, if a rewind undid it and it is taken again here. Sources know of it."""

    @cached_property
    def digest(self) -> str:
        return _hash(f"{self.parent}{_canonical(self._body())}")

    def answered(self, answers: Mapping[str, Mapping[str, str]]) -> Lineage:
        """The same lineage with the answers that its epoch was given."""
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
        """One line that `from_json` reads back; it carries its own digest and checksum, so that damage shows."""
        record = {"digest": self.digest, "sum": self._sum(), "parent": self.parent, **self._body()}
        if self.answers:
            record["answers"] = dict(self.answers)
        return json.dumps(record, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Lineage:
        """Raises ValueError when the text is torn or does not have the digest it carries."""
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
