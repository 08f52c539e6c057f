"""An argument of a wrong type or value is our error, at the call, and names the argument: a table of all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.connectors.input import Input, KeyedInput
from holdfast.errors import DeclarationError, HoldfastError, LeaseError
from holdfast.flow import Flow
from holdfast.standby.address import open_lease


class Things:
    """What the calls of the table are made on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.flow = hf.Flow("f", directory / "log")
        self.input = self.flow.input("t", "k long, x long")
        self.keyed = self.flow.input("u", "k long, x long", key="k")
        self.flow.view("v", "SELECT k, x FROM t")

    def declared(self, **given: Any) -> Flow:
        return hf.Flow(**{"name": "g", "log": self.directory / "g", **given})


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Things]:
    yield Things(tmp_path_factory.mktemp("arguments"))


Call = Callable[[Things, Any], object]
NOT_TEXTS = (None, 5, "", b"x", ["v"], {"v": 1}, True)
NOT_WHOLE = ("4", 1.5, [1], True, b"1", float("nan"))
NOT_SECONDS = ("1", [1], True, -1, float("nan"), float("inf"), {})
NOT_FUNCTIONS = (5, "print", [print])


class Session:
    """What a Spark session is told by."""

    sparkContext = createDataFrame = None


CALLS: dict[str, tuple[Call, tuple[object, ...]]] = {
    "Flow(name)": (lambda o, x: o.declared(name=x), (None, 5, "", b"x", ["a"])),
    "Flow(log)": (lambda o, x: o.declared(log=x), (None, 5, "", b"x", [], [None], ["a", ""], {}, 1.5)),
    "Flow(spark)": (lambda o, x: o.declared(spark=x), (5, "local", object())),
    "Flow(partitions)": (lambda o, x: o.declared(partitions=x), (*NOT_WHOLE, 0, 257, -1)),
    "Flow(retain)": (lambda o, x: o.declared(retain=x), (None, "4", -1, 1.5, [], True, "x")),
    "Flow(min_replicas)": (lambda o, x: o.declared(min_replicas=x), (*NOT_WHOLE, 0, 2, None)),
    "Flow(max_unsafe)": (lambda o, x: o.declared(max_unsafe=x), ("4", 0, -1, 1.5, [], True, "MB")),
    "Flow(strategy)": (lambda o, x: o.declared(strategy=x), (5, "sync", [])),
    "Flow(guarantee)": (lambda o, x: o.declared(guarantee=x), (5, "once", [])),
    "Flow(local)": (lambda o, x: o.declared(local=x), (5, "", b"x", ["a"])),
    "Flow(on_loss)": (lambda o, x: o.declared(on_loss=x), (None, 5, "retry", [])),
    "Flow(detection_timeout)": (lambda o, x: o.declared(detection_timeout=x), (*NOT_SECONDS, 0.5)),
    "Flow(max_clock_jump)": (lambda o, x: o.declared(max_clock_jump=x), (5, "", "4", "soon", [], True, "0s")),
    "Flow(accept_loss)": (lambda o, x: o.declared(accept_loss=x), (None, 1, "yes", [])),
    "source(name)": (lambda o, x: o.flow.source(x, hf.rate(1)), (None, 5, "", b"x", ["v"], "t", "v")),
    "source(source)": (lambda o, x: o.flow.source("s", x), (None, 5, "files", hf.rate)),
    "source(expires)": (lambda o, x: o.flow.source("s", hf.rate(1), expires=x), (5, "", ["at"], True)),
    "source(key)": (lambda o, x: o.flow.source("s", hf.rate(1), key=x), (5, "", [], ["k", "k"], [5], "nokey", True)),
    "source(order_by)": (lambda o, x: o.flow.source("s", hf.rate(1), key="k", order_by=x), (5, "", ["k"], "nokey")),
    "source(on_missing)": (lambda o, x: o.flow.source("s", hf.rate(1), key="k", on_missing=x), (5, "", "skip", [])),
    "input(key)": (lambda o, x: o.flow.input("s", "k long", key=x), (5, "", [], ["k", "k"], [5], "nokey", True)),
    "input(order_by)": (lambda o, x: o.flow.input("s", "k long", key="k", order_by=x), (5, "", ["k"], "nokey")),
    "input(on_missing)": (lambda o, x: o.flow.input("s", "k long", key="k", on_missing=x), (5, "", "skip", [])),
    "KeyedInput.upsert(rows)": (lambda o, x: o.keyed.upsert(x), (None, 5, "ab", b"x", [5], [(1,)], [("a", "b")], {})),
    "KeyedInput.delete_keys(keys)": (lambda o, x: o.keyed.delete_keys(x), (None, 5, "ab", [(1, 2)], ["a"], {"k": 1})),
    "KeyedInput.delete_keys(on_missing)": (lambda o, x: o.keyed.delete_keys([1], x), (5, "", "skip", [])),
    "source(unique)": (
        lambda o, x: o.flow.source("s", hf.rate(1), unique=x),
        (5, "", [], ["value", "value"], b"x", "no"),
    ),
    "source(within)": (
        lambda o, x: o.flow.source("s", hf.rate(1), unique="value", within=x),
        (0, -1, 1.5, "", "soon", [], True, "0s", "all"),
    ),
    "source(false_positives)": (
        lambda o, x: o.flow.source("s", hf.rate(1), unique="value", false_positives=x),
        (None, "1", 0, -1, 0.6, [], True, float("nan")),
    ),
    "input(unique)": (lambda o, x: o.flow.input("s", "k long", unique=x), (5, "", [], ["k", "k"], b"x", "no")),
    "input(within)": (
        lambda o, x: o.flow.input("s", "k long", unique="k", within=x),
        (0, -1, 1.5, "", "soon", [], True, "0s", "all"),
    ),
    "input(false_positives)": (
        lambda o, x: o.flow.input("s", "k long", unique="k", false_positives=x),
        (None, "1", 0, -1, 0.6, [], True, float("nan")),
    ),
    "input(name)": (lambda o, x: o.flow.input(x, "k long"), (None, 5, "", b"x", ["v"], "t", "v")),
    "input(schema)": (lambda o, x: o.flow.input("s", x), (None, 5, "", ["k long"], {"k": "long"}, "k nothing")),
    "input(expires)": (lambda o, x: o.flow.input("s", "k long", expires=x), (5, "", ["at"])),
    "udf(name)": (lambda o, x: o.flow.udf(x, len, "long"), (None, 5, "", b"x", ["f"], "a b")),
    "udf(function)": (lambda o, x: o.flow.udf("f", x, "long"), (5, "len", [len])),
    "udf(returns)": (lambda o, x: o.flow.udf("f", len, x), (None, 5, "", ["long"], "nothing")),
    "view(name)": (lambda o, x: o.flow.view(x, "SELECT k FROM t"), (*NOT_TEXTS, "t")),
    "view(max_rounds)": (lambda o, x: o.flow.view("w", "SELECT k FROM t", max_rounds=x), (*NOT_WHOLE, 0, -1)),
    "iterate(name)": (lambda o, x: o.flow.iterate(x, "SELECT k FROM t", lambda rows: rows), (*NOT_TEXTS, "t")),
    "iterate(start)": (lambda o, x: o.flow.iterate("w", x, lambda rows: rows), (*NOT_TEXTS, object())),
    "iterate(body)": (lambda o, x: o.flow.iterate("w", "SELECT k FROM t", x), (None, *NOT_FUNCTIONS)),
    "iterate(until)": (
        lambda o, x: o.flow.iterate("w", "SELECT k FROM t", lambda rows: rows, x),
        ("4", 1.5, [1], True, -1),
    ),
    "iterate(max_rounds)": (
        lambda o, x: o.flow.iterate("w", "SELECT k FROM t", lambda rows: rows, max_rounds=x),
        (*NOT_WHOLE, 0, -1),
    ),
    "view(query)": (lambda o, x: o.flow.view("w", x), (*NOT_TEXTS, object())),
    "drop(view)": (lambda o, x: o.flow.drop(x), (*NOT_TEXTS, "w")),
    "sink(view)": (lambda o, x: o.flow.sink(x, hf.foreach(print)), (*NOT_TEXTS, "w")),
    "sink(sink)": (lambda o, x: o.flow.sink("v", x), (None, 5, print, hf.foreach)),
    "on_membership(function)": (lambda o, x: o.flow.on_membership(x), (None, *NOT_FUNCTIONS)),
    "table(name)": (lambda o, x: o.flow.table(x), (*NOT_TEXTS, "w")),
    "sql(text)": (lambda o, x: o.flow.sql(x), (*NOT_TEXTS, "SELECT * FROM w")),
    "run(until)": (lambda o, x: o.flow.run(until=x), (5, "", "never", ["idle"], True)),
    "run(epochs)": (lambda o, x: o.flow.run(epochs=x), (*NOT_WHOLE, -1)),
    "run(interval)": (lambda o, x: o.flow.run(epochs=1, interval=x), (None, *NOT_SECONDS)),
    "run(on_epoch)": (lambda o, x: o.flow.run(epochs=1, on_epoch=x), NOT_FUNCTIONS),
    "run(lease)": (lambda o, x: o.flow.run(epochs=1, lease=x), (5, "", ["a"], True)),
    "run(lease_timeout)": (
        lambda o, x: o.flow.run(epochs=1, lease=f"file://{o.directory}/lease", lease_timeout=x),
        ("x", -1, [], True, float("nan")),
    ),
    "run(on_lease)": (lambda o, x: o.flow.run(epochs=1, on_lease=x), NOT_FUNCTIONS),
    "run(min_members)": (lambda o, x: o.flow.run(epochs=1, min_members=x), (*NOT_WHOLE, -1)),
    "run(accept_loss)": (lambda o, x: o.flow.run(epochs=1, accept_loss=x), (None, 1, "yes", [])),
    "run(timeout)": (lambda o, x: o.flow.run(epochs=1, min_members=1, timeout=x), NOT_SECONDS),
    "read(view)": (lambda o, x: o.flow.read(x), (*NOT_TEXTS, "w")),
    "read(at)": (lambda o, x: o.flow.read("v", at=x), ("x", *NOT_WHOLE)),
    "changes(view)": (lambda o, x: o.flow.changes(x), (*NOT_TEXTS, "w")),
    "changes(since)": (lambda o, x: o.flow.changes("v", since=x), (None, "a", *NOT_WHOLE)),
    "explain(view)": (lambda o, x: o.flow.explain(x), (*(one for one in NOT_TEXTS if one is not None), "w")),
    "wait_safe(epoch)": (lambda o, x: o.flow.wait_safe(x), NOT_WHOLE),
    "wait_safe(timeout)": (lambda o, x: o.flow.wait_safe(timeout=x), NOT_SECONDS),
    "Input.insert(rows)": (lambda o, x: o.input.insert(x), (None, 5, "ab", b"x", [5], [(1,)], [("a", "b")], {})),
    "Input.delete(rows)": (lambda o, x: o.input.delete(x), (None, 5, "ab", [5], [(1,)], {})),
    "Input.update(old)": (lambda o, x: o.input.update(x, [(1, 1)]), (None, 5, "ab", [5], [(1,)], {})),
    "Input.update(new)": (lambda o, x: o.input.update([(1, 1)], x), (None, 5, "ab", [5], [(1,)], {})),
    "rate(rows_per_epoch)": (lambda o, x: hf.rate(x), ("x", None, *NOT_WHOLE, 0)),
    "rate(keys)": (lambda o, x: hf.rate(1, keys=x), (None, *NOT_WHOLE, 0)),
    "rate(seed)": (lambda o, x: hf.rate(1, seed=x), (None, *NOT_WHOLE)),
    "rate(epochs)": (lambda o, x: hf.rate(1, epochs=x), (*NOT_WHOLE, -1)),
    "files(path)": (lambda o, x: hf.files(x, schema="k long"), (None, 5, "", [], [5], [""], b"x", {})),
    "files(format)": (lambda o, x: hf.files(o.directory, format=x, schema="k long"), (None, 5, "xml", [], {})),
    "files(schema)": (lambda o, x: hf.files(o.directory, format="csv", schema=x), (None, 5, "", ["k"], "k nothing")),
    "files(max_files_per_epoch)": (
        lambda o, x: hf.files(o.directory, schema="k long", max_files_per_epoch=x),
        (*NOT_WHOLE, 0, -1),
    ),
    "files(on_bad_file)": (
        lambda o, x: hf.files(o.directory, schema="k long", on_bad_file=x),
        (None, 5, "ignore", [], {}),
    ),
    "files(identity)": (
        lambda o, x: hf.files(o.directory, schema="k long", identity=x),
        (None, 5, "name", [], {}),
    ),
    "files(options)": (
        lambda o, x: hf.files(o.directory, format="csv", schema="k long", options=x),
        (5, "header", [("header", "true")], {1: "x"}, {"header": None}),
    ),
    "files(replicas)": (lambda o, x: hf.files([o.directory], schema="k long", replicas=x), (None, 2, "yes", [])),
    "table(df)": (lambda o, x: hf.table(x), (None, 5, "t", [(1,)])),
    "changelog(path)": (lambda o, x: hf.changelog(x), (None, 5, "", b"x", ["a"])),
    "changelog(compact)": (lambda o, x: hf.changelog(o.directory / "out", compact=x), (*NOT_WHOLE, 0, 1, -1)),
    "foreach(function)": (lambda o, x: hf.foreach(x), (None, *NOT_FUNCTIONS)),
    "foreach(seen)": (lambda o, x: hf.foreach(print, seen=x), NOT_FUNCTIONS),
    "predict(classes)": (lambda o, x: hf.predict(x, hf.nosync(), hf.SinkKind.APPEND, failure="host"), (5, "x", [5])),
    "predict(strategy)": (lambda o, x: hf.predict((), x, hf.SinkKind.APPEND), (None, 5, "nosync")),
    "predict(sink)": (lambda o, x: hf.predict((), hf.nosync(), x), (None, 5, "append")),
    "predict(failure)": (
        lambda o, x: hf.predict((), hf.nosync(), hf.SinkKind.APPEND, failure=x),
        (None, 5, "disk", []),
    ),
    "predict(anchored)": (
        lambda o, x: hf.predict((), hf.nosync(), hf.SinkKind.APPEND, anchored=x),
        (None, 1, "yes", []),
    ),
    "aligned_snapshot(every)": (lambda o, x: hf.aligned_snapshot(x), (None, *NOT_WHOLE, 0, -1)),
    "aligned_snapshot(output)": (lambda o, x: hf.aligned_snapshot(4, x), (None, 5, "late", [])),
    "passive_standby(every)": (lambda o, x: hf.passive_standby(x), (None, *NOT_WHOLE, 0, -1)),
    "upstream_backup(every)": (lambda o, x: hf.upstream_backup(x), (None, *NOT_WHOLE, 0, -1)),
    "foreach(lineage)": (lambda o, x: hf.foreach(print, seen=print, lineage=x), NOT_FUNCTIONS),
    "foreach(ids)": (lambda o, x: hf.foreach(print, ids=x), (None, 1, "yes", [])),
    "changelog(ids)": (lambda o, x: hf.changelog(o.directory / "out", ids=x), (None, 1, "yes", [])),
    "snapshot(name)": (lambda o, x: o.flow.snapshot(x), NOT_TEXTS),
    "remove_snapshot(name)": (lambda o, x: o.flow.remove_snapshot(x), NOT_TEXTS),
    "branch(name)": (lambda o, x: o.flow.branch(x), NOT_TEXTS),
    "branch(at)": (lambda o, x: o.flow.branch("b", x), ("4", 1.5, [1], True, -1)),
    "remove_branch(name)": (lambda o, x: o.flow.remove_branch(x), NOT_TEXTS),
    "compare(here)": (lambda o, x: hf.compare(x, o.flow, "v"), (None, 5, "main", [])),
    "compare(there)": (lambda o, x: hf.compare(o.flow, x, "v"), (None, 5, "main", [])),
    "compare(view)": (lambda o, x: hf.compare(o.flow, o.flow, x), (*NOT_TEXTS, "w")),
    "compare(at)": (lambda o, x: hf.compare(o.flow, o.flow, "v", x), ("4", 1.5, [1], True, -1)),
    "compare(by)": (lambda o, x: hf.compare(o.flow, o.flow, "v", by=x), (5, "", [], ["k", "k"], [5], True)),
    "copy_snapshot(log)": (lambda o, x: hf.copy_snapshot(x, "s", o.directory / "copy"), (None, 5, "", b"x", [])),
    "copy_snapshot(name)": (lambda o, x: hf.copy_snapshot(o.directory / "l", x, o.directory / "copy"), NOT_TEXTS),
    "copy_snapshot(target)": (lambda o, x: hf.copy_snapshot(o.directory / "l", "s", x), (None, 5, "", b"x", [])),
    "copy_snapshot(flow)": (
        lambda o, x: hf.copy_snapshot(o.directory / "l", "s", o.directory / "copy", flow=x),
        (5, "", b"x", [], True),
    ),
    "location(address)": (lambda o, x: hf.location(x), (None, 5, "", b"x", [])),
    "location(credentials)": (lambda o, x: hf.location("s3://bucket/log", credentials=x), (5, "secret", {})),
    "zookeeper(hosts)": (lambda o, x: hf.zookeeper(x, "/f"), (None, 5, "", b"x", ["h:1"], "nowhere")),
    "zookeeper(path)": (lambda o, x: hf.zookeeper("h:1", x), (None, 5, "", b"x", "/")),
    "zookeeper(timeout)": (lambda o, x: hf.zookeeper("h:1", "/f", timeout=x), ("x", -1, [], True)),
    "zookeeper(auth)": (lambda o, x: hf.zookeeper("h:1", "/f", auth=x), (5, "digest", ("digest",), {})),
    "zookeeper(acl)": (lambda o, x: hf.zookeeper("h:1", "/f", acl=x), (5, "all", {})),
    "zookeeper(tls)": (lambda o, x: hf.zookeeper("h:1", "/f", tls=x), (None, 1, "yes")),
    "zookeeper(ca)": (lambda o, x: hf.zookeeper("h:1", "/f", tls=True, ca=x), (5, "", [])),
    "zookeeper(certificate)": (lambda o, x: hf.zookeeper("h:1", "/f", tls=True, certificate=x), (5, "", [])),
    "zookeeper(key)": (lambda o, x: hf.zookeeper("h:1", "/f", tls=True, key=x), (5, "", [])),
    "zookeeper(key_password)": (lambda o, x: hf.zookeeper("h:1", "/f", tls=True, key_password=x), (5, [], b"x")),
    "zookeeper(check_hostname)": (lambda o, x: hf.zookeeper("h:1", "/f", check_hostname=x), (None, 1, "yes")),
    "zookeeper(sasl)": (lambda o, x: hf.zookeeper("h:1", "/f", sasl=x), (5, "x", [1])),
    "query(spark)": (lambda o, x: hf.query(x, "SELECT 1"), (None, 5, "local")),
    "files(op)": (lambda o, x: hf.files(o.directory, "json", "k long", op=x), (5, "", ["op"], "k", True)),
    "files(envelope)": (lambda o, x: hf.files(o.directory, "json", "k long", envelope=x), (5, "", "maxwell", [])),
    "files(envelope_columns)": (
        lambda o, x: hf.files(o.directory, "json", "k long", envelope="debezium", envelope_columns=x),
        (5, "lsn", ["lsn"], {"l": 5}, {"l": "lsn"}, {"l": "a.b.c long"}, {"l": "op string"}),
    ),
    "replaced(of)": (lambda o, x: hf.replaced(x, schema="k long"), (None, 5, "", [], b"x", {})),
    "replaced(format)": (lambda o, x: hf.replaced(o.directory, x, "k long"), (None, 5, "", "orc", [])),
    "replaced(schema)": (lambda o, x: hf.replaced(o.directory, "json", x), (5, "", ["k long"], "k nothing")),
    "replaced(every)": (lambda o, x: hf.replaced(o.directory, schema="k long", every=x), (None, "x", -1, [], True)),
    "replaced(key)": (lambda o, x: hf.replaced(o.directory, schema="k long", key=x), (5, "", [], "nokey", [5])),
    "replaced(options)": (lambda o, x: hf.replaced(o.directory, "json", "k long", options=x), (5, "x", {"mode": "x"})),
    "files(fetch_to)": (lambda o, x: hf.files(o.directory, "json", "k long", fetch_to=x), (5, "", [], b"x")),
    "files(recursive)": (lambda o, x: hf.files(o.directory, "json", "k long", recursive=x), (None, 5, "", [])),
    "files(partitioned_by)": (
        lambda o, x: hf.files(o.directory, "json", "k long", partitioned_by=x),
        (None, 5, "nocolumn", [5], [""]),
    ),
    "files(on_missing)": (lambda o, x: hf.files(o.directory, "json", "k long", on_missing=x), (5, "", "skip", [])),
    "files(on_extra)": (lambda o, x: hf.files(o.directory, "json", "k long", on_extra=x), (None, 5, "", "skip", [])),
    "files(on_bad_rows)": (lambda o, x: hf.files(o.directory, "json", "k long", on_bad_rows=x), (None, 5, "skip", [])),
    "files(keep)": (lambda o, x: hf.files(o.directory, "json", "k long", keep=x), (5, "", "all", True)),
    "sink(retries)": (lambda o, x: o.flow.sink("v", hf.foreach(print), retries=x), (*NOT_WHOLE, -1)),
    "sink(pause)": (lambda o, x: o.flow.sink("v", hf.foreach(print), pause=x), NOT_SECONDS),
    "unsink(view)": (lambda o, x: o.flow.unsink(x), (*NOT_TEXTS, "w")),
    "unsink(sink)": (lambda o, x: o.flow.unsink("v", x), (5, "v", [])),
    "snapshot_table(path)": (lambda o, x: hf.snapshot_table(x), (None, 5, "", b"x", ["a"])),
    "upserts(function)": (lambda o, x: hf.upserts(x, "k"), (None, *NOT_FUNCTIONS)),
    "upserts(key)": (lambda o, x: hf.upserts(print, x), (None, 5, "", [], [5], [""])),
    "upserts(seen)": (lambda o, x: hf.upserts(print, "k", seen=x), NOT_FUNCTIONS),
    "upserts(lineage)": (lambda o, x: hf.upserts(print, "k", seen=len, lineage=x), NOT_FUNCTIONS),  # type: ignore[arg-type]
    "start(interval)": (lambda o, x: o.flow.start(interval=x), (None, *NOT_SECONDS)),
    "start(on_epoch)": (lambda o, x: o.flow.start(on_epoch=x), NOT_FUNCTIONS),
    "await_idle(timeout)": (lambda o, x: o.flow.await_idle(x), NOT_SECONDS),
    "await_termination(timeout)": (lambda o, x: o.flow.await_termination(x), NOT_SECONDS),
    "lookup(view)": (lambda o, x: o.flow.lookup(x, k=1, x=1), (*NOT_TEXTS, "w")),
    "lookup(keys)": (lambda o, x: o.flow.lookup("v", x), (None, 5, "1", b"x", [1], [(1,)], [{"k": 1, "y": 1}], ["1"])),
    "lookup(key)": (lambda o, x: o.flow.lookup("v", k=1, x=x), ("1", 1.5, [1], True)),
    "lookup(at)": (lambda o, x: o.flow.lookup("v", k=1, x=1, at=x), NOT_WHOLE),
    "lookup(scan)": (lambda o, x: o.flow.lookup("v", k=1, x=1, scan=x), (None, 1, "yes", [])),
    "subscribe(view)": (lambda o, x: o.flow.subscribe(x), (*NOT_TEXTS, "w")),
    "subscribe(since)": (lambda o, x: o.flow.subscribe("v", x), (*NOT_WHOLE, -2)),
    "subscribe(timeout)": (lambda o, x: o.flow.subscribe("v", timeout=x), NOT_SECONDS),
    "drain(member)": (lambda o, x: o.flow.drain(x), (None, *NOT_TEXTS)),
    "rewind(to)": (lambda o, x: o.flow.rewind(x), (None, *NOT_WHOLE, -1)),
    "rewind(reason)": (lambda o, x: o.flow.rewind(0, reason=x), (None, 5, [], b"x")),
    "rewind(skip)": (lambda o, x: o.flow.rewind(0, skip=x), (5, "v", ["v"], {"t": "v"}, {5: []})),
    "rescale(partitions)": (lambda o, x: o.flow.rescale(x), (None, *NOT_WHOLE, 0, 257, -1)),
    "sql(at)": (lambda o, x: o.flow.sql("SELECT * FROM v", at=x), (*NOT_WHOLE, -1)),
    "open_log(log)": (lambda o, x: hf.open_log(x), (None, 5, "", b"x", ["a"])),
    "open_log(others)": (lambda o, x: hf.open_log(o.directory, others=x), (None, 5, "s3://a")),
    "read(log)": (lambda o, x: hf.read(x, "v"), (None, 5, "", b"x", ["a"])),
    "read(others)": (lambda o, x: hf.read(o.directory, "v", others=x), (None, 5, "s3://a")),
    "query(query)": (lambda o, x: hf.query(Session(), x), NOT_TEXTS),  # type: ignore[arg-type]
    "query(on_loss)": (lambda o, x: hf.query(Session(), "SELECT 1", on_loss=x), (None, 5, "retry", [])),  # type: ignore[arg-type]
    "query(tables)": (lambda o, x: hf.query(Session(), "SELECT 1", tables=x), (5, "t", ["t"], {"t": 5}, {5: 5})),  # type: ignore[arg-type]
    "query(timeout)": (lambda o, x: hf.query(Session(), "SELECT 1", timeout=x), (*NOT_SECONDS, 0)),  # type: ignore[arg-type]
    "detection(timeout)": (lambda o, x: hf.detection(x), (None, *NOT_SECONDS, 0.5)),
    "nondeterministic(function)": (lambda o, x: hf.nondeterministic(x), (None, *NOT_FUNCTIONS)),
    "on_membership(spark)": (lambda o, x: hf.on_membership(x), (None, 5, "local")),
    "open_lease(lease)": (lambda o, x: open_lease(x), (None, 5, "", [], "x", "ftp://x")),
    "open_lease(timeout)": (lambda o, x: open_lease("file:///x", x), ("x", -1, [], True, float("nan"), 1e9)),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_that_cannot_be_is_our_error_at_the_call(things: Things, call: str) -> None:
    function, values = CALLS[call]
    for value in values:
        with pytest.raises(HoldfastError) as raised:
            function(things, value)
            pytest.fail(f"{call} takes {value!r}")
        assert isinstance(raised.value, DeclarationError | LeaseError), (call, value, raised.value)
        assert str(raised.value).strip(), (call, value)
    assert things.flow._engine is None, "a call that was refused has opened the flow"


def test_the_error_says_subject_argument_expected_and_found(things: Things) -> None:
    with pytest.raises(DeclarationError, match=r"flow 'g': partitions must be a whole number from 1 to 256") as it:
        things.declared(partitions="4")
    assert it.value.fields == {
        "subject": "flow 'g'",
        "argument": "partitions",
        "expected": "a whole number from 1 to 256",
        "found": "4",
    }


def test_numbers_of_numpy_are_numbers(things: Things) -> None:
    things.declared(partitions=np.int64(4), detection_timeout=np.float32(2))
    hf.rate(np.int32(5))


def _public() -> Iterator[str]:
    for kind, prefix in ((Flow, ""), (Input, "Input."), (KeyedInput, "KeyedInput.")):
        for name, value in vars(kind).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                yield from (f"{prefix}{name}({one})" for one in inspect.signature(value).parameters if one != "self")
    yield from (f"Flow({one})" for one in inspect.signature(Flow).parameters)
    for name in hf.__all__:
        value = getattr(hf, name)
        if inspect.isfunction(value):
            yield from (f"{name}({one})" for one in inspect.signature(value).parameters)


def test_the_table_has_every_public_function() -> None:
    ours = {f"Input.{name}(offer)" for name in ("advance", "reject", "parts")}
    ours |= {"Input.reject(error)", "Input.fold(offers)"}
    assert set(_public()) - ours - {"flow.run(lease_timeout)"} <= set(CALLS)
