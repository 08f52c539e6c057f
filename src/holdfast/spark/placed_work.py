"""Work on the hosts that have the layers.

A member is a host directory (`log/host_paths.py`); which partition belongs to which member is a function of the
membership alone (`coordinator/partition_ownership.py`). The tasks of a partition get its owner's host as their
preferred location: a stage's output is packed into a fixed number of elements per task and zipped, in the JVM, with a
collection that has that location, and Spark runs the whole narrow chain there. Spark may ignore a preference, so each
task checks where it runs. On another member, a task of an epoch takes its layers from the log's copies, if they hold
them (`task/missing_layers.py`); any other task fails, so that Spark tries it again. If the owner is gone, retries
cannot help: the job fails, and the driver assigns partitions anew.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from pyspark import RDD, SparkContext, cloudpickle
from pyspark.serializers import BatchedSerializer, CPickleSerializer, pack_long

from holdfast.coordinator.partition_ownership import PartitionOwnership
from holdfast.errors import TooFewMembers
from holdfast.foundation.retries import attempts, wait_until
from holdfast.log.host_paths import MISPLACED, Misplaced, member
from holdfast.spark.membership import present
from holdfast.spark.own_jobs import own_jobs

T = TypeVar("T")
Places = tuple[str, ...]
"""Preferred locations of a task, as Spark names them: hosts, and executors."""

_LISTS = BatchedSerializer(CPickleSerializer())
"""Reads elements that were packed as lists."""

_LOOKS = 10
_PATIENCE = 60.0
"""Seconds that a flow waits for its first executor, or for a new one after it has lost all."""

_PAUSE = 0.5
"""Seconds that a misplaced task waits before it fails: time for its owner to have room for it."""

_HEARING = 2.0
"""Seconds within which Spark reports the loss of an executor whose failure a job has met."""

GRACE = 3.0
"""Seconds given to a lost member to come back: Spark starts a dead executor again, on the same layers."""


class PlacedWork:
    """The members of a Spark application that have directories, and the owners of its partitions."""

    def __init__(self, context: SparkContext, partitions: int, leaving: Collection[str] = ()) -> None:
        """``leaving``: the members that will leave, and get no partition."""
        self._context = context
        self._hosts: dict[str, str] = {}
        """Member → host."""

        self.ownership = PartitionOwnership(partitions, leaving)
        """The owners of the partitions."""

        self._executors: dict[str, str] = {}
        self.losses = 0
        """How many times a host lost its last executor."""

        self._places: dict[tuple[tuple[Places, ...], int], Any] = {}
        """(Preferred places of each task, elements per task) → a collection of the JVM whose partitions have these
        preferences. Kept until owners or hosts change."""

        self._asked: dict[str, tuple[set[str], str]] = {}
        """Host → (its executors when it was asked for its directory's name, that name)."""

        if not context._jsc.sc().isLocal():
            self._await_some()
            self.refresh()

    def joined(self, executor: str, host: str) -> None:
        """Note an executor that Spark reports as joined."""
        self._executors[executor] = host

    def lost(self, executor: str) -> bool:
        """Note an executor that Spark reports as lost. Return whether its host now has none, and has layers that are
        needed."""
        host = self._executors.pop(executor, "")
        gone = host not in self._executors.values()
        self.losses += gone
        has_left = any(name not in self.ownership.asked for name, each in self._hosts.items() if each == host)
        return gone and not has_left

    def executors(self) -> dict[str, frozenset[str]]:
        """Return the known executors of each member."""
        known = list(self._executors.items())
        found = {name: frozenset(one for one, at in known if at == host) for name, host in list(self._hosts.items())}
        return {name: some for name, some in found.items() if some}

    def is_cause(self, error: Exception, losses: int, heals: bool) -> bool:
        """Whether a job failed because its layers are on another member, in a way that can be repaired: a member was
        lost since the count of losses was ``losses`` (repaired if the flow ``heals``), or tasks did not run on the
        owners."""
        if self.losses and not heals:
            return False  # the flow stops
        # The failure of a job may arrive before Spark's report of the loss.
        wait_until(lambda: self.losses != losses or (heals and MISPLACED in str(error)), _HEARING, 0.05)
        return heals if self.losses > losses else MISPLACED in str(error)

    @property
    def scattered(self) -> bool:
        """Whether layers are spread over the disks of several hosts."""
        return bool(self.ownership.owners)

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted(self._hosts))

    def owners(self) -> tuple[str, ...]:
        """Partition → owner. Empty if layers are not scattered."""
        return self.ownership.owners

    def host(self, name: str) -> str:
        """The host of a member; "" if the member is gone."""
        return self._hosts.get(name, "")

    def places(self, owners: Sequence[str]) -> list[Places]:
        """The preferred places of tasks with these owners."""
        return [tuple(host for host in (self.host(owner),) if host) for owner in owners]

    def refresh(self, settle: bool = False) -> bool:
        """Find the present members and assign partitions to them. Return whether a partition has another owner than
        before. ``settle``: use the assignment at rest. Otherwise, after a loss, only the lost partitions get new
        owners."""
        hosts, names = self._look()
        self._hosts = {name: host for name, host in zip(names, hosts, strict=True) if names.count(name) == 1}
        if not all(names):
            # Hosts without directories of their own share one, as far as can be known.
            return self.ownership.shared(self._hosts)
        return self.ownership.seen(self._hosts, settle)

    def await_members(self, names: Collection[str], seconds: float = GRACE) -> None:
        """Wait up to ``seconds`` for members that are known by name."""
        deadline = time.monotonic() + seconds
        while self.scattered and not set(names) <= self._hosts.keys() and time.monotonic() < deadline:
            wait_until(self._is_host_new, deadline - time.monotonic(), 0.1)
            self.refresh()

    def _is_host_new(self) -> bool:
        """Whether an executor runs on a host that the last look did not find."""
        return any(one.host not in self._hosts.values() for one in present(self._context))

    def hand_over(self, moves: Mapping[int, str]) -> None:
        """Give these partitions to other members, until the membership changes."""
        if not self.ownership.is_known(moves.values()):
            self.refresh()  # a member may have just joined
        self.ownership.hand_over(moves)

    def _await_some(self) -> None:
        if not wait_until(lambda: present(self._context), _PATIENCE, 0.1):
            raise TooFewMembers(f"no executor is there, after {_PATIENCE:g} s", members=(), least=1)

    def _look(self) -> tuple[list[str], list[str]]:
        """Return the present hosts, and the name of each host's directory. Hosts with the same executors as at the last
        look are not asked again, since one may be slow. If a host is lost while it is asked, look again."""
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
            # The same name from two hosts: a task ran on another host than it should. No name: hosts have no
            # directories.
            if len(set(names)) == len(names) or not all(names):
                self._asked = {host: (executors[host], name) for host, name in zip([*known, *new], names, strict=True)}
                break
        return [*known, *new], names

    def _names(self, hosts: Sequence[str]) -> list[str]:
        """Ask each host for the name of its directory. The job is not an epoch's, so that a loss does not cancel it."""
        with own_jobs(self._context, "maintenance", "holdfast: members"):
            asked = located(self._context, [(b"", host) for host in hosts])
            names: list[str] = asked.map(lambda _: member()).collect()
            return names

    def pinned(self, rdd: RDD[T], owners: Sequence[str]) -> RDD[T]:
        """Return ``rdd`` with each partition computed on its owner's host, where Spark follows the preference."""
        return RDD(self._on_hosts(rdd.mapPartitions(_one_element), owners, 1), self._context, _LISTS)

    def exchanged(
        self, rdd: RDD[tuple[int, T]], owners: Sequence[str], partitions: int, task: Callable[[int], int]
    ) -> RDD[tuple[int, T]]:
        """Return ``rdd.partitionBy(partitions, task)``, with each partition of ``rdd`` computed on the host of its
        owner. (After `pinned`, a second Python process would have to sort the elements for the exchange.)"""
        keyed = rdd.mapPartitions(_for_exchange(partitions, task))
        return exchange(self._context, self._on_hosts(keyed, owners, 2 * partitions), partitions)

    def _on_hosts(self, packed: RDD[bytes], owners: Sequence[str], elements: int) -> Any:
        """The JVM's RDD of ``packed``, which has so many elements in each partition, on the owners' hosts."""
        places = tuple(self.places(owners))
        if (places, elements) not in self._places:
            self._places = {key: made for key, made in self._places.items() if key[0] == places}
            self._places[places, elements] = _empty(self._context, places, elements)
        packed._bypass_serializer = True  # PySpark's own way to write plain bytes
        return packed._jrdd.zip(self._places[places, elements]).keys()

    def run(self, what: Callable[[list[Any]], list[Any]], shares: Sequence[tuple[str, list[Any]]]) -> list[Any]:
        """Call ``what`` on each member's share of items, on that member. Return all results."""
        packed = [(cloudpickle.dumps((owner, items)), self.host(owner)) for owner, items in shares]

        def share(some: Iterator[bytes]) -> Iterator[bytes]:
            for one in some:
                owner, items = cloudpickle.loads(one)
                check(owner)
                yield cloudpickle.dumps(what(items))

        done = located(self._context, packed).mapPartitions(share).collect()
        return [result for one in done for result in cloudpickle.loads(one)]


