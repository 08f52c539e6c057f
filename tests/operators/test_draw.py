"""Draws, without Spark.

The families: what is retracted is what was emitted (histories of insertions and deletions, against a plain model of
bags); an epoch computed again gives the same bytes under other partitions and after merges; answers from outside are
asked for once and then taken from the lineage.
"""

from __future__ import annotations

import datetime
import math
import pickle
import random
import re
import statistics
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import EvaluationError, LogDamaged, NegativeMultiplicity
from holdfast.operators.apply import Called, answer
from holdfast.operators.draw import DrawnSpec, DrawSpec
from holdfast.operators.numbers import randomness
from holdfast.operators.outside_functions import ask
from holdfast.operators.step import Context, StepResult
from holdfast.task import fixed_answers
from holdfast.task.program import Compiled, Port
from holdfast.task.stage import EpochSpec, TaskReport, run_operator
from holdfast.trace.cover import Chain
from holdfast.trace.hashing import weak_bits
from holdfast.trace.layer import write_layer
from holdfast.trace.trace import Trace
from operators.running import END, Rows, Runner, bag, rows_of, table

INT, TEXT, DOUBLE = pa.int64(), pa.string(), pa.float64()
STAMP = pa.timestamp("us", tz="UTC")
CLOCK = DrawnSpec("clock", (), STAMP)
RAND = DrawnSpec("rand", (), DOUBLE, "0")
RANDN = DrawnSpec("randn", (), DOUBLE, "1")
UUID = DrawnSpec("uuid", (), TEXT, "2")


@dataclass(frozen=True)
class Lineage(DrawSpec):
    """Draws whose steps get clock and seed of their epoch, and whose answers are kept."""

    answers: dict[int, dict[str, str]] = field(default_factory=dict)

    def step(self, arrived: Any, traces: Any, context: Context) -> StepResult:
        step = super().step(arrived, traces, at(context.epoch, context.low, context.high))
        self.answers.setdefault(context.epoch, {}).update(step.answers)
        return step


def at(epoch: int, low: int = 0, high: int = END, answers: dict[str, str] | None = None) -> Context:
    return Context(epoch, low, high, epoch == 0, 1_700_000_000_000_000 + epoch, 1000 + epoch, answers=answers)


def spec(*draws: DrawnSpec, types: tuple[pa.DataType, ...] = (INT, TEXT)) -> DrawSpec:
    return DrawSpec("operator", types, draws, "v")


def runner(tmp_path: Path, what: DrawSpec, seed: int = 0) -> Runner:
    with_lineage = Lineage(what.id, what.types, what.draws, what.name)
    return Runner(with_lineage, [what.types], tmp_path, random.Random(seed))


def once(tmp_path: Path, what: DrawSpec, rows: Rows, context: Context | None = None) -> StepResult:
    """One step over an empty trace."""
    run = runner(tmp_path, what)
    trace = Trace.open(tmp_path / "none", what.layout, 0, END, -1, run.chain)
    return what.step([run.prepared(0, rows)], {"rows": trace}, context or at(0))


def test_a_row_is_emitted_with_what_was_drawn_for_it(tmp_path: Path) -> None:
    ((row, diff),) = rows_of(once(tmp_path, spec(CLOCK, RAND, RANDN, UUID), [((1, "a"), 1)]).output)
    assert diff == 1
    assert row[:2] == (1, "a")
    assert row[2] == datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
    assert 0 <= row[3] < 1
    assert math.isfinite(row[4])
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", row[5])


def test_copies_of_a_row_draw_each_for_itself(tmp_path: Path) -> None:
    rows = rows_of(once(tmp_path, spec(RAND, UUID), [((1, "a"), 1000)]).output)
    assert len({row[2] for row, _ in rows}) == len({row[3] for row, _ in rows}) == 1000


def test_copies_with_the_same_clock_stay_one_row(tmp_path: Path) -> None:
    ((_, diff),) = rows_of(once(tmp_path, spec(CLOCK), [((1, "a"), 1000)]).output)
    assert diff == 1000


def test_the_clock_is_the_same_for_all_rows_of_an_epoch_and_another_in_the_next(tmp_path: Path) -> None:
    run = runner(tmp_path, spec(CLOCK))
    first = {row[2] for row in run.epoch([((n, "a"), 1) for n in range(50)])}
    second = {row[2] for row in run.epoch([((n, "b"), 1) for n in range(50)])}
    assert len(first) == len(second) == 1
    assert first != second


