"""Work on the hosts that have the layers.

A member is a host directory (`log/host_paths.py`); which partition belongs to which member is a function of the
membership alone (`coordinator/partition_ownership.py`). A partition's tasks are given its member's hosts as their
preferred location: what the stage makes is packed into one element, zipped with a collection that has that location,
and Spark runs the whole narrow chain there. A preference is not an order; so each task looks where it is. Elsewhere, a
task of an epoch takes its layers from the log's copies, if they hold them (`task/missing_layers.py`); any other task
fails, for Spark to try it again. When the member is gone that cannot help: the job fails, and the driver assigns anew.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark import RDD, SparkContext, cloudpickle
from pyspark.serializers import BatchedSerializer, CPickleSerializer

from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.errors import TooFewMembers
from holdfast.foundation.retries import attempts, wait_until
from holdfast.log.host_paths import MISPLACED, Misplaced, member
from holdfast.spark.membership import present
from holdfast.spark.own_jobs import own_jobs

T = TypeVar("T")

_LOOKS = 10
_PATIENCE = 60.0
"""So long a flow waits for its first executor, or, if it has lost all, for others."""

_PAUSE = 0.5
"""A task that must be tried again elsewhere waits so long: time for its own member to have room for it."""

_HEARING = 2.0
"""Within so many seconds a loss is heard of."""

GRACE = 3.0
"""So long one that was lost may take to come back: an executor that died is started again, beside the same layers."""


class PlacedWork:
    """The members of a Spark application that have directories, and what belongs to whom."""

    def __init__(self, context: SparkContext, partitions: int, leaving: Collection[str] = ()) -> None:
        """``leaving``: the members that are to go, and get no partition."""
        self._context = context
        self._hosts: dict[str, str] = {}
        """Member → its host."""

        self.ownership = PartitionOwnership(partitions, leaving)
        """Who keeps which partition."""

        self._executors: dict[str, str] = {}
        self.losses = 0
        """How often a host was left without an executor."""

        self._places: tuple[tuple[str, ...], RDD[bytes]] | None = None
        """Hosts, and a collection whose partitions prefer them: it is the same until members change."""

        self._asked: dict[str, tuple[set[str], str]] = {}
        """Host → its executors when its directory's name was asked for, and the name."""

        if not context._jsc.sc().isLocal():
            self._await_some()
            self.refresh()

    def joined(self, executor: str, host: str) -> None:
        """Spark says so."""
        self._executors[executor] = host

    def lost(self, executor: str) -> bool:
        """Spark says so; whether its host has none now, and layers that are needed."""
        host = self._executors.pop(executor, "")
        gone = host not in self._executors.values()
        self.losses += gone
        has_left = any(name not in self.ownership.asked for name, each in self._hosts.items() if each == host)
        return gone and not has_left

    def executors(self) -> dict[str, frozenset[str]]:
        """Member → its executors, as far as they are known."""
        known = list(self._executors.items())
        found = {name: frozenset(one for one, at in known if at == host) for name, host in list(self._hosts.items())}
        return {name: some for name, some in found.items() if some}

    def is_cause(self, error: Exception, losses: int, heals: bool) -> bool:
        """Whether a job failed since its layers are elsewhere, in a way that can be mended: a member was lost since
        ``losses`` was that (which is mended if the flow ``heals``), or tasks did not come to run where they had to."""
        if self.losses and not heals:
            return False  # the flow stops
        # A job that failed for a loss may know before we do.
        wait_until(lambda: self.losses != losses or (heals and MISPLACED in str(error)), _HEARING, 0.05)
        return heals if self.losses > losses else MISPLACED in str(error)

    @property
    def scattered(self) -> bool:
        """Whether layers are on several hosts' own disks."""
        return bool(self.ownership.owners)

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted(self._hosts))

    def owners(self) -> tuple[str, ...]:
        """Partition → member; nothing if layers are not scattered."""
        return self.ownership.owners

    def host(self, name: str) -> str:
        """Where a member is; "" if it is gone."""
        return self._hosts.get(name, "")

    def refresh(self, settle: bool = False) -> bool:
        """Look who is there, and assign partitions to them; whether a partition has another member than before.
        ``settle``: have the assignment at rest; otherwise, after a loss, what was lost is inherited, and no more."""
        hosts, names = self._look()
        self._hosts = {name: host for name, host in zip(names, hosts, strict=True) if names.count(name) == 1}
        if not all(names):
            # Hosts without directories of their own: all have the same, as far as we know.
            return self.ownership.shared(self._hosts)
        return self.ownership.seen(self._hosts, settle)

    def await_members(self, names: Collection[str], seconds: float = GRACE) -> None:
        """Give members that are known by name a little time to be there."""
        deadline = time.monotonic() + seconds
        while self.scattered and not set(names) <= self._hosts.keys() and time.monotonic() < deadline:
            wait_until(self._is_host_new, deadline - time.monotonic(), 0.1)
            self.refresh()

    def _is_host_new(self) -> bool:
        """Whether an executor is on a host that was not there at the last look."""
        return any(one.host not in self._hosts.values() for one in present(self._context))

    def hand_over(self, moves: Mapping[int, str]) -> None:
        """Have these partitions kept by other members, until members change."""
        if not self.ownership.is_known(moves.values()):
            self.refresh()  # one that has just joined
        self.ownership.hand_over(moves)

    def _await_some(self) -> None:
        if not wait_until(lambda: present(self._context), _PATIENCE, 0.1):
            raise TooFewMembers(f"no executor is there, after {_PATIENCE:g} s", members=(), least=1)

    def _look(self) -> tuple[list[str], list[str]]:
        """The hosts that are there, and the name of each one's directory. Those whose executors are the same as before
        are not asked again: one of them may be slow. Another may be lost while we look: then we look again."""
        for is_last in attempts([0.1 * look for look in range(1, _LOOKS)]):
            self._await_some()
            executors: dict[str, set[str]] = {}
            for one in present(self._context):
                executors.setdefault(one.host, set()).add(one.id)
                self._executors[one.id] = one.host
            known = {host: name for host, (ids, name) in self._asked.items() if executors.get(host) == ids}
            new = sorted(executors.keys() - known.keys())
            try:
                found = self._names(new)
            except Exception:
                if is_last:
                    raise
                continue
            names = [*known.values(), *found]
            # One name from two hosts: a task ran elsewhere than it should. No name: hosts have no directories.
            if len(set(names)) == len(names) or not all(names):
                self._asked = {host: (executors[host], name) for host, name in zip([*known, *new], names, strict=True)}
                break
        return [*known, *new], names

    def _names(self, hosts: Sequence[str]) -> list[str]:
        """The name of each host's directory. Whoever looks is no part of an epoch: a loss must not cancel the look."""
        with own_jobs(self._context, "maintenance", "holdfast: members"):
            asked = located(self._context, [(b"", host) for host in hosts])
            names: list[str] = asked.map(lambda _: member()).collect()
            return names

    def pinned(self, rdd: RDD[T], owners: Sequence[str]) -> RDD[T]:
        """``rdd`` with each partition computed on its owner's host, as far as Spark can."""
        packed = rdd.mapPartitions(_one_element)
        hosts = tuple(map(self.host, owners))
        if self._places is None or self._places[0] != hosts:
            self._places = hosts, located(self._context, [(b"", host) for host in hosts])
        zipped = packed._jrdd.zip(self._places[1]._jrdd).keys()
        return RDD(zipped, self._context, packed._jrdd_deserializer).flatMap(pickle.loads)

    def run(self, what: Callable[[list[Any]], list[Any]], shares: Sequence[tuple[str, list[Any]]]) -> list[Any]:
        """Call ``what`` on each member's share of items, there."""
        packed = [(cloudpickle.dumps((owner, items)), self.host(owner)) for owner, items in shares]

        def share(some: Iterator[bytes]) -> Iterator[bytes]:
            for one in some:
                owner, items = cloudpickle.loads(one)
                check(owner)
                yield cloudpickle.dumps(what(items))

        done = located(self._context, packed).mapPartitions(share).collect()
        return [result for one in done for result in cloudpickle.loads(one)]


def check(owner: str) -> None:
    """In a task: fail unless this is the member it belongs to."""
    found = member()
    if found != owner:
        time.sleep(_PAUSE)
        raise Misplaced(owner, found)


def _one_element(items: Iterator[Any]) -> Iterator[bytes]:
    yield pickle.dumps(list(items), 5)


def located(context: SparkContext, items: Sequence[tuple[bytes, str]]) -> RDD[bytes]:
    """One partition per item, each with its preferred host ("" for none)."""
    jvm: Any = context._jvm
    serializer = BatchedSerializer(CPickleSerializer(), 1)
    rows = []
    for data, host in items:
        hosts = jvm.PythonUtils.toSeq([host] if host else [])
        rows.append(jvm.scala.Tuple2(bytearray(pickle.dumps([bytes(data)], 4)), hosts))
    tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").AnyRef()
    made = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), tag)
    return RDD(made.toJavaRDD(), context, serializer)
