"""The public surface: complete, and written down in one way in all three places of ``holdfast/__init__.py``."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
import holdfast.testing
from holdfast import errors

ROOT = Path(__file__).parent.parent
ROOMS = sorted(path.parent for path in (ROOT / "src/holdfast").glob("*/__init__.py"))


def _imported(module: Any) -> dict[str, str]:
    """Name → the module that it is imported from for type checkers."""
    tree = ast.parse(Path(module.__file__).read_text())
    (checking,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in checking.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


@pytest.mark.parametrize("module", [hf, holdfast.testing], ids=lambda module: module.__name__)
def test_what_type_checkers_see_is_what_programs_get(module: Any) -> None:
    homes = {name: f"{module.__name__}.{home}" for name, home in module._HOMES.items()}
    assert homes == _imported(module)
    assert sorted(homes) == sorted(module.__all__)
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize("module", [hf, holdfast.testing], ids=lambda module: module.__name__)
def test_no_exported_name_is_that_of_a_module(module: Any) -> None:
    """Importing ``holdfast.x`` binds it as ``holdfast.x``, over whatever is exported by that name."""
    inside = {path.stem for path in Path(module.__file__).parent.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not inside & set(module.__all__)


def test_every_error_is_exported() -> None:
    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert defined <= set(hf.__all__)
    assert all(issubclass(getattr(hf, name), hf.HoldfastError) for name in defined)


def test_importing_holdfast_imports_neither_spark_nor_arrow() -> None:
    seen = "import holdfast, sys; print({'pyspark', 'pyarrow', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_version_is_written_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "holdfast.__version__"}
    assert (
        f"## {hf.__version__}" in (ROOT / "CHANGELOG.md").read_text()
        or "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
    )


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_every_room_says_whether_it_is_private(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    assert room.name == "testing" or "Private" in said, f"{room.name}/__init__.py has no docstring that says so"
