"""What an epoch costs for operators to which nothing arrives: a link for each trace and partition, and nothing else."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.operators.test_whole import PARTITIONS, epoch_of, files, items

from holdfast.operators.linear_step import is_native
from holdfast.plan.dataflow import build
from holdfast.runtime.outcomes import crowded, delivered, written_by
from holdfast.runtime.runner import Outcome
from holdfast.task.program import Program, compile_program
from holdfast.task.single_task import run_single_task
from holdfast.task.stage import TaskReport, reports_of
from holdfast.testing.simulator.model import plans
from holdfast.trace import quiet_layers
from holdfast.trace.cover import Chain, cover
from holdfast.trace.empty_layer import is_empty
from holdfast.trace.layer import forget_all, list_layers, write_layer
from holdfast.trace.name import ALL, LayerName
from holdfast.trace.quiet_layers import write_quiet_layers
from holdfast.trace.rows import Block, Layout
from holdfast.trace.trace import Trace
from holdfast.trace.upkeep import keep_in_shape

LAYOUT = Layout(2, 1, "hash")
DIGEST = f"{7:016x}"


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_program(build(plans(("placed", "cities", "spend", "top")), {}, is_native))


@pytest.fixture(autouse=True)
def no_source() -> None:
    """As in a new process: nothing was written that could be linked."""
    quiet_layers._sources.clear()
    forget_all()


@contextmanager
def counted_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the calls with which files are looked at, opened and made."""
    calls: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for module, name in [(os, "listdir"), (os, "stat"), (os, "link"), (os, "replace"), (os, "mkdir")]:
            patch.setattr(module, name, _counting(calls, name, getattr(module, name)))
        patch.setattr("builtins.open", _counting(calls, "open", open))
        patch.setattr(Trace, "open", staticmethod(_counting(calls, "trace", Trace.open)))
        yield calls


