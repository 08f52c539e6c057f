"""Who keeps which partition, as members come and go: the one implementation, for Spark and for the simulator.

Where members have directories of their own, each partition's layers are with one member, its owner. After a loss what
was lost is *inherited*, and nothing else moves; when everything is safe, the assignment at rest is taken
(`coordinator/partition_assignment.py`). A partition whose task ran elsewhere is *handed over* to the member it ran on.

Pure: names of members in, owners out. Whoever looks at real members tells it whom it saw.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.coordinator.partition_assignment import assign, inherit


class PartitionOwnership:
    """The owners of a flow's partitions."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.members: frozenset[str] = frozenset()
        """Who was there at the last look."""

        self.owners: tuple[str, ...] = ()
        """Partition → member; nothing while members have no directories of their own."""

        self.asked: frozenset[str] = frozenset()
        """The members that have layers of the flow, or may have: not those whose partitions were all handed over, who
        may stand still."""

        self.is_provisional = False
        """Whether partitions were inherited after a loss, and the assignment at rest is another."""

    def seen(self, members: Collection[str], settle: bool = False) -> bool:
        """These members are there; whether a partition has another one than before. ``settle``: take the assignment at
        rest; otherwise, after a loss, what was lost is inherited, and no more."""
        before, known, found = self.owners, self.members, frozenset(members)
        if found != known or settle:
            inherits = not settle and bool(known - found) and bool(found & set(before))
            rest = assign(self.partitions, found)
            self.owners = inherit(before, found) if inherits else rest
            self.is_provisional = self.owners != rest
            self.asked = found
        self.members = found
        return self.owners != before

    def shared(self, members: Collection[str]) -> bool:
        """These members are there, and have no directories of their own; whether that is new."""
        before, self.owners, self.members = self.owners, (), frozenset(members)
        return before != ()

    def is_known(self, members: Collection[str]) -> bool:
        """Whether all these were there at the last look."""
        return self.members.issuperset(members)

    def hand_over(self, moves: Mapping[int, str]) -> None:
        """Have these partitions kept by other members, as far as they are there, until members change."""
        before = set(self.owners)
        self.owners = tuple(
            moves[partition] if moves.get(partition) in self.members else owner
            for partition, owner in enumerate(self.owners)
        )
        self.asked = (self.asked - before) | set(self.owners)
