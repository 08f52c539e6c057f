"""Native generators against a loop over the rows, and functions of the user's on batches."""

from __future__ import annotations

import datetime
import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from holdfast.errors import EvaluationError
from holdfast.operators.apply import Called, FunctionCalls, Record
from holdfast.operators.generate import Explode, Generate, compile_generator
from holdfast.plan.expression import Literal, Operation
from holdfast.plan.nodes import Field, Source
from holdfast.plan.types import arrow_type

NUMBERS = st.none() | st.integers(0, 3)
ARRAY = pa.list_(pa.field("element", pa.int32()))
MAP = pa.map_(pa.string(), pa.int32())
STRUCTS = pa.list_(pa.field("element", pa.struct([("a", pa.int32()), ("b", pa.string())])))
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    ARRAY: st.none() | st.lists(NUMBERS, max_size=4),
    MAP: st.none() | st.dictionaries(st.sampled_from("abc"), NUMBERS, max_size=3),
    STRUCTS: st.none()
    | st.lists(st.none() | st.fixed_dictionaries({"a": NUMBERS, "b": st.sampled_from("xy")}), max_size=3),
}


def _expected(function: str, kind: pa.DataType, value: Any, outer: bool) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    if kind == MAP:
        rows = [(key, item) for key, item in (value or {}).items()]
    elif function == "inline":
        rows = [(None, None) if each is None else (each["a"], each["b"]) for each in value or []]
    else:
        rows = [(each,) for each in value or []]
    if function == "posexplode":
        rows = [(place, *row) for place, row in enumerate(rows)]
    width = {"explode": 1, "posexplode": 2, "inline": 2}[function] + (kind == MAP)
    return rows or ([(None,) * width] if outer else [])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return tuple(_plain(each) for each in value) if isinstance(value, (list, tuple)) else value


TYPES = {
    arrow_type(name): name for name in ("int", "string", "array<int>", "map<string,int>", "struct<a:int,b:string>")
}
TYPES[STRUCTS] = "array<struct<a:int,b:string>>"


def _step(function: str, kind: pa.DataType, types: list[pa.DataType], outer: bool = False) -> Generate:
    source = Source("rows", (Field("id", "bigint"), Field("xs", TYPES[kind])))
    made = tuple(Field(f"x{place}", TYPES[each]) for place, each in enumerate(types))
    return Generate(source, function, (source.column("xs"),), made, outer)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize(
    ("function", "kind", "types"),
    [
        ("explode", ARRAY, [pa.int32()]),
        ("posexplode", ARRAY, [pa.int32(), pa.int32()]),
        ("explode", MAP, [pa.string(), pa.int32()]),
        ("posexplode", MAP, [pa.int32(), pa.string(), pa.int32()]),
        ("inline", STRUCTS, [pa.int32(), pa.string()]),
        ("explode", STRUCTS, [STRUCTS.value_type]),
    ],
)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_every_element_is_a_row_with_the_diff_of_its_parent(
    function: str, kind: pa.DataType, types: list[pa.DataType], outer: bool, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 9), VALUES[kind], st.sampled_from([-2, -1, 1, 3])), max_size=6))
    skipped = data.draw(st.integers(0, len(rows)))
    change = pa.table(
        [
            pa.array([row[0] for row in rows], pa.int64()),
            pa.array([row[1] for row in rows], kind),
            pa.array([row[2] for row in rows], pa.int64()),
        ],
        names=["c0", "c1", "_diff"],
    ).slice(skipped)
    compiled = compile_generator(_step(function, kind, types, outer))
    assert isinstance(compiled, Explode)
    made = pickle.loads(pickle.dumps(compiled)).run(change)
    found = Counter(_plain(tuple(row.values())) for row in made.to_pylist())
    expected = Counter(
        _plain((number, list(value.items()) if isinstance(value, dict) else value, *each, diff))
        for number, value, diff in rows[skipped:]
        for each in _expected(function, kind, value, outer)
    )
    assert found == expected
    assert made.schema.types == [pa.int64(), kind, *types, pa.int64()]


