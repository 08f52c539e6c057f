"""TPC-H views under refreshes of 0.1 %, query by query, against Spark computing the query anew.

Each query is a view in a flow of its own, filled with the tables at ``--scale``. Then come refreshes: half of the
orders of each are new, half are deleted, with their lineitems. (Queries that read neither get new quantities and prices
of 0.1 % of partsupp.) The time of a refresh is all of ``flow.step()``, with the flow's own background work beside it.
Spark's time is that of the same query over Parquet files of the tables as they are after the last refresh, read as
Spark reads them, with adaptive execution, after a warm-up; the two results are compared. Memory is the peak of the JVM
and its Python workers together while the flow is filled and refreshed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from data import parse, session
from memory import Peak
from rich.console import Console
from rich.table import Table
from workloads import tpch

import holdfast as hf
from holdfast.connectors.source import Offer, Part
from holdfast.plan.schema import parse_schema
from holdfast.testing import assert_same_rows

MEAN, MOST = 0.03, 0.1
"""The goal: the time of a refresh by that of Spark, as the geometric mean of the queries, and of any query."""

WARM_UP = 3
"""Refreshes at the beginning that do not count."""


class Changes(hf.Source):
    """Parquet files of changes, taken in the order in which they are given; what they delete is there."""

    retracts = True
    trusted = True

    def __init__(self, schema: str) -> None:
        self.fields = parse_schema(schema, subject="table")
        self._files: list[Path] = []

    def give(self, file: Path) -> None:
        self._files.append(file)

    def poll(self) -> Offer | None:
        return {"file": str(self._files[0])} if self._files else None

    def advance(self, offer: Offer) -> None:
        if self._files and str(self._files[0]) == offer["file"]:
            del self._files[0]

    def parts(self, offer: Offer) -> list[Part]:
        groups = pq.read_metadata(offer["file"]).num_row_groups
        share = -(-groups // (4 * (os.cpu_count() or 1)))
        return [Groups(offer["file"], list(range(one, min(groups, one + share)))) for one in range(0, groups, share)]


@dataclass(frozen=True)
class Groups:
    """Some row groups of a file."""

    file: str
    groups: list[int]

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        file = pq.ParquetFile(self.file)
        names = [name for name in file.schema_arrow.names if name == "_diff"]
        kinds = [*schema, *(pa.field(name, pa.int64()) for name in names)]
        for group in self.groups:
            yield file.read_row_group(group).rename_columns([field.name for field in kinds]).cast(pa.schema(kinds))


@dataclass(frozen=True)
class Result:
    """What was measured of a query."""

    query: str
    stages: int
    fill: float
    refresh: float
    spark: float
    memory: int

    @property
    def ratio(self) -> float:
        return self.refresh / self.spark


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--queries", default="", help="such as q01,q05; all by default")
    parser.add_argument("--refreshes", type=int, default=9, help="refreshes that are measured")
    parser.add_argument("--data", type=Path, help="where the tables are made, or were: for several runs on the same")
    parser.add_argument("--timings", action="store_true", help="show where the time of the median refresh goes")
    arguments = parse(parser, scale=0.01, refreshes=3)
    wanted = {name: sql for name, sql in tpch.queries().items() if not arguments.queries or name in arguments.queries}
    console = Console(stderr=arguments.json)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        data = prepare(arguments, arguments.data or home / "data", console)
        spark = session()
        results = []
        for name, sql in wanted.items():
            result = measure(arguments, spark, data, home / name, name, sql, console)
            results.append(result)
            console.print(
                f"{name}: {result.stages} stages, fill {result.fill:.1f} s, refresh {result.refresh * 1000:,.0f} ms, "
                f"Spark {result.spark * 1000:,.0f} ms, ratio {result.ratio:.2f}, {result.memory / 2**30:.1f} GiB"
            )
            shutil.rmtree(home / name, ignore_errors=True)
        spark.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report(arguments, results)


def prepare(arguments: argparse.Namespace, data: Path, console: Console) -> Path:
    """Make the tables: as generated, before the refreshes, each refresh, and after all of them."""
    count = WARM_UP + arguments.refreshes
    place = data / f"{arguments.scale:g}-{count}"
    if (place / "complete").exists():
        return place
    console.print(f"making the tables at scale {arguments.scale:g} …")
    for part in ("all", "initial", "final"):
        (place / part).mkdir(parents=True, exist_ok=True)
    tpch.generate(place / "all", arguments.scale)
    for name in tpch.SCHEMAS:
        if name not in tpch.Refreshes.TABLES:
            for part in ("initial", "final"):
                write(place / part / f"{name}.parquet", tpch.read_table(place / "all", name))
    refreshes = tpch.Refreshes(place / "all", count)
    for name in refreshes.TABLES:
        write(place / "initial" / f"{name}.parquet", refreshes.initial(name))
        write(place / "final" / f"{name}.parquet", refreshes.final(name))
        for number in range(count):
            write(place / f"refresh-{number}-{name}.parquet", refreshes.change(name, number))
    (place / "complete").touch()
    return place


def write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=1 << 18)


def measure(
    arguments: argparse.Namespace, spark: Any, data: Path, home: Path, name: str, sql: str, console: Console
) -> Result:
    flow = hf.Flow(name, log=home / "log", spark=spark)
    sources = {table: Changes(tpch.SCHEMAS[table]) for table in tpch.tables(sql)}
    for table, source in sources.items():
        flow.source(table, source)
        source.give(data / "initial" / f"{table}.parquet")
    flow.view(name, sql)
    changing = [table for table in ("orders", "lineitem") if table in sources] or ["partsupp"]
    refreshes: list[hf.Epoch] = []
    with Peak() as peak:
        fill = flow.step()
        flow.wait_safe()
        for number in range(WARM_UP + arguments.refreshes):
            for table in changing:
                sources[table].give(data / f"refresh-{number}-{table}.parquet")
            refreshes.append(flow.step())
    counted = refreshes[WARM_UP:]
    refresh = statistics.median(one.seconds for one in counted)
    if arguments.timings:
        middle = sorted(counted, key=lambda one: one.seconds)[len(counted) // 2]
        parts = ", ".join(f"{what} {seconds * 1000:.0f}" for what, seconds in middle.timings.items())
        console.print(f"{name}: {middle.seconds * 1000:.0f} ms: {parts}")
    stages = flow._engine._compiled.flow.stages
    paths = {table: data / ("final" if table in changing else "initial") / f"{table}.parquet" for table in sources}
    seconds, expected = recompute(spark, paths, sql)
    assert_same_rows(flow.read(name), expected, name)
    flow.close()
    return Result(name, stages, fill.seconds, refresh, seconds, peak.bytes)


def recompute(spark: Any, paths: Mapping[str, Path], sql: str) -> tuple[float, pa.Table]:
    """Spark's own answer, and the seconds that it took."""
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "true")
    own.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
    for table, path in paths.items():
        own.read.parquet(str(path)).createOrReplaceTempView(table)
    times = []
    for _ in range(4):
        started = time.perf_counter()
        answer = own.sql(sql).toArrow()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:]), answer


