"""Where the milliseconds of an epoch go, from Spark's event log and the tasks' own clocks.

For each epoch's job: ``planning`` is the driver building the job; ``kernel``, ``layer write``, ``read and linear`` are
what the tasks measured themselves, in the slowest task of each stage; ``exchange`` is splitting, encoding, Spark's
shuffle write and fetch, and decoding; ``python start`` is the rest of a task's run time (starting or waking the
Python worker, shipping the closure, moving buffers through the pipe); ``scheduling`` is the rest of the job.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import holdfast as hf


def epoch_breakdown(event_log: Path, epochs: Sequence[hf.Epoch]) -> dict[str, float]:
    """Medians over ``epochs``, in milliseconds."""
    jobs = _jobs(event_log)
    rows = [_one(epoch, jobs[epoch.epoch]) for epoch in epochs if epoch.epoch in jobs]
    return {what: statistics.median(row[what] for row in rows) for what in rows[0]} if rows else {}


def epochs_as_jobs(event_log: Path, flow: str, epochs: Sequence[tuple[float, hf.Epoch]]) -> dict[str, float]:
    """Medians over the epochs of a flow that ran as jobs of several stages, in milliseconds. ``epochs``: the seconds of
    the whole step, and its result. Of each stage counts its slowest task."""
    jobs = _jobs(event_log, flow)
    rows = [_parts(1000 * seconds, epoch, jobs[epoch.epoch]) for seconds, epoch in epochs if epoch.epoch in jobs]
    return {what: statistics.median(row[what] for row in rows) for what in rows[0]} if rows else {}


_OWN = ("read", "linear", "prepare", "split", "decode", "open", "kernel", "write")
"""The parts that tasks measure themselves."""


def _parts(whole: float, epoch: hf.Epoch, job: dict[str, Any]) -> dict[str, float]:
    own = {what: 1000 * epoch.timings.get(what, 0.0) for what in _OWN}
    run, around, late, stages, exchanged = 0.0, 0.0, 0.0, 0.0, 0.0
    for tasks in job["stages"].values():
        launched = [task["Task Info"]["Launch Time"] for task in tasks]
        finished = [task["Task Info"]["Finish Time"] for task in tasks]
        last = max(tasks, key=lambda task: task["Task Info"]["Finish Time"])
        metrics, info = last["Task Metrics"], last["Task Info"]
        exchanged += metrics["Shuffle Write Metrics"]["Shuffle Write Time"] / 1e6
        exchanged += metrics["Shuffle Read Metrics"]["Fetch Wait Time"]
        run += metrics["Executor Run Time"]
        around += info["Finish Time"] - info["Launch Time"] - metrics["Executor Run Time"]
        late += info["Launch Time"] - min(launched)
        stages += max(finished) - min(launched)
    length = job["end"] - job["start"]
    planning = 1000 * epoch.timings.get("planning", 0.0)
    return {
        "planning": planning,
        **own,
        "shuffle files": exchanged,
        "Python worker, pipes, program": max(0.0, run - sum(own.values()) - exchanged),
        "task: launch, result": around,
        "tasks that began late": late,
        "job: between stages": length - stages,
        "outside the job": whole - planning - length,
        "whole step": whole,
        "stages": float(len(job["stages"])),
        "tasks": float(sum(map(len, job["stages"].values()))),
    }


def _jobs(event_log: Path, flow: str = ".*") -> dict[int, dict[str, Any]]:
    jobs: dict[int, dict[str, Any]] = {}
    stage_owner: dict[int, int] = {}
    started: dict[int, int] = {}
    for file in event_log.iterdir():
        for line in file.read_text().splitlines():
            if '"SparkListenerJobStart"' in line:
                event = json.loads(line)
                described = (event.get("Properties") or {}).get("spark.job.description") or ""
                found = re.search(rf"^{flow}: epoch (\d+)$", described)
                if found:
                    started[event["Job ID"]] = int(found.group(1))
                    jobs[int(found.group(1))] = {"start": event["Submission Time"], "stages": {}}
                    for stage in event["Stage IDs"]:
                        stage_owner[stage] = int(found.group(1))
            elif '"SparkListenerJobEnd"' in line:
                event = json.loads(line)
                if event["Job ID"] in started:
                    jobs[started[event["Job ID"]]]["end"] = event["Completion Time"]
            elif '"SparkListenerTaskEnd"' in line:
                event = json.loads(line)
                owner = stage_owner.get(event["Stage ID"])
                if owner is not None:
                    jobs[owner]["stages"].setdefault(event["Stage ID"], []).append(event)
    return jobs


def _one(epoch: hf.Epoch, job: dict[str, Any]) -> dict[str, float]:
    own = {what: seconds * 1000 for what, seconds in epoch.timings.items()}
    run, shuffle = 0.0, 0.0
    for tasks in job["stages"].values():
        slowest = max(tasks, key=lambda task: task["Task Metrics"]["Executor Run Time"])
        metrics = slowest["Task Metrics"]
        run += metrics["Executor Run Time"]
        shuffle += metrics["Shuffle Write Metrics"]["Shuffle Write Time"] / 1e6
        shuffle += metrics["Shuffle Read Metrics"]["Fetch Wait Time"]
    reading = own.get("read", 0) + own.get("linear", 0) + own.get("prepare", 0)
    exchange = own.get("split", 0) + own.get("decode", 0) + shuffle
    kernel = own.get("open", 0) + own.get("kernel", 0)
    write = own.get("write", 0)
    return {
        "planning": own.get("planning", 0),
        "scheduling": max(0.0, epoch.seconds * 1000 - own.get("planning", 0) - run),
        "python start and pipes": max(0.0, run - reading - exchange - kernel - write),
        "read, linear, combine": reading,
        "exchange": exchange,
        "kernel (with opening traces)": kernel,
        "layer write": write,
        "whole epoch": epoch.seconds * 1000,
    }
