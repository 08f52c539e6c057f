"""The classifier: outputs that are made of each kind by construction are recognised, with the rows that show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.guarantees.prediction import RecoveryType
from holdfast.testing import classify

Row = tuple[int, str]


def t(*numbers: int) -> list[Row]:
    """t1 t2 t3: an identity and a value."""
    return [(number, "t") for number in numbers]


def other(*numbers: int) -> list[Row]:
    """t′1 t′2 t′3."""
    return [(number, "t′") for number in numbers]


LECTURE = {
    "precise": t(4, 5, 6),
    "gap": t(5, 6),
    "rollback-repeating": t(2, 3, 4, 5, 6),
    "rollback-convergent": [*other(2, 3), *t(4, 5, 6)],
    "rollback-divergent": other(2, 3, 4, 5, 6),
}


@pytest.mark.parametrize("kind", [each.value for each in RecoveryType])
@pytest.mark.parametrize(
    "key", [None, 0, (0,), lambda row: row[0]], ids=["no key", "position", "positions", "function"]
)
@pytest.mark.parametrize("ordered", [False, True])
def test_each_row_of_the_lectures_table_is_recognised(kind: str, key: Any, ordered: bool) -> None:
    assert classify(t(1, 2, 3), LECTURE[kind], t(1, 2, 3, 4, 5, 6), key=key, ordered=ordered).recovery.value == kind


@dataclass(frozen=True)
class Crashed:
    """A crash that was made up: ``first`` rows of ``whole`` were delivered, and then the rest from ``back`` rows before
    that on."""

    whole: list[Row]
    first: int
    back: int

    @property
    def before(self) -> list[Row]:
        return self.whole[: self.first]

    @property
    def again(self) -> list[Row]:
        return self.whole[self.first - self.back : self.first]

    @property
    def rest(self) -> list[Row]:
        return self.whole[self.first :]


@st.composite
def crashes(draw: st.DrawFn, again: bool = False) -> Crashed:
    """With ``again``, at least one row comes again."""
    values = draw(st.lists(st.sampled_from("abc"), min_size=2, max_size=12))
    whole = list(enumerate(values))
    first = draw(st.integers(1, len(whole) - 1))
    return Crashed(whole, first, draw(st.integers(1 if again else 0, first)))


def primed(rows: list[Row]) -> list[Row]:
    return [(number, value + "′") for number, value in rows]


@settings(deadline=None, max_examples=50)
@given(crashes(), st.booleans())
def test_an_output_that_goes_on_where_it_was_is_precise(crashed: Crashed, ordered: bool) -> None:
    found = classify(crashed.before, crashed.rest, crashed.whole, key=0, ordered=ordered)
    assert (found.recovery.value, found.guarantee, str(found)) == ("precise", "exactly-once", "precise")
    assert classify(crashed.before, crashed.rest, crashed.whole, ordered=ordered) == found


@settings(deadline=None, max_examples=50)
@given(crashes(), st.data())
def test_rows_left_out_are_a_gap_and_are_named(crashed: Crashed, data: st.DataObject) -> None:
    lost = set(data.draw(st.lists(st.sampled_from(crashed.rest), min_size=1)))
    after = [row for row in crashed.rest if row not in lost]
    for key in (None, 0):
        found = classify(crashed.before, after, crashed.whole, key=key)
        assert (found.recovery.value, set(found.missing), found.wrong) == ("gap", lost, ())


@settings(deadline=None, max_examples=50)
@given(crashes(), st.data())
def test_rows_made_of_state_that_began_anew_behind_a_gap_are_still_a_gap(crashed: Crashed, data: st.DataObject) -> None:
    lost = data.draw(st.integers(1, len(crashed.rest)))
    after = primed(crashed.rest[lost:])
    for key in (None, 0):
        found = classify(crashed.before, after, crashed.whole, key=key)
        assert (found.recovery.value, found.missing) == ("gap", tuple(crashed.rest[:lost]))
        assert found.wrong == tuple(zip(crashed.rest[lost:], after, strict=True))


@settings(deadline=None, max_examples=50)
@given(crashes(again=True), st.booleans())
def test_the_same_rows_again_are_repeating(crashed: Crashed, ordered: bool) -> None:
    for key in (None, 0):
        found = classify(crashed.before, crashed.again + crashed.rest, crashed.whole, key=key, ordered=ordered)
        assert (found.recovery.value, found.repeated) == ("rollback-repeating", tuple(crashed.again))


@settings(deadline=None, max_examples=50)
@given(crashes(again=True), st.data())
def test_other_rows_again_that_drop_out_are_convergent(crashed: Crashed, data: st.DataObject) -> None:
    same = data.draw(st.integers(0, crashed.back - 1))
    again = crashed.again[:same] + primed(crashed.again[same:])
    for key in (None, 0):
        found = classify(crashed.before, again + crashed.rest, crashed.whole, key=key)
        assert (found.recovery.value, found.changed) == ("rollback-convergent", tuple(primed(crashed.again[same:])))


@settings(deadline=None, max_examples=50)
@given(crashes(), st.data())
def test_rows_that_stay_wrong_without_those_that_came_again_are_divergent(
    crashed: Crashed, data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, len(crashed.rest) - 1))
    rest = crashed.rest[:right] + primed(crashed.rest[right:])
    for key in (None, 0):
        found = classify(crashed.before, primed(crashed.again) + rest, crashed.whole, key=key)
        assert found.recovery.value == "rollback-divergent"
        assert found.wrong == tuple(zip(crashed.rest[right:], rest[right:], strict=True))


@settings(deadline=None, max_examples=50)
@given(crashes(again=True), st.data())
def test_rows_missing_where_others_came_again_are_divergent(crashed: Crashed, data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(crashed.rest))
    after = crashed.again + [row for row in crashed.rest if row != lost]
    found = classify(crashed.before, after, crashed.whole, key=0)
    assert (found.recovery.value, found.missing) == ("rollback-divergent", (lost,))


@settings(deadline=None, max_examples=50)
@given(st.permutations(t(1, 2, 3, 4, 5)))
def test_order_counts_only_where_it_is_asked_for(shuffled: list[Row]) -> None:
    assert classify([], shuffled, t(1, 2, 3, 4, 5), key=0).recovery.value == "precise"
    found = classify([], shuffled, t(1, 2, 3, 4, 5), key=0, ordered=True)
    assert (found.recovery.value == "precise") == (shuffled == t(1, 2, 3, 4, 5)) and found.moved != (
        found.recovery.value == "precise"
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from("ab")), st.lists(st.sampled_from("ab")), st.lists(st.sampled_from("ab")))
def test_precise_is_the_equation_itself(before: list[str], after: list[str], reference: list[str]) -> None:
    assert (classify(before, after, reference, ordered=True).recovery.value == "precise") == (
        before + after == reference
    )
    same = sorted(before + after) == sorted(reference)
    assert (classify(before, after, reference).recovery.value == "precise") == same


def test_equal_rows_of_the_reference_are_not_duplicates() -> None:
    assert classify(["a"], ["a"], ["a", "a"]).recovery.value == "precise"
    assert classify(["a"], ["a", "a"], ["a", "a"]).repeated == ("a",)


def test_a_row_nobody_expected_is_wrong() -> None:
    found = classify(t(1), t(2, 9), t(1, 2), key=0)
    assert (found.recovery.value, found.wrong) == ("rollback-divergent", ((None, (9, "t")),))


def test_tables_are_compared_by_columns_and_nan_is_nan() -> None:
    def table(ids: list[int], values: list[float]) -> pa.Table:
        return pa.table({"_id": ids, "x": pa.array(values, pa.float64()), "l": [[1, 2]] * len(ids)})

    nan = float("nan")
    whole = table([1, 2, 3], [1.0, nan, 2.0])
    assert classify(whole.slice(0, 1), whole.slice(1), whole, key="_id").recovery.value == "precise"
    found = classify(whole.slice(0, 2), table([2, 3], [7.0, 2.0]), whole, key=["_id"])
    assert (found.recovery.value, [row["x"] for row in found.changed]) == ("rollback-convergent", [7.0])
    assert str(found) == "rollback-convergent: came again, changed: {'_id': 2, 'x': 7.0, 'l': [1, 2]}"


def test_a_key_that_is_none_of_the_three_is_refused() -> None:
    for key in ((), 1.5, [None], [True]):
        with pytest.raises((ValueError, TypeError), match="key"):
            classify([], [], [], key=key)  # type: ignore[arg-type]  # on purpose
