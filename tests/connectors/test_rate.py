"""The generator: the same rows whenever and however they are asked for."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from holdfast.connectors import Rate, rate
from holdfast.connectors import rate as rate_function
from holdfast.connectors.rate import RatePart
from holdfast.connectors.source import Offer
from holdfast.errors import DeclarationError
from holdfast.plan.types import arrow_type

SCHEMA = pa.schema([pa.field(f"c{place}", arrow_type(field.type)) for place, field in enumerate(Rate.fields)])


def table(source: Rate, offer: Offer | None) -> pa.Table:
    assert offer is not None
    return pa.concat_tables([one for part in source.parts(offer) for one in part.read(SCHEMA)])


def test_an_offer_gives_the_same_rows_from_any_instance_and_any_parts() -> None:
    first, second = rate(1000, seed=3), rate(10, keys=5, seed=9)
    offer = json.loads(json.dumps(first.poll()))
    rows = table(first, offer)
    assert rows.schema == SCHEMA and rows.num_rows == 1000
    assert rows.equals(table(second, offer)), "what an offer means does not depend on how the source is declared now"
    pieces = [next(RatePart(start, start + 100, 1000, 3).read(SCHEMA)) for start in range(0, 1000, 100)]
    assert rows.equals(pa.concat_tables(pieces))


def test_offers_follow_each_other_without_gap_until_the_epochs_are_done() -> None:
    source = rate(10, epochs=3)
    seen = []
    while (offer := source.poll()) is not None:
        assert source.poll() == offer
        seen += table(source, offer).column(0).to_pylist()
        source.advance(offer)
    assert seen == list(range(30))


def test_large_epochs_are_made_in_several_parts() -> None:
    source = rate_function(1_000_000)
    offer = source.poll()
    assert offer is not None
    assert len(source.parts(offer)) == 4


def test_keys_and_values_are_spread_evenly_and_seeds_differ() -> None:
    rows = table(one := rate(100_000, keys=10), one.poll())
    counts = np.bincount(rows.column(1).to_numpy(), minlength=10)
    assert len(counts) == 10 and counts.min() > 9_500 and counts.max() < 10_500
    values = rows.column(2).to_numpy()
    assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(rows.column(1).to_numpy(), values)[0, 1]) < 0.02
    other = table(two := rate(100_000, keys=10, seed=1), two.poll())
    assert (rows.column(1).to_numpy() == other.column(1).to_numpy()).mean() < 0.2


def test_the_stream_is_the_same_for_ever() -> None:
    rows = table(source := rate(3, keys=100, seed=7), source.poll()).to_pylist()
    assert [row["c1"] for row in rows] == GOLDEN_KEYS
    assert [round(row["c2"], 12) for row in rows] == GOLDEN_VALUES
    assert [row["c3"].isoformat() for row in rows][2] == "2020-01-01T00:00:00.002000+00:00"


GOLDEN_KEYS = [6, 64, 99]
GOLDEN_VALUES = [0.592095121412, 0.256470009093, 0.884727718021]


@pytest.mark.parametrize(
    "arguments", [{"rows_per_epoch": 0}, {"rows_per_epoch": 1, "keys": 0}, {"rows_per_epoch": 1, "epochs": -1}]
)
def test_a_wrong_declaration_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(DeclarationError, match="rate: "):
        rate(**arguments)
