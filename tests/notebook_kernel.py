"""A kernel for notebooks, run by the Python of the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient


class _ThisPython(KernelSpecManager):
    """Kernels run by the Python of the tests, whatever is installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
        )


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels keep what they write below ``tmp_path``."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]))


def client_of(notebook: Any, directory: Path, kind: type[NotebookClient] = NotebookClient) -> NotebookClient:
    """What runs the cells of a notebook, in ``directory``."""
    client = kind(notebook, timeout=120, resources={"metadata": {"path": str(directory)}})
    client.create_kernel_manager()
    client.km.kernel_spec_manager = _ThisPython()
    return client