def _counting(calls: Counter[str], name: str, function: Any) -> Any:
    def counted(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return function(*arguments, **options)

    return counted


def run(program: Program, directory: Path, number: int, *sources: str) -> tuple[TaskReport, ...]:
    given = [item for item in items(number) if item[0] in sources]
    return reports_of(run_single_task(program, epoch_of(directory, number), given))


def traces(program: Program) -> list[str]:
    return [trace for operator in program.operators for trace, _ in operator.traces]


def test_views_that_a_change_does_not_reach_open_no_trace(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        run(program, tmp_path, number, "orders", "users")
    run(program, tmp_path, 2)
    with counted_calls(monkeypatch) as calls:
        reports = run(program, tmp_path, 3)
    assert calls == {"link": len(traces(program)) * PARTITIONS}
    assert all(not report.rows and not report.layers and not report.written for report in reports)


def test_every_trace_advances_whether_something_arrived_or_not(program: Program, tmp_path: Path) -> None:
    for number, sources in enumerate([("orders", "users"), ("orders",), (), ("users",), ()]):
        run(program, tmp_path, number, *sources)
        for trace in traces(program):
            mine = [name for name in list_layers(tmp_path / trace) if name.last == number]
            assert len(mine) == PARTITIONS and {name.digest for name in mine} == {f"{number:016x}"}


def test_a_filesystem_without_links_has_the_same_layers(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        run(program, tmp_path / "linked", number, *(["orders", "users"] if number == 0 else []))

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refused)
    for number in range(3):
        run(program, tmp_path / "written", number, *(["orders", "users"] if number == 0 else []))
    assert files(tmp_path / "linked") == files(tmp_path / "written")


def test_the_bytes_of_quiet_layers_are_counted(program: Program, tmp_path: Path) -> None:
    run(program, tmp_path, 0, "orders", "users")
    before = sum(len(data) for data in files(tmp_path).values())
    reports = run(program, tmp_path, 1)
    after = sum(len(data) for data in files(tmp_path).values())
    assert written_by(Outcome(reports, 0.0, 0.0, "task")) == after - before


def test_a_sink_of_a_quiet_view_is_given_no_rows(program: Program, tmp_path: Path) -> None:
    run(program, tmp_path, 0, "orders", "users")
    quiet = Outcome(run(program, tmp_path, 1), 0.0, 0.0, "task")
    for operator in program.operators:
        assert delivered(quiet, operator).equals(operator.output.empty_table())


# -- layers without rows -----------------------------------------------------------------------------------------------


def quiet(directory: Path, epoch: int, count: int = 1) -> int:
    wanted = [(f"t{number}", LAYOUT) for number in range(count)]
    return write_quiet_layers(directory, wanted, low=0, high=ALL, first=epoch, last=epoch, digest=f"{epoch:016x}")


def inodes(directory: Path) -> Counter[int]:
    return Counter(path.stat().st_ino for path in directory.rglob("*.arrow"))


def test_layers_without_rows_of_one_layout_are_one_file(tmp_path: Path) -> None:
    quiet(tmp_path, 0, count=4)  # each trace has no directory yet
    for epoch in range(1, 20):
        quiet(tmp_path, epoch, count=4)
    assert sorted(inodes(tmp_path).values()) == [1, 1, 1, 77]


def test_no_file_is_linked_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_layers, "_LINKS", 5)
    for epoch in range(20):
        quiet(tmp_path, epoch)
    assert max(inodes(tmp_path).values()) == 6


def test_a_layer_that_was_merged_away_is_written_again(tmp_path: Path) -> None:
    for epoch in range(3):
        quiet(tmp_path, epoch)
    for path in tmp_path.rglob("*.arrow"):
        path.unlink()
    quiet(tmp_path, 3)
    assert [name.last for name in list_layers(tmp_path / "t0")] == [3]


def test_a_torn_layer_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    quiet(tmp_path, 0, count=2)
    quiet(tmp_path, 1, count=2)
    [torn] = [name for name in list_layers(tmp_path / "t0") if name.last == 1]
    whole = (tmp_path / "t1" / torn.text()).read_bytes()
    (tmp_path / "t0" / torn.text()).unlink()
    (tmp_path / "t0" / torn.text()).write_bytes(whole[:100])
    quiet(tmp_path, 1, count=2)
    assert (tmp_path / "t0" / torn.text()).read_bytes() == whole


def test_the_bytes_of_a_layer_without_rows_do_not_depend_on_its_epochs(tmp_path: Path) -> None:
    chain = Chain(-1, tuple(f"{epoch:016x}" for epoch in range(40)))
    for epoch in range(40):
        quiet(tmp_path, epoch)
    found = {name.checksum for name in list_layers(tmp_path / "t0")}
    assert keep_in_shape(tmp_path / "t0", LAYOUT, 0, ALL, -1, chain, 39) == 1
    [merged] = list_layers(tmp_path / "t0")
    assert found == {merged.checksum} and (merged.first, merged.last) == (0, 39)


@pytest.mark.parametrize("turns", [1, 5])
def test_a_copy_that_knows_less_of_the_history_can_read_what_was_joined_meanwhile(tmp_path: Path, turns: int) -> None:
    def chain(end: int) -> Chain:
        return Chain(-1, tuple(f"{epoch:016x}" for epoch in range(end + 1)))

    for epoch in range(100):
        quiet(tmp_path, epoch)
        if (epoch + 1) % (100 // turns) == 0:
            for copied in (epoch - 7, epoch):  # no round had been begun since, or it copies all there is
                names = list_layers(tmp_path / "t0")
                keep_in_shape(tmp_path / "t0", LAYOUT, 0, ALL, epoch - 9, chain(epoch), epoch - 9, [(0, copied)])
                assert cover(list_layers(tmp_path / "t0"), 0, ALL, copied, chain(copied)), names
            assert len(list_layers(tmp_path / "t0")) <= 3


def test_merging_and_reading_layers_without_rows_open_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(-1, tuple(f"{epoch:016x}" for epoch in range(8)))
    for epoch in range(8):
        quiet(tmp_path, epoch)
    monkeypatch.setattr("holdfast.trace.layer._map", lambda path: pytest.fail(f"{path} was opened"))
    opened = Trace.open(tmp_path / "t0", LAYOUT, 0, ALL, 7, chain)
    assert len(opened.layers) == 8 and opened.scan().rows == 0 and opened.is_quiet(-1, 7)
    keep_in_shape(tmp_path / "t0", LAYOUT, 0, ALL, -1, chain, 7)
    assert Trace.open(tmp_path / "t0", LAYOUT, 0, ALL, 7, chain).changes(-1, 7).rows == 0


def test_only_a_layer_without_rows_and_metadata_is_known_by_its_name(tmp_path: Path) -> None:
    def name(metadata: dict[str, str], layout: Layout = LAYOUT) -> LayerName:
        extent = {"low": 0, "high": ALL, "first": 0, "last": 0}
        return write_layer(tmp_path, Block.empty(layout), layout, digest=DIGEST, metadata=metadata, **extent)

    assert is_empty(name({}), LAYOUT)
    assert not is_empty(name({"holdfast.changed": "-1"}), LAYOUT)
    assert not is_empty(name({}, Layout(3, 1, "hash")), LAYOUT)


# -- whose turn it is to be merged -------------------------------------------------------------------------------------


def test_traces_that_nothing_opens_have_their_turns_one_after_the_other() -> None:
    names = [f"trace{number:03d}" for number in range(200)]
    calm = Outcome((TaskReport(1, 0),), 0.0, 0.0, "task")
    assert not any(crowded(calm, epoch, names, 8) for epoch in range(64)), "they have few layers yet"
    turns = [crowded(calm, epoch, names, 8) for epoch in range(64, 128)]
    assert sorted(trace for some in turns for trace in some) == names
    assert {len(some) for some in turns} == {3, 4}


def test_a_trace_with_many_layers_is_merged_at_once() -> None:
    busy = Outcome((TaskReport(1, 0, layers={"a": 8, "b": 7}),), 0.0, 0.0, "task")
    assert crowded(busy, 63, ["a", "b", "c"], 8) == {"a"}


def test_a_log_with_large_layers_is_merged_when_there_are_many_more() -> None:
    """Epochs do not read it. State, and logs with small layers, are merged as ever."""
    written = {"large": [("layer", 1 << 20)], "small": [("layer", 1000)], "state": [("layer", 1 << 20)]}
    for count, merged in ((8, {"small", "state"}), (63, {"small", "state"}), (64, {"large", "small", "state"})):
        report = TaskReport(1, 0, layers=dict.fromkeys(written, count), written=written)
        assert crowded(Outcome((report,), 0.0, 0.0, "task"), 1, list(written), 8, {"large", "small"}) == merged
