"""Declaring views: how long a flow of many takes to be declared and running, beside Spark's analysis of the texts.

Half of the views read sources, half read other views. Spark alone parses and analyses each text, over temporary views
of the same names; a flow analyses, converts, types and fingerprints it, makes one dataflow of all of them, and runs an
epoch. Both in turns, in one session that is warm. It fails if the flow takes three times as long as Spark, or more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.spark.session import local_builder

SOURCES = 10
SCHEMA = "id bigint, k int, name string, amount double, at timestamp"
TEXTS = (
    "SELECT k, count(*) AS n, sum(amount) AS total FROM {one} WHERE id % {number} = 0 GROUP BY k",
    "SELECT a.id, a.name, b.amount FROM {one} a JOIN {other} b ON a.id = b.id WHERE a.k > {number}",
    "SELECT upper(name) AS name, amount * {number} AS amount FROM {one} WHERE name LIKE 'a%'",
    "SELECT id, amount FROM {one} ORDER BY amount DESC, id LIMIT {number}",
    "SELECT k, max(amount) - min(amount) AS spread FROM {one} GROUP BY k HAVING count(*) > {number}",
)


def texts(count: int) -> dict[str, str]:
    """View → SQL. Every second view reads one that was declared before it, if it has the columns."""
    found: dict[str, str] = {}
    for number in range(count):
        one, other = f"s{number % SOURCES}", f"s{(number + 1) % SOURCES}"
        if number % 2 and number > 2:
            found[f"v{number}"] = f"SELECT *, {number} AS mark FROM v{number - 1}"
        else:
            found[f"v{number}"] = TEXTS[number // 2 % len(TEXTS)].format(one=one, other=other, number=number + 2)
    return found


def analysed_by_spark(session: SparkSession, views: dict[str, str]) -> float:
    own = session.newSession()
    for number in range(SOURCES):
        empty = own.createDataFrame(own.sparkContext.emptyRDD(), SCHEMA, verifySchema=False)
        empty.createOrReplaceTempView(f"s{number}")
    started = time.perf_counter()
    for name, text in views.items():
        own.sql(text).createOrReplaceTempView(name)
    return time.perf_counter() - started


def declared_and_running(session: SparkSession, views: dict[str, str]) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as directory:
        flow = hf.Flow("many", log=str(Path(directory) / "log"), spark=session)
        inputs = [flow.input(f"s{number}", SCHEMA) for number in range(SOURCES)]
        started = time.perf_counter()
        for name, text in views.items():
            flow.view(name, text)
        declared = time.perf_counter() - started
        inputs[0].insert([(1, 1, "a", 1.0, None)])
        flow.step()
        running = time.perf_counter() - started
        flow.close()
        return declared, running


TURNS, MOST = 5, 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="20 views")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    session = local_builder(2).appName("declaring").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    views = texts(20 if given.quick else given.views)
    analysed_by_spark(session, texts(20))
    declared_and_running(session, texts(20))
    turns = []
    for _ in range(TURNS):
        turns.append((analysed_by_spark(session, views), *declared_and_running(session, views)))
        spark, declared, running = turns[-1]
        print(
            f"{len(views)} views: Spark analyses them in {spark:.2f} s; declared in {declared:.2f} s "
            f"({declared / spark:.1f} times), running after {running:.2f} s ({running / spark:.1f} times)",
            file=sys.stderr if given.json else sys.stdout,
        )
    session.stop()
    times = statistics.median(running / spark for spark, _, running in turns)
    if given.json:
        print(json.dumps({"views": len(views), "seconds": turns, "times": times}))
    else:
        print(f"running after {times:.1f} times what Spark takes to analyse them, in the median")
    return int(times >= MOST)


if __name__ == "__main__":
    sys.exit(main())
