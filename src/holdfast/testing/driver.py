"""The process of a `Driver` of a test cluster: calls the function it was sent, and leaves the result in a file."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path


def main(home: Path) -> None:
    from pyspark import cloudpickle

    function, handle, arguments = cloudpickle.loads((home / "call").read_bytes())
    try:
        outcome = ("value", function(handle, *arguments))
    except BaseException as error:
        traceback.print_exc()
        outcome = ("error", error)
    try:
        data = cloudpickle.dumps(outcome)
        pickle.loads(data)
    except Exception:
        data = pickle.dumps(("error", RuntimeError(repr(outcome[1]))))
    (home / ".result").write_bytes(data)
    os.replace(home / ".result", home / "result")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
