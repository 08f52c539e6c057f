"""The queries of what crosses through Spark."""

from __future__ import annotations

from holdfast.plan.expression import Literal, Operation, condition
from holdfast.plan.nodes import Field, Linear, Named, Source
from holdfast.spark.stretches import SparkStretch, rounds

FIELDS = (Field("a", "int"), Field("b", "string"))
SOURCE = Source("t", FIELDS)


def _stretch(number: int) -> SparkStretch:
    a, b = SOURCE.column("a"), SOURCE.column("b")
    added = Operation("+", (a, Literal(number, "int")), "int")
    upper = Operation("upper", (b,), "string")
    first = Linear(SOURCE, condition(">", a, Literal(1, "int")), (Named("a", added), Named("x.y", upper)))
    joined = Operation("concat", (first.column("x.y"), first.column("a")), "string")
    return SparkStretch(0, (first, Linear(first, None, (Named("z", joined),))))


def _depth(text: str) -> int:
    depth = deepest = 0
    for place, character in enumerate(text):
        depth += character == "("
        depth -= character == ")"
        if text.startswith("(SELECT", place):
            deepest = max(deepest, depth)
    return deepest


def test_a_crossing_is_as_deep_as_its_longest_path_however_many_paths_it_has() -> None:
    few, many = ([each.query for each in rounds(1, [_stretch(n) for n in range(count)])] for count in (1, 60))
    assert len(few) == len(many) == 1
    assert _depth(few[0]) == _depth(many[0]) == 4


def test_paths_that_use_one_name_for_different_columns_do_not_meet() -> None:
    (only,) = rounds(1, [_stretch(0), _stretch(1)])
    assert "__named0_0.`a` + 0" in only.query and "__named1_0.`a` + 1" in only.query
    assert only.query.count("__in0.c0 AS `a`") == 2
