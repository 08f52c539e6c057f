"""Bad inputs and misuses, each with the message that it gives: ``misuses.md`` is the list, and is compared.

No message is a traceback or a Java stack, each is an error of Holdfast's, and after all of them the flow has every row
that was pushed rightly. ``HOLDFAST_WRITE_DOCS=1`` writes the messages of now into the file; read what changed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from avro_files import write_avro

HERE = Path(__file__).parent
LIST = HERE / "misuses.md"
CASES = [line for line in (HERE / "calls.txt").read_text().splitlines() if line and not line.startswith("#")]


def _world(spark: SparkSession, directory: Path) -> dict[str, Any]:
    for name in ("json", "csv", "parquet", "avro", "bad", "empty"):
        (directory / name).mkdir()
    (directory / "json/1.json").write_text(json.dumps({"id": 1, "v": "a"}) + "\n")
    (directory / "csv/1.csv").write_text("id,v\n1,a\n")
    pq.write_table(pa.table({"id": [1], "v": ["a"]}), directory / "parquet/1.parquet")
    write_avro(spark.sql("SELECT 1L AS id, 'a' AS v"), directory / "avro/1.avro")
    (directory / "bad/1.json").write_text('{"id": 1, "v": "a"}\n{"id": "one"}\n')
    (directory / "bad/1.parquet").write_bytes(b"PAR1 and no more")
    flow = hf.Flow("shop", log=directory / "log", spark=spark, partitions=1)
    orders = flow.input("orders", "id long, user string, amount double, at timestamp")
    users = flow.input("users", "id long, name string", key="id")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    flow.view("names", "SELECT id, name FROM users")
    closed = hf.Flow("closed", log=directory / "closed", spark=spark, partitions=1)
    gone = closed.input("t", "k long")
    closed.close()

    def only(source: hf.Source, **more: Any) -> object:
        """A flow of one source, run once."""
        with hf.Flow("one", log=directory / "one", spark=spark, partitions=1) as one:
            return one.source("t", source, **more).view("v", "SELECT * FROM t").step()

    def written(sink: hf.Sink) -> object:
        """A flow with a sink, run once."""
        with hf.Flow("sunk", log=directory / "sunk", spark=spark, partitions=1) as sunk:
            pushed = sunk.input("t", "id long")
            sunk.view("v", "SELECT id FROM t").sink("v", sink)
            pushed.insert([(1,)])
            return sunk.step()

    def viewed(query: str, *rows: tuple[int, str]) -> object:
        """A flow with a view over rows, run once."""
        with hf.Flow("viewed", log=directory / "viewed", spark=spark, partitions=1) as viewed:
            viewed.udf("parsed", int, "int")
            viewed.udf("left_at_once", sys.exit, "int")
            pushed = viewed.input("t", "x long, s string")
            viewed.view("v", query)
            pushed.insert(rows)
            return viewed.step()

    return {
        "hf": hf, "pa": pa, "pd": pd, "d": directory, "spark": spark, "flow": flow, "orders": orders, "users": users,
        "closed": closed, "gone": gone, "only": only, "written": written, "viewed": viewed,
    }  # fmt: skip


def _said(call: str, world: dict[str, Any]) -> str:
    try:
        value = eval(call, dict(world))
    except hf.HoldfastError as error:
        text = str(error).replace(str(world["d"]), "DIR")
        text = re.sub(r"0x[0-9a-f]+", "0x…", text)
        assert "Traceback" not in text and "\tat " not in text, f"{call}: {text}"
        assert len(text) < 1000, f"{call}: {text}"
        return f"{type(error).__name__}: {text}"
    pytest.fail(f"{call} is no misuse: it gave {value!r}")


def test_each_misuse_has_its_message_and_the_flow_is_usable_after(spark: SparkSession, tmp_path: Path) -> None:
    world = _world(spark, tmp_path)
    flow, orders, users = world["flow"], world["orders"], world["users"]
    orders.insert([(1, "ada", 2.0, None)])
    users.upsert([(1, "Ada")])
    flow.step()
    lines = [
        "# Misuses, and what they say",
        "",
        "Made by `tests/misuse/test_misuse.py`; the calls are in `calls.txt`.",
        "",
    ]
    for call in CASES:
        message = _said(call, world)
        lines += [f"* `{call}`", f"  {message}"]
        orders.discard()
        users.discard()
    orders.insert([(2, "ada", 3.0, None)])
    users.upsert([(1, "Ada L."), (2, "Bob")])
    flow.step()
    assert [tuple(row) for row in flow.read("spend").collect()] == [("ada", 5.0)]
    assert sorted(map(tuple, flow.read("names").collect())) == [(1, "Ada L."), (2, "Bob")]
    flow.close()
    text = "\n".join(lines) + "\n"
    if os.environ.get("HOLDFAST_WRITE_DOCS"):
        LIST.write_text(text)
    assert text == LIST.read_text()


def test_there_are_a_hundred_of_them() -> None:
    assert len(CASES) >= 100 and len(set(CASES)) == len(CASES)
