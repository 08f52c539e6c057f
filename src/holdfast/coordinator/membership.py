"""Who takes part, and who was lost: a sequence of changes that every listener sees alike.

Events come from Spark: an executor was added, an executor was removed. They may come twice, and the end of a member may
be heard before its beginning; ids are never used again. What goes out is a list of changes, numbered from 0. The first
is the initial set: nothing is told before ``least`` members are there, so that all see the same beginning. After that
each event that changes something is one change.

Pure: events in, changes out. Each listener walks the list at its own pace, and a late one walks all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Member:
    """An executor."""

    id: str
    host: str
    cores: int = 0

    def __str__(self) -> str:
        return f"executor {self.id} on {self.host}"


@dataclass(frozen=True)
class Change:
    """A change of the membership."""

    number: int
    members: tuple[Member, ...]
    """Who is there now."""

    joined: tuple[Member, ...]
    lost: tuple[Member, ...]
    epoch: int
    """The last complete epoch of the flow when it was heard of; -1 before the first, and without a flow."""

    reason: str = ""
    """What Spark says of a loss."""

    @property
    def initial(self) -> bool:
        return self.number == 0


class Sequencer:
    """Turns events into changes."""

    def __init__(self, least: int = 0) -> None:
        """``least``: how many members make the initial set."""
        self._least = least
        self._members: dict[str, Member] = {}
        self._gone: set[str] = set()
        self._changes: list[Change] = []

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is there now, told or not."""
        return tuple(self._members[key] for key in sorted(self._members, key=_in_order))

    @property
    def changes(self) -> Sequence[Change]:
        """All changes so far; the first is the initial set."""
        return self._changes

    def begin(self, epoch: int = -1) -> None:
        """The initial set is complete, whoever is there."""
        if not self._changes:
            self._changes.append(Change(0, self.members, self.members, (), epoch))

    def require(self, least: int) -> None:
        """Wait for so many members. Once the initial set was told this changes nothing."""
        self._least = least

    def joined(self, member: Member, epoch: int = -1) -> None:
        if member.id in self._members or member.id in self._gone:
            return
        self._members[member.id] = member
        if self._changes:
            self._changes.append(Change(len(self._changes), self.members, (member,), (), epoch))
        elif self._least and len(self._members) >= self._least:
            self.begin(epoch)

    def lost(self, member: str, reason: str = "", epoch: int = -1) -> None:
        self._gone.add(member)
        was = self._members.pop(member, None)
        # One that went before anything was told was never part of it.
        if was is not None and self._changes:
            self._changes.append(Change(len(self._changes), self.members, (), (was,), epoch, reason))


def _in_order(member: str) -> tuple[int, str]:
    return (int(member), "") if member.isdigit() else (-1, member)