def test_what_is_not_certain_is_left_to_spark() -> None:
    certain = _step("explode", ARRAY, [pa.int32()])
    words = Operation("split", (Literal("a b", "string"), Literal(" ", "string")), "array<string>")
    assert compile_generator(certain) is not None
    assert compile_generator(replace(certain, arguments=(words,), made=(Field("x", "string"),))) is None
    assert compile_generator(replace(certain, function="json_tuple")) is None
    assert compile_generator(replace(certain, made=(Field("x", "bigint"),))) is None


def _called(function: Any, kind: pa.DataType, style: str, *columns: pa.Array) -> list[Any]:
    calls = FunctionCalls((Called("f", style, cloudpickle.dumps(function), tuple(range(len(columns))), kind),))
    names = [f"c{place}" for place in range(len(columns))]
    rows = pa.array([1] * len(columns[0]), pa.int64())
    made = calls.run(pa.table([*columns, rows], names=[*names, "_diff"]))
    assert made.schema.types[-2] == kind
    return list(made.column(len(columns)).to_pylist())


def test_a_plain_function_sees_pyspark_s_values() -> None:
    when = pa.array([datetime.datetime(2024, 1, 2, 3)], pa.timestamp("us", tz="UTC"))
    assert _called(lambda value: value.tzinfo is None and value.hour == 3, pa.bool_(), "plain", when) == [True]
    structs = pa.array([{"a": 1, "b": [2]}, None], pa.struct([("a", pa.int32()), ("b", ARRAY)]))
    seen = _called(lambda s: s and s.a + s["b"][0] + len(s) + s[0], pa.int64(), "plain", structs)
    assert seen == [6, None]
    maps = pa.array([{"k": 1}, None], MAP)
    assert _called(lambda m: m and {**m, "z": None}, MAP, "plain", maps) == [[("k", 1), ("z", None)], None]


@pytest.mark.parametrize("value", [{"a": 1, "b": [2]}, (1, [2]), Record(("b", "a"), ([2], 1))])
def test_a_struct_may_be_returned_in_any_form(value: Any) -> None:
    kind = pa.struct([("a", pa.int32()), ("b", ARRAY)])
    assert _called(lambda _: value, kind, "plain", pa.array([1])) == [{"a": 1, "b": [2]}]


def test_functions_of_columns_are_called_with_columns() -> None:
    numbers = pa.array([1, 2, None], pa.int32())
    assert _called(lambda s: s.fillna(0).astype("int32") + 1, pa.int32(), "pandas", numbers) == [2, 3, 1]
    assert _called(lambda batches: (s.notna() for s in batches), pa.bool_(), "pandas iterator", numbers) == [
        True,
        True,
        False,
    ]
    assert _called(lambda a: a.cast(pa.string()), pa.string(), "arrow", numbers) == ["1", "2", None]
    frame = _called(
        lambda s: pd.DataFrame({"a": s, "b": s}),
        pa.struct([("a", pa.int32()), ("b", pa.int32())]),
        "pandas",
        pa.array([5], pa.int32()),
    )
    assert frame == [{"a": 5, "b": 5}]


@pytest.mark.parametrize(
    ("function", "kind", "style", "message"),
    [
        (lambda x: 1 // x, pa.int32(), "plain", r"function 'f'\(0\) raised ZeroDivisionError"),
        (
            lambda x: "no",
            pa.int32(),
            "plain",
            r"function 'f'\(0\) returned 'no', which is not of the declared type int32",
        ),
        (lambda x: 2**40, pa.int32(), "plain", "returned 1099511627776"),
        (lambda x: "ab", ARRAY, "plain", "returned 'ab'"),
        (lambda s: s / [], pa.int32(), "pandas", "function 'f' raised"),
        (lambda s: s[:0], pa.int32(), "pandas", "returned 0 values for 1 rows"),
        (lambda s: 3, pa.int32(), "pandas", "returned int, expected as many values"),
        (lambda a: pa.array(["x"]), pa.int32(), "arrow", "which is not of the declared type int32"),
    ],
)
def test_an_error_names_the_function(function: Any, kind: pa.DataType, style: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        _called(function, kind, style, pa.array([0], pa.int32()))
