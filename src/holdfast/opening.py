"""Taking a log over: which of its locations can be used, and the claim that tells a driver before this one to stop."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.declared import Declared
from holdfast.errors import StoreError
from holdfast.redaction import warn
from holdfast.results import Recovery
from holdfast.store.replica import Claim, Replica

T = TypeVar("T")


def open_replicas(declared: Declared, recovery: Recovery) -> dict[str, Replica]:
    """The log locations that can be used."""
    if not declared.settings.durable:
        return {}
    found = {}
    for location in declared.locations:
        replica = Replica(location)
        try:
            replica.open(declared.name)
            found[location.uri] = replica
        except StoreError as error:
            recovery.unreachable[location.uri] = str(error)
    return found


def claim_log(replicas: dict[str, Replica], durable: bool, drawn: int, recovery: Recovery) -> Claim:
    """Claim the log, before its history is read: a driver before this one that still runs will notice. Locations that
    refuse are done without (and taken out of ``replicas``); there must be one that does not. ``drawn`` tells two
    drivers apart that claim at once."""

    def each(work: Callable[[Replica], T]) -> list[T]:
        done = []
        for uri, replica in list(replicas.items()):
            try:
                done.append(work(replica))
            except StoreError as error:
                recovery.unreachable[uri] = str(error)
                del replicas[uri]
        return done

    terms = [claim.term for claims in each(Replica.claims) for claim in claims]
    claim = Claim(max(terms, default=0) + 1, f"{drawn:016x}")
    said = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    each(lambda replica: replica.claim(claim, said))
    if not replicas and durable:
        raise StoreError(next(iter(recovery.unreachable.values())))
    for uri, why in recovery.unreachable.items():
        warn(f"holdfast: log location {uri} cannot be used now, and will be tried again: {why}", stacklevel=1)
    return claim
