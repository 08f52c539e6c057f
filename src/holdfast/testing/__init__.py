"""Tools for testing flows.

Is the view right?

* `Oracle` computes what every view must hold, by Spark's own batch result of the same SQL;
* `assert_same_rows` compares two tables as bags of rows;
* `stopped_clock` sets the time, for views whose rows come and go as time passes;
* `total_of_changes` adds up a changelog to the rows that it describes.

What did a crash do to the output?

* `classify` compares the output delivered before and after a crash with the output of a run without one, and returns
  which of the five types of recovery it was, with the rows that show it (`ObservedRecovery`);
* `crash_matrix` runs your flow in processes that are killed, under several strategies, and compares the predicted
  recovery with the observed one (`CrashMatrix`).

Does it survive?

* `crash_at` makes the driver die (`Crash`) at one of the failpoints in `MARKS`;
* `Unreliable` is a log location that fails in the ways that real ones do, and `MemoryLocation` is one that can lose its
  content;
* `faults` makes the files below some directories fail (`Plan`, `Fault`: when and how) for all code in this process that
  uses them;
* `simulate` runs a flow in a simulated world, in which a seed decides what goes wrong; `shrink` reduces a failing run;
  `simulate_faults` runs a flow on real files that fail;
* `Cluster` is a real Spark cluster on this machine, whose executors, workers and drivers can be killed and paused, and,
  with ``namespaces=True`` (as root), cut off from each other; `Gate` holds tasks up until the test has killed a
  process;
* `holdfast.testing.zookeeper` has a ZooKeeper server on loopback, for flows that run with a lease.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.classifier import ObservedRecovery, classify
    from holdfast.testing.clock import stopped_clock
    from holdfast.testing.cluster import Cluster
    from holdfast.testing.crashes import MARKS, Crash, crash_at
    from holdfast.testing.faulty.layer import faults
    from holdfast.testing.faulty.plan import Fault, Plan
    from holdfast.testing.gate import Gate
    from holdfast.testing.matrix import CrashMatrix, crash_matrix
    from holdfast.testing.memory import MemoryLocation
    from holdfast.testing.oracle import Oracle, assert_same_rows, total_of_changes
    from holdfast.testing.simulator import shrink, simulate
    from holdfast.testing.simulator.faulty_files import simulate_faults
    from holdfast.testing.unreliable import Unreliable

__all__ = [
    "MARKS",
    "Cluster",
    "Crash",
    "CrashMatrix",
    "Fault",
    "Gate",
    "MemoryLocation",
    "ObservedRecovery",
    "Oracle",
    "Plan",
    "Unreliable",
    "assert_same_rows",
    "classify",
    "crash_at",
    "crash_matrix",
    "faults",
    "shrink",
    "simulate",
    "simulate_faults",
    "stopped_clock",
    "total_of_changes",
]

_HOMES = {
    "MARKS": "crashes",
    "Cluster": "cluster",
    "Crash": "crashes",
    "CrashMatrix": "matrix",
    "Fault": "faulty.plan",
    "Gate": "gate",
    "MemoryLocation": "memory",
    "ObservedRecovery": "classifier",
    "Oracle": "oracle",
    "Plan": "faulty.plan",
    "Unreliable": "unreliable",
    "assert_same_rows": "oracle",
    "classify": "classifier",
    "crash_at": "crashes",
    "crash_matrix": "matrix",
    "faults": "faulty.layer",
    "shrink": "simulator",
    "simulate": "simulator",
    "simulate_faults": "simulator.faulty_files",
    "stopped_clock": "clock",
    "total_of_changes": "oracle",
}


def __getattr__(name: str) -> object:
    # Imported at first use: a simulation, or a location in a task, needs no Spark; the oracle does.
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(import_module(f"holdfast.testing.{_HOMES[name]}"), name)
