"""The process of a `Driver` of a test cluster: calls the function that it was sent, and writes the result to a file."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path


def main(home: Path) -> None:
    from pyspark import cloudpickle

    said = ""
    function, handle, arguments = cloudpickle.loads((home / "call").read_bytes())
    try:
        outcome = ("value", function(handle, *arguments))
    except BaseException as error:
        traceback.print_exc()
        outcome = ("error", error)
        said = traceback.format_exc()
    try:
        data = cloudpickle.dumps(outcome)
        pickle.loads(data)
    except Exception:
        data = pickle.dumps(("error", RuntimeError(f"{outcome[1]!r}: {said}")))
    (home / ".result").write_bytes(data)
    os.replace(home / ".result", home / "result")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
