"""The simulator: a real flow in a simulated world, driven by one seed.

The coordinator, the engine, recovery, durability, traces and kernels are the real ones. Their surroundings are
simulated: Spark (`runtime/runner.py`), time, the hosts' disks, the log locations, the source and the sink (`world.py`).
A seed gives a list of actions (`actions.py`): input arrives, epochs run, drivers crash at marks, hosts and copies are
lost, layers are damaged, stores fail and lie, a stale driver wakes up, two drivers run at once. `simulate` carries them
out, and compares all output and all views with a model of the views in plain Python (`model.py`).

A failing seed always fails again; `shrink` finds a short list of actions that still fails.
"""

from holdfast.testing.simulator.run import SimulationFailure, run, shrink, simulate

__all__ = ["SimulationFailure", "run", "shrink", "simulate"]
