"""The command line: holdfast run | plan | status | explain | read | verify | branch | diff | demo.

A command does what its name says and ends with 0; an error is one message on stderr and ends with 1, as does a log in
which ``verify`` leaves something wrong; a wrong call ends with 2, a run from which another driver took over (or may,
since it lost its lease) with 3, one that lost an executor and is to terminate then with 4, and a second Ctrl-C with
130.
Set HOLDFAST_TRACEBACK=1 to see where an error came from.

The file is long because each command says all its options here.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, SpinnerColumn, Task, TimeRemainingColumn
from rich.text import Text

from holdfast.errors import Fenced, HoldfastError, MemberLost
from holdfast.foundation.counted import counted
from holdfast.reporting import activity
from holdfast.reporting.redaction import redact, redacted
from holdfast.terminal.events import events_shown
from holdfast.terminal.output import Format, print_rows, write_file, write_rows

if TYPE_CHECKING:
    from holdfast.results.flow_results import Epoch
    from holdfast.standby.lease import Lease

P = ParamSpec("P")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
console = Console()
problems = Console(stderr=True)


class Until(StrEnum):
    """When ``holdfast run`` ends."""

    IDLE = "idle"


def _reported(command: Callable[P, None]) -> Callable[P, None]:
    """Errors of the user, and of the world, are one message; only a wrong Holdfast shows a trace."""

    @functools.wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            with events_shown():
                command(*arguments, **options)
        except (HoldfastError, OSError) as error:
            if os.environ.get("HOLDFAST_TRACEBACK"):
                print(redact(traceback.format_exc()), file=sys.stderr, end="")
            else:
                said = redact(f"holdfast: {error}")
                problems.print(said, style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(_status(error)) from None
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:
            if _is_of_interrupt(error):
                raise typer.Exit(130) from None
            print(redact(traceback.format_exc()), file=sys.stderr, end="")
            raise typer.Exit(_status(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return run


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Whether an error was raised while an interrupt was on its way: Java, which gets Ctrl-C too, may end first."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _status(error: Exception) -> int:
    return 3 if isinstance(error, Fenced) else 4 if isinstance(error, MemberLost) else 1


@app.callback(invoke_without_command=True)
def _start(version: bool = typer.Option(False, "--version", is_eager=True, help="Print the version and exit.")) -> None:
    """SQL views over changing data, kept up to date on Spark."""
    if version:
        from holdfast import __version__

        console.print(f"holdfast {__version__}", highlight=False)
        raise typer.Exit


@app.command()
@_reported
def run(
    file: Path = typer.Argument(help="A Python file that declares one flow."),
    epochs: int | None = typer.Option(None, min=1, help="Stop after so many epochs."),
    until: Until | None = typer.Option(None, help="'idle': stop when nothing waits."),
    interval: float = typer.Option(0.1, min=0.0, help="Seconds between two looks when nothing waits."),
    lease: str | None = typer.Option(
        None, metavar="URL", help="file:///shared/path or zk://host:port/path: of all runs with it, one leads."
    ),
    lease_timeout: str | None = typer.Option(
        None,
        metavar="TIME",
        help="After so long without a sign of the leader another takes over, such as 2s (default: 5s).",
    ),
    accept_clock: bool = typer.Option(
        False, "--accept-clock", help="Take the host's clock as it is, although it jumped or the flow's is ahead."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object per epoch, and per change of the lease."),
    metrics: str | None = typer.Option(
        None, metavar="ADDRESS", help="Serve numbers for Prometheus, such as :9090 (docs/metrics.md)."
    ),
    accept_loss: bool = typer.Option(
        False, "--accept-loss", help="Begin although log locations are missing that alone may have epochs."
    ),
) -> None:
    """Run the flow of FILE until stopped. Ctrl-C ends it after the epoch at hand.

    With --lease any number of them may run: one leads, the others wait with everything warm. When the leader ends,
    dies or stalls, one of them goes on where it was. A leader that stalled and wakes up ends with status 3.
    """
    from holdfast.results.metrics import Metrics
    from holdfast.runtime.interrupts import stopping
    from holdfast.standby.address import open_lease
    from holdfast.terminal.app import load_flow
    from holdfast.terminal.live import Jsonl, Lines, Screen, beginning
    from holdfast.terminal.live import Progress as Epochs
    from holdfast.terminal.metrics import served

    if lease is None and lease_timeout is not None:
        raise typer.BadParameter("it says when a lease is lost; give --lease, too", param_hint="--lease-timeout")
    held = open_lease(lease, lease_timeout) if lease is not None else None
    with _waiting(f"starting Spark, and reading {file}"):
        loaded = load_flow(file)
    with loaded as flow, _connected(held):
        if accept_loss:
            flow._accept_loss()
        if accept_clock:
            flow.accept_clock()
        # Spark is started first: it puts a handler of its own on Ctrl-C, and ours must come after.
        with _waiting(f"flow {flow.name}: {'opening the log' if held is None else 'getting ready'}"):
            if held is None:
                flow.open()
            else:
                flow.prepare()
        if console.is_terminal and not as_json and held is None:
            begun = beginning(flow.name, flow.status().epoch)
            console.print(begun, markup=False, highlight=False, soft_wrap=True)
        progress = Epochs()
        show = Jsonl if as_json else Screen if console.is_terminal else Lines
        asked = 0.0
        counted = Metrics(flow.name, flow.status)
        serving = served(counted, metrics) if metrics is not None else nullcontext()

        def on_epoch(epoch: Epoch) -> None:
            nonlocal asked
            progress.add(epoch)
            counted.add(epoch)
            if time.monotonic() - asked >= 1.0:
                progress.stands(flow.status())
                asked = time.monotonic()
            screen.shown(epoch)

        with stopping(flow.stop, terminated=True), serving, show(console, flow.name, progress) as screen:
            flow.run(
                until="idle" if until else None,
                epochs=epochs,
                interval=interval,
                on_epoch=on_epoch,
                lease=held,
                on_lease=screen.told,
            )
        if not as_json:
            console.print(f"{flow.name}: {progress.summary()}", markup=False, highlight=False, soft_wrap=True)


class _Now(ProgressColumn):
    """What goes on, and for how long; else what was waited for to begin with."""

    def render(self, task: Task) -> Text:
        found = activity.now()
        return Text(f"{task.description}, {task.elapsed or 0:.0f} s" if found is None else str(found))


@contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Say on a terminal what takes its time, and for how long, until it is done."""
    if not problems.is_terminal:
        with activity.shown_elsewhere():
            yield
        return
    # While Spark starts, standard error is a pipe (`quiet_launch`), and nothing would be drawn if it were looked at.
    terminal = Console(stderr=True, force_terminal=True)
    with (
        activity.shown_elsewhere(),
        Progress(SpinnerColumn(), _Now(), console=terminal, transient=True) as progress,
    ):
        progress.add_task(what, total=None)
        yield


