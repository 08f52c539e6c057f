"""A member that stands still, with speculation and without: how long the epoch takes that meets it.

On a cluster on this machine whose workers keep their own partitions, one executor is stopped (SIGSTOP) just before an
epoch, and goes on after a while. With speculation Spark runs copies of its tasks on other workers, which take the
layers that they lack from the log's copies. Without, the epoch waits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from data import SCHEMA, parse, write_rows
from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.testing.cluster import Cluster

_SPECULATION = {
    "spark__speculation": "true",
    "spark__speculation__interval": "100ms",
    "spark__speculation__quantile": "0.3",
    "spark__speculation__multiplier": "3",
    "spark__speculation__minTaskRuntime": "1s",
    "spark__speculation__task__duration__threshold": "2s",
}


def _measured(speculates: bool, arguments: argparse.Namespace) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home,
        Cluster(workers=arguments.workers, cores=1, memory=512) as cluster,
    ):
        root = Path(home)
        (root / "in").mkdir()
        spark = cluster.session(**(_SPECULATION if speculates else {}))
        cluster.wait_for_executors(arguments.workers)
        flow = hf.Flow("straggling", log=root / "log", local=root / "work", spark=spark, partitions=arguments.workers)
        flow.source("rows", hf.files(root / "in", schema=SCHEMA, max_files_per_epoch=1))
        flow.view("sums", "SELECT key, sum(value) AS total, count(*) AS n FROM rows GROUP BY key")
        random = np.random.default_rng(6)

        def epoch(number: int) -> float:
            keys = random.permutation(arguments.keys) if number == 0 else random.integers(0, arguments.keys, 2_000)
            write_rows(root / "in" / f"{number:06d}.parquet", keys, random)
            return flow.step().seconds

        usual = [epoch(number) for number in range(arguments.epochs)]
        flow.wait_safe()
        placed = flow.status().placement
        assert placed is not None
        names = {each.id: (cluster.local(each.worker) / "member").read_text() for each in cluster.members()}
        slow = next(each for each in cluster.members() if names[each.id] in placed.members)
        cluster.pause(slow.id)
        threading.Timer(arguments.pause, lambda: cluster.resume(slow)).start()
        began = time.monotonic()
        straggling = epoch(arguments.epochs)
        time.sleep(max(0.0, arguments.pause + 1.0 - (time.monotonic() - began)))
        recovery = flow.last_recovery
        assert recovery is not None
        found = {
            "usual": statistics.median(usual[1:]),
            "straggling": straggling,
            "recomputed": len(recovery.epochs),
        }
        flow.close()
        spark.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pause", type=float, default=20.0, help="seconds for which the executor stands still")
    arguments = parse(parser, keys=2_000, workers=3, epochs=3, pause=15.0)
    found = {name: _measured(name == "with", arguments) for name in ("without", "with")}
    if arguments.json:
        print(json.dumps(found))
        return
    shown = Table("speculation", "usual epoch", "epoch with a straggler", "ratio", "epochs computed again")
    for name, each in found.items():
        ratio = each["straggling"] / each["usual"]
        shown.add_row(
            name,
            f"{each['usual']:.2f} s",
            f"{each['straggling']:.2f} s",
            f"{ratio:.1f}",
            str(each["recomputed"]),
        )
    console = Console(width=120)
    console.print(f"one of {arguments.workers} executors stands still for {arguments.pause:g} s")
    console.print(shown)


if __name__ == "__main__":
    main()