def test_values_of_two_draws_two_epochs_and_two_operators_differ(tmp_path: Path) -> None:
    two = spec(RAND, DrawnSpec("rand", (), DOUBLE, "9"))
    ((row, _),) = rows_of(once(tmp_path, two, [((1, "a"), 1)]).output)
    ((later, _),) = rows_of(once(tmp_path, two, [((1, "a"), 1)], at(1)).output)
    other = DrawSpec("another operator", two.types, two.draws, "v")
    ((elsewhere, _),) = rows_of(once(tmp_path, other, [((1, "a"), 1)]).output)
    assert len({*row[2:], *later[2:], *elsewhere[2:]}) == 6


def test_retraction_cancels_what_was_emitted(tmp_path: Path) -> None:
    run = runner(tmp_path, spec(CLOCK, RAND, UUID))
    came = run.epoch([((1, "a"), 1), ((2, "b"), 3)])
    gone = run.epoch([((1, "a"), -1), ((2, "b"), -3)])
    assert gone == Counter({row: -diff for row, diff in came.items()})
    assert run.state("rows") == Counter()


def test_the_copy_that_came_last_goes_first(tmp_path: Path) -> None:
    run = runner(tmp_path, spec(RAND))
    run.epoch([((1, "a"), 2)])
    second = run.epoch([((1, "a"), 2)])
    run.epoch([((7, "z"), 1)])
    assert run.epoch([((1, "a"), -2)]) == Counter({row: -1 for row in second})


def test_a_row_that_comes_and_goes_in_one_epoch_draws_nothing(tmp_path: Path) -> None:
    assert once(tmp_path, spec(RAND), [((1, "a"), 2), ((1, "a"), -2)]).output.num_rows == 0


def test_a_row_that_goes_more_often_than_it_came_is_an_error_with_the_row(tmp_path: Path) -> None:
    run = runner(tmp_path, spec(RAND))
    run.epoch([((1, "a"), 1)])
    with pytest.raises(NegativeMultiplicity, match=r"view 'v', epoch 1: .*\(1, 'a'\) \(-1\)") as caught:
        run.epoch([((1, "a"), -2)])
    assert caught.value.fields["rows"] == [(1, "a")]


def test_rows_without_columns_are_drawn_for_too(tmp_path: Path) -> None:
    run = runner(tmp_path, spec(RAND, types=()))
    came = run.epoch([((), 3)])
    assert len(came) == 3
    gone = run.epoch([((), -1)])
    assert len(gone) == 1
    assert all(came[row] == 1 for row in gone)


