"""The notebook of examples/ runs from top to bottom, twice in one kernel, and shows the same both times."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent.parent / "examples/shop.ipynb"


class _ThisPython(KernelSpecManager):
    """Kernels run by the Python of the tests, whatever is installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
        )


def _shown(notebook: Any) -> list[list[str]]:
    """What each cell shows, without what differs from run to run: numbers of epochs, sizes and times."""
    found = []
    for cell in notebook.cells:
        texts = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            texts.append(data.get("text/html") or data.get("text/plain") or output.get("text", ""))
        found.append([re.sub(r"\d[\d,.]*( (ms|[kKM]?B|epochs|rows|layers))?", "N", text) for text in texts])
    return found


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]))


def test_the_notebook_runs_twice_in_one_kernel_and_shows_the_same(kernel: None) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent.parent)}})
    client.create_kernel_manager()
    client.km.kernel_spec_manager = _ThisPython()
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
