"""The owner of each partition, as members come and go: one implementation, for Spark and for the simulator.

If members have directories of their own, each partition's layers are with one member, its owner. After a loss the lost
partitions are *inherited*, and no other partition moves; when everything is safe, the assignment at rest is taken
(`coordinator/partition_assignment.py`). If a partition's task ran on another member, the partition is *handed over* to
that member. A member that *leaves* on purpose owns no partition from then on, although it is still there: other members
inherit its partitions, and take the layers from the copies and from the leaving member.

Pure: names of members in, owners out. The caller looks at the real membership and reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.coordinator.partition_assignment import assign, inherit


class PartitionOwnership:
    """The owners of a flow's partitions."""

    def __init__(self, partitions: int, leaving: Collection[str] = ()) -> None:
        """``leaving``: members that are leaving already, when a flow is rescaled."""
        self.partitions = partitions
        self.members: frozenset[str] = frozenset()
        """The members at the last look."""

        self.owners: tuple[str, ...] = ()
        """Partition → owner; empty while members have no directories of their own."""

        self.asked: frozenset[str] = frozenset()
        """The members that may have layers of the flow, and are asked for them. A member whose partitions were all
        handed over is not asked: it may hang."""

        self.leaving: frozenset[str] = frozenset(leaving)
        """The members that are there, own nothing any more, and are about to leave."""

        self.is_provisional = False
        """Whether partitions were inherited after a loss, and the assignment at rest differs."""

    @property
    def able(self) -> frozenset[str]:
        """The members that may own partitions. If all members are leaving, all of them may."""
        return (self.members - self.leaving) or self.members

    def seen(self, members: Collection[str], settle: bool = False) -> bool:
        """Take in the members that are there. Returns whether the owner of any partition changed. With ``settle`` the
        assignment at rest is taken; without it, after a loss, only the lost partitions are inherited."""
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
        """Take in members that have no directories of their own. Returns whether that is a change."""
        before, self.owners, self.members = self.owners, (), frozenset(members)
        return before != ()

    def is_known(self, members: Collection[str]) -> bool:
        """Whether all ``members`` were there at the last look."""
        return self.members.issuperset(members)

    def leave(self, member: str) -> bool:
        """Let other members inherit the partitions of a member that is to leave. Returns False, and changes nothing, if
        there is no other member. The leaving member is still asked for its layers, until `left`."""
        able = self.members - self.leaving - {member}
        if not able or member not in self.members:
            return False
        self.leaving |= {member}
        self.owners = inherit(self.owners, able) if able & set(self.owners) else assign(self.partitions, able)
        self.asked |= {member, *self.owners}
        return True

    def left(self, member: str) -> None:
        """Note that other members have all layers of a leaving member."""
        self.asked -= {member}

    def hand_over(self, moves: Mapping[int, str]) -> None:
        """Give partitions to other members (partition → member), until the membership changes. A move to a member that
        is not there, or is leaving, is left out."""
        before, able = set(self.owners), self.members - self.leaving
        self.owners = tuple(
            moves[partition] if moves.get(partition) in able else owner for partition, owner in enumerate(self.owners)
        )
        self.asked = (self.asked - before) | set(self.owners)
