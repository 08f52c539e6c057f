"""The assignment of partitions to members: a function of the membership alone.

Every driver that sees the same members computes the same assignment, whatever came before; so nothing has to be agreed
on or remembered. It is rendezvous hashing (each pair of partition and member has a score, the highest wins) in which no
member gets more than one partition more than another. When a member goes, its partitions spread over several members
and most other partitions stay; when a member comes, it takes its share and most other partitions stay.

That is the assignment at rest. It cannot be used right after a loss: the partitions of the survivors must stay with
them, since some of their layers are in no copy yet, and the lost partitions must go to several survivors. So the lost
partitions are *inherited* first; when everything is safe, the assignment at rest is taken.

Cost: O(partitions · members · log).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence


def assign(partitions: int, members: Collection[str]) -> tuple[str, ...]:
    """Partition → member, at rest. Raises ValueError if there are no members."""
    names = sorted(set(members))
    if not names:
        raise ValueError("there is no member to assign partitions to")
    full, extra = divmod(partitions, len(names))
    scored = sorted((_score(partition, name), partition, name) for partition in range(partitions) for name in names)
    placed: dict[int, str] = {}
    load = dict.fromkeys(names, 0)
    for _, partition, name in scored:
        if partition in placed:
            continue
        if load[name] < full or (load[name] == full and extra > 0):
            extra -= load[name] == full
            load[name] += 1
            placed[partition] = name
    return tuple(placed[partition] for partition in range(partitions))


def inherit(owners: Sequence[str], members: Collection[str]) -> tuple[str, ...]:
    """``owners`` after a loss: partitions whose owner is not among ``members`` go to other members, and no other
    partition moves. Each goes to a member with the fewest partitions, and among these to the one that inherited the
    fewest, so that several members share the work. Raises ValueError if none of the owners is left."""
    load = {owner: owners.count(owner) for owner in sorted(set(owners) & set(members))}
    if not load:
        raise ValueError("nobody is left to inherit")
    load |= {member: 0 for member in sorted(set(members) - set(owners))}
    inherited = dict.fromkeys(load, 0)
    given = list(owners)
    for partition, owner in enumerate(owners):
        if owner not in load:
            heir = min(load, key=lambda name: (load[name], inherited[name], _score(partition, name)))
            given[partition] = heir
            load[heir] += 1
            inherited[heir] += 1
    return tuple(given)


Kept = Sequence[tuple[int, int, str]]
"""Ranges of key hashes [low, high), and the member that keeps each; in order, and without gaps."""


def changing_hands(before: Kept, after: Kept) -> list[tuple[int, int, str]]:
    """The ranges whose member changes, each with its new member. Each lies within one range of ``before`` and one of
    ``after``."""
    found = []
    places = iter(before)
    low, high, owner = next(places)
    for left, right, heir in after:
        while left < right:
            if high <= left:
                low, high, owner = next(places)
                continue
            end = min(high, right)
            if owner != heir:
                found.append((max(low, left), end, heir))
            left = end
    return found


def _score(partition: int, member: str) -> bytes:
    return hashlib.blake2b(f"{partition}/{member}".encode(), digest_size=8).digest()
