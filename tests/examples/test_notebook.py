"""The notebook of examples/ runs from top to bottom, twice in one kernel, and shows the same both times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from notebook_kernel import client_of, prepare

NOTEBOOK = Path(__file__).parent.parent.parent / "examples/shop.ipynb"


def _shown(notebook: Any) -> list[list[str]]:
    """What each cell shows, without what differs from run to run: numbers of epochs, sizes and times."""
    found = []
    for cell in notebook.cells:
        texts = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            texts.append(data.get("text/html") or data.get("text/plain") or output.get("text", ""))
        # What showed progress is empty afterwards.
        found.append([re.sub(r"\d[\d,.]*( (ms|[kKM]?B|epochs|rows|layers))?", "N", text) for text in texts if text])
    return found


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)


def test_the_notebook_runs_twice_in_one_kernel_and_shows_the_same(kernel: None) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = client_of(notebook, NOTEBOOK.parent.parent)
    with client.setup_kernel():
        first = _run(client, notebook)
        texts = "\n".join(text for cell in first for text in cell)
        assert "<table" in texts and "<svg" in texts and "eve" in texts
        assert _run(client, notebook) == first


def _run(client: NotebookClient, notebook: Any) -> list[list[str]]:
    for index, cell in enumerate(notebook.cells):
        client.execute_cell(cell, index)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    return _shown(notebook)
