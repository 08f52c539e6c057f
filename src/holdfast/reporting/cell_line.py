"""A line below a notebook's cell that shows an activity, with a progress bar if it has parts.

IPython is not a dependency: in a notebook it is loaded already.
"""

from __future__ import annotations

import html
import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class CellLine:
    """The line below a cell. It appears with the first text; after `wipe` it stays as an empty output."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, done: int, total: int | None) -> None:
        bar = f'<progress value="{done}" max="{total}"></progress> ' if total is not None and total > 1 else ""
        self._put({"text/html": f"<div>{bar}{html.escape(text)}</div>", "text/plain": text})

    def wipe(self) -> None:
        if self._handle is not None:
            self._put({"text/html": "", "text/plain": ""})

    def _put(self, shown: dict[str, str]) -> None:
        if self._handle is None:
            from IPython.display import DisplayHandle

            self._handle = DisplayHandle()  # type: ignore[no-untyped-call]  # IPython has no types for it
            self._handle.display(shown, raw=True)
        else:
            self._handle.update(shown, raw=True)
