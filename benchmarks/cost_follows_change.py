"""The cost of an epoch over much state and over little, in one run: 10,000-row epochs over 5,000,000 and 100,000 keys.

The two flows take turns in one session. If the cost follows the change and not the state, the ratio is near 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
from against_structured_streaming import Ours
from data import parse, session, write_rows
from rich.console import Console


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small-state", type=int, default=100_000)
    parser.add_argument("--large-state", type=int, default=5_000_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=15)
    arguments = parse(parser, small_state=10_000, large_state=100_000, rows=1_000, epochs=6, warm_up=3)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        spark = session()
        random = np.random.default_rng(2)
        sizes = (arguments.small_state, arguments.large_state)
        flows = {size: Ours(spark, home / str(size)) for size in sizes}
        times: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(-1, arguments.warm_up + arguments.epochs):
            for size, side in flows.items():
                file = home / f"{size}-{number + 1:06d}.parquet"
                keys = random.permutation(size) if number < 0 else random.integers(0, size, arguments.rows)
                write_rows(file, keys, random)
                seconds = side.take(file)
                file.unlink()
                if number >= arguments.warm_up:
                    times[size].append(seconds)
        for side in flows.values():
            side.close()
        spark.stop()
        small, large = (statistics.median(times[size]) * 1000 for size in sizes)
        result = {"small_ms": small, "large_ms": large, "ratio": large / small}
        if arguments.json:
            print(json.dumps(result))
        else:
            Console().print(
                f"{arguments.rows:,}-row epochs, median: {small:.0f} ms over {sizes[0]:,} keys, "
                f"{large:.0f} ms over {sizes[1]:,} keys; ratio {large / small:.2f} (at most 1.5)"
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
