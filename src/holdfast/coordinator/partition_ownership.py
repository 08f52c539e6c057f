"""Who keeps which partition, as members come and go: the one implementation, for Spark and for the simulator.

Where members have directories of their own, each partition's layers are with one member, its owner. After a loss what
was lost is *inherited*, and nothing else moves; when everything is safe, the assignment at rest is taken
(`coordinator/partition_assignment.py`). A partition whose task ran elsewhere is *handed over* to the member it ran on.
A member that *leaves* on purpose keeps no partition from then on, for as long as it is there: others inherit what it
had, and take it from the copies and from the member itself.

Pure: names of members in, owners out. Whoever looks at real members tells it whom it saw.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.coordinator.partition_assignment import assign, inherit


class PartitionOwnership:
    """The owners of a flow's partitions."""

    def __init__(self, partitions: int, leaving: Collection[str] = ()) -> None:
        """``leaving``: the members that are to go, as another number of partitions found them."""
        self.partitions = partitions
        self.members: frozenset[str] = frozenset()
        """Who was there at the last look."""

        self.owners: tuple[str, ...] = ()
        """Partition → member; nothing while members have no directories of their own."""

        self.asked: frozenset[str] = frozenset()
        """The members that have layers of the flow, or may have: not those whose partitions were all handed over, who
        may stand still."""

        self.leaving: frozenset[str] = frozenset(leaving)
        """The members that are there, and keep nothing any more: they are to go."""

        self.is_provisional = False
        """Whether partitions were inherited after a loss, and the assignment at rest is another."""

    @property
    def able(self) -> frozenset[str]:
        """The members that may keep partitions. If all that are left were to leave, they stay."""
        return (self.members - self.leaving) or self.members

    def seen(self, members: Collection[str], settle: bool = False) -> bool:
        """These members are there; whether a partition has another one than before. ``settle``: take the assignment at
        rest; otherwise, after a loss, what was lost is inherited, and no more."""
        before, known, found = self.owners, self.members, frozenset(members)
        self.leaving &= found
        self.members = found
        if found != known or settle:
            able = self.able
            inherits = not settle and bool(known - found) and bool(able & set(before))
            rest = assign(self.partitions, able)
            self.owners = inherit(before, able) if inherits else rest
            self.is_provisional = self.owners != rest
            self.asked = found
        return self.owners != before

    def shared(self, members: Collection[str]) -> bool:
        """These members are there, and have no directories of their own; whether that is new."""
        before, self.owners, self.members = self.owners, (), frozenset(members)
        return before != ()

    def is_known(self, members: Collection[str]) -> bool:
        """Whether all these were there at the last look."""
        return self.members.issuperset(members)

    def leave(self, member: str) -> bool:
        """A member is to go: others inherit its partitions; whether there is another one. It is still asked for what
        it has, until it has `left`."""
        able = self.members - self.leaving - {member}
        if not able or member not in self.members:
            return False
        self.leaving |= {member}
        self.owners = inherit(self.owners, able) if able & set(self.owners) else assign(self.partitions, able)
        self.asked |= {member, *self.owners}
        return True

    def left(self, member: str) -> None:
        """Others have all that a member had."""
        self.asked -= {member}

    def hand_over(self, moves: Mapping[int, str]) -> None:
        """Have these partitions kept by other members, as far as they are there and stay, until members change."""
        before, able = set(self.owners), self.members - self.leaving
        self.owners = tuple(
            moves[partition] if moves.get(partition) in able else owner for partition, owner in enumerate(self.owners)
        )
        self.asked = (self.asked - before) | set(self.owners)