changes = st.lists(
    st.lists(
        st.tuples(st.tuples(st.sampled_from([0, 1, 2, None]), st.sampled_from(["a", "b", None])), st.integers(-3, 3)),
        max_size=8,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(history=changes, seed=st.integers(0, 1000), bits=st.sampled_from([64, 2]))
def test_over_any_history_what_is_shown_is_the_input_with_one_value_for_each_copy(
    tmp_path_factory: pytest.TempPathFactory, history: list[Rows], seed: int, bits: int
) -> None:
    with weak_bits(bits):
        run = runner(tmp_path_factory.mktemp("draw"), spec(CLOCK, UUID), seed)
        held: Counter[Any] = Counter()
        shown: Counter[Any] = Counter()
        for change in history:
            legal = [(row, diff) for row, diff in bag(change).items() if held[row] + diff >= 0]
            output = run.epoch(legal)
            for row, diff in legal:
                held[row] += diff
            for row, diff in output.items():
                shown[row] += diff
                assert shown[row] in (0, 1), "no two copies have one uuid, and nothing is retracted that was not shown"
            alive: Counter[Any] = Counter()
            for row, diff in shown.items():
                alive[row[:2]] += diff
            assert +alive == +held


@settings(max_examples=40, deadline=None)
@given(history=changes, seeds=st.tuples(st.integers(0, 1000), st.integers(0, 1000)), bits=st.sampled_from([64, 1]))
def test_a_replay_gives_the_same_bytes_under_other_partitions_and_after_other_merges(
    tmp_path_factory: pytest.TempPathFactory, history: list[Rows], seeds: tuple[int, int], bits: int
) -> None:
    with weak_bits(bits):
        runs = [runner(tmp_path_factory.mktemp("draw"), spec(CLOCK, RAND, RANDN, UUID), seed) for seed in seeds]
        held: Counter[Any] = Counter()
        for change in history:
            legal = [(row, diff) for row, diff in bag(change).items() if held[row] + diff >= 0]
            for row, diff in legal:
                held[row] += diff
            one, other = (run.epoch(legal) for run in runs)
            assert one == other
        assert runs[0].state("rows") == runs[1].state("rows")


def test_what_a_new_reader_starts_from_is_everything_that_is_shown(tmp_path: Path) -> None:
    run = runner(tmp_path, spec(CLOCK, RAND))
    shown = run.epoch([((1, "a"), 2), ((2, "b"), 1)])
    shown.update(run.epoch([((3, "c"), 1), ((2, "b"), -1)]))
    trace = Trace.open(tmp_path / "rows", run.spec.layout, 0, END, 1, run.chain)
    assert bag(rows_of(run.spec.remembered({"rows": trace}))) == +shown


# -- chance ---------------------------------------------------------------------------------------------------------


def test_random_values_are_spread_as_they_should_be() -> None:
    bits = randomness.words(("test",), np.arange(100_000, dtype=np.uint64), np.zeros(100_000, np.int64))
    uniform, normal = randomness.uniform(bits), randomness.normal(bits)
    assert abs(uniform.mean() - 0.5) < 0.005
    assert abs(np.histogram(uniform, 10, (0, 1))[0] - 10_000).max() < 400
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02


def test_normal_values_are_the_inverse_of_the_distribution_even_far_out() -> None:
    bits = np.array([0, 1 << 13, 1 << 20, 1 << 40, 1 << 60, 1 << 63, 2**64 - 1], np.uint64)
    places = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    expected = [statistics.NormalDist().inv_cdf(place) for place in places.tolist()]
    assert randomness.normal(bits).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)


# -- functions from outside -----------------------------------------------------------------------------------------

CALLS: list[Any] = []


def counted(number: int, text: str) -> str:
    CALLS.append((number, text))
    return f"{text}{len(CALLS)}"


def failing(number: int, text: str) -> str:
    raise LookupError("no such place")


def outside(function: Any, kind: pa.DataType = TEXT) -> DrawnSpec:
    return DrawnSpec("udf:geocode", (0, 1), kind, "0", pickle.dumps(function))


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def test_a_function_is_asked_once_for_each_copy_that_comes_and_never_for_one_that_goes(tmp_path: Path) -> None:
    run = runner(tmp_path, spec(outside(counted)))
    came = run.epoch([((1, "a"), 2), ((2, "b"), 1)])
    assert sorted(CALLS) == [(1, "a"), (1, "a"), (2, "b")]
    assert run.epoch([((1, "a"), -2), ((2, "b"), -1)]) == Counter({row: -diff for row, diff in came.items()})
    assert len(CALLS) == 3


@pytest.mark.parametrize("bits", [64, 0])
def test_answers_of_the_lineage_are_used_in_place_of_calling(tmp_path: Path, bits: int) -> None:
    rows = [((1, "a"), 2), ((2, "b"), 1), ((3, "c"), 1)]
    with weak_bits(bits):
        first = once(tmp_path, spec(outside(counted)), rows)
        assert len(first.answers) == len(CALLS) == 4
        again = once(tmp_path, spec(outside(counted)), rows, at(0, answers=dict(first.answers)))
    assert len(CALLS) == 4
    assert again.output.equals(first.output)
    assert again.answers == first.answers


def test_an_answer_that_the_lineage_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogDamaged, match="view 'v': function 'geocode': the lineage of epoch 0 holds no answer"):
        once(tmp_path, spec(outside(counted)), [((1, "a"), 1)], at(0, answers={}))


def test_a_function_that_fails_is_named_with_its_arguments(tmp_path: Path) -> None:
    expected = r"view 'v': function 'geocode'\(1, 'a'\) raised LookupError: no such place"
    with pytest.raises(EvaluationError, match=expected):
        once(tmp_path, spec(outside(failing)), [((1, "a"), 1)])


def test_an_answer_of_the_wrong_type_is_named_with_the_arguments(tmp_path: Path) -> None:
    expected = r"function 'geocode'\(1, 'a'\) returned 'a1', which is not of the declared type int64"
    with pytest.raises(EvaluationError, match=expected):
        once(tmp_path, spec(outside(counted, INT)), [((1, "a"), 1)])


def _always(value: Any) -> Any:
    return _Always(value)


