"""Every operator over multiplicities near 2^62: what it gives is what whole numbers of any size give, or an error; and
an epoch that ended in an error has not happened."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import MultiplicityOverflow
from holdfast.operators.aggregate import AggregateSpec
from holdfast.operators.aggregates.calls import CallSpec
from holdfast.operators.join import KERNELS
from holdfast.operators.join_sides import JoinSpec
from holdfast.operators.log import LogSpec
from holdfast.operators.set_operation import SetSpec
from holdfast.operators.step import KeyedOperator
from holdfast.operators.topk import TopKSpec
from holdfast.operators.window import WindowSpec
from holdfast.operators.window_functions import OverSpec
from operators.running import Rows, Runner, added

INT, LONG = pa.int32(), pa.int64()
MOST = 2**63 - 1
Bag = Counter[Any]
Meaning = Callable[..., Bag]

COPIES = st.sampled_from([1, 2, 3, 2**16, 2**31, 2**32, 2**61, 2**62 - 1, 2**62, MOST])
ROWS = st.tuples(st.integers(0, 1), st.integers(0, 1))


def _inner(left: Bag, right: Bag) -> Bag:
    return Counter({(*a, *b): m * n for a, m in left.items() for b, n in right.items() if a[0] == b[0]})


def _keys(rows: Bag) -> set[Any]:
    return {row[0] for row in rows}


def _left(left: Bag, right: Bag) -> Bag:
    padded = {(*a, None, None): m for a, m in left.items() if a[0] not in _keys(right)}
    return Counter({**_inner(left, right), **padded})


def _full(left: Bag, right: Bag) -> Bag:
    padded = {(None, None, *b): n for b, n in right.items() if b[0] not in _keys(left)}
    return Counter({**_left(left, right), **padded})


def _semi(left: Bag, right: Bag) -> Bag:
    return Counter({a: m for a, m in left.items() if a[0] in _keys(right)})


def _anti(left: Bag, right: Bag) -> Bag:
    return Counter({a: m for a, m in left.items() if a[0] not in _keys(right)})


def _counts(rows: Bag) -> Bag:
    return Counter((key, sum(n for row, n in rows.items() if row[0] == key)) for key in _keys(rows))


def _first(count: int) -> Meaning:
    def meaning(rows: Bag) -> Bag:
        found: Bag = Counter()
        for row in sorted(rows):
            found[row] = min(rows[row], count - sum(found.values()))
        return +found

    return meaning


def _join(how: Any) -> JoinSpec:
    return KERNELS[how]((0,), (0,), (INT, INT), (INT, INT), how)


COUNT = CallSpec("count", (), (), LONG)
DISTINCT = CallSpec("count", (1,), (INT,), LONG, True)
MODE = CallSpec("mode", (1,), (INT,), INT)
PAIR = (INT, INT)

OPERATORS: dict[str, tuple[KeyedOperator, int, Meaning]] = {
    "inner": (_join("inner"), 2, _inner),
    "left": (_join("left"), 2, _left),
    "full": (_join("full"), 2, _full),
    "semi": (_join("semi"), 2, _semi),
    "anti": (_join("anti"), 2, _anti),
    "intersect all": (SetSpec("intersect", True, PAIR), 2, lambda a, b: a & b),
    "except all": (SetSpec("except", True, PAIR), 2, lambda a, b: a - b),
    "intersect": (SetSpec("intersect", False, PAIR), 2, lambda a, b: Counter((a & b).keys())),
    "distinct": (AggregateSpec(2, (), PAIR), 1, lambda a: Counter(a.keys())),
    "count": (AggregateSpec(1, (COUNT,), (INT,)), 1, _counts),
    "count distinct": (
        AggregateSpec(1, (DISTINCT,), (INT,)),
        1,
        lambda a: Counter((key, sum(row[0] == key for row in a)) for key in _keys(a)),
    ),
    "log": (LogSpec(PAIR, (0,), True, "rows"), 1, lambda a: a),
    "top": (TopKSpec(((0, False, True), (1, False, True)), 3, 0, PAIR, "bucket"), 1, _first(3)),
}


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_operator_is_exact_or_raises_near_the_limit(name: str, data: st.DataObject) -> None:
    spec, ports, meaning = OPERATORS[name]
    slot = 2**56 if name == "top" else 1
    with tempfile.TemporaryDirectory() as directory:
        runner = Runner(spec, [PAIR] * ports, Path(directory), random.Random(0), slot=slot)
        runner.merge_some = lambda: None  # type: ignore[method-assign]  # merging is a test of its own
        if name == "top":
            runner.partitions = lambda: [(0, 2**64)]  # type: ignore[method-assign]  # the rows of a bucket are in one
        state: list[Bag] = [Counter() for _ in range(ports)]
        shown: Bag = Counter()
        for _ in range(3):
            changes = []
            for port in range(ports):
                change = data.draw(st.dictionaries(ROWS, COPIES, max_size=3))
                taken = data.draw(st.sets(st.sampled_from(sorted(state[port])))) if state[port] else set()
                # A log adds nothing up before it is read: it may hold more of a row than one change can take away.
                gone = {row: -state[port][row] for row in taken if state[port][row] <= MOST}
                changes.append({**change, **gone})
            after = [added(state[port], Counter(changes[port])) for port in range(ports)]
            result = meaning(*after)
            try:
                given_out = runner.epoch(*([(row, diff) for row, diff in change.items()] for change in changes))
            except MultiplicityOverflow:
                moved = added(result, shown, -1).values()
                sums = (sum(map(abs, each.values())) for each in (*state, *after, *map(Counter, changes)))
                # Rows that go meet rows that come in the same epoch: what they make together is counted too.
                both = zip(state, changes, strict=True)
                met = prod(sum(map(abs, [*old.values(), *new.values()])) for old, new in both)
                assert max(*sums, *map(abs, moved), met) > MOST // 4, "nothing is near the limit"
                continue  # the epoch has not happened: the next one starts from the same state
            state, shown = after, added(shown, given_out)
            assert shown == +result


def test_rows_multiplied_beyond_64_bits_are_an_error_and_not_nothing(tmp_path: Path) -> None:
    runner = Runner(_join("inner"), [PAIR, PAIR], tmp_path, random.Random(1))
    with pytest.raises(MultiplicityOverflow, match="more than 2\\^63 - 1 times"):
        runner.epoch([((1, 0), 2**32)], [((1, 0), 2**32)])
    assert runner.epoch([((1, 0), 2**32)], [((1, 0), 2**30)]) == Counter({(1, 0, 1, 0): 2**62})


def test_merging_layers_does_not_wrap(tmp_path: Path) -> None:
    from holdfast.trace.merge import merge
    from operators.running import END, layers_in

    spec = LogSpec(PAIR, (0,), True, "rows")
    runner = Runner(spec, [PAIR], tmp_path, random.Random(1))
    runner.merge_some = lambda: None  # type: ignore[method-assign]
    for _ in range(2):
        runner.epoch([((1, 1), 2**62)])
    directory, layout = tmp_path / "rows", spec.layouts()["rows"]
    with pytest.raises(MultiplicityOverflow):
        merge(directory, layout, layers_in(directory), 0, END, 1, runner.chain)
    with pytest.raises(MultiplicityOverflow):
        runner.state("rows")
    runner.epoch([((1, 1), -(2**62))])
    assert runner.state("rows") == Counter({(1, 1): 2**62})


def test_a_window_over_more_rows_than_can_be_laid_out_is_an_error(tmp_path: Path) -> None:
    spec = WindowSpec((0,), ((1, False, True),), (OverSpec("row_number", (), (), INT),), PAIR)
    runner = Runner(spec, [PAIR], tmp_path, random.Random(1))
    changes: Rows = [((1, value), 2**62) for value in range(4)]
    with pytest.raises(MultiplicityOverflow, match="laid out one by one"):
        runner.epoch(changes)
