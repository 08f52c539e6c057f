"""A program that is run with secrets in its addresses, does what users do, and fails in several ways.

Everything it says goes to stdout, stderr, the log's locations and Spark's event log, where the test looks for secrets.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import fs as arrow_fs

import holdfast as hf
from holdfast.spark.session import local_builder


class Refusing(hf.Sink):
    """A sink that says its address when it fails, as clients of databases do."""

    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, view: str, fields: object) -> int:
        return -1

    def commit(self, epoch: int, change: pa.Table, lineage: bytes) -> None:
        raise ConnectionError(f"cannot reach {self._address}")


def attempt(what: str, call: Callable[[], object]) -> None:
    """Do something, and show how it ends, as Python would."""
    try:
        print(what, "->", repr(call()))
    except Exception as error:
        print(what, "->", str(error), repr(error), getattr(error, "fields", None))
        traceback.print_exc()


class _Everything(logging.Formatter):
    """A record with all of its fields."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{super().format(record)} {vars(record)}"


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger().handlers[0].setFormatter(_Everything())
    logging.getLogger("holdfast").setLevel(logging.DEBUG)
    given = json.loads(os.environ.pop("LEAKY"))
    home = Path(given["home"])
    builder = local_builder(2).appName("leaky").config("spark.log.level", "WARN")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", (home / "events").as_uri())
    spark = builder.config("spark.eventLog.compress", "false").getOrCreate()

    def declare(log: object, sink: hf.Sink | None = None, **options: object) -> hf.Flow:
        flow = hf.Flow("orders", log=log, spark=spark, partitions=2, **options)  # type: ignore[arg-type]
        flow.source("files", hf.files(home / "in", format="json", schema="id long, user string, amount long"))
        flow.view("spend", "SELECT user, sum(amount) AS total FROM files GROUP BY user")
        flow.view("ratio", "SELECT user, 100 / total AS share FROM spend")
        if sink is not None:
            flow.sink("spend", sink)
        return flow

    def put(name: str, text: str) -> None:
        (home / "in" / f".{name}").write_text(text)
        (home / "in" / f".{name}").rename(home / "in" / name)

    put("a.json", '{"id": 1, "user": "ada", "amount": 5}\n')
    flow = declare([given["good"], given["gone"]], min_replicas=1, local=home / "work")
    attempt("repr", lambda: flow)
    attempt("step", flow.step)
    attempt("safe", lambda: flow.wait_safe(timeout=60))
    # The second location goes.
    files, root = arrow_fs.FileSystem.from_uri(f"{given['gone']}&allow_bucket_deletion=true")
    for _ in range(100):
        with suppress(OSError):  # the flow may write there meanwhile
            files.delete_dir_contents(root.split("/")[0])
            files.delete_dir(root.split("/")[0])
            break
        time.sleep(0.1)
    attempt("status", lambda: json.dumps(flow.status().to_dict()))
    attempt("status object", flow.status)
    attempt("recovery", lambda: flow.last_recovery)
    attempt("explain", lambda: flow.explain("spend"))
    attempt("rows", lambda: sorted(flow.read("spend").collect()))
    put("b.json", '{"id": 2, "user": "bob", "amount": 0}\n')
    attempt("division by zero", flow.step)
    (home / "in" / "b.json").unlink()
    put("c.json", "{ this is no JSON\n")
    attempt("bad file", flow.step)
    (home / "in" / "c.json").unlink()
    attempt("close", flow.close)

    both = declare([given["good"], given["gone"]], min_replicas=2, local=home / "work")
    put("d.json", '{"id": 3, "user": "cyd", "amount": 7}\n')
    attempt("step with both", both.step)
    attempt("never safe", lambda: both.wait_safe(timeout=2))
    attempt("close with both", both.close)
    attempt("nowhere", lambda: declare(given["gone"], local=home / "other").step())
    attempt("unescaped", lambda: declare(given["unescaped"], local=home / "other").step())
    attempt("wrong", lambda: declare(given["wrong"], local=home / "other").step())

    other = given["good"].replace("@copies/log", "@copies/another")
    refusing = declare(other, Refusing(given["database"]), local=home / "third")
    attempt("sink", refusing.step)
    attempt("sink status", lambda: json.dumps(refusing.status().to_dict()))
    attempt("sink close", refusing.close)
    attempt("lease", lambda: declare(other, local=home / "fourth").run(until="idle", lease=given["lease"]))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
