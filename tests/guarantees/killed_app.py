"""A flow that is killed: ``python killed_app.py <directory> <strategy> <sink> [<lease> <host>]``.

It passes on what it finds in ``<directory>/in`` (Parquet files, one per epoch), under a strategy (an expression over
``hf``), to a changelog or to a function that appends to ``<directory>/given``. It prints what its recovery was, and
ends when nothing waits; with a lease it stands by, leads, and stays. It dies where ``HOLDFAST_CRASH_AT`` says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

import holdfast as hf


def declare(root: Path, strategy: hf.Strategy, sink: str, host: str = "local") -> hf.Flow:
    flow = hf.Flow("killed", log=root / "log", local=root / host, partitions=2, strategy=strategy)
    flow.source("rows", hf.files(root / "in", schema="id bigint, part bigint", max_files_per_epoch=1))
    flow.view("passed", "SELECT id, part FROM rows WHERE id >= 0")
    flow.view("counted", "SELECT part, count(*) AS n FROM rows GROUP BY part")

    def append(epoch: int, change: pa.Table) -> None:
        with open(root / "given", "a") as file:
            file.writelines(json.dumps([row["id"], row["_diff"]]) + "\n" for row in change.to_pylist())

    return flow.sink("passed", hf.foreach(append) if sink == "append" else hf.changelog(root / "out"))


def main(root: Path, strategy: str, sink: str, lease: str | None = None, host: str = "local") -> None:
    flow = declare(root, eval(strategy, {"hf": hf}), sink, host)
    if lease is not None:
        flow.run(lease=lease, lease_timeout="2s", on_lease=lambda event: print("lease", event.event, flush=True),
                 on_epoch=lambda epoch: say(flow, epoch))  # fmt: skip
        return
    flow.open()
    found = flow.last_recovery
    assert found is not None
    said = {"epoch": found.epoch, "epochs": found.epochs, "missing": found.missing, "fetched": found.layers_fetched}
    print("open", json.dumps(said), flush=True)
    flow.run(until="idle")
    counted = {row.part: row.n for row in flow.read("counted").collect()}
    flow.close()
    print("held", json.dumps(counted), flush=True)


def say(flow: hf.Flow, epoch: hf.Epoch) -> None:
    found = flow.last_recovery
    assert found is not None
    said = {"epoch": epoch.epoch, "followed": found.followed, "replayed": found.epochs, "fetched": found.layers_fetched}
    print("epoch", json.dumps(said), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
