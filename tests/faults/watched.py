"""A flow on files, to be watched: run as ``python watched.py <directory> layer`` or ``… <directory> plain``.

It opens a flow, runs epochs, rounds of durability and a merge, and opens it again. With ``layer`` it prints the calls
that the layer of faults saw, as JSON; without, nothing is replaced.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from holdfast.testing import Plan, faults
from holdfast.testing.simulator.faulty_files import FaultyRun, FaultySimulation


def main(root: Path, watched: bool) -> None:
    root.mkdir()
    simulation = FaultySimulation(FaultyRun(1, Plan(())), root)
    with faults(Plan(()), under=[root], record=True) if watched else nullcontext() as layer:
        for part, steps in (("opening", 1), ("epochs and rounds", 10), ("another opening", 1)):
            for _ in range(steps):
                with layer.paused() if layer else nullcontext():
                    simulation.do("feed")
                simulation.do("step")
                if part == "epochs and rounds":
                    simulation.do("upkeep")
            simulation.do("close")
        calls = [[call.kind, call.path] for call in layer.calls] if layer else []
    print(json.dumps(calls))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "layer")
