"""An epoch in one task, be it one that stays, or in few tasks of several partitions, writes what the tasks of all
stages write, byte for byte, and gives up when it is too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.connectors.source import Part
from holdfast.errors import NegativeMultiplicity
from holdfast.operators.linear_step import is_native
from holdfast.plan.dataflow import build
from holdfast.task import packed_tasks, single_task
from holdfast.task.messages import Message, TruncatedInput, counted
from holdfast.task.program import Program, compile_program
from holdfast.task.read_sources import read_parts
from holdfast.task.stage import EpochSpec, Router, TaskReport, finish, reports_of, run_stage
from holdfast.testing.simulator.model import plans
from holdfast.trace import inner_loops
from holdfast.trace.cover import Chain

FLOW = ("placed", "cities")
PARTITIONS = 3


@dataclass(frozen=True)
class Rows:
    """Rows of bigints, the last of which is the diff."""

    rows: tuple[tuple[int, ...], ...]

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        names = [*schema.names, "_diff"]
        yield pa.table([pa.array(column, pa.int64()) for column in zip(*self.rows, strict=True)], names=names)


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_program(build(plans(FLOW), {}, is_native))


def epoch_of(directory: Path, number: int) -> EpochSpec:
    digests = tuple(f"{each:016x}" for each in range(number + 1))
    return EpochSpec(number, number, digests[-1], Chain(-1, digests), PARTITIONS, str(directory))


def items(number: int) -> list[tuple[str, Part]]:
    orders = tuple((each, each % 7, each * 3, 1) for each in range(number * 40, number * 40 + 60))
    gone = tuple((each, each % 7, each * 3, -1) for each in range(number * 40 - 40, number * 40 - 20) if each >= 0)
    users = tuple((each, each % 3, 1) for each in range(number * 4, number * 4 + 4))
    return [("orders", Rows(orders + gone)), ("users", Rows(users))]


def in_stages(program: Program, epoch: EpochSpec, given: list[tuple[str, Part]]) -> tuple[TaskReport, ...]:
    messages: list[Message] = []
    epoch = replace(epoch, senders=len(given))
    for one in given:
        router, report = read_parts(program, epoch, [one], 0)
        messages += counted(finish(router, report, 0), PARTITIONS)
    for stage in range(1, program.stages + 1):
        arrived, messages = messages, []
        for partition in reversed(range(PARTITIONS)):
            mine = [message for message in arrived if message[0] == partition]
            router, report = run_stage(program, stage, partition, epoch, mine)
            messages += counted(finish(router, report, partition), PARTITIONS)
    return reports_of(messages)


def in_few_tasks(
    program: Program, epoch: EpochSpec, given: list[tuple[str, Part]], *, readers: bool
) -> tuple[TaskReport, ...]:
    """``readers``: a stage reads the sources; else each task of the first keyed stage does."""
    messages: list[Message] = []
    if readers:
        epoch = replace(epoch, senders=len(given))
        for one in given:
            router, report = read_parts(program, epoch, [one], 0)
            messages += counted(finish(router, report, 0), PARTITIONS)
    else:
        for task in range(len(epoch.tasks)):
            messages += packed_tasks.read_and_run(program, task, epoch, given)
    for stage in range(1 if readers else 2, program.stages + 1):
        arrived, messages = messages, []
        for task, some in enumerate(epoch.tasks):
            mine = [message for message in arrived if message[0] in some]
            messages += packed_tasks.run_packed(program, stage, task, epoch, mine)
    return reports_of(messages)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_one_task_writes_the_layers_of_all_stages_byte_for_byte(program: Program, tmp_path: Path) -> None:
    assert program.stages > 1
    for number in range(3):
        one = reports_of(single_task.run_single_task(program, epoch_of(tmp_path / "one", number), items(number)))
        many = in_stages(program, epoch_of(tmp_path / "many", number), items(number))
        assert files(tmp_path / "one") == files(tmp_path / "many")
        assert _rows(one) == _rows(many)


@pytest.mark.parametrize("large", [1, 17, 1_000])
def test_threads_write_the_same_layers_byte_for_byte(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    """Batches of so many rows, and partitions, are worked on by several threads."""
    monkeypatch.setattr(single_task, "_SIDE_BY_SIDE", large)
    for number in range(3):
        run = single_task.run_single_task(program, epoch_of(tmp_path / "one", number), items(number), threads=3)
        one = reports_of(run)
        many = in_stages(program, epoch_of(tmp_path / "many", number), items(number))
        assert files(tmp_path / "one") == files(tmp_path / "many")
        assert _rows(one) == _rows(many)


@pytest.mark.parametrize("readers", [True, False])
@pytest.mark.parametrize("tasks", [((0, 2), (1,)), ((1,), (2, 0)), ((0, 1, 2),)])
def test_few_tasks_write_the_same_layers_byte_for_byte(
    program: Program, tmp_path: Path, tasks: tuple[tuple[int, ...], ...], readers: bool
) -> None:
    for number in range(3):
        epoch = replace(epoch_of(tmp_path / "few", number), tasks=tasks)
        few = in_few_tasks(program, epoch, items(number), readers=readers)
        many = in_stages(program, epoch_of(tmp_path / "many", number), items(number))
        assert files(tmp_path / "few") == files(tmp_path / "many")
        assert _rows(few) == _rows(many)
        read = [[each.arrived for each in reports if each.stage == 0] for reports in (few, many)]
        assert sum(read[0]) == sum(read[1]), "each row of the input counts once"


def test_few_tasks_give_up_when_there_is_too_much_to_read_in_each(program: Program, tmp_path: Path) -> None:
    much = Rows(tuple((each, each, 1, 1) for each in range(300)))
    epoch = replace(epoch_of(tmp_path, 0), tasks=((0, 1, 2),))
    with pytest.raises(single_task.TooManyRows):
        list(packed_tasks.read_and_run(program, 0, epoch, [("orders", much)], limit=100))


def test_a_task_has_partitions_of_one_member_and_as_many_as_their_rows_need() -> None:
    owners = ("a", "b", "a", "a", "b", "b")
    assert packed_tasks.packed(owners, 0) == ((0, 2, 3), (1, 4, 5))
    assert packed_tasks.packed(owners, 3 * packed_tasks.ROWS) == ((0, 3), (2,), (1, 5), (4,))
    assert packed_tasks.packed(owners, 100 * packed_tasks.ROWS) == ((0,), (2,), (3,), (1,), (4,), (5,))


def test_a_task_of_several_partitions_whose_input_breaks_off_fails(program: Program, tmp_path: Path) -> None:
    epoch = replace(epoch_of(tmp_path, 0), senders=2, tasks=((0, 1, 2),))
    messages: list[Message] = []
    for one in items(0):
        router, report = read_parts(program, epoch, [one], 0)
        messages += counted(finish(router, report, 0), PARTITIONS)
    for length in range(len(messages)):
        with pytest.raises(TruncatedInput):
            list(packed_tasks.run_packed(program, 1, 0, epoch, messages[:length]))


def test_numpy_writes_the_layers_of_the_compiled_loops_byte_for_byte(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if inner_loops.compiled is None:
        pytest.skip("the package was installed without a compiler")
    for number in range(3):
        list(single_task.run_single_task(program, epoch_of(tmp_path / "compiled", number), items(number)))
    monkeypatch.setattr(inner_loops, "compiled", None)
    for number in range(3):
        list(single_task.run_single_task(program, epoch_of(tmp_path / "numpy", number), items(number)))
    assert files(tmp_path / "compiled") == files(tmp_path / "numpy")


def test_threads_give_up_too_when_there_is_too_much(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_task, "_SIDE_BY_SIDE", 10)
    much = Rows(tuple((each, each, 1, 1) for each in range(300)))
    with pytest.raises(single_task.TooManyRows):
        list(single_task.run_single_task(program, epoch_of(tmp_path, 0), [("orders", much)], limit=100, threads=2))


def test_an_error_in_a_thread_is_that_of_the_epoch(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_task, "_SIDE_BY_SIDE", 1)
    wrong = Rows(((1, 1, 1, -1), (2, 2, 1, 1)))
    with pytest.raises(NegativeMultiplicity):
        given = [("orders", wrong), ("users", Rows(((1, 1, 1),)))]
        list(single_task.run_single_task(program, epoch_of(tmp_path, 0), given, threads=2))


def _rows(reports: tuple[TaskReport, ...]) -> dict[tuple[int, int, str], int]:
    return {(each.stage, each.partition, name): rows for each in reports for name, rows in each.rows.items()}


def test_one_task_gives_up_when_it_reads_too_much(program: Program, tmp_path: Path) -> None:
    much = Rows(tuple((each, 1, 1, 1) for each in range(2 * single_task.SMALL + 1)))
    with pytest.raises(single_task.TooManyRows):
        list(single_task.run_single_task(program, epoch_of(tmp_path, 0), [("orders", much)]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dropped", [False, True])
def test_one_task_does_not_read_a_backlog_of_many_small_parts_to_its_end(
    program: Program, tmp_path: Path, threads: int, dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``dropped``: linear steps leave nothing of it."""
    read: list[int] = []

    class Part:
        def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
            read.append(100)
            yield from Rows(tuple((each, each, 1, 1) for each in range(100))).read(schema)

    few = single_task._READ * 50 if dropped else 2 * 50
    parts = [("orders", Part()) for _ in range(100)]
    if dropped:
        monkeypatch.setattr(Router, "send", lambda *_: None)
    with pytest.raises(single_task.TooManyRows):
        list(single_task.run_single_task(program, epoch_of(tmp_path, 0), parts, limit=50, threads=threads))
    assert sum(read) <= few + 100


