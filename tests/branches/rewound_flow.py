"""A flow that is rewound, and killed: ``python rewound_flow.py <directory> before|rewind|after``.

``before`` takes what it finds; ``rewind`` goes back to epoch 1 and takes the rest again, without ``bad.csv``, unless a
process before has done so; ``after`` takes what is left, and prints what its views hold.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from holdfast.foundation import failpoints


def _say(name: str) -> None:
    os.write(1, f"reached {name}\n".encode())  # whole, whichever thread it is


def _hook(mark: str) -> Callable[[str], None]:
    """What kills this process at a mark; without one, what says which marks are reached."""
    return failpoints.killing(mark) if mark else _say


def main() -> None:
    root, what = Path(sys.argv[1]), sys.argv[2]
    flow = hf.Flow("rewound", log=[root / "log", root / "copy"], partitions=2)
    files = hf.files(root / "orders", format="csv", schema="user string, amount long", max_files_per_epoch=1)
    flow.source("orders", files)
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    flow.view("top", "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 2")
    for view in ("spend", "top"):
        flow.sink(view, hf.changelog(root / "out" / view))
    flow.run(until="idle")
    if not flow.rewinds() and what != "before":
        print("rewinding", flush=True)
        if "KILLED_AT" in os.environ:
            failpoints.hook = _hook(os.environ["KILLED_AT"])
        flow.rewind(1, reason="a bad file", skip={"orders": ["bad.csv"]})
        flow.run(until="idle")
    print(json.dumps({view: sorted(map(list, flow.read(view).collect())) for view in ("spend", "top")}), flush=True)
    flow.close()


if __name__ == "__main__":
    main()
