"""The base of a history: all epochs up to one, folded into one record.

What an epoch took and was answered is needed for as long as the epoch may be computed again, or read as of. Behind both
the safe point and what the flow retains that is over, and what is left of the epochs is:

* their end: its number, digest, clock and term, so that the next epoch follows it;
* what they took of each source, folded by the source (`Source.fold`): a new view is filled from it, and a source that
  is opened again is told of it. (After a rewind the two differ: what was undone is told, and not read again.);
* the versions of the views that may still matter (`coordinator/view_versions.py`);
* the digests of those epochs with which layers or segments end that there still are, so that these can be told from
  stale ones.

Answers from outside are not needed any more. So a base is as small as the sources and the flow make it, however many
epochs are in it.

It is a record of lineage like those of epochs, and stands in their place: in the stash, in segments, with a commit.
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
"""Source → (epoch, offer): offers in order, each with the last epoch of those that it stands for."""


@dataclass(frozen=True)
class Folded(Lineage):
    """Epochs 0 … ``epoch``. As a record of lineage it is that of the last one, without what it took."""

    end: str = ""
    """The digest of ``epoch``."""

    taken: Taken = field(default_factory=dict)
    told: Taken | None = None
    """What sources are told was taken, where a rewind undid some of it; None: ``taken``."""

    forms: Mapping[str, Any] = field(default_factory=dict)
    """What `ViewVersions.folded` gives; `forms` in the format."""

    ends: Mapping[int, str] = field(default_factory=dict)
    """Epoch → digest, of epochs before with which something ends that is still there."""

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
        """Raises ValueError when the record does not have the checksum that it carries."""
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