@contextmanager
def _connected(lease: Lease | None) -> Iterator[None]:
    """A lease that cannot be used shows before Spark is started."""
    if lease is None:
        yield
        return
    lease.connect()
    try:
        yield
    finally:
        lease.release()


@app.command()
@_reported
def status(
    logs: list[str] = typer.Argument(metavar="LOG", help="The working directory, and log locations."),
    min_replicas: int = typer.Option(1, min=1, help="An epoch is safe when so many of the locations have it."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Say how the flow of LOG stands: its epochs, views and state, and how safe they are. It may be running."""
    from holdfast.inspect.describe import describe
    from holdfast.terminal.report import print_status

    found = describe(logs, min_replicas=min_replicas)
    replicas = sum(level["level"] != "local" for level in found["levels"])
    if 0 < replicas < min_replicas:
        raise typer.BadParameter(f"there are {replicas} log locations; give more, or ask for less", param_hint="LOG")
    if as_json:
        print(json.dumps(redacted(found)))
    else:
        print_status(found, console)


@app.command()
@_reported
def plan(
    file: Path = typer.Argument(help="A Python file that declares one flow."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Say what running the flow of FILE would do to its log: what it adds, rebuilds and drops. It changes nothing, and
    the flow may be running."""
    from holdfast.terminal.app import load_flow

    found = load_flow(file).plan()
    if as_json:
        print(json.dumps(found.to_dict()))
    else:
        console.print(str(found), markup=False, highlight=False, soft_wrap=True)


class Shown(StrEnum):
    """How ``holdfast explain`` shows a dataflow."""

    TEXT = "text"
    SVG = "svg"
    HTML = "html"
    JSON = "json"


@app.command()
@_reported
def explain(
    of: list[str] = typer.Argument(
        metavar="APP_OR_LOG", help="A Python file that declares one flow; or a working directory or log locations."
    ),
    view: str | None = typer.Option(None, help="Only what this view depends on."),
    format: Shown = typer.Option(Shown.TEXT, help="How to show it; svg and html are pictures."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file."),
) -> None:
    """Draw the dataflow: its operators, where rows move, the state that is kept. Of a LOG it needs no Spark."""
    from holdfast.terminal.explain import drawn, print_text, rendered

    name, found = drawn(of, view)
    if format is Shown.TEXT and output is None:
        print_text(found, console)
        return
    text = rendered(name, found, format.value)
    if output is None:
        print(text)
    else:
        output.write_text(text, "utf-8")
        problems.print(f"written to {output}", markup=False, highlight=False, soft_wrap=True)


@app.command()
@_reported
def read(
    log: str = typer.Argument(help="The working directory, or a log location."),
    view: str = typer.Argument(help="A view, or an input."),
    others: list[str] = typer.Option([], "--from", help="Another log location, for layers that LOG lacks."),
    at: int | None = typer.Option(None, min=0, help="As of this epoch (default: the last)."),
    limit: int | None = typer.Option(None, min=0, help="At most so many rows."),
    format: Format = typer.Option(Format.TABLE, help="How to write the rows."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file."),
) -> None:
    """Print the rows of VIEW. Needs no Spark; the flow may be running."""
    from holdfast.inspect.open_log import read as read_rows

    if format is Format.PARQUET and output is None:
        raise typer.BadParameter("parquet is not for the terminal; give --output FILE", param_hint="--format")
    if format is Format.TABLE and output is not None:
        raise typer.BadParameter(
            "a table is for the terminal; give --format csv, json or parquet", param_hint="--output"
        )
    rows = read_rows(log, view, at, others=others)
    shown = rows if limit is None else rows.slice(0, limit)
    if output is not None:
        write_file(shown, format, output)
        problems.print(f"{shown.num_rows:,} rows written to {output}", markup=False, highlight=False, soft_wrap=True)
    elif format is Format.TABLE:
        print_rows(shown, console, f"{view}: {counted(rows.num_rows, 'row')}")
    else:
        sys.stdout.flush()
        try:
            write_rows(shown, format, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # The reader has seen enough (`| head`). Python must not complain again when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command()
@_reported
def verify(
    logs: list[str] = typer.Argument(metavar="LOG", help="The working directory, and log locations."),
    repair: bool = typer.Option(
        False, "--repair", help="Set damaged files aside, and fill each place from the others."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Check every file of a log, and what is missing. It may be running, except for --repair."""
    from holdfast.inspect.verify import verify as check
    from holdfast.terminal.report import print_report

    with _bar("checking layers", problems.is_terminal and not as_json) as progress:
        report = check(logs, repair, progress)
    if as_json:
        print(json.dumps(redacted(report.to_dict())))
    else:
        print_report(report, console)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
@_reported
def branch(
    logs: list[str] = typer.Argument(metavar="LOG", help="The working directory, and all log locations."),
    create: str | None = typer.Option(None, metavar="NAME", help="Make a branch of this name."),
    at: int | None = typer.Option(None, min=0, help="As of this epoch (default: the last)."),
    remove: str | None = typer.Option(None, metavar="NAME", help="Remove this branch, and what it alone has."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """List the branches of LOG, with the space that each holds; make one, or remove one, while nobody runs the flow.
    Needs no Spark. A branch is a log, too: holdfast status LOG/branches/NAME."""
    from holdfast.inspect.branching import create_branch, list_branches, remove_branch
    from holdfast.terminal.report import print_branches

    if create is not None and remove is not None:
        raise typer.BadParameter("one thing at a time", param_hint="--remove")
    if at is not None and create is None:
        raise typer.BadParameter("it says where a branch begins; give --create, too", param_hint="--at")
    if create is not None:
        create_branch(logs, create, at)
    if remove is not None:
        remove_branch(logs, remove)
    found = list_branches(logs)
    if as_json:
        print(json.dumps({"branches": found}))
    else:
        print_branches(found, console)


@app.command()
@_reported
def rewind(
    file: Path = typer.Argument(help="The Python file that declares the flow."),
    to: int = typer.Option(..., min=0, help="Undo all epochs after this one."),
    reason: str = typer.Option("", help="Why; it is written into the log."),
    skip: list[str] = typer.Option(
        [], metavar="SOURCE=NAME", help="A file, or a row as a JSON list, that is not taken again; any number of times."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Undo the epochs after TO in the flow of FILE, while nobody runs it: its views go back to what they were, and its
    sinks are given the retractions. The next run takes the input again, without what is skipped."""
    from holdfast.terminal.app import load_flow

    skipped: dict[str, list[Any]] = {}
    for each in skip:
        source, equals, name = each.partition("=")
        if not equals:
            raise typer.BadParameter(
                f"a source and what to skip, such as visits=bad.csv, not {each}", param_hint="--skip"
            )
        skipped.setdefault(source, []).append(_row_or_name(name))
    with _waiting(f"starting Spark, and reading {file}"):
        loaded = load_flow(file)
    with loaded as flow:
        result = flow.rewind(to, reason=reason, skip=skipped)
        owed = flow.status().owed
    if as_json:
        print(json.dumps({"epoch": result.epoch, "to": to, "changed": result.changed, "owed": owed}))
        return
    console.print(
        f"{flow.name}: epoch {result.epoch} has undone all after epoch {to}; the next run takes the input of "
        f"{counted(owed, 'epoch')} again",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _row_or_name(said: str) -> tuple[Any, ...] | str:
    """A row, if it is a JSON list; else the name of a file, which may well begin with a bracket."""
    try:
        found = json.loads(said)
    except ValueError:
        return said
    return tuple(found) if isinstance(found, list) else said


@app.command()
@_reported
def diff(
    log: str = typer.Argument(help="The working directory, or a log location."),
    here: str = typer.Argument(help="main, or a branch."),
    there: str = typer.Argument(help="main, or a branch."),
    view: str = typer.Argument(help="A view that both have."),
    at: int | None = typer.Option(None, min=0, help="As of this epoch (default: the last that both have)."),
    since: int | None = typer.Option(None, min=-1, help="One comparison for each epoch after this one."),
    by: list[str] = typer.Option([], help="A column that tells which row is which (default: the view's key)."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object per comparison, with all rows."),
) -> None:
    """Say where VIEW differs between two lines of LOG: rows that one has alone, and rows that were changed. Needs no
    Spark; the flow may be running."""
    from holdfast.inspect.compare_logs import compare_branches
    from holdfast.terminal.output import plain

    for found in compare_branches(log, here, there, view, at, by or None, since):
        if as_json:
            print(json.dumps(plain(found.to_dict()), ensure_ascii=False))
        else:
            console.print(str(found), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _bar(what: str, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on the terminal; without one, nothing."""
    if not shown:
        yield lambda done, total: None
        return
    columns = (_Now(), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with activity.shown_elsewhere(), Progress(*columns, console=problems, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


demos = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(demos, name="demo")


@demos.callback()
@_reported
def demo(
    context: typer.Context,
    scale: float = typer.Option(1.0, min=0.001, help="1 is 2 million visits."),
    batches: int = typer.Option(20, min=1, help="In how many batches the visits arrive."),
    keep: Path | None = typer.Option(None, help="Keep data and log in this directory."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object per update, and one at the end."),
) -> None:
    """Maintain the join query of the AMPLab big-data benchmark while visits arrive, and compare with recomputing it."""
    if context.invoked_subcommand is not None:
        return
    from holdfast.demo.run import run_demo

    if not run_demo(console, scale=scale, batches=batches, keep=keep, as_json=as_json):
        raise typer.Exit(1)


@demos.command()
@_reported
def crash(
    scale: float = typer.Option(0.1, min=0.001, help="1 is 2 million visits."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Run that query on a cluster of six executors, kill one in the middle, and show what each policy makes of it."""
    from holdfast.demo.crash import run_crash_demo

    if not run_crash_demo(console, scale=scale, as_json=as_json):
        raise typer.Exit(1)


@demos.command()
@_reported
def guarantees(as_json: bool = typer.Option(False, "--json", help="Print one JSON object.")) -> None:
    """Let the driver of a small flow die under several strategies, and show what that does to its output."""
    from holdfast.demo.guarantees import run_guarantees_demo

    if not run_guarantees_demo(console, as_json=as_json):
        raise typer.Exit(1)


def main() -> Any:
    """The ``holdfast`` command."""
    return app()


if __name__ == "__main__":
    main()
