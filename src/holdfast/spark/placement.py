"""Work on the hosts that have the layers.

A member is a host directory (`store/here.py`); which partition belongs to which member is a function of the membership
alone (`coordinator/placement.py`). A partition's tasks are given its member's hosts as their preferred location: what
the stage makes is packed into one element, zipped with a collection that has that location, and Spark runs the whole
narrow chain there. A preference is not an order; so each task looks where it is, and fails if it is elsewhere, for
Spark to try it again. When the member is gone that cannot help: the job fails, and the driver assigns anew.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pyspark import RDD, SparkContext, cloudpickle
from pyspark.serializers import BatchedSerializer, CPickleSerializer

from holdfast.coordinator.placement import assign
from holdfast.spark.membership import present
from holdfast.store.here import member

T = TypeVar("T")

MISPLACED = "holdfast: misplaced task"


class Misplaced(RuntimeError):
    """A task ran on another member than the one whose layers it needs."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(f"{MISPLACED}: it needs member {wanted}, and is on {found or 'a host without a directory'}")


class Placement:
    """The members of a Spark application that have directories, and what belongs to whom."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._hosts: dict[str, str] = {}
        """Member → its host."""

        self.refresh()

    @property
    def scattered(self) -> bool:
        """Whether layers are on several hosts' own disks."""
        return bool(self._hosts)

    def refresh(self) -> bool:
        """Look who is there; whether it is others than before."""
        before = dict(self._hosts)
        if self._context._jsc.sc().isLocal():
            return False
        for attempt in range(10):
            if attempt:
                time.sleep(0.1 * attempt)
            hosts = sorted({one.host for one in present(self._context)})
            names = located(self._context, [(b"", host) for host in hosts]).map(lambda _: member()).collect()
            # One name from two hosts: a task ran elsewhere than it should. No name: hosts have no directories.
            if len(set(names)) == len(hosts) or not all(names):
                break
        known = {name: host for name, host in zip(names, hosts, strict=True) if names.count(name) == 1}
        self._hosts = known if all(names) else {}
        return self._hosts != before

    def owners(self, partitions: int) -> tuple[str, ...]:
        """Partition → member; nothing if layers are not scattered."""
        return assign(partitions, self._hosts) if self._hosts else ()

    def host(self, name: str) -> str:
        return self._hosts[name]

    def pinned(self, rdd: RDD[T], owners: Sequence[str]) -> RDD[T]:
        """``rdd`` with each partition computed on its owner's host, as far as Spark can."""
        packed = rdd.mapPartitions(_one_element)
        places = located(self._context, [(b"", self.host(owner)) for owner in owners])
        zipped = packed._jrdd.zip(places._jrdd).keys()
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
    tag = jvm.org.apache.spark.api.java.JavaSparkContext.fakeClassTag()
    made = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), tag)
    return RDD(made.toJavaRDD(), context, serializer)
