"""The crash matrix: a flow is killed at named points under chosen strategies, and the observed recovery is compared
with the predicted one.

For each strategy and point there is one *run*: a process declares the flow and runs it, and is killed (SIGKILL) when it
reaches the point, or at a random moment; a second process runs the flow to its end. The output delivered before and
after the kill is compared with the output of a run that was never killed, and classified (`testing/classifier.py`). A
prediction is about the worst that can happen, so a cell agrees if the worst observation over all points is the
prediction.

Flows that need no Spark can die faster: in processes forked from one that has loaded everything
(``processes="forked"``), or in this process, by `Crash` instead of a signal (``processes=False``): `testing/lives.py`.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.guarantees.prediction import Failure, Prediction, RecoveryType, predict
from holdfast.guarantees.strategies import NoSync, parse_strategy
from holdfast.guarantees.strategy import Strategy
from holdfast.testing.classifier import Key, ObservedRecovery, classify
from holdfast.testing.lives import About, App, Forked, Here, Lives, Processes

POINTS = ("epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit")
"""The default points of a kill: the failpoints around an epoch and its commit."""

CRASHED = "crashed"
"""Name of a file in the flow's directory that exists once the flow was killed, so that the flow can tell."""

_SEVERITY = (
    RecoveryType.PRECISE,
    RecoveryType.REPEATING,
    RecoveryType.CONVERGENT,
    RecoveryType.GAP,
    RecoveryType.DIVERGENT,
)


Output: TypeAlias = Callable[[Path], Sequence[Any]]
"""Reads the rows that the flow in a directory has delivered, in order. Later rows must only be appended."""


@dataclass(frozen=True)
class CrashRun:
    """A run of a flow that was killed once."""

    point: str
    """The mark, and which time it was reached: ``"epoch.ran:3"``; or a moment: ``"after:0.25"`` seconds."""

    reached: bool
    """False: the flow ended without reaching the point."""

    observed: ObservedRecovery | None = None
    failed: str = ""
    """Why the second process did not run the flow to its end; empty if it did."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Cell:
    """A strategy, its prediction, and the run of each point."""

    strategy: Strategy
    predicted: Prediction
    runs: tuple[CrashRun, ...]

    @property
    def observed(self) -> RecoveryType | None:
        """The worst recovery observed; None if no run came to its end."""
        seen = [run.observed.recovery for run in self.runs if run.observed is not None]
        return max(seen, key=_SEVERITY.index, default=None)

    @property
    def kills(self) -> int:
        return sum(run.reached for run in self.runs)

    @property
    def agrees(self) -> bool:
        return self.observed is self.predicted.recovery and not any(run.failed for run in self.runs)

    @property
    def evidence(self) -> str:
        """The run that shows the observed recovery, or the reason why there is none."""
        failed = [f"{run.point}: {run.failed}" for run in self.runs if run.failed]
        shown = [f"{run.point}: {run.observed}" for run in self.runs if run.observed is not None
                 and run.observed.recovery is self.observed]  # fmt: skip
        return (failed or shown or ["no point was reached"])[0]


@dataclass(frozen=True)
class CrashMatrix:
    """The cells, one per strategy."""

    cells: tuple[Cell, ...]
    reference: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def agrees(self) -> bool:
        return all(cell.agrees for cell in self.cells)

    @property
    def kills(self) -> int:
        return sum(cell.kills for cell in self.cells)

    def __str__(self) -> str:
        lines = [("strategy", "predicted", "observed", "kills", "")]
        for cell in self.cells:
            seen = cell.observed.value if cell.observed is not None else "-"
            lines.append(
                (str(cell.strategy), cell.predicted.recovery.value, seen, str(cell.kills), "" if cell.agrees else "✗")
            )
        widths = [max(len(line[place]) for line in lines) for place in range(5)]
        table = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
                 for line in lines]  # fmt: skip
        wrong = [f"{cell.strategy}: {cell.evidence}" for cell in self.cells if not cell.agrees]
        return "\n".join([*table, *wrong])


def crash_matrix(
    app: App,
    output: Output,
    *,
    strategies: Iterable[Strategy | str] = ("nosync", "synchronous_log", "aligned_snapshot", "gap"),
    points: Iterable[str] = POINTS,
    times: Iterable[int] = (2,),
    at_random: int = 0,
    key: Key | None = None,
    failure: Failure = "process",
    view: str | None = None,
    processes: bool | Literal["forked"] = True,
    about: About | None = None,
    directory: Path | None = None,
    timeout: float = 300.0,
) -> CrashMatrix:
    """Run a flow through crashes under each strategy, and compare the observed recovery with the predicted one. Print
    the result; `CrashMatrix.agrees` says whether all cells agree.

    ``app``: declares the flow. ``output``: reads its delivered rows. ``points``: marks (`MARKS`) at which the driver is
    killed, each the n-th time that it is reached, for all n in ``times``. ``at_random``: this many further kills under
    each strategy, at moments between the start of a run and its end. ``failure="host"``: the directory ``local`` is
    lost, too. ``key``: the identity of a row, as for `classify`. ``view``: the view whose sink is examined; by default
    that of the only sink. ``about``: the properties to predict from, if the flow cannot tell them. ``directory``: where
    runs are made; by default a temporary directory.
    """
    chosen = [parse_strategy("crash_matrix", each) for each in strategies]
    if at_random and not processes:
        raise ValueError("crash_matrix: at_random kills processes; leave processes=False out")
    with tempfile.TemporaryDirectory(prefix="holdfast-matrix-", ignore_cleanup_errors=True) as temporary:
        root = Path(temporary) if directory is None else directory
        lives: Lives = Here(app, view)
        if processes:
            lives = (Forked if processes == "forked" else Processes)(app, view, timeout)
        began = time.monotonic()
        found = lives.whole(_fresh(root / "reference"), NoSync())
        length = time.monotonic() - began
        known = about or found
        if known is None:
            raise ValueError("crash_matrix: the flow does not say what it is made of; give about")
        reference = list(output(root / "reference"))
        cells = []
        named = [f"{mark}:{count}" for mark in points for count in times]
        for strategy in chosen:
            drawn = [f"after:{random.uniform(0, length):.3f}" for _ in range(at_random)]
            runs = [
                _run(lives, output, reference, _fresh(root / "run"), strategy, point, key, failure)
                for point in (*named, *drawn)
            ]
            predicted = predict(known.classes, strategy, known.sink, failure=failure)
            cells.append(Cell(strategy, predicted, tuple(runs)))
    return CrashMatrix(tuple(cells), tuple(reference))


def _fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _run(
    lives: Lives,
    output: Output,
    reference: list[Any],
    directory: Path,
    strategy: Strategy,
    point: str,
    key: Key | None,
    failure: Failure,
) -> CrashRun:
    started = time.monotonic()
    if not lives.killed(directory, strategy, point):
        return CrashRun(point, False, seconds=time.monotonic() - started)
    before = list(output(directory))
    if failure == "host":
        shutil.rmtree(directory / "local", ignore_errors=True)
    (directory / CRASHED).touch()
    failed = ""
    try:
        lives.whole(directory, strategy)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        return CrashRun(point, True, None, failed, time.monotonic() - started)
    everything = list(output(directory))
    if everything[: len(before)] != before:
        raise AssertionError(f"the output of {directory} lost rows that it had: {before} became {everything}")
    observed = classify(before, everything[len(before) :], reference, key=key)
    return CrashRun(point, True, observed, "", time.monotonic() - started)
