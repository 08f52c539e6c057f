"""State of a loop's epoch between jobs, in files, for the tasks that continue with it.

Where rounds run as jobs, the state between two jobs lies beside the traces until the epoch is over:

    <working directory>/rounds/<epoch's digest>/<operator>/<state>.<round>.<stage>.<share>

A file has the state of one stage's operators in one share of the hashes (`operators/loops/shares.py`) as of the end of
a round; stage 0 stands for the loop's variables. The state is a pickle of a few containers; rows in it are *pieces*:
Arrow streams in front of the pickle, mapped when they are read. A piece that an earlier file has is not written again:
the new file refers to it. Cost: a round writes the rows that it adds, and now and then a multiple of that, as small
pieces are merged (`operators/loops/pieces.py`). In an epoch that is not the first it also writes the hashes of all keys
touched so far.

Files are written under a temporary name and renamed. A task of a job that runs twice replaces a file by one with the
same rows, since its rows are cut by hash. The loop's own task is different: another attempt may have its rows in
another order, and an input's rows are cut by their position. So each of its attempts writes its state under a name of
its own, and the jobs continue with the state whose name has reached the driver. Nothing is synced, and nothing is kept:
the driver removes the files that no later round needs, and all of them when the epoch is over; files left by a crash
are removed when the flow is opened.
"""

from __future__ import annotations

import io
import os
import pickle
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from holdfast.foundation.atomic_files import temporary_path
from holdfast.operators.loop import LoopSpec
from holdfast.operators.loops.epoch import LargeRound, LoopEpoch, Rounds, State
from holdfast.operators.loops.shares import Share
from holdfast.operators.step import Context, StepResult
from holdfast.task.messages import decode
from holdfast.trace import physical
from holdfast.trace.rows import Block, constant_epoch
from holdfast.trace.trace import Trace

_TAIL = 8
"""Size in bytes of a file's end, which holds the length of the pickle before it."""

_ALIGNED = 64

Piece = tuple[str, int, int]
"""(file, offset of the Arrow stream, its length in bytes)."""


@dataclass(frozen=True)
class RoundsDone:
    """How far a loop's rounds have come in jobs, and the name of the state that these jobs used."""

    rounds: Rounds
    state: str


@dataclass(frozen=True)
class RoundJobs:
    """How the rounds of an epoch's loops may run as jobs."""

    large: int
    """Rows of a round from which on it runs as a job."""

    shares: int
    together: int = 1
    """Rounds that one job runs, where they are large enough."""

    scratch: str = ""
    """The directory for the state between two jobs. "": none; a task that meets a large round only reports it."""

    done: Mapping[str, RoundsDone] = field(default_factory=dict)
    """By operator."""

    def directory(self, operator: str) -> Path:
        return Path(self.scratch) / operator


def loop_step(
    operator: str, spec: LoopSpec, arrived: list[pa.Table], traces: dict[str, Trace], context: Context, jobs: RoundJobs
) -> StepResult:
    """Run the step of a loop in the task that has all of its rows: all rounds, or the rounds that are left after those
    of jobs. Raises `LargeRound` if the next round is for jobs, once the state for them is in files. If files cannot be
    read or written, the task runs all rounds itself."""
    files = StateFiles(jobs.directory(operator), context.epoch)
    epoch = spec.epoch(traces, context)
    most: int | None = jobs.large
    try:
        if operator in jobs.done:
            _take_over(epoch, spec, jobs, files, jobs.done[operator])
        else:
            epoch.start(spec.changes(arrived))
    except _UNREADABLE:  # the files are gone, with their host
        epoch, most = spec.epoch(traces, context), None
        epoch.start(spec.changes(arrived))
    try:
        return spec.result_of(epoch, epoch.rest(most))
    except LargeRound as large:
        state = secrets.token_hex(4)
        if not jobs.scratch or _handed_out(epoch, spec, jobs, files, large.rounds.last, state):
            raise LargeRound(large.rounds, large.following, large.pending, operator, state) from None
    return spec.result_of(epoch, epoch.rest())


_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, pa.ArrowInvalid)


def _take_over(epoch: LoopEpoch, spec: LoopSpec, jobs: RoundJobs, files: StateFiles, done: RoundsDone) -> None:
    """Load the state of all shares after the rounds that jobs have run."""
    last = done.rounds.last
    for stage in range(spec.body.stages + 1):
        for index in range(jobs.shares):
            epoch.absorb(stage, files.load(file_name(done.state, last, stage, index)), last)
    epoch.rounds = done.rounds