def check(owner: str) -> None:
    """In a task: raise `Misplaced` unless it runs on the member ``owner``."""
    found = member()
    if found != owner:
        time.sleep(_PAUSE)
        raise Misplaced(owner, found)


def _one_element(items: Iterator[Any]) -> Iterator[bytes]:
    yield pickle.dumps(list(items), 5)


def _for_exchange(partitions: int, task: Callable[[int], int]) -> Callable[[Iterator[tuple[int, T]]], Iterator[bytes]]:
    """Pack elements for `exchange`: for each partition its number and its elements, also if it gets none."""

    def packed(items: Iterator[tuple[int, T]]) -> Iterator[bytes]:
        buckets: list[list[tuple[int, T]]] = [[] for _ in range(partitions)]
        for item in items:
            buckets[task(item[0])].append(item)
        for number, bucket in enumerate(buckets):
            yield pack_long(number)
            yield pickle.dumps(bucket, 5)

    return packed


def exchange(context: SparkContext, keyed: Any, partitions: int) -> RDD[Any]:
    """Return an RDD of the elements of ``keyed`` (the JVM's RDD of what `_for_exchange` packed), each in its partition:
    the second half of `RDD.partitionBy`."""
    jvm: Any = context._jvm
    pairs = jvm.PairwiseRDD(keyed.rdd()).asJavaPairRDD()
    moved = jvm.PythonRDD.valueOfPair(pairs.partitionBy(jvm.PythonPartitioner(partitions, 0)))
    return RDD(moved, context, _LISTS)


