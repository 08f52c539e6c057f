"""A flow with recursive views, in which a worker, or the driver with all that is its, is killed in the middle of a
round.

Whoever is to die is said by a file ``kill`` in the flow's directory: after how many rows that the loop's body has
passed, and who. A function of the user's in the body looks there. As a program it runs the flow over the files of a
directory: until it is killed, or, with ``finish``, to its end, where it prints what the views hold.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from durability.app import Batches

GROUP = "HOLDFAST_KILLED_GROUP"
VIEWS = {
    "edges": "SELECT id AS a, user AS b FROM batches",
    "reached": "WITH RECURSIVE reached(node) AS (SELECT 0L UNION SELECT passed(e.b) FROM reached r JOIN edges e "
    "ON e.a = r.node) SELECT node FROM reached",
    "labels": "WITH RECURSIVE labels(node, label) AS (SELECT DISTINCT a, a FROM edges UNION SELECT e.b, min(l.label) "
    "FROM labels l JOIN edges e ON e.a = l.node GROUP BY e.b) SELECT node, min(label) AS label FROM labels "
    "GROUP BY node",
}
DELIVERED = ("reached", "labels")


def killing(root: str) -> Callable[[int], int]:
    token = f"{root}/kill"

    def passed(node: int) -> int:
        if not os.path.exists(token):
            return node
        with open(f"{root}/turn", "w") as turn:  # tasks of two shares may be here at once
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not os.path.exists(token):
                return node
            with open(token) as file:
                left, who = file.read().split()
            if int(left) > 1:
                with open(token, "w") as file:
                    file.write(f"{int(left) - 1} {who}")
                return node
            os.rename(token, f"{token}ed")
        if who == "driver":
            os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        return node

    return passed


def declare(flow: hf.Flow, root: Path) -> hf.Flow:
    """The views of a flow that has ``batches`` already."""
    flow.udf("passed", killing(str(root)), "long")
    for name, text in VIEWS.items():
        flow.view(name, text)
    for name in DELIVERED:
        flow.sink(name, hf.changelog(root / name))
    return flow


def main(root: Path, finish: bool) -> None:
    os.environ[GROUP] = str(os.getpgrp())
    local = {"log": [root / "a", root / "b"], "local": root / "local", "min_replicas": 2, "partitions": 2}
    flow = hf.Flow("killed", **local)  # type: ignore[arg-type]
    declare(flow.source("batches", Batches(root / "batches", 1)), root)
    flow.open()
    print("open", flush=True)
    flow.run(until="idle", on_epoch=lambda result: print("epoch", result.epoch, flush=True))
    if not finish:
        print("idle", flush=True)
        time.sleep(600)
    held = {name: [list(row) for row in flow.read(name).collect()] for name in DELIVERED}
    flow.close()
    print("held", json.dumps(held), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "finish" in sys.argv[2:])
