"""What a crash was said to cost, and what it cost: ten kinds of loss, forecast and fact side by side.

Each loss is made with a flow in processes of its own: one fills its state and ends; the next goes on, prints
`flow.status().crash_now`, and is killed (SIGKILL), or loses a location, or a worker of a cluster on this machine. What
is lost with it is removed, the next process is started at once, and the time from the kill to the end of its first
epoch is taken, with what it fetched and computed again (`flow.last_recovery`). A forecast is good if it is within a
factor of 1.5 of the fact. It fails if fewer than eight of ten are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from data import SCHEMA, parse, session, write_rows
from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.testing.cluster import Cluster

_FACTOR = 1.5
_GOOD = 0.8
"""So large a part of the forecasts must be within that factor."""

_LAST = 5
"""So many epochs are run by the process that is killed."""

_GOES_ON = threading.Event()


@dataclass(frozen=True)
class Kind:
    """A kind of loss."""

    name: str
    what: str
    """What is lost, as the forecast calls it."""

    keys: int
    epochs: int
    unsafe: int = 0
    """So many of the last epochs are in no location."""

    locations: int = 1
    lost: tuple[str, ...] = ()
    """The directories that go with it."""

    workers: int = 0
    """Layers are kept by so many workers of a cluster."""


def _kinds(keys: int, epochs: int, unsafe: int) -> list[Kind]:
    few = max(1, keys // 20)
    return [
        Kind("the driver dies, all is safe", "driver", few, epochs),
        Kind("the driver dies, some epochs are not safe", "driver", few, epochs, unsafe),
        Kind("its host is lost, little state", "driver's host", few, epochs, lost=("work",)),
        Kind("its host is lost, much state", "driver's host", keys, epochs, lost=("work",)),
        Kind("its host is lost, many epochs", "driver's host", few, 4 * epochs, lost=("work",)),
        Kind("its host is lost, some epochs are not safe", "driver's host", few, epochs, unsafe, lost=("work",)),
        Kind("its host and one of two locations are lost", "driver's host", few, epochs, 0, 2, ("work", "log1")),
        Kind("one of two locations is lost", "location", few, epochs, 0, 2, ("log1",)),
        Kind("a worker is lost, all is safe", "member", few, epochs, workers=2),
        Kind("a worker is lost, some epochs are not safe", "member", few, epochs, unsafe, workers=2),
    ]


def _flow(root: Path, locations: int, spark: Any) -> hf.Flow:
    log = [root / f"log{number}" for number in range(locations)]
    flow = hf.Flow("forecast", log=log, local=root / "work", spark=spark, partitions=2)
    flow.source("rows", hf.files(root / "in", schema=SCHEMA, max_files_per_epoch=1))
    flow.view("sums", "SELECT key, sum(value) AS total, count(*) AS n FROM rows GROUP BY key")
    flow.sink("sums", hf.changelog(root / "out"))
    return flow


def _input(root: Path, number: int, keys: np.ndarray, random: np.random.Generator) -> None:
    write_rows(root / "in" / f"{number:06d}.parquet", keys, random)


def _fill(root: Path, kind: Kind, flow: hf.Flow, epochs: range) -> None:
    random = np.random.default_rng(3 + epochs.start)
    for number in epochs:
        keys = random.permutation(kind.keys) if number == 0 else random.integers(0, kind.keys, 2_000)
        _input(root, number, keys, random)
        flow.step()
    flow.wait_safe()
    time.sleep(1.0)  # rates are written down beside epochs


def _lag(root: Path, kind: Kind, flow: hf.Flow) -> int:
    """Run the epochs that are to be in no location; the number of the next file."""
    random = np.random.default_rng(5)
    engine = flow._engine
    assert engine is not None
    if kind.unsafe:
        engine._durability.after_round = lambda: bool(_GOES_ON.wait()) and None  # copying stands still from here on
        _input(root, kind.epochs, random.integers(0, kind.keys, 10), random)
        flow.step()
        time.sleep(1.0)
    for number in range(kind.epochs + bool(kind.unsafe), kind.epochs + kind.unsafe + bool(kind.unsafe)):
        _input(root, number, random.integers(0, kind.keys, 2_000), random)
        flow.step()
    return kind.epochs + kind.unsafe + bool(kind.unsafe)


def _forecast(flow: hf.Flow, what: str) -> dict[str, Any]:
    return asdict(next(each for each in flow.status().crash_now if each.what.startswith(what)))


def _waiting(root: Path, number: int) -> None:
    """The file that the first epoch after the loss takes. It is there before: writing it is no part of the fact."""
    _input(root, number, np.arange(2_000), np.random.default_rng(4))


def _first_output(flow: hf.Flow) -> dict[str, Any]:
    """Run an epoch; when it was complete, and what had to be done for it."""
    flow.step()
    recovery = flow.last_recovery
    assert recovery is not None
    return {"at": time.time(), "epochs": len(recovery.epochs), "bytes": recovery.bytes_fetched}


def _run(root: Path, kind: Kind) -> None:
    """In a process of its own: run, say what a crash would cost, and wait for it."""
    flow = _flow(root, kind.locations, session())
    _fill(root, kind, flow, range(kind.epochs - _LAST, kind.epochs))
    number = _lag(root, kind, flow)
    print(json.dumps({"forecast": _forecast(flow, kind.what), "next": number}), flush=True)
    if kind.what != "location":
        os.kill(os.getpid(), signal.SIGKILL)
    _waiting(root, number)
    for name in kind.lost:
        shutil.rmtree(root / name)
    lost = time.time()
    print(json.dumps({"lost": lost, **_first_output(flow)}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _begin(root: Path, kind: Kind) -> None:
    """In a process of its own: fill the state, and end."""
    flow = _flow(root, kind.locations, session())
    _fill(root, kind, flow, range(kind.epochs - _LAST))
    flow.close()
    print("{}", flush=True)


def _recover(root: Path, kind: Kind) -> None:
    left = [f"log{each}" for each in range(kind.locations) if f"log{each}" not in kind.lost]
    flow = hf.Flow("forecast", log=[root / each for each in left], local=root / "work", spark=session(), partitions=2,
                   accept_loss=True)  # fmt: skip
    flow.source("rows", hf.files(root / "in", schema=SCHEMA, max_files_per_epoch=1))
    flow.view("sums", "SELECT key, sum(value) AS total, count(*) AS n FROM rows GROUP BY key")
    flow.sink("sums", hf.changelog(root / "out"))
    print(json.dumps(_first_output(flow)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _in_cluster(root: Path, kind: Kind) -> dict[str, Any]:
    """A worker is killed with its directory, under a driver in this process."""
    with Cluster(workers=kind.workers, cores=2, executors_per_worker=1) as cluster:
        spark = cluster.session()
        cluster.wait_for_executors(kind.workers)
        flow = _flow(root, kind.locations, spark)
        _fill(root, kind, flow, range(kind.epochs))
        number = _lag(root, kind, flow)
        said = _forecast(flow, "member")
        member = said["what"].removeprefix("member ")
        workers = {(cluster.local(each) / "member").read_text().strip(): each for each in range(kind.workers)}
        _waiting(root, number)
        lost = time.time()
        cluster.kill_worker(workers[member])
        fact = {"lost": lost, **_first_output(flow)}
        _GOES_ON.set()
        flow.close()
        spark.stop()
    return {"forecast": said, **fact}


def _measured(kind: Kind) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    (root / "in").mkdir()
    try:
        if kind.workers:
            found = _in_cluster(root, kind)
        else:
            _child(root, kind, "begin")
            said = _child(root, kind, "run")
            if kind.what == "location":
                found = {**said[0], **said[1]}
            else:
                for name in kind.lost:
                    shutil.rmtree(root / name)
                _waiting(root, said[0]["next"])
                lost = time.time()
                found = {**said[0], "lost": lost, **_child(root, kind, "recover")[0]}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    fact, forecast = found["at"] - found["lost"], found["forecast"]["seconds"]
    return {
        "kind": kind.name,
        "forecast": forecast,
        "fact": fact,
        "ratio": max(fact, forecast) / max(1e-9, min(fact, forecast)),
        "parts": found["forecast"]["parts"],
        "epochs": [found["forecast"]["epochs"], found["epochs"]],
        "bytes": [found["forecast"]["bytes"], found["bytes"]],
    }


def _child(root: Path, kind: Kind, what: str) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--child", what, "--root", str(root)]
    done = subprocess.run([*command, "--kind", json.dumps(asdict(kind))], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{kind.name}: {done.stderr[-3000:]}")
    return [json.loads(line) for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--unsafe", type=int, default=20)
    parser.add_argument("--only", type=int, nargs="*", help="kinds by their number, from 0 on")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    arguments = parse(parser, keys=20_000, epochs=10, unsafe=3, only=[0, 3])
    if arguments.child:
        said = json.loads(arguments.kind)
        kind = Kind(**{**said, "lost": tuple(said["lost"])})
        root = Path(arguments.root)
        match arguments.child:
            case "begin":
                _begin(root, kind)
            case "run":
                _run(root, kind)
            case "recover":
                _recover(root, kind)
        return 0
    kinds = _kinds(arguments.keys, arguments.epochs, arguments.unsafe)
    chosen = kinds if arguments.only is None else [kinds[each] for each in arguments.only]
    found = [_measured(kind) for kind in chosen]
    good = sum(each["ratio"] <= _FACTOR for each in found)
    wanted = math.ceil(_GOOD * len(found))
    if arguments.json:
        print(json.dumps({"kinds": found, "good": good}))
        return int(good < wanted)
    shown = Table("loss", "forecast", "fact", "ratio", "epochs", "MB fetched")
    for each in found:
        shown.add_row(
            each["kind"],
            f"{each['forecast']:.2f} s",
            f"{each['fact']:.2f} s",
            f"{each['ratio']:.2f}",
            " / ".join(map(str, each["epochs"])),
            " / ".join(f"{size / 1e6:.1f}" for size in each["bytes"]),
        )
    console = Console(width=140)
    console.print(shown)
    console.print(f"{good} of {len(found)} forecasts are within a factor of {_FACTOR} of the fact (wanted: {wanted})")
    return int(good < wanted)


if __name__ == "__main__":
    sys.exit(main())