def _empty(context: SparkContext, places: Sequence[Places], elements: int) -> Any:
    """A collection of the JVM whose partitions have these preferences, and so many empty elements each."""
    jvm: Any = context._jvm
    scala = _scala(context)
    some = scala.seq([""] * elements)
    rows = [scala.pair(some, scala.seq(list(each))) for each in places]
    itself = getattr(getattr(jvm.scala, "$less$colon$less$"), "MODULE$").refl()
    made = context._jsc.sc().makeRDD(scala.seq(rows), scala.tag)
    return made.flatMap(itself, scala.tag).toJavaRDD()


class _Scala(NamedTuple):
    """What `located` and `_empty` need of the JVM. To look it up takes fifteen messages, each time."""

    seq: Any
    pair: Any
    tag: Any


@lru_cache(maxsize=1)
def _scala(context: SparkContext) -> _Scala:
    jvm: Any = context._jvm
    tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").AnyRef()
    return _Scala(jvm.PythonUtils.toSeq, jvm.scala.Tuple2, tag)


def located(context: SparkContext, items: Sequence[tuple[bytes, str | Places]]) -> RDD[bytes]:
    """Return an RDD with one partition per item, each with its preferred host ("" for none), or places."""
    scala = _scala(context)
    serializer = BatchedSerializer(CPickleSerializer(), 1)
    rows = []
    for data, at in items:
        places = [each for each in ([at] if isinstance(at, str) else at) if each]
        rows.append(scala.pair(bytearray(pickle.dumps([bytes(data)], 4)), scala.seq(places)))
    made = context._jsc.sc().makeRDD(scala.seq(rows), scala.tag)
    return RDD(made.toJavaRDD(), context, serializer)
