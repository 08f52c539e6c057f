"""The command line: holdfast run | status | read | demo.

A command does what its name says and ends with 0; an error is one message on stderr and ends with 1, a wrong call with
2, and a second Ctrl-C with 130. Set HOLDFAST_TRACEBACK=1 to see where an error came from.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.errors import HoldfastError
from holdfast.terminal.output import Format, print_rows, write_file, write_rows

if TYPE_CHECKING:
    from holdfast.flow import Flow
    from holdfast.results import Epoch

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
            command(*arguments, **options)
        except (HoldfastError, OSError) as error:
            if os.environ.get("HOLDFAST_TRACEBACK"):
                raise
            problems.print(f"holdfast: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return run


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
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object per epoch."),
) -> None:
    """Run the flow of FILE until stopped. Ctrl-C ends it after the epoch at hand."""
    from holdfast.terminal.app import load_flow
    from holdfast.terminal.live import Jsonl, Lines, Progress, Screen

    with load_flow(file) as flow:
        flow.status()  # starts it: Spark puts a handler of its own on Ctrl-C, and ours must come after
        progress = Progress()
        show = Jsonl if as_json else Screen if console.is_terminal else Lines
        asked = 0.0

        def on_epoch(epoch: Epoch) -> None:
            nonlocal asked
            progress.add(epoch)
            if time.monotonic() - asked >= 1.0:
                progress.waiting = {name: source["waiting"] for name, source in flow.status().sources.items()}
                asked = time.monotonic()
            screen.shown(epoch)

        with _stopping(flow), show(console, flow.name, progress) as screen:
            flow.run(until=until.value if until else None, epochs=epochs, interval=interval, on_epoch=on_epoch)
        if not as_json:
            console.print(f"{flow.name}: {progress.summary()}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _stopping(flow: Flow) -> Iterator[None]:
    """The first Ctrl-C (or TERM) ends the run after the epoch at hand; the second ends it at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        flow.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command()
@_reported
def status(
    log: Path = typer.Argument(help="The flow's log directory."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Say how the flow of LOG stands: its epochs, views and state. It may be running."""
    from holdfast.inspect import describe

    found = describe(log)
    if as_json:
        print(json.dumps(found))
        return
    holder = found["running"]
    by = "no" if holder is None else f"yes, by process {holder.get('pid', '?')} on {holder.get('host', '?')}"
    at = f", at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(found['at']))}" if found["at"] is not None else ""
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("flow", Text(found["flow"]))
    facts.add_row("log", Text(found["log"]))
    facts.add_row("epoch", "none yet" if found["epoch"] < 0 else f"{found['epoch']:,}{at}")
    facts.add_row("running", by)
    layers = sum(trace["layers"] for trace in found["traces"])
    facts.add_row("state", f"{_size(found['bytes'])} in {layers:,} layers of {len(found['traces']):,} traces")
    console.print(facts)
    kept = Table("name", "kind", "readable from", "columns")
    for name, entry in found["collections"].items():
        columns = ", ".join(f"{column} {kind}" for column, kind in entry["fields"])
        earliest = "-" if entry["earliest"] is None or found["epoch"] < 0 else f"epoch {entry['earliest']:,}"
        kept.add_row(Text(name), "input" if entry["kind"] == "source" else entry["kind"], earliest, Text(columns))
    if found["collections"]:
        console.print(kept)


@app.command()
@_reported
def read(
    log: Path = typer.Argument(help="The flow's log directory."),
    view: str = typer.Argument(help="A view, or an input."),
    at: int | None = typer.Option(None, min=0, help="As of this epoch (default: the last)."),
    limit: int | None = typer.Option(None, min=0, help="At most so many rows."),
    format: Format = typer.Option(Format.TABLE, help="How to write the rows."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to this file."),
) -> None:
    """Print the rows of VIEW. Needs no Spark; the flow may be running."""
    from holdfast.inspect import read_collection

    if format is Format.PARQUET and output is None:
        raise typer.BadParameter("parquet is not for the terminal; give --output FILE", param_hint="--format")
    if format is Format.TABLE and output is not None:
        raise typer.BadParameter(
            "a table is for the terminal; give --format csv, json or parquet", param_hint="--output"
        )
    rows = read_collection(log, view, at)
    shown = rows if limit is None else rows.slice(0, limit)
    if output is not None:
        write_file(shown, format, output)
        problems.print(f"{shown.num_rows:,} rows written to {output}", markup=False, highlight=False, soft_wrap=True)
    elif format is Format.TABLE:
        print_rows(shown, console, f"{view}: {rows.num_rows:,} rows")
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
def demo(
    scale: float = typer.Option(1.0, min=0.001, help="1 is 2 million visits."),
    batches: int = typer.Option(20, min=1, help="In how many batches the visits arrive."),
    keep: Path | None = typer.Option(None, help="Keep data and log in this directory."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object per update, and one at the end."),
) -> None:
    """Maintain the join query of the AMPLab big-data benchmark while visits arrive, and compare with recomputing it."""
    from holdfast.demo.run import run_demo

    if not run_demo(console, scale=scale, batches=batches, keep=keep, as_json=as_json):
        raise typer.Exit(1)


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError


def main() -> Any:
    """The ``holdfast`` command."""
    return app()


if __name__ == "__main__":
    main()