def test_layers_of_rows_that_cancel_are_the_same_however_they_came(program: Program, tmp_path: Path) -> None:
    come, go = (1, 1, 1, 1), (1, 1, 1, -1)
    for directory, parts in (("together", [(come, go)]), ("apart", [(come,), (go,)]), ("never", [])):
        given = [("orders", Rows(tuple(rows))) for rows in parts]
        list(single_task.run_single_task(program, epoch_of(tmp_path / directory, 0), given))
    assert files(tmp_path / "together") == files(tmp_path / "apart") == files(tmp_path / "never")


def test_one_task_gives_up_when_it_passes_on_too_much(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_task, "_PASSED", 1)
    with pytest.raises(single_task.TooManyRows):
        list(single_task.run_single_task(program, epoch_of(tmp_path, 0), items(0), limit=50))


def test_a_task_whose_input_breaks_off_writes_nothing(program: Program, tmp_path: Path) -> None:
    epoch = replace(epoch_of(tmp_path, 0), senders=2)
    messages: list[Message] = []
    for one in items(0):
        router, report = read_parts(program, epoch, [one], 0)
        messages += counted(finish(router, report, 0), PARTITIONS)
    mine = [message for message in messages if message[0] == 0]
    for length in range(len(mine)):
        with pytest.raises(TruncatedInput):
            run_stage(program, 1, 0, epoch, mine[:length])
        with pytest.raises(TruncatedInput):
            run_stage(program, 1, 0, epoch, [*mine[:length], *mine[length + 1 :]])
    assert files(tmp_path) == {}
    run_stage(program, 1, 0, epoch, mine)
    assert files(tmp_path)