def report(arguments: argparse.Namespace, results: Sequence[Result]) -> int:
    mean = statistics.geometric_mean(result.ratio for result in results)
    slow = [result.query for result in results if result.ratio > MOST]
    met = mean <= MEAN and not slow
    if arguments.json:
        rows = [{**vars(result), "ratio": result.ratio} for result in results]
        print(json.dumps({"scale": arguments.scale, "queries": rows, "geometric_mean": mean, "slow": slow, "met": met}))
        return 0 if met else 1
    table = Table(title=f"TPC-H at scale {arguments.scale:g}: a refresh of 0.1 %, and Spark computing the query anew")
    for heading in ("query", "stages", "fill", "refresh\nmedian", "Spark", "ratio", "memory\npeak"):
        table.add_column(heading, justify="right")
    for one in results:
        table.add_row(
            one.query,
            str(one.stages),
            f"{one.fill:.1f} s",
            f"{one.refresh * 1000:,.0f} ms",
            f"{one.spark * 1000:,.0f} ms",
            f"{one.ratio:.3f}",
            f"{one.memory / 2**30:.1f} GiB",
        )
    console = Console()
    console.print(table)
    console.print(
        f"geometric mean of the ratios: {mean:.3f} (at most {MEAN}); above {MOST}: {', '.join(slow) or 'none'}: "
        f"{'met' if met else 'NOT MET'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
