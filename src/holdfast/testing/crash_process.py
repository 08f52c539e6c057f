"""The process of a run of the crash matrix: declares the flow that it was sent, and runs it to its end, or until it is
killed at the point in ``HOLDFAST_CRASH_AT``."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path


def main(call: Path) -> None:
    from holdfast.testing.lives import run_to_the_end

    app, directory, strategy, view = pickle.loads(call.read_bytes())
    about = run_to_the_end(app(directory, strategy), view)
    (directory / "about.pickle").write_bytes(pickle.dumps(about))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
