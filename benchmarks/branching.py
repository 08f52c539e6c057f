"""What it takes to branch a flow: the time and the bytes of `flow.branch`, over 5,000,000 keys.

Two branches are made: from the last epoch, and from an earlier one, across which layers may have been merged since. It
fails if one of them takes 1 s, or 1 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from against_structured_streaming import Ours
from data import parse, session, write_rows
from rich.console import Console

SECONDS, BYTES = 1.0, 1_000_000
"""Making a branch takes less than this."""


def _bytes(directory: Path) -> int:
    """The bytes of the files below a directory that no other name has."""
    found = [os.lstat(os.path.join(where, file)) for where, _, files in os.walk(directory) for file in files]
    return sum(each.st_size for each in found if each.st_nlink == 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parse(parser, keys=100_000, rows=1_000, epochs=6)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        spark = session()
        random = np.random.default_rng(2)
        side = Ours(spark, home / "flow")
        for number in range(arguments.epochs):
            file = home / f"{number:06d}.parquet"
            keys = (
                random.permutation(arguments.keys)
                if number == 0
                else random.integers(0, arguments.keys, arguments.rows)
            )
            write_rows(file, keys, random)
            side.take(file)
        side.flow.wait_safe()
        last = side.flow.status().epoch
        result: dict[str, dict[str, float]] = {}
        for name, at in (("last", last), ("earlier", last - 4)):
            started = time.perf_counter()
            side.flow.branch(name, at=at)
            seconds = time.perf_counter() - started
            (directory,) = home.glob(f"**/branches/{name}")
            result[name] = {"seconds": seconds, "bytes": _bytes(directory)}
        side.close()
        spark.stop()
        for name, each in result.items():
            Console(stderr=arguments.json).print(
                f"a branch of {arguments.keys:,} keys from the {name} epoch: {each['seconds']:.2f} s, "
                f"{each['bytes'] / 1e6:.2f} MB (less than {SECONDS:g} s, {BYTES / 1e6:g} MB)"
            )
        if arguments.json:
            print(json.dumps(result))
        return int(any(each["seconds"] >= SECONDS or each["bytes"] >= BYTES for each in result.values()))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
