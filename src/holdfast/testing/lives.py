"""The lives of a flow that is killed on purpose: how the crash matrix runs it to its end, or until it dies.

A life is a separate process that is really killed (`Processes`); a process forked from one that has loaded everything,
for flows that need no Spark (`Forked`); or it runs in this process, and dies by an exception (`Here`).
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from holdfast.foundation import failpoints
from holdfast.guarantees.operator_classes import Classified, classes_of
from holdfast.guarantees.prediction import SinkKind
from holdfast.guarantees.strategy import Strategy
from holdfast.testing.crashes import Crash, crash_at
from holdfast.testing.processes import die_with_parent


class Runnable(Protocol):
    """The result of an app: a `Flow`, or an object that can be run like one."""

    def open(self) -> object: ...

    def run(self, *, until: Any) -> object: ...

    def close(self) -> None: ...


App: TypeAlias = Callable[[Path, Strategy], Any]
"""Declares a flow in a directory, under a strategy. It makes its own input there, always the same, and keeps its
working files in ``local``. It is called in another process, so it must be a function of a module, not one defined
inside a test."""


@dataclass(frozen=True)
class About:
    """Properties of a flow, from which its recovery is predicted."""

    classes: tuple[Classified, ...]
    sink: SinkKind


class Lives(Protocol):
    """Runs a flow, and kills it."""

    def whole(self, directory: Path, strategy: Strategy) -> About | None:
        """Run the flow to its end. Return its properties."""

    def killed(self, directory: Path, strategy: Strategy, point: str) -> bool:
        """Run the flow until it is killed at the point. Return False if it ended before."""


class Here:
    """Runs a flow in this process. It dies by an exception that nothing in the flow catches."""

    def __init__(self, app: App, view: str | None) -> None:
        self._app, self._view = app, view

    def whole(self, directory: Path, strategy: Strategy) -> About | None:
        return run_to_the_end(self._app(directory, strategy), self._view)

    def killed(self, directory: Path, strategy: Strategy, point: str) -> bool:
        mark, _, count = point.partition(":")
        flow = self._app(directory, strategy)
        try:
            with crash_at(mark, int(count or 1)):
                run_to_the_end(flow, self._view)
        except Crash:
            flow.die()
            return True
        return False


class Processes:
    """Runs a flow in processes of their own. A killed one takes its session and its children with it."""

    def __init__(self, app: App, view: str | None, timeout: float) -> None:
        self._app, self._view, self._timeout = app, view, timeout

    def whole(self, directory: Path, strategy: Strategy) -> About | None:
        code, said = self._start(directory, strategy, None)
        if code != 0:
            raise RuntimeError(f"the flow ended with {code}: {said[-2000:]}")
        found: About | None = pickle.loads((directory / "about.pickle").read_bytes())
        return found

    def killed(self, directory: Path, strategy: Strategy, point: str) -> bool:
        code, said = self._start(directory, strategy, point)
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the flow ended with {code} before it was killed: {said[-2000:]}")
        return code != 0

    def _start(self, directory: Path, strategy: Strategy, point: str | None) -> tuple[int, str]:
        from pyspark import cloudpickle

        call = directory / "call.pickle"
        call.write_bytes(cloudpickle.dumps((self._app, directory, strategy, self._view)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.pop("HOLDFAST_CRASH_AT", None)
        moment = _moment(point)
        if point is not None and moment is None:
            environment["HOLDFAST_CRASH_AT"] = point
        with open(directory / "said.log", "ab+") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.testing.crash_process", str(call)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
            try:
                code = process.wait(self._timeout if moment is None else moment)
            except subprocess.TimeoutExpired:
                if moment is None:
                    raise
                code = -signal.SIGKILL
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.seek(0)
            return code, log.read().decode(errors="replace")


class Forked(Processes):
    """Runs a flow in processes forked from one that has loaded all modules and has no threads."""

    def _start(self, directory: Path, strategy: Strategy, point: str | None) -> tuple[int, str]:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "pandas", *_module_of(self._app)])  # (pyarrow loads pandas)
        moment = _moment(point)
        mark = point if moment is None else None
        process = context.Process(target=_life, args=(self._app, directory, strategy, self._view, mark), daemon=True)
        # The fork server finds modules only through PYTHONPATH; each process would have to load a module not found
        # there.
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        try:
            process.start()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
        process.join(self._timeout if moment is None else moment)
        if process.exitcode is None:
            process.kill()
            process.join()
        log = directory / "said.log"
        return process.exitcode or 0, log.read_text(errors="replace") if log.exists() else ""


def _moment(point: str | None) -> float | None:
    """Seconds after its start at which a process is killed; None: it is killed at a mark, or not at all."""
    return float(point.removeprefix("after:")) if point is not None and point.startswith("after:") else None


def _module_of(app: App) -> list[str]:
    found = getattr(app, "__module__", None) or type(app).__module__
    return [found] if found != "__main__" else []


def _life(app: App, directory: Path, strategy: Strategy, view: str | None, point: str | None) -> None:
    """The main function of a forked process."""
    with open(directory / "said.log", "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    failpoints.hook = None if point is None else failpoints.killing(point)
    about = run_to_the_end(app(directory, strategy), view)
    (directory / "about.pickle").write_bytes(pickle.dumps(about))


def run_to_the_end(flow: Any, view: str | None) -> About | None:
    """Run a flow until no input waits. Return its properties."""
    flow.open()
    about = _about(flow, view)
    flow.run(until="idle")
    flow.close()
    return about


def _about(flow: Any, view: str | None) -> About | None:
    """Return a flow's properties: from its own method ``about``, or from a `Flow`."""
    if hasattr(flow, "about"):
        found: About = flow.about()
        return found
    sinks = [(name, sink) for name, sink in flow._sinks if view in (None, name)]
    if len(sinks) != 1:
        raise ValueError(f"crash_matrix: the flow has {len(sinks)} sinks; say with view whose output is looked at")
    ((name, sink),) = sinks
    sources = {
        each: "pushed source" if not source.replayable else "retracting source"
        for each, source in flow._catalog.all_sources.items()
        if source.retracts or not source.replayable
    }
    return About(classes_of(flow.drawing(), name, sources), sink.kind)
