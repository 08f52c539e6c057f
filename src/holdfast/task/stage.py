"""One task of one stage: decode the messages that arrived, run the stage's operators, route their output.

Messages (`task.messages`) for operators of later stages pass through untouched. Results for the driver (the views'
changes, how long the work took) stay in the sender's own partition, so that the last stage's tasks deliver the results
of all stages. A task of a later stage that receives an error message computes nothing and writes nothing, since its
input is not complete.

A task is idempotent: it reads traces as of the epoch before and writes layers whose names are a function of their
content. So a retry, a speculative copy, or a task run twice does no harm.

The file is long because decoding, running and routing share the state of one task.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import EvaluationError, LogError, LoopDiverged, MultiplicityOverflow
from holdfast.foundation import os_errors
from holdfast.log.host_paths import host_path, member
from holdfast.log.layer_footers import answers_footer
from holdfast.log.location import Location
from holdfast.operators.arrived_rows import cut, zero_filled
from holdfast.operators.loop import LoopSpec
from holdfast.operators.step import Context, NativeStep, StepResult
from holdfast.task.fixed_answers import asked_file, fix, recall
from holdfast.task.messages import FAILED, RESULT, Message, arrived, decode, encode
from holdfast.task.program import Compiled, Program, Route, bounds, partition_range
from holdfast.task.round_state import RoundJobs, loop_step
from holdfast.task.sink_parts import Parts, write_parts
from holdfast.trace import exact
from holdfast.trace.cover import Chain
from holdfast.trace.layer import write_layer
from holdfast.trace.name import LayerName
from holdfast.trace.quiet_layers import write_quiet_layers
from holdfast.trace.rows import Block, Layout, consolidate
from holdfast.trace.trace import Trace

Entry = tuple[str, tuple[NativeStep, ...]]


@dataclass(frozen=True)
class EpochSpec:
    """The part of a task's description that changes from epoch to epoch. The program (`task.program`) is the constant
    part."""

    number: int
    first: int
    """The first epoch of the layers to write: the number itself, or 0 in a backfill."""

    digest: str
    chain: Chain
    partitions: int
    traces: str
    parent: str = ""
    """The digest of the epoch before."""

    deliver: frozenset[str] = frozenset()
    """Ids of the operators whose output change the driver wants, to hand it to sinks."""

    clock: int = 0
    before: int = -(2**63)
    """The clock of the epoch before."""

    undo: int | None = None
    """In a rewind: the epoch to go back to; None in any other epoch. Each operator writes the negated changes that it
    wrote since. With ``first`` 0 an operator computes its state as of that epoch from its input, and writes the
    difference to its present state."""

    seed: int = 0
    answers: Mapping[str, Mapping[str, str]] | None = None
    """In a replay: operator → question → answer."""

    run: Mapping[str, frozenset[int]] | None = None
    """In a replay: operator → the partitions in which it is computed. None: every operator runs in every partition."""

    write: Mapping[str, frozenset[int]] | None = None
    """In a replay: operator → the partitions whose layers are written. None: all are."""

    asking: frozenset[str] = frozenset()
    """In a replay: the operators that are new. Only these call outside functions, since the lineage has no answers for
    them; all other operators take their answers from the lineage."""

    owners: tuple[str, ...] = ()
    """Partition → the member that keeps its layers. Empty unless members have directories of their own."""

    parts: bool = False
    """Whether tasks write the changes for sinks themselves where they can (`task/sink_parts.py`). Only in the first run
    of an epoch: a replay gives nothing to sinks."""

    writers: bytes = b""
    """The pickled writers of the sinks, if ``parts``."""

    copies: tuple[Location, ...] = ()
    """The log's locations. A task that runs on another member than the partition's owner fetches missing layers from
    them."""

    senders: int = 0
    """The number of tasks of stage 0, which read the sources."""

    tasks: tuple[tuple[int, ...], ...] = ()
    """Task of a keyed stage → the partitions that it runs (`packed_tasks`). Empty: a task runs one partition."""

    round_jobs: RoundJobs | None = None
    """How rounds of loops may run as jobs of their own. None: all rounds of the epoch run in one task."""

    def runs(self, operator: str, partition: int) -> bool:
        return self.run is None or partition in self.run.get(operator, ())

    def writes(self, operator: str, partition: int) -> bool:
        return self.write is None or partition in self.write.get(operator, ())


@dataclass
class TaskReport:
    """The results and measurements of one task, for the driver."""

    stage: int
    partition: int
    started: float = 0.0
    ended: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """Operator → rows of its output change. Quiet operators are not in it."""

    net: dict[str, int] = field(default_factory=dict)
    """Log → the change in its number of rows; negative if it has fewer than before."""

    spent: dict[str, float] = field(default_factory=dict)
    """Operator → seconds spent to read its traces, compute and write."""

    layers: dict[str, int] = field(default_factory=dict)
    """Trace → the number of layers that were open."""

    outputs: dict[str, bytes] = field(default_factory=dict)
    """Operator → its output change, if the driver wants it and it has rows."""

    parts: Parts = field(default_factory=Parts)
    """The parts of changes that the task wrote for sinks."""

    answers: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Operator → question → answer: the answers of outside functions in this task."""

    counts: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Operator → the name of a counter → its value."""

    written: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Trace → the layers that the task wrote: file name and bytes. Without those of quiet operators."""

    quiet: int = 0
    """Bytes of the layers that the task wrote for quiet operators: those to which nothing arrived."""

    due: int | None = None
    """The next clock at which something happens in this partition even if no input arrives. None: never."""

    rounds: dict[str, int] = field(default_factory=dict)
    """View → the largest number of rounds that one of its loops ran."""

    arrived: int = 0
    sent: int = 0
    """Rows that were handed to operators, after the linear steps."""

    member: str = field(default_factory=member)
    """The member that ran the task: the name of the host's directory, if hosts have their own."""

    task: int | None = None
    """The task, if it ran several partitions and made a report for each; None: it made this report alone."""

    fetched: int = 0
    """Layers fetched from the log's copies before the task could run, because it ran on another member than the
    owner."""

    def spend(self, what: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - since
        return now


class Router:
    """Routes changes from producers to the ports that want them: within this task, or as messages to other
    partitions."""

    def __init__(self, program: Program, epoch: EpochSpec, report: TaskReport, *, keep: bool = False) -> None:
        """``keep``: messages stay in this task's memory, so they are not encoded."""
        self.program = program
        self.keep = keep
        self.epoch = epoch
        self.report = report
        self.here: dict[int, list[pa.Table]] = {}
        self.messages: list[Message] = []
        self.catalyst: list[tuple[Entry, pa.Table]] = []
        """Rows that must cross through Spark before they reach an operator: ((the producer, the native steps done),
        rows)."""

    def send(self, producer: str, change: pa.Table) -> None:
        """Route a producer's change along all its paths. Paths with equal steps compute them once. A change without
        rows goes nowhere."""
        if not change.num_rows:
            return
        routes = self.program.routes.get(producer, ())
        done: dict[tuple[object, ...], pa.Table] = {}
        crossing: dict[Entry, pa.Table] = {}
        for route in routes:
            if not self._wanted(route):
                continue
            table = done.get(route.steps)
            if table is None:
                since = time.perf_counter()
                table = change
                with named(self._operator(route), self.epoch.number):
                    for step in route.steps:
                        table = step.run(table)
                done[route.steps] = table
                self.report.spend("linear", since)
            if not route.catalyst:
                self.deliver(route, table)
            elif table.num_rows:
                crossing[producer, route.steps] = table
        self.catalyst += crossing.items()

    def _wanted(self, route: Route) -> bool:
        run = self.epoch.run
        return run is None or bool(run.get(self._operator(route).id))

    def _operator(self, route: Route) -> Compiled:
        """The operator at the end of a route."""
        return self.program.operators[self.program.channels[route.channel][0]]

    def deliver(self, route: Route, table: pa.Table) -> None:
        """Prepare rows for the port at the end of ``route``, and queue them for this task or as messages."""
        if not self._wanted(route):
            return
        operator = self._operator(route)
        with named(operator, self.epoch.number):
            for step in route.after:
                table = step.run(table)
        if table.num_rows == 0:
            return
        since = time.perf_counter()
        _, port = self.program.channels[route.channel]
        columns = [table.column(index) for index in operator.ports[port].columns]
        change = pa.table(
            [*columns, table.column("_diff")], names=[f"c{index}" for index in range(len(columns))] + ["_diff"]
        )
        with named(operator, self.epoch.number):
            prepared = operator.spec.prepare(port, change)
        self.report.sent += prepared.num_rows
        since = self.report.spend("prepare", since)
        if route.local:
            self.here.setdefault(route.channel, []).append(prepared)
        else:
            for partition, part in split(prepared, self.epoch.partitions):
                if self.epoch.runs(operator.id, partition):
                    self.messages.append((partition, (route.channel, part if self.keep else encode(part))))
            self.report.spend("split", since)


def split(table: pa.Table, partitions: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield (partition, its rows): rows cut by the partition of their ``_hash``. Sorted rows are cut without a copy."""
    return cut(table, bounds(partitions))


def run_stage(
    program: Program,
    stage: int,
    partition: int,
    epoch: EpochSpec,
    messages: Iterable[Message],
    *,
    keep: bool = False,
    complete: bool = False,
) -> tuple[Router, TaskReport]:
    """Run the operators of a stage over the messages of one partition. ``complete``: this same task sent all of them,
    so none can be missing. ``keep``: so it is, and what the operators send stays in this task, too.

    Raises `TruncatedInput` if messages are missing.
    """
    report = TaskReport(stage, partition, started=time.time())
    since = time.perf_counter()
    router = Router(program, epoch, report, keep=keep)
    mine = {channel for operator in program.at(stage) for channel in operator.channels}
    failed = False
    if not keep and not complete:
        messages = arrived(messages, epoch.senders if stage == 1 else len(epoch.tasks) or epoch.partitions)
    for owner, (channel, buffer) in messages:
        failed = failed or channel == FAILED
        if channel in mine:
            table = buffer if isinstance(buffer, pa.Table) else decode(buffer)
            report.arrived += table.num_rows
            router.here.setdefault(channel, []).append(table)
        else:
            router.messages.append((owner, (channel, buffer)))
    report.spend("decode", since)
    quiet: list[Compiled] = []
    for operator in () if failed else program.at(stage):
        if not epoch.runs(operator.id, partition):
            continue
        if is_quiet(operator, epoch, router.here):
            quiet.append(operator)
        else:
            router.send(operator.id, run_operator(operator, partition, epoch, router.here, report))
    advance(quiet, partition, epoch, report)
    return router, report


def reports_of(messages: Iterable[Message]) -> tuple[TaskReport, ...]:
    """Return the reports among the last stage's messages. Raises a task's error if one of them sent it."""
    reports = []
    for _, (channel, buffer) in messages:
        if channel == FAILED:
            raise pickle.loads(buffer)
        if channel == RESULT:
            reports.append(pickle.loads(buffer))
    return tuple(reports)


def finish(router: Router, report: TaskReport, partition: int) -> Iterator[Message]:
    """Yield the messages of a finished task, its report last."""
    report.ended = time.time()
    yield from router.messages
    yield partition, (RESULT, pickle.dumps(report))


def run_operator(
    operator: Compiled, partition: int, epoch: EpochSpec, tables: dict[int, list[pa.Table]], report: TaskReport
) -> pa.Table:
    """Run one operator in one partition: read its traces, compute, write its new layers, return its output change.
    ``tables``: what arrived, by channel; it is taken out of there."""
    low, high = partition_range(partition, epoch.partitions)
    initial = epoch.first == 0
    if epoch.undo is not None and not initial:
        return _undone(operator, partition, epoch, report)
    if is_quiet(operator, epoch, tables):
        advance([operator], partition, epoch, report)
        return operator.output.empty_table()
    begun = since = time.perf_counter()
    arrived = [
        zero_filled(tables.pop(channel, []), port.arrived)
        for channel, port in zip(operator.channels, operator.ports, strict=True)
    ]
    traces = {}
    for suffix, layout in operator.spec.layouts().items():
        if operator.spec.reads_traces:
            traces[suffix] = opened(operator, suffix, layout, low, high, epoch)
            report.layers[f"{operator.id}.{suffix}"] = len(traces[suffix].layers)
        else:
            # Opening a layer reads all its bytes, and the layers of a log are the largest of a flow.
            directory = trace_directory(epoch, operator.id, suffix)
            names = Trace.names(directory, layout, low, high, _before(epoch), epoch.chain)
            report.layers[f"{operator.id}.{suffix}"] = len(names)
    since = report.spend("open", since)
    writes = epoch.writes(operator.id, partition)
    filling = initial and (epoch.first < epoch.number or operator.id in epoch.asking)
    if filling and not writes and operator.spec.remembers:
        # Filling takes the whole history as one epoch, and would draw other values than those already seen outside.
        step = _remembered(operator, low, high, epoch)
    else:
        with named(operator, epoch.number):
            step = _step(operator, arrived, traces, context_of(operator, epoch, low, high), epoch)
    since = report.spend("kernel", since)
    if step.answers:
        report.answers[operator.id] = step.answers
    if step.counts:
        report.counts[operator.id] = step.counts
    if step.rounds:
        report.rounds[operator.view] = max(step.rounds, report.rounds.get(operator.view, 0))
    if step.due is not None:
        report.due = step.due if report.due is None else min(report.due, step.due)
    if writes:
        for suffix, layout in operator.spec.layouts().items():
            directory = trace_directory(epoch, operator.id, suffix)
            block = step.layers.get(suffix)
            block = Block.empty(layout) if block is None else block
            first = epoch.first
            if epoch.undo is not None:
                first = epoch.number
                block = _minus_present(block, directory, layout, low, high, epoch)
                _note_undone(report, operator, block)
            name = _written(
                directory, block, layout,
                low=low, high=high, first=first, last=epoch.number, digest=epoch.digest,
                since=-1 if first == epoch.number else epoch.number,
                metadata=_footer(operator, step.answers),
            )  # fmt: skip
            _note_written(report, operator, suffix, directory, name)
    report.spent[operator.id] = report.spend("write", since) - begun
    if epoch.undo is not None:
        return step.output  # for the operators after this one; _note_undone has noted the change
    return _noted(report, operator, epoch, step.output)


def context_of(operator: Compiled, epoch: EpochSpec, low: int, high: int) -> Context:
    """The context of an operator's step: the epoch, and the operator's range of hashes."""
    return Context(
        epoch.number,
        low,
        high,
        epoch.first == 0,
        clock=epoch.clock,
        seed=epoch.seed,
        before=epoch.before,
        answers=_answers(operator, epoch),
    )


def opened(operator: Compiled, suffix: str, layout: Layout, low: int, high: int, epoch: EpochSpec) -> Trace:
    """Open a trace of an operator as of the epoch before."""
    return Trace.open(trace_directory(epoch, operator.id, suffix), layout, low, high, _before(epoch), epoch.chain)


def _before(epoch: EpochSpec) -> int:
    """The epoch as of which an epoch reads its traces."""
    return -1 if epoch.first == 0 else epoch.first - 1


def _undone(operator: Compiled, partition: int, epoch: EpochSpec, report: TaskReport) -> pa.Table:
    """Run one operator's step of a rewind: write to its traces the negated changes since the epoch to go back to. State
    is additive, so it is then as it was at that epoch. The output is empty, because every operator undoes its own
    changes."""
    assert epoch.undo is not None
    since = time.perf_counter()
    low, high = partition_range(partition, epoch.partitions)
    for suffix, layout in operator.spec.layouts().items():
        directory = trace_directory(epoch, operator.id, suffix)
        trace = Trace.open(directory, layout, low, high, epoch.number - 1, epoch.chain)
        report.layers[f"{operator.id}.{suffix}"] = len(trace.layers)
        changes = trace.changes(epoch.undo, epoch.number - 1)
        block = consolidate(_negated(changes).at(epoch.number), layout)
        _note_undone(report, operator, block)
        if epoch.writes(operator.id, partition):
            name = _written(
                directory, block, layout, low=low, high=high, first=epoch.number, last=epoch.number,
                digest=epoch.digest, metadata=_footer(operator, {}),
            )  # fmt: skip
            _note_written(report, operator, suffix, directory, name)
    report.spent[operator.id] = report.spend("write", since) - since
    return operator.output.empty_table()


def _minus_present(block: Block, directory: Path, layout: Layout, low: int, high: int, epoch: EpochSpec) -> Block:
    """The change that turns the rows of a trace into those of ``block``."""
    present = Trace.open(directory, layout, low, high, epoch.number - 1, epoch.chain).scan()
    return consolidate(Block.concat([block, _negated(present)]).at(epoch.number), layout)


def _negated(block: Block) -> Block:
    return replace(block, adds={name: -values for name, values in block.adds.items()})


def _note_undone(report: TaskReport, operator: Compiled, block: Block) -> None:
    """Note in the report what a rewind changed in an operator."""
    if operator.spec.keeps_collection:
        report.rows[operator.id] = block.rows
        report.net[operator.id] = exact.total(block.diff)


@contextmanager
def named(operator: Compiled, epoch: int) -> Iterator[None]:
    """Add the view and the epoch to the errors of the body: a failed expression, a diverged loop, an overflowing row
    count."""
    try:
        yield
    except EvaluationError as error:
        if "view" in error.fields:
            raise
        raise EvaluationError(
            f"view '{operator.view}', epoch {epoch}: {error}", **{**error.fields, "view": operator.view, "epoch": epoch}
        ) from None
    except LoopDiverged as error:
        raise LoopDiverged(
            f"view '{operator.view}', epoch {epoch}: {error}", **{**error.fields, "view": operator.view, "epoch": epoch}
        ) from None
    except MultiplicityOverflow as error:
        raise MultiplicityOverflow(
            f"view '{operator.view}', epoch {epoch}: {error} ({operator.kind}); nothing of the epoch took effect: "
            "take back the input that multiplies rows so often, or make them distinct before they are joined",
            **{**error.fields, "view": operator.view, "epoch": epoch, "operator": operator.id},
        ) from None


def is_quiet(operator: Compiled, epoch: EpochSpec, tables: Mapping[int, list[pa.Table]]) -> bool:
    """Whether the epoch changes nothing of an operator, because nothing arrived."""
    if epoch.first == 0 or epoch.undo is not None or operator.ticks:
        return False
    return not any(map(tables.get, operator.channels))


def advance(quiet: Sequence[Compiled], partition: int, epoch: EpochSpec, report: TaskReport) -> None:
    """Run the step of operators to which nothing arrived. Their traces are not even opened: each gets a layer without
    rows, so that the partition advances with the others."""
    if not quiet:
        return
    since = time.perf_counter()
    low, high = partition_range(partition, epoch.partitions)
    traces, plain = host_path(epoch.traces), list[tuple[str, Layout]]()
    for operator in quiet:
        if not epoch.writes(operator.id, partition):
            continue
        if not operator.spec.asks:
            plain += operator.traces
            continue
        for suffix, layout in operator.spec.layouts().items():
            directory = trace_directory(epoch, operator.id, suffix)
            name = _written(
                directory, Block.empty(layout), layout, low=low, high=high, first=epoch.first, last=epoch.number,
                digest=epoch.digest, metadata=_footer(operator, {}),
            )  # fmt: skip
            _note_written(report, operator, suffix, directory, name)
    try:
        report.quiet += write_quiet_layers(
            traces, plain, low=low, high=high, first=epoch.first, last=epoch.number, digest=epoch.digest
        )
    except OSError as error:
        raise _cannot_write(traces.parent, traces, epoch.number, error) from error
    report.spend("write", since)


def _footer(operator: Compiled, answers: Mapping[str, str]) -> dict[str, str]:
    """The metadata of a layer's footer: the answers of outside functions, if the operator asks any."""
    return answers_footer(answers) if operator.spec.asks else {}


def _note_written(report: TaskReport, operator: Compiled, suffix: str, directory: Path, name: LayerName) -> None:
    size = os.stat(directory / name.text()).st_size
    report.written.setdefault(f"{operator.id}.{suffix}", []).append((name.text(), size))


def _noted(report: TaskReport, operator: Compiled, epoch: EpochSpec, output: pa.Table) -> pa.Table:
    report.rows[operator.id] = output.num_rows
    if operator.spec.keeps_collection and output.num_rows:
        report.net[operator.id] = exact.total(output.column("_diff").to_numpy())
    if operator.id in epoch.deliver and output.num_rows:
        writers = epoch.writers if epoch.parts else b""
        if not write_parts(writers, operator.id, epoch.number, epoch.digest, output, report.parts):
            report.outputs[operator.id] = encode(output)
    return output


def _answers(operator: Compiled, epoch: EpochSpec) -> Mapping[str, str] | None:
    """The answers to use: in a replay, those of the lineage, so that no outside function is called again, and a
    question without an answer is an error. None, that is to call outside functions, in an ordinary epoch and for a new
    operator that is being filled."""
    if epoch.answers is None or operator.id in epoch.asking:
        return None
    return epoch.answers.get(operator.id, {})


def _remembered(operator: Compiled, low: int, high: int, epoch: EpochSpec) -> StepResult:
    """Rebuild the operator's output up to the epoch from the traces that it has already."""
    at = epoch.number if epoch.undo is None else epoch.undo
    traces = {
        suffix: Trace.open(trace_directory(epoch, operator.id, suffix), layout, low, high, at, epoch.chain)
        for suffix, layout in operator.spec.layouts().items()
    }
    return StepResult({}, operator.spec.remembered(traces))


def _step(
    operator: Compiled, arrived: list[pa.Table], traces: dict[str, Trace], context: Context, epoch: EpochSpec
) -> StepResult:
    """Run the operator's step. The answers of outside functions are fixed by a file, so that every attempt of the task
    uses the same ones."""
    if isinstance(operator.spec, LoopSpec) and epoch.round_jobs is not None and context.low == 0:
        return loop_step(operator.id, operator.spec, arrived, traces, context, epoch.round_jobs)
    if context.answers is not None or not operator.spec.asks:
        return operator.spec.step(arrived, traces, context)
    directory = trace_directory(epoch, operator.id, next(iter(traces)))
    file = asked_file(directory, epoch.number, epoch.digest, context.low, context.high)
    step = operator.spec.step(arrived, traces, replace(context, answers=recall(file)))
    if step.answers and (fixed := fix(file, step.answers)) != step.answers:
        step = operator.spec.step(arrived, traces, replace(context, answers=fixed))
    return step


def _written(directory: Path, block: Block, layout: Layout, **extent: Any) -> LayerName:
    """Write a layer. Raises `LogError` if the disk is full or read-only, which is the user's to mend; nothing is lost
    then."""
    try:
        return write_layer(directory, block, layout, **extent)
    except OSError as error:
        raise _cannot_write(directory.parent.parent, directory, extent["last"], error) from error


def _cannot_write(log: Path, path: Path, epoch: int, error: OSError) -> LogError:
    return LogError(
        f"log {log}: cannot write a layer of epoch {epoch}: {os_errors.fix(error)}. "
        "Nothing of the epoch counts, and nothing is lost: its input is taken by the next step",
        path=str(path),
        epoch=epoch,
        errno=error.errno,
    )


def trace_directory(epoch: EpochSpec, operator: str, suffix: str) -> Path:
    return host_path(epoch.traces) / f"{operator}.{suffix}"
