"""The code of a document, run as a reader would run it: block after block, and compared with what the page prints.

* A fence ``python`` is run, in the order of the page, in one namespace and one empty directory.
* A fence without a language (or ``text``) right below it is what it prints. ``…`` stands for anything, also for lines.
  A block that prints and has none is an error, and so is one that prints something else.
* A fence ``console`` has lines ``$ holdfast …`` and below each what that prints. In them, ``file:///shared/`` is a
  directory of the page's own.
* A block whose first line begins with ``# not run:`` is left out; the rest of that line tells the reader why.
* ``<!-- setup … -->`` is Python that the page needs and nobody wants to read.

``HOLDFAST_WRITE_DOCS=1`` writes what was printed into the page instead of comparing; read what changed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import Flow

_PIECES = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$|^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.M | re.S,
)
NOT_RUN = "# not run:"


@dataclass(frozen=True)
class Block:
    """A piece of a page that is run."""

    path: Path
    line: int
    kind: str
    """``python``, ``setup`` or ``console``."""

    text: str
    output: str | None
    """What the page says that it prints; None if it says nothing."""

    @property
    def skipped(self) -> bool:
        return self.text.startswith(NOT_RUN)


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a page, in its order."""
    page = path.read_text()
    found: list[Block] = []
    before_end = 0
    for piece in _PIECES.finditer(page):
        line = page.count("\n", 0, piece.start()) + 2
        if piece["setup"] is not None:
            found.append(Block(path, line, "setup", piece["setup"], None))
            continue
        language, text = piece["language"], piece["text"]
        if indent := piece["indent"]:
            text = re.sub(rf"^{indent}", "", text, flags=re.M)
        if language in ("python", "console"):
            found.append(Block(path, line, language, text, None))
        elif language in ("", "text") and found and not page[before_end : piece.start()].strip():
            last = found.pop()
            assert last.output is None and last.kind == "python", f"{path.name}:{line}: output of what?"
            found.append(Block(path, last.line, last.kind, last.text, text))
        else:
            continue
        before_end = piece.end()
    return found


def run_page(path: Path, directory: Path) -> None:
    """Run the blocks of a page in ``directory``; `AssertionError` says which one printed something else."""
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        with contextlib.chdir(directory):
            _run(path, names)
    finally:
        for value in list(names.values()):
            if isinstance(value, Flow):
                value.close()


def _run(path: Path, names: dict[str, Any]) -> None:
    for block in blocks_of(path):
        if block.skipped:
            continue
        if block.kind == "console":
            for command, output in _commands(block.text):
                _compare(block, _said_by(command), output)
            continue
        said = io.StringIO()
        # Blank lines in front: an error then has the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
        with contextlib.redirect_stdout(said):
            exec(code, names)
        if block.kind == "python":
            _compare(block, said.getvalue(), block.output or "")


def _commands(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def _said_by(command: str) -> str:
    from typer.testing import CliRunner

    from holdfast.cli import app, console

    words = shlex.split(command.replace("file:///shared/", f"{Path.cwd().as_uri()}/shared/"), comments=True)
    assert words[0] == "holdfast", f"a console block runs holdfast, not {words[0]}"
    size, console.width = console.width, 120
    try:
        result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
    finally:
        console.width = size
    return result.output


def _compare(block: Block, found: str, expected: str) -> None:
    pattern = ".*".join(map(re.escape, _lines(expected).split("…")))
    if re.fullmatch(pattern, _lines(found), re.S):
        return
    where = f"{block.path.name}:{block.line}"
    if not os.environ.get("HOLDFAST_WRITE_DOCS"):
        raise AssertionError(f"{where} prints\n{_lines(found)}\nand the page says\n{_lines(expected)}")
    page = block.path.read_text()
    if block.kind == "console":
        page = page.replace(block.text, f"{block.text.removesuffix(expected)}{_lines(found)}\n")
    else:
        before = f"{block.text}```\n"
        said = f"{before}\n```\n{expected}```\n" if block.output is not None else before
        assert page.count(said) == 1, f"{where}: not found to be written"
        page = page.replace(said, f"{before}\n```\n{_lines(found)}\n```\n")
    block.path.write_text(page)


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