def _handed_out(epoch: LoopEpoch, spec: LoopSpec, jobs: RoundJobs, files: StateFiles, last: int, name: str) -> bool:
    """Write the state of each share. Return False if the files cannot be written."""
    try:
        for stage in range(spec.body.stages + 1):
            state = epoch.state(stage)
            for index in range(jobs.shares):
                part = epoch.share_of(stage, state, Share(index, jobs.shares))
                files.save(file_name(name, last, stage, index), part)
    except OSError:  # a disk that is full: the loop's layers need the room
        files.remove(name)
        return False
    return True


class StateFiles:
    """The files of one operator in one epoch, as one task knows them."""

    def __init__(self, directory: Path, epoch: int) -> None:
        self._directory, self._epoch = directory, epoch
        self._mapped: dict[str, pa.Buffer] = {}
        self._known: dict[int, tuple[Any, Piece]] = {}
        """id(rows) → (rows, their piece). The rows are kept alive, so that no other object gets their id."""

    def load(self, name: str) -> State:
        """Read the state in a file."""
        buffer = self._buffer(name)
        size = int.from_bytes(buffer.slice(buffer.size - _TAIL).to_pybytes(), "little")
        packed = buffer.slice(buffer.size - _TAIL - size, size)
        state: State = _Unpickler(io.BytesIO(packed), self._piece).load()
        return state

    def save(self, name: str, state: State) -> set[str]:
        """Write a file. Return the names of all files that its state needs, itself included."""
        self._directory.mkdir(exist_ok=True)  # fails if the epoch's directory is gone: the epoch is over
        with temporary_path(self._directory) as temporary:
            with open(temporary, "xb") as file:
                packed = io.BytesIO()
                pickler = _Pickler(packed, file, name, self._known)
                pickler.dump(state)
                file.write(packed.getbuffer())
                file.write(packed.getbuffer().nbytes.to_bytes(_TAIL, "little"))
            os.replace(temporary, self._directory / name)
        return pickler.needed

    def remove(self, state: str) -> None:
        """Remove all files of a state."""
        with suppress(OSError):
            for name in os.listdir(self._directory):
                if name.startswith(f"{state}."):
                    (self._directory / name).unlink(missing_ok=True)

    def _buffer(self, name: str) -> pa.Buffer:
        if name not in self._mapped:
            self._mapped[name] = pa.memory_map(os.fspath(self._directory / name)).read_buffer()
        return self._mapped[name]

    def _piece(self, kind: str, piece: Piece) -> Any:
        name, start, size = piece
        table = decode(self._buffer(name).slice(start, size))
        found = _block(table, self._epoch) if kind == "block" else table
        self._known[id(found)] = found, piece
        return found


def file_name(state: str, round: int, stage: int, share: int) -> str:
    """The name of the file with a stage's state in one share, as of the end of a round."""
    return f"{state}.{round}.{stage}.{share}"


class _Pickler(pickle.Pickler):
    def __init__(self, packed: IO[bytes], file: IO[bytes], name: str, known: dict[int, tuple[Any, Piece]]) -> None:
        super().__init__(packed, protocol=pickle.HIGHEST_PROTOCOL)
        self._file, self._name, self._known = file, name, known
        self.needed = {name}

    def persistent_id(self, found: Any) -> tuple[str, Piece] | None:
        if not isinstance(found, Block | pa.Table):
            return None
        if id(found) not in self._known:
            table = _table(found) if isinstance(found, Block) else found.combine_chunks()
            self._file.write(bytes(-self._file.tell() % _ALIGNED))
            start = self._file.tell()
            with pa.ipc.new_stream(pa.PythonFile(self._file, "w"), table.schema) as writer:
                writer.write_table(table)
            self._known[id(found)] = found, (self._name, start, self._file.tell() - start)
        piece = self._known[id(found)][1]
        self.needed.add(piece[0])
        return "block" if isinstance(found, Block) else "table", piece


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: IO[bytes], piece: Any) -> None:
        super().__init__(packed)
        self._piece = piece

    def persistent_load(self, found: tuple[str, Piece]) -> Any:
        return self._piece(*found)


def _table(block: Block) -> pa.Table:
    """A block of one epoch as a table."""
    columns: dict[str, Any] = {"_hash": pa.array(block.hash)}
    if block.sub is not None:
        columns["_sub"] = pa.array(block.sub)
    columns |= {f"c{index}": column for index, column in enumerate(block.columns)}
    return pa.table({**columns, **{name: pa.array(np.ascontiguousarray(each)) for name, each in block.adds.items()}})


def _block(table: pa.Table, epoch: int) -> Block:
    columns = {name: physical.plain(table.column(name)) for name in table.column_names}
    sub = columns.get("_sub")
    return Block(
        physical.fixed(columns["_hash"]),
        None if sub is None else physical.fixed(sub),
        tuple(columns[f"c{index}"] for index in range(sum(name.startswith("c") for name in columns))),
        constant_epoch(epoch, table.num_rows),
        {name: physical.fixed(column) for name, column in columns.items() if name.startswith("+")},
    )
