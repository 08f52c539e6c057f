"""The membership: a sequence of changes (members that joined, members that were lost) that every listener sees alike.

Events come from Spark: an executor was added, an executor was removed. An event may come twice, and the removal of a
member may come before its addition; ids are never used again. The result is a list of changes, numbered from 0. Change
0 is the initial set: it is not made before ``least`` members are there, so that all listeners see the same beginning.
After that each event that changes the membership is one change.

Pure: events in, changes out. Each listener reads the list at its own pace; a late listener reads all of it.
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
    """The members after the change."""

    joined: tuple[Member, ...]
    lost: tuple[Member, ...]
    epoch: int
    """The last complete epoch of the flow when the event came; -1 before the first epoch, and without a flow."""

    reason: str = ""
    """Spark's reason for a loss."""

    @property
    def initial(self) -> bool:
        return self.number == 0


class Sequencer:
    """Turns events into changes."""

    def __init__(self, least: int = 0) -> None:
        """``least``: the number of members that complete the initial set; 0: `begin` completes it."""
        self._least = least
        self._members: dict[str, Member] = {}
        self._gone: set[str] = set()
        self._changes: list[Change] = []

    @property
    def members(self) -> tuple[Member, ...]:
        """The members that are there now, also before the initial set is complete."""
        return tuple(self._members[key] for key in sorted(self._members, key=_in_order))

    @property
    def changes(self) -> Sequence[Change]:
        """All changes so far; the first is the initial set."""
        return self._changes

    def begin(self, epoch: int = -1) -> None:
        """Complete the initial set with the members that are there, if it is not complete yet."""
        if not self._changes:
            self._changes.append(Change(0, self.members, self.members, (), epoch))

    def require(self, least: int) -> None:
        """Set the number of members that complete the initial set. After it is complete this has no effect."""
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
        # A member that was lost before the initial set was complete was never in a change.
        if was is not None and self._changes:
            self._changes.append(Change(len(self._changes), self.members, (), (was,), epoch, reason))


def _in_order(member: str) -> tuple[int, str]:
    return (int(member), "") if member.isdigit() else (-1, member)
