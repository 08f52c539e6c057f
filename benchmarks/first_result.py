"""The first result: from the start of a process to the rows of a view, beside plain Spark's first Python task.

Each in a process of its own, in turns: plain Spark starts a local session and runs one task of a Python function over a
few rows; Holdfast runs README's example up to its first read. The parts say where the time goes. It fails if Holdfast
takes more than 1.3 times as long as plain Spark, by the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SPARK = """
import time; begun = time.perf_counter(); parts = {}
from pyspark.sql import SparkSession
parts["import"] = time.perf_counter() - begun
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
parts["session"] = time.perf_counter() - begun
rows = spark.createDataFrame([(1, "ada", 20.0), (2, "bob", 5.0)], "id long, user string, amount double")
found = rows.mapInArrow(lambda batches: batches, rows.schema).collect()
parts["first Python task"] = time.perf_counter() - begun
"""

HOLDFAST = """
import time; begun = time.perf_counter(); parts = {}
import holdfast as hf
flow = hf.Flow("revenue", log="log")
orders = flow.input("orders", schema="id long, user string, amount double", key="id")
parts["import"] = time.perf_counter() - begun
flow._session()
parts["session"] = time.perf_counter() - begun
flow.view("spend", "SELECT user, sum(amount) AS total, count(*) AS n FROM orders GROUP BY user")
flow.view("top", "SELECT user, total FROM spend ORDER BY total DESC LIMIT 2")
parts["views"] = time.perf_counter() - begun
orders.upsert([(1, "ada", 20.0), (2, "bob", 5.0), (3, "eve", 7.5)])
flow.open()
parts["open"] = time.perf_counter() - begun
flow.step()
parts["first epoch"] = time.perf_counter() - begun
found = flow.read("top").collect()
parts["read"] = time.perf_counter() - begun
"""

END = """
import json; print(json.dumps(parts), flush=True)
import os; os._exit(0)
"""


def parts_of(program: str) -> dict[str, float]:
    """Part → seconds from the start of the process to its end."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            [sys.executable, "-c", program + END], cwd=directory, env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one turn instead of five")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    arguments = parser.parse_args()
    turns = 1 if arguments.quick else 5
    found: dict[str, list[dict[str, float]]] = {"plain Spark": [], "Holdfast": []}
    for _ in range(turns):
        found["plain Spark"].append(parts_of(SPARK))
        found["Holdfast"].append(parts_of(HOLDFAST))
    whole = {}
    for name, runs in found.items():
        before = 0.0
        said = []
        for part in runs[0]:
            at = statistics.median(run[part] for run in runs)
            said.append(f"{part} {at - before:.2f} s")
            before = at
        whole[name] = before
        print(f"{name}: {before:.2f} s ({', '.join(said)})")
    ratio = whole["Holdfast"] / whole["plain Spark"]
    print(f"first result: {ratio:.2f} of plain Spark's first Python task (at most 1.3)")
    if arguments.json:
        print(json.dumps({"seconds": whole, "ratio": ratio}))
    return int(ratio > 1.3)


if __name__ == "__main__":
    sys.exit(main())
