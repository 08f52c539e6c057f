"""Parts that the resident task reads before their epoch begins, without Spark: what it keeps, uses and drops."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.task.test_resident import Orders, Task, epoch_of, files, program, request, task

from holdfast.errors import BadFile
from holdfast.task import resident
from holdfast.task.messages import RESULT
from holdfast.task.parts_read_ahead import Item, PartsReadAhead, ReadAhead
from holdfast.task.program import Program
from holdfast.task.resident import Request, send
from holdfast.task.single_task import SMALL, TooManyRows, run_single_task
from holdfast.task.stage import reports_of

__all__ = ["program", "task"]  # fixtures

LIMIT = 1 << 30


class Deleting(Orders):
    """Orders, and the deletion of some of them."""

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        for table in super().read(schema):
            yield table
            diff = pa.array([-1] * 10, pa.int64())
            yield table.slice(0, 10).set_column(table.num_columns - 1, "_diff", diff)


def item(part: Any) -> Item:
    return "orders", pickle.dumps(part)


def told(*parts: Any, key: str = "flow", partitions: int = 3, limit: int = SMALL) -> ReadAhead:
    return ReadAhead(key, partitions, [item(part) for part in parts], limit)


def never() -> bool:
    return False


def read(program: Program, *parts: Any, most: int = LIMIT, **more: Any) -> PartsReadAhead:
    ahead = PartsReadAhead(most)
    ahead.read(told(*parts, **more), program, never)
    return ahead


@pytest.mark.parametrize("threads", [1, 2])
def test_an_epoch_writes_the_same_layers_whatever_was_read_ahead(
    program: Program, tmp_path: Path, threads: int
) -> None:
    for number, known in enumerate([0, 1, 2, 3]):
        parts = [Deleting(100 * number), Orders(100 * number + 200, 20), Deleting(100 * number + 300, 60_000)]
        ahead = read(program, *parts[:known], limit=1_000_000)
        ready, left = ahead.take("flow", 3, [item(part) for part in parts])
        assert (len(ready), len(left)) == (known, 3 - known)
        rest = [(name, pickle.loads(part)) for name, part in left]
        common: dict[str, Any] = {"limit": 1_000_000, "threads": threads}
        done = list(run_single_task(program, epoch_of(tmp_path / "ahead", number), rest, ready=ready, **common))
        plain = [("orders", part) for part in parts]
        once = list(run_single_task(program, epoch_of(tmp_path / "once", number), plain, **common))
        assert files(tmp_path / "ahead") == files(tmp_path / "once")
        counts = [
            {
                what: sum(getattr(each, what) for each in reports_of(some) if each.stage == 0)
                for what in ("arrived", "sent")
            }
            for some in (done, once)
        ]
        assert counts[0] == counts[1]


def test_what_was_read_for_another_program_or_number_of_partitions_is_dropped(program: Program) -> None:
    for key, partitions in (("other", 3), ("flow", 2)):
        ahead = read(program, Orders(0))
        assert ahead.take(key, partitions, [item(Orders(0))]) == ([], [item(Orders(0))])
        assert len(ahead) == 0


def test_what_the_next_epoch_does_not_read_is_dropped(program: Program) -> None:
    ahead = read(program, Orders(0), Orders(60))
    ready, left = ahead.take("flow", 3, [item(Orders(60)), item(Orders(120))])
    assert (len(ready), left, len(ahead)) == (1, [item(Orders(120))], 0)
    assert ahead.take("flow", 3, [item(Orders(0))])[0] == []


def test_a_part_that_an_epoch_has_twice_counts_twice(program: Program) -> None:
    ahead = read(program, Orders(0), Orders(0))
    ready, left = ahead.take("flow", 3, [item(Orders(0))] * 2)
    assert (len(ready), left) == (1, [item(Orders(0))])


def test_reading_ahead_ends_where_memory_does(program: Program) -> None:
    one = read(program, Orders(0))
    size = sum(
        table.nbytes
        for _, (channel, table) in one.take("flow", 3, [item(Orders(0))])[0][0].messages
        if channel != RESULT
    )
    assert len(read(program, Orders(0), Orders(60), Orders(120), most=2 * size)) == 2


def test_reading_ahead_ends_where_one_task_would_have_too_many_rows(program: Program, tmp_path: Path) -> None:
    parts = [Orders(0), Orders(60), Orders(120)]
    ahead = read(program, *parts, limit=60)
    assert len(ahead) < 3
    ready, left = ahead.take("flow", 3, [item(part) for part in parts])
    with pytest.raises(TooManyRows):  # as if nothing had been read before
        rest = [(name, pickle.loads(part)) for name, part in left]
        list(run_single_task(program, epoch_of(tmp_path, 0), rest, limit=60, ready=ready))


def test_reading_ahead_ends_when_a_request_waits(program: Program) -> None:
    ahead = PartsReadAhead(LIMIT)
    asked = iter([False, True])
    ahead.read(told(Orders(0), Orders(60), Orders(120)), program, lambda: next(asked))
    assert len(ahead) == 1


def test_an_error_is_left_to_the_epoch(task: Task, program: Program, tmp_path: Path) -> None:
    assert task.ask(request(program, epoch_of(tmp_path, 0), Orders(0))).messages
    bad = Orders(60, error=BadFile("a.json: line 3 is not JSON"))
    send(task.connection, told(bad))
    answer = task.ask(request(None, epoch_of(tmp_path, 1), bad))
    assert answer.ready == 0 and not answer.ends
    with pytest.raises(BadFile, match="line 3"):
        reports_of(answer.messages)


def test_a_request_uses_what_the_task_was_told_to_read_ahead(
    monkeypatch: pytest.MonkeyPatch, task: Task, program: Program, tmp_path: Path
) -> None:
    monkeypatch.setattr(resident, "_has_request", lambda connection: False)  # the next request comes at once
    for number in range(3):
        part = Orders(40 * number)
        answer = task.ask(request(program if number == 0 else None, epoch_of(tmp_path / "ahead", number), part))
        assert answer.ready == (number > 0)
        list(run_single_task(program, epoch_of(tmp_path / "once", number), [("orders", part)]))
        assert files(tmp_path / "ahead") == files(tmp_path / "once")
        send(task.connection, told(Orders(40 * (number + 1))))
    send(task.connection, told())  # the flow is closed
    assert task.ask(request(None, epoch_of(tmp_path / "ahead", 3), Orders(120))).ready == 0


def test_a_program_that_the_task_does_not_know_is_not_read_ahead(task: Task, program: Program, tmp_path: Path) -> None:
    send(task.connection, told(Orders(0)))
    assert task.ask(request(program, epoch_of(tmp_path, 0), Orders(0))).ready == 0


def test_a_program_that_calls_users_is_not_read_ahead(program: Program) -> None:
    calling = replace(program)
    object.__setattr__(calling, "calls_users", True)
    assert len(read(calling, Orders(0))) == 0


def test_a_task_that_holds_too_much_memory_drops_what_it_read_ahead(
    monkeypatch: pytest.MonkeyPatch, task: Task, program: Program, tmp_path: Path
) -> None:
    assert task.ask(request(program, epoch_of(tmp_path, 0), Orders(0))).messages
    monkeypatch.setattr(resident, "_holds_too_much", lambda: True)
    send(task.connection, told(Orders(60)))
    time.sleep(0.2)
    monkeypatch.setattr(resident, "_holds_too_much", lambda: False)
    assert task.ask(Request("flow", None, epoch_of(tmp_path, 1), [item(Orders(60))], SMALL)).ready == 0
