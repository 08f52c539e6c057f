"""A flow that promotes a branch, and is killed: ``python promoted_flow.py <directory> [promote]``.

It takes what it finds, with the views as they were; with ``promote`` it makes a branch with another view, and promotes
it. With ``after`` it declares the new view, takes what is left, and prints what its views hold.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from holdfast.foundation import failpoints

OLD = "SELECT user, sum(amount) AS total FROM orders GROUP BY user"
NEW = "SELECT user, sum(amount * 2) AS total FROM orders GROUP BY user"
TOP = "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 2"


def declared(root: Path, spend: str) -> hf.Flow:
    flow = hf.Flow("promoted", log=[root / "log", root / "copy"], partitions=2)
    files = hf.files(root / "orders", format="csv", schema="user string, amount long", max_files_per_epoch=1)
    flow.source("orders", files)
    flow.view("spend", spend).view("top", TOP)
    for view in ("spend", "top"):
        flow.sink(view, hf.changelog(root / "out" / view))
    return flow


def _say(name: str) -> None:
    os.write(1, f"reached {name}\n".encode())  # whole, whichever thread it is


def _hook(mark: str) -> Callable[[str], None]:
    """What kills this process at a mark; without one, what says which marks are reached."""
    return failpoints.killing(mark) if mark else _say


def main() -> None:
    root, what = Path(sys.argv[1]), sys.argv[2]
    flow = declared(root, NEW if what == "after" else OLD)
    flow.run(until="idle")
    if what == "promote":
        print("promoting", flush=True)
        failpoints.hook = _hook(os.environ["KILLED_AT"])
        branch = flow.branch("doubled", at=1)
        branch.view("spend", NEW)
        branch.promote()
        branch.close()
    print(json.dumps({view: sorted(map(list, flow.read(view).collect())) for view in ("spend", "top")}), flush=True)
    flow.close()


if __name__ == "__main__":
    main()
