"""The base of a history: all epochs up to one, folded into one record.

The offers and answers of an epoch are needed as long as the epoch may be computed again, or read as of. For epochs
before both the safe point and the retention that is over. A base keeps of them:

* the last of the epochs: its number, digest, clock and term, so that the next epoch can follow;
* the offers that they took from each source, folded by the source (`Source.fold`): a new view is filled from them, and
  a source that is opened again is told them. (After a rewind the two differ: undone offers are told, and not read.);
* the versions of the views that may still be needed (`coordinator/view_versions.py`);
* the digests of epochs with which an existing layer or segment ends, so that these can be told from stale ones.

Answers of users' functions are not needed any more. So the size of a base depends on the sources and views, and not on
the number of epochs in it.

A base is a record of lineage, and replaces the records of its epochs: in the stash, in segments, with a commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holdfast.coordinator.lineage import Lineage

Taken = Mapping[str, tuple[tuple[int, Any], ...]]
"""Source → (epoch, offer): offers in order, each with the last of the epochs that took it."""


@dataclass(frozen=True)
class Folded(Lineage):
    """Epochs 0 … ``epoch``. As a record of lineage it is that of the last of them, without offers."""

    end: str = ""
    """The digest of ``epoch``."""

    taken: Taken = field(default_factory=dict)
    told: Taken | None = None
    """The offers that sources are told, if a rewind undid some of them; None: the same as ``taken``."""

    forms: Mapping[str, Any] = field(default_factory=dict)
    """The versions of views, from `ViewVersions.folded`; called ``forms`` in the durable format."""

    ends: Mapping[int, str] = field(default_factory=dict)
    """Epoch → digest, for earlier epochs with which an existing layer or segment ends."""

    @cached_property
    def digest(self) -> str:
        return self.end

    def to_json(self) -> str:
        said = {
            "base": self.epoch,
            "digest": self.end,
            "clock": self.clock,
            "term": self.term,
            "taken": {name: [list(each) for each in offers] for name, offers in self.taken.items()},
            "forms": dict(self.forms),
            "ends": {str(epoch): digest for epoch, digest in sorted(self.ends.items())},
        }
        if self.views is not None:
            said["views"] = dict(self.views)
        if self.told is not None:
            said["told"] = {name: [list(each) for each in offers] for name, offers in self.told.items()}
        text = json.dumps(said, separators=(",", ":"))
        return f'{{"sum":"{_sum(text)}",{text[1:]}'

    @staticmethod
    def from_record(record: dict[str, Any]) -> Folded:
        """Parse a record. Raises ValueError if its checksum does not match."""
        carried = record.pop("sum", "")
        if _sum(json.dumps(record, separators=(",", ":"))) != carried:
            raise ValueError(f"the record of epochs 0 to {record.get('base')} does not have its checksum")
        return Folded(
            epoch=record["base"],
            parent="",
            offers={},
            clock=record["clock"],
            seed=0,
            term=record["term"],
            views=record.get("views"),
            end=record["digest"],
            taken=_taken(record["taken"]),
            told=_taken(record["told"]) if "told" in record else None,
            forms=record["forms"],
            ends={int(epoch): digest for epoch, digest in record["ends"].items()},
        )


def _taken(record: Mapping[str, Any]) -> Taken:
    return {name: tuple((epoch, offer) for epoch, offer in each) for name, each in record.items()}


def _sum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
