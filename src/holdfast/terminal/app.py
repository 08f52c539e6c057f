"""Finding the flow in a user's file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.errors import DeclarationError, HoldfastError
from holdfast.flow import Flow

_BUILDERS = ("build", "main")


def load_flow(path: Path) -> Flow:
    """The flow that a Python file declares: its one module-level `Flow`, or what its ``build()`` or ``main()``
    returns.
    """
    module = _imported(path)
    found = {id(value): (name, value) for name, value in vars(module).items() if isinstance(value, Flow)}
    if len(found) > 1:
        names = ", ".join(name for name, _ in found.values())
        raise DeclarationError(f"app {path}: it declares several flows ({names}); keep one per file", path=str(path))
    if found:
        return next(iter(found.values()))[1]
    for name in _BUILDERS:
        builder = getattr(module, name, None)
        if callable(builder):
            return _built(path, name, builder)
    raise DeclarationError(
        f"app {path}: it declares no flow; expected something like `flow = hf.Flow('name', log='state/name')`, "
        "or a function build() that returns one",
        path=str(path),
    )


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise DeclarationError(f"app {path}: there is no such file", path=str(path))
    sys.path.insert(0, str(path.resolve().parent))
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else "holdfast_app"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DeclarationError(f"app {path}: it is not a Python file", path=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    from holdfast.spark.pickled_functions import ship_by_value

    ship_by_value(module)
    try:
        spec.loader.exec_module(module)
    except HoldfastError as error:
        _say_where(path, error)
        raise
    except Exception as error:
        raise _failed(path, error) from error
    return module


def _built(path: Path, name: str, builder: Any) -> Flow:
    try:
        flow = builder()
    except HoldfastError as error:
        _say_where(path, error)
        raise
    except Exception as error:
        raise _failed(path, error) from error
    if not isinstance(flow, Flow):
        raise DeclarationError(f"app {path}: {name}() must return a Flow, found {type(flow).__name__}", path=str(path))
    return flow


def _failed(path: Path, error: Exception) -> DeclarationError:
    """The user's own error, with the line of the user's own file."""
    if isinstance(error, SyntaxError):
        return DeclarationError(f"app {path}, line {error.lineno}: {error.msg}", path=str(path), line=error.lineno)
    line = _line(path, error)
    where = f", line {line}" if line is not None else ""
    return DeclarationError(f"app {path}{where}: {type(error).__name__}: {error}", path=str(path), line=line)


def _say_where(path: Path, error: HoldfastError) -> None:
    """Add the line of the user's own file to an error of Holdfast."""
    line = _line(path, error)
    if line is not None:
        error.args = (f"{error} ({path.name}, line {line})",)
        error.fields |= {"app": str(path), "app_line": line}


def _line(path: Path, error: Exception) -> int | None:
    """The innermost line of the user's own file that the error passed."""
    file = str(path.absolute())
    own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return own[-1] if own else None
