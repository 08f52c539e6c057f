"""Look-ups by key over layers, without Spark: every type that can be a key, collisions, parts of the hash range."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.operators.log import LogSpec
from holdfast.plan.nodes import Field
from holdfast.plan.types import arrow_type
from holdfast.task.key_lookup import answer, find, question
from holdfast.task.view_log import ViewLog
from holdfast.trace.cover import Chain
from holdfast.trace.hashing import weak_bits
from holdfast.trace.layer import write_layer
from holdfast.trace.name import ALL
from holdfast.trace.open_covers import OpenCovers


def _kept(directory: Path, fields: list[Field], key: tuple[int, ...], epochs: list[list[tuple[Any, ...]]]) -> ViewLog:
    """A log of these fields: each epoch adds rows, whose last value is the diff."""
    spec = LogSpec(tuple(arrow_type(field.type) for field in fields), key, False, "v")
    digests = tuple(f"{epoch:016x}" for epoch in range(len(epochs)))
    for epoch, rows in enumerate(epochs):
        columns = list(zip(*rows, strict=True)) or [()] * (len(fields) + 1)
        kinds = [*spec.types, pa.int64()]
        names = [*(f"c{index}" for index in range(len(fields))), "_diff"]
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        change = spec.prepare(0, pa.table(arrays, names=names))
        block = spec.arrangement.block(change, epoch)
        layout, digest = spec.layouts()["rows"], digests[epoch]
        write_layer(directory, block, layout, low=0, high=ALL, first=epoch, last=epoch, digest=digest)
    return ViewLog(str(directory), spec, tuple(fields), Chain(-1, digests))


def _looked_up(kept: ViewLog, keys: Any, at: int, *, scan: bool = False) -> list[tuple[Any, ...]]:
    asked = question("v", kept.fields, kept.spec.key, keys, {}, scan)
    rows = answer(kept, kept.trace(OpenCovers(), at), asked)
    assert repr(find(kept, at, asked).to_pylist()) == repr(rows.to_pylist()), "as where layers are on several hosts"
    return [tuple(row.values()) for row in rows.to_pylist()]


@pytest.mark.parametrize("bits", [64, 3, 0])
def test_look_ups_agree_with_a_plain_model_whatever_hashes_collide(tmp_path: Path, bits: int) -> None:
    chance = random.Random(bits)
    fields = [Field("x", "bigint"), Field("k", "string"), Field("n", "int")]
    there: list[list[tuple[Any, ...]]] = []
    rows: dict[tuple[Any, ...], int] = {}
    with weak_bits(bits):
        epochs: list[list[tuple[Any, ...]]] = []
        for _ in range(8):
            change = []
            for _ in range(30):
                row = (chance.randrange(3), chance.choice(["a", "b", "", None, "long " * 9]), chance.randrange(6))
                diff = -1 if rows.get(row, 0) and chance.random() < 0.5 else 1
                rows[row] = rows.get(row, 0) + diff
                change.append((*row, diff))
            epochs.append(change)
            there.append([row for row, count in rows.items() for _ in range(count)])
        kept = _kept(tmp_path, fields, (2, 1), epochs)
        for at in range(8):
            keys = [(chance.randrange(7), chance.choice(["a", "b", "", None, "c"])) for _ in range(4)]
            expected = [row for key in dict.fromkeys(keys) for row in there[at] if (row[2], row[1]) == key]
            found = _looked_up(kept, keys, at)
            assert sorted(map(repr, found)) == sorted(map(repr, expected))
            assert [(row[2], row[1]) for row in found] == [(row[2], row[1]) for row in expected], "in the keys' order"
            scanned = _looked_up(kept, [{"x": 1}], at, scan=True)
            assert sorted(map(repr, scanned)) == sorted(repr(row) for row in there[at] if row[0] == 1)


NAN = float("nan")
VALUES: dict[str, tuple[list[Any], list[tuple[Any, Any]]]] = {
    # type → values, and pairs of (asked, found) that are equal although they differ
    "double": ([1.5, 0.0, NAN, float("inf"), None], [(-0.0, 0.0), (NAN, NAN)]),
    "float": ([1.5, 0.0, NAN, None], [(-0.0, 0.0)]),
    "decimal(9,2)": (
        [Decimal("1.50"), Decimal("-3.00"), None],
        [(Decimal("1.5"), Decimal("1.50")), (-3, Decimal("-3"))],
    ),
    "date": ([datetime.date(2026, 1, 1), datetime.date(1, 1, 1), None], []),
    "timestamp": ([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], []),
    "boolean": ([True, False, None], []),
    "binary": ([b"", b"\x00", b"\x00\x00", None], []),
    "tinyint": ([-128, 127, 0, None], []),
    "array<double>": ([[0.0, None], [], [NAN], None], [([-0.0, None], [0.0, None])]),
    "struct<a: int, b: string>": ([{"a": 1, "b": "x"}, {"a": None, "b": None}, None], []),
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_of_key_finds_its_rows_as_spark_groups_them(tmp_path: Path, kind: str) -> None:
    values, equal = VALUES[kind]
    fields = [Field("n", "int"), Field("k", kind)]
    kept = _kept(tmp_path, fields, (1,), [[(n, value, 1) for n, value in enumerate(values)]])
    for number, value in enumerate(values):
        assert [row[0] for row in _looked_up(kept, [{"k": value}], 0)] == [number], value
    for asked, found in equal:
        assert repr([row[1] for row in _looked_up(kept, [{"k": asked}], 0)]) == repr(
            [pa.scalar(found, arrow_type(kind)).as_py()]
        )


def test_a_log_of_no_rows_and_a_question_of_no_keys_are_answered(tmp_path: Path) -> None:
    kept = _kept(tmp_path, [Field("k", "string")], (0,), [[], []])
    assert _looked_up(kept, ["a", None], 1) == [] == _looked_up(kept, [], 1)
