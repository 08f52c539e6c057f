"""What a crash can do to output, by operator classes, strategy and sink; and which promises are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
import holdfast as hf
from holdfast.errors import DeclarationError
from holdfast.guarantees.guarantee import choose
from holdfast.guarantees.operator_classes import TABLE, classify, worst
from holdfast.guarantees.strategies import StrategyName, parse_strategy
from holdfast.operators.join import _KINDS

T, D, P = hf.SinkKind
R, C, DET, A = hf.OperatorClass
PRECISE, GAP, REPEATING, CONVERGENT, DIVERGENT = hf.RecoveryType
EARLY = hf.aligned_snapshot(4, output="early")
BY_CLASS = {R: REPEATING, C: CONVERGENT, DET: DIVERGENT, A: DIVERGENT}


def predicted(operator: hf.OperatorClass, strategy: hf.Strategy, sink: hf.SinkKind, **how: object) -> hf.RecoveryType:
    return hf.predict([operator], strategy, sink, **how).recovery  # type: ignore[arg-type]


@pytest.mark.parametrize("operator", hf.OperatorClass)
@pytest.mark.parametrize(
    "strategy",
    [hf.nosync(), hf.synchronous_log(), hf.aligned_snapshot(4), hf.passive_standby(4), hf.upstream_backup(),
     hf.active_standby()],
    ids=str,
)  # fmt: skip
def test_where_the_lineage_survives_the_sink_alone_decides(strategy: hf.Strategy, operator: hf.OperatorClass) -> None:
    assert [predicted(operator, strategy, sink) for sink in (T, D, P)] == [PRECISE, PRECISE, REPEATING]


@pytest.mark.parametrize("operator", hf.OperatorClass)
def test_output_that_leaves_before_its_snapshot_comes_again_as_operators_make_it(
    operator: hf.OperatorClass,
) -> None:
    for sink in (T, D, P):
        assert predicted(operator, EARLY, sink) is BY_CLASS[operator]
        assert predicted(operator, EARLY, sink, failure="host") is BY_CLASS[operator]


@pytest.mark.parametrize("operator", hf.OperatorClass)
def test_what_keeps_nothing_leaves_a_gap(operator: hf.OperatorClass) -> None:
    assert {predicted(operator, hf.gap(), sink) for sink in (T, D, P)} == {GAP}


@pytest.mark.parametrize("operator", hf.OperatorClass)
def test_an_executor_that_is_lost_takes_state_with_it_where_nothing_is_copied(operator: hf.OperatorClass) -> None:
    for sink in (T, D, P):
        assert predicted(operator, hf.gap(), sink, failure="executor") is (PRECISE if operator is R else DIVERGENT)
        assert predicted(operator, hf.nosync(), sink, failure="executor") is PRECISE


def test_a_lost_host_takes_the_lineage_with_it_unless_it_was_waited_for_or_a_sink_holds_it() -> None:
    for strategy in (hf.nosync(), hf.passive_standby(4), hf.upstream_backup(), hf.active_standby()):
        assert predicted(C, strategy, T, failure="host") is PRECISE
        assert predicted(C, strategy, D, failure="host") is CONVERGENT
        assert predicted(A, strategy, P, failure="host") is DIVERGENT
        assert predicted(A, strategy, P, failure="host", anchored=True) is REPEATING
    for strategy in (hf.synchronous_log(), hf.aligned_snapshot(4)):
        assert [predicted(A, strategy, sink, failure="host") for sink in (T, D, P)] == [PRECISE, PRECISE, REPEATING]


def test_the_operator_that_spoils_a_view_is_named() -> None:
    found = hf.predict([classify("aggregate", "sum of x"), classify("rand", "draw rand()")], EARLY, P)
    assert found.spoiled_by is not None and found.spoiled_by.what == "draw rand()"
    assert "draw rand(): arbitrary (chance" in str(found)
    assert hf.predict([R], EARLY, P).spoiled_by is None


def test_every_kind_of_operator_and_draw_has_its_place_in_the_table() -> None:
    rooms = [Path(holdfast.__file__).parent / room for room in ("operators", "plan")]
    text = "".join(path.read_text() for room in rooms for path in sorted(room.rglob("*.py")))
    kinds = set(re.findall(r"KeyedPart\(\s*\"(\w+)\"", text)) - {"draw"}
    assert {"aggregate", "log", "temporal", "bucket"} <= kinds, "the search finds them"
    assert kinds | set(_KINDS.values()) <= set(TABLE)
    assert {classify(each).operator_class for each in ("rand", "randn", "uuid", "clock", "udf:ask")} == {A}
    assert worst([classify("linear"), classify("temporal"), classify("aggregate")]).operator_class is DET
    assert classify("something new").operator_class is DET


def test_names_of_strategies_are_strategies() -> None:
    assert parse_strategy("f", "volatile") == hf.gap()
    assert parse_strategy("f", "synchronous-log") == parse_strategy("f", "synchronous_log") == hf.synchronous_log()
    assert str(parse_strategy("f", "passive_standby")) == "passive_standby(every=16)"
    assert str(hf.nosync()) == "nosync"
    assert "nosync" in StrategyName.__args__


def declared(tmp_path: Path, **chosen: object) -> hf.Flow:
    return hf.Flow("promised", log=tmp_path, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("guarantee", "strategy"),
    [
        ("exactly-once", hf.gap()),
        ("exactly-once", EARLY),
        ("at-least-once", "gap"),
        ("at-most-once", EARLY),
    ],
)
def test_a_pair_that_cannot_hold_is_refused_with_the_reason(
    tmp_path: Path, guarantee: str, strategy: hf.Strategy
) -> None:
    with pytest.raises(DeclarationError, match=rf"flow 'promised': {guarantee} cannot be kept with strategy") as raised:
        declared(tmp_path, guarantee=guarantee, strategy=strategy)
    assert raised.value.fields["recovery"] in {each.value for each in hf.RecoveryType}


def test_a_guarantee_alone_picks_the_strategy() -> None:
    assert choose("exactly-once", [T]) == hf.nosync()
    assert choose("exactly-once", [D]) == hf.synchronous_log()
    assert choose("exactly-once", [T, D]) == hf.nosync(), "the first sink holds the lineage for both"
    assert choose("at-least-once", [P]) == hf.nosync()
    assert choose("at-most-once", [P]) == hf.gap()


class Appends(hf.Sink):
    def open(self, view: str, fields: tuple[hf.Field, ...]) -> int | None:
        return None

    def commit(self, epoch: int, change: object, lineage: bytes) -> None:
        pass


class Deduplicates(Appends):
    deduplicates = True


def test_a_sink_that_cannot_say_what_it_has_is_refused_under_exactly_once(spark: object, tmp_path: Path) -> None:
    flow = declared(tmp_path, guarantee="exactly-once", spark=spark)
    flow.input("orders", "id long")
    flow.view("v", "SELECT id FROM orders")
    with pytest.raises(DeclarationError, match=r"sink of view 'v': exactly-once cannot be kept with strategy nosync"):
        flow.sink("v", hf.foreach(print))
    flow.sink("v", Deduplicates())
    assert flow._settings.strategy == hf.synchronous_log()
    flow.sink("v", hf.foreach(print, seen=lambda: -1))
    relaxed = declared(tmp_path, guarantee="at-least-once", spark=spark)
    relaxed.input("orders", "id long")
    relaxed.view("v", "SELECT id FROM orders").sink("v", hf.foreach(print))


def test_kinds_of_sinks_are_told_by_what_they_can_do(tmp_path: Path) -> None:
    assert hf.changelog(tmp_path).kind is T
    assert hf.foreach(print, seen=lambda: -1).kind is T
    assert hf.foreach(print).kind is P
    assert Appends().kind is P and Deduplicates().kind is D


def test_explain_says_what_a_crash_can_do_to_each_sink_and_which_operator_spoils_it(
    spark: object, tmp_path: Path
) -> None:
    flow = declared(tmp_path / "log", strategy=EARLY, spark=spark)
    flow.source("orders", hf.files(tmp_path, schema="id long"))
    flow.view("plain", "SELECT id FROM orders WHERE id > 1").view("drawn", "SELECT id, rand() AS x FROM orders")
    flow.sink("plain", hf.changelog(tmp_path / "plain")).sink("drawn", hf.foreach(print))
    text = flow.explain()
    assert "with strategy aligned_snapshot(every=4, output='early')" in text
    assert "sink Changelog: rollback-repeating: the flow goes back" in text
    assert "sink Foreach: rollback-divergent" in text and "draw rand()" in text
    assert flow.explain("plain") in text


def test_an_active_standby_of_rows_that_code_pushes_is_refused_when_the_flow_opens(
    spark: object, tmp_path: Path
) -> None:
    flow = declared(tmp_path / "log", strategy="active_standby", spark=spark)
    flow.input("orders", "id long")
    flow.view("v", "SELECT id FROM orders")
    with pytest.raises(DeclarationError, match=r"rows that code pushes to input 'orders' are in one process alone"):
        flow.open()