class _Always:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, *arguments: object) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (INT, 2**62 + 1), (DOUBLE, 0.1), (DOUBLE, math.inf), (TEXT, 'ü"\n'), (TEXT, None), (pa.bool_(), True),
        (pa.binary(), b"\x00\xff"), (pa.date32(), datetime.date(2024, 2, 29)),
        (STAMP, datetime.datetime(2024, 1, 1, 1, 2, 3, 456789, datetime.UTC)),
        (pa.timestamp("us"), datetime.datetime(2024, 1, 1, 1, 2, 3, 456789)),
        (pa.decimal128(20, 4), Decimal("-123456789.0001")), (pa.float32(), 0.5),
        (pa.list_(pa.field("element", pa.date32())), [datetime.date(2024, 1, 1), None]),
        (pa.struct([("a", INT), ("b", pa.list_(TEXT))]), {"a": 1, "b": ["x"]}),
        (pa.map_(TEXT, pa.decimal128(5, 2)), [("k", Decimal("1.50"))]),
    ],
)  # fmt: skip
def test_an_answer_of_any_type_comes_back_exactly(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    what = spec(outside(_always(value), kind))
    first = once(tmp_path, what, [((1, "a"), 1)])
    again = once(tmp_path, what, [((1, "a"), 1)], at(0, answers=dict(first.answers)))
    assert first.output.column("c2").to_pylist() == [value]
    assert again.output.equals(first.output)


def seen(pairs: Any, moment: Any, row: Any) -> str:
    return f"{pairs['k']} {moment.tzinfo} {row.a} {row['b']}"


def test_a_function_is_given_the_values_that_a_deterministic_one_is_given(tmp_path: Path) -> None:
    kinds = (pa.map_(TEXT, INT), STAMP, pa.struct([("a", INT), ("b", TEXT)]))
    given = ([("k", 7)], datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), {"a": 1, "b": "x"})
    arrays = [pa.array([value], kind) for value, kind in zip(given, kinds, strict=True)]
    call = Called("seen", "plain", pickle.dumps(seen), (0, 1, 2), TEXT)
    assert answer(call, arrays, 1).to_pylist() == ["7 None 1 x"]
    values, _ = ask(pickle.dumps(seen), TEXT, ["0"], arrays, "seen", at(0))
    assert values.to_pylist() == ["7 None 1 x"]


def test_the_first_answers_that_are_put_down_count(tmp_path: Path) -> None:
    file = fixed_answers.asked_file(tmp_path / "trace", 7, "d" * 16, 0, END)
    assert fixed_answers.recall(file) is None
    assert fixed_answers.fix(file, {"0:a:0": '"one"'}) == {"0:a:0": '"one"'}
    assert fixed_answers.fix(file, {"0:a:0": '"two"'}) == {"0:a:0": '"one"'}
    assert fixed_answers.recall(file) == {"0:a:0": '"one"'}


def test_a_task_that_runs_twice_gets_the_answers_of_the_first(tmp_path: Path) -> None:
    what = spec(outside(counted))
    rows = what.prepare(0, table([((1, "a"), 1), ((2, "b"), 2)], what.types))
    operator = Compiled("op", "draw", what, 1, (Port((0, 1), rows.schema),), (0,), pa.schema([]))
    epoch = EpochSpec(0, 0, "d" * 16, Chain(-1, ()), 1, str(tmp_path), clock=1, seed=2)
    reports = [TaskReport(1, 0), TaskReport(1, 0)]
    outputs = [run_operator(operator, 0, epoch, {0: [rows]}, report) for report in reports]
    assert outputs[0].equals(outputs[1])
    assert reports[0].answers == reports[1].answers
    assert reports[0].written == reports[1].written
    assert len(CALLS) == 3


def test_answers_of_epochs_long_past_are_removed(tmp_path: Path) -> None:
    files = [fixed_answers.asked_file(tmp_path, epoch, "d" * 16, 0, END) for epoch in range(4)]
    for file in files:
        fixed_answers.fix(file, {"q": "1"})
    assert [file.exists() for file in files] == [False, False, True, True]
    assert [path for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_a_layer_of_draws_reads_back_with_the_files_of_answers_beside_it(tmp_path: Path) -> None:
    what = spec(RAND)
    step = once(tmp_path, what, [((1, "a"), 1)])
    fixed_answers.fix(fixed_answers.asked_file(tmp_path / "rows", 0, "0" * 16, 0, END), {"q": "1"})
    write_layer(tmp_path / "rows", step.layers["rows"], what.layout, low=0, high=END, first=0, last=0, digest="0" * 16)
    run = runner(tmp_path, what)
    run.digests.append("0" * 16)
    assert sum(run.state("rows").values()) == 1
