"""The task that stays, over a real socket, without Spark: what it answers, and when it ends."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.errors import BadFile, LogUnreadable
from holdfast.operators.linear_step import is_native
from holdfast.plan.dataflow import build
from holdfast.task import resident
from holdfast.task.program import Program, compile_program
from holdfast.task.resident import Answer, Closed, Request, receive, send
from holdfast.task.single_task import SMALL, run_single_task
from holdfast.task.stage import EpochSpec, reports_of
from holdfast.testing.simulator.model import plans
from holdfast.trace.cover import Chain


@dataclass(frozen=True)
class Orders:
    """Rows of orders, numbered from ``first`` on; a read that fails if ``error`` says how."""

    first: int
    count: int = 60
    error: Exception | None = field(default=None, compare=False)

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        if self.error is not None:
            raise self.error
        ids = range(self.first, self.first + self.count)
        columns = [list(ids), [each % 7 for each in ids], [each * 3 for each in ids], [1] * self.count]
        yield pa.table([pa.array(column, pa.int64()) for column in columns], names=[*schema.names, "_diff"])


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_program(build(plans(("placed", "cities")), {}, is_native))


def epoch_of(directory: Path, number: int) -> EpochSpec:
    digests = tuple(f"{each:016x}" for each in range(number + 1))
    return EpochSpec(number, number, digests[-1], Chain(-1, digests), 3, str(directory))


def request(program: Program | None, epoch: EpochSpec, part: Orders, limit: int = SMALL) -> Request:
    packed = None if program is None else pickle.dumps(program)
    return Request("flow", packed, epoch, [("orders", pickle.dumps(part))], limit)


class Task:
    """A task in a thread, and the other end of its connection."""

    def __init__(self, directory: Path) -> None:
        path = str(directory / "task")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        self.count: list[int] = []
        self.thread = threading.Thread(target=lambda: self.count.append(resident.serve(path)))
        self.thread.start()
        self.connection, _ = listener.accept()
        self.connection.settimeout(30.0)
        listener.close()

    def ask(self, asked: Request) -> Answer:
        send(self.connection, asked)
        answer = receive(self.connection)
        assert isinstance(answer, Answer)
        return answer

    def ended(self) -> int:
        self.thread.join(10.0)
        assert not self.thread.is_alive()
        return self.count[0]


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    task = Task(tmp_path)
    yield task
    task.connection.close()
    task.ended()


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_it_writes_the_layers_of_a_single_task_byte_for_byte(task: Task, program: Program, tmp_path: Path) -> None:
    for number in range(4):
        part = Orders(40 * number)
        told = request(program if number == 0 else None, epoch_of(tmp_path / "stays", number), part)
        answer = task.ask(told)
        once = list(run_single_task(program, epoch_of(tmp_path / "once", number), [("orders", part)]))
        assert files(tmp_path / "stays") == files(tmp_path / "once")
        assert [r.rows for r in reports_of(answer.messages)] == [r.rows for r in reports_of(once)]
        assert not answer.ends


def test_an_error_of_the_data_is_an_answer_and_the_task_stays(task: Task, program: Program, tmp_path: Path) -> None:
    failing = Orders(0, error=BadFile("a.json: line 3 is not JSON"))
    answer = task.ask(request(program, epoch_of(tmp_path, 0), failing))
    with pytest.raises(BadFile, match="line 3"):
        reports_of(answer.messages)
    assert not answer.ends
    assert task.ask(request(None, epoch_of(tmp_path, 0), Orders(0))).messages


def test_an_error_that_nobody_expected_is_left_to_a_job_and_ends_the_task(
    task: Task, program: Program, tmp_path: Path
) -> None:
    answer = task.ask(request(program, epoch_of(tmp_path, 0), Orders(0, error=RuntimeError("a bug"))))
    assert answer.failed == "RuntimeError: a bug" and answer.messages == () and answer.ends
    assert task.ended() == 1


def test_an_epoch_that_is_too_large_is_left_to_a_job_and_the_task_stays(
    task: Task, program: Program, tmp_path: Path
) -> None:
    answer = task.ask(request(program, epoch_of(tmp_path, 0), Orders(0, count=200), limit=50))
    assert answer.too_many and not answer.ends
    assert task.ask(request(None, epoch_of(tmp_path, 0), Orders(0))).messages


def test_a_program_that_the_task_has_let_go_of_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, task: Task, program: Program, tmp_path: Path
) -> None:
    monkeypatch.setattr(resident, "_PROGRAMS", 1)
    first = request(program, epoch_of(tmp_path, 0), Orders(0))
    assert task.ask(first).messages
    assert task.ask(replace(first, key="another")).messages
    answer = task.ask(replace(first, program=None))
    assert answer.unknown and not answer.failed and not answer.ends


def test_what_this_process_cannot_read_is_left_to_a_job(task: Task, program: Program, tmp_path: Path) -> None:
    answer = task.ask(request(program, epoch_of(tmp_path, 0), Orders(0, error=LogUnreadable("too many open files"))))
    assert answer.failed == "too many open files" and answer.ends


def test_an_answer_says_of_which_epoch_it_is(task: Task, program: Program, tmp_path: Path) -> None:
    for number in range(2):
        epoch = epoch_of(tmp_path, number)
        assert task.ask(request(program if number == 0 else None, epoch, Orders(60 * number))).digest == epoch.digest


def test_it_ends_when_the_driver_is_gone(task: Task) -> None:
    task.connection.close()
    assert task.ended() == 0


def test_it_ends_when_nothing_was_asked_for_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resident, "IDLE", 0.1)
    task = Task(tmp_path)
    assert task.ended() == 0
    with pytest.raises(Closed):
        receive(task.connection)
    task.connection.close()


def test_it_ends_after_the_answer_when_it_holds_too_much_memory(
    monkeypatch: pytest.MonkeyPatch, task: Task, program: Program, tmp_path: Path
) -> None:
    monkeypatch.setattr(resident, "MEMORY", 1)
    answer = task.ask(request(program, epoch_of(tmp_path, 0), Orders(0)))
    assert answer.messages and answer.ends
    assert task.ended() == 1


def test_nobody_to_connect_to_is_no_error(tmp_path: Path) -> None:
    assert resident.serve(str(tmp_path / "nobody")) == 0
