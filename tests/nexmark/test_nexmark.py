"""Nexmark as views of one flow: after every epoch each view equals Spark's batch answer over everything seen so far."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from workloads.nexmark import SCHEMAS, Nexmark, queries

import holdfast as hf
from holdfast.testing import assert_same_rows

EPOCHS = (2500, 600, 1500)
"""Events of each epoch; at fifty events a second, 92 seconds in all."""


def test_any_slice_of_the_stream_is_the_same_whenever_it_is_made() -> None:
    stream = Nexmark(seed=7)
    whole = stream.events(0, 3000)
    for name, table in whole.items():
        slices = [stream.events(start, 500)[name] for start in range(0, 3000, 500)]
        assert table.equals(pa.concat_tables(slices))
    assert {name: table.num_rows for name, table in whole.items()} == {"person": 60, "auction": 180, "bid": 2760}
    assert not Nexmark(seed=8).events(0, 3000)["bid"].equals(whole["bid"])


def test_bids_are_for_auctions_that_are_there_by_people_who_are() -> None:
    events = Nexmark().events(0, 20_000)
    bids, people = events["bid"], set(events["person"].column("id").to_pylist())
    assert set(bids.column("bidder").to_pylist()) | set(events["auction"].column("seller").to_pylist()) <= people
    opened = dict(zip(*(events["auction"].column(name).to_pylist() for name in ("id", "dateTime")), strict=True))
    pairs = zip(bids.column("auction").to_pylist(), bids.column("dateTime").to_pylist(), strict=True)
    assert all(opened[auction] < time for auction, time in pairs)


def test_every_view_equals_batch_over_everything_seen_so_far(spark: SparkSession, tmp_path: Path) -> None:
    stream, views = Nexmark(events_per_second=50), queries()
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    seen = 0
    with hf.Flow("nexmark", log=tmp_path / "log", spark=spark, strategy="volatile") as flow:
        inputs = {name: flow.input(name, schema) for name, schema in SCHEMAS.items()}
        for name, sql in views.items():
            flow.view(name, sql)
        for count in EPOCHS:
            for name, rows in stream.events(seen, count).items():
                inputs[name].insert(rows)
            seen += count
            flow.step()
            for name, table in stream.events(0, seen).items():
                own.createDataFrame(table).createOrReplaceTempView(name)
            for name, sql in views.items():
                expected = own.sql(sql).toArrow()
                assert expected.num_rows > 0, f"{name} is empty: it tests nothing"
                assert_same_rows(flow.read(name), expected, f"{name} after {seen} events")
