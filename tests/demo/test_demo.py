"""The demo's data and its verdict. No Spark here: `make demo` runs it whole."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console

from holdfast.demo import run
from holdfast.demo.amplab import RANKINGS, USERVISITS, Generator, Sizes
from holdfast.demo.run import DemoOutcome, Story, Update
from holdfast.errors import DeclarationError
from holdfast.plan.schema import parse_schema
from holdfast.plan.types import arrow_type

SIZES = Sizes(pages=2_000, visitors=1_000, visits=100_000, batches=2)


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    generator = Generator(SIZES)
    return generator.rankings(), generator.visits()


def test_the_tables_have_the_declared_schemas(tables: tuple[pa.Table, pa.Table]) -> None:
    for table, ddl in zip(tables, (RANKINGS, USERVISITS), strict=True):
        fields = parse_schema(ddl, subject="demo")
        assert table.schema == pa.schema([(field.name, arrow_type(field.type)) for field in fields])
        assert all(column.null_count == 0 for column in table.columns)


def test_every_page_is_listed_once_and_every_visit_is_to_a_listed_page(tables: tuple[pa.Table, pa.Table]) -> None:
    rankings, visits = tables
    assert pc.count_distinct(rankings["pageURL"]).as_py() == rankings.num_rows == SIZES.pages
    assert pc.all(pc.is_in(visits["destURL"], value_set=rankings["pageURL"].combine_chunks())).as_py()
    assert visits.num_rows == 50_000
    assert pc.count_distinct(visits["sourceIP"]).as_py() <= SIZES.visitors


@pytest.mark.parametrize(("scale", "batches"), [(1.0, 20), (0.02, 3), (0.001, 7), (0.001, 5000)])
def test_as_many_visits_come_as_are_announced(scale: float, batches: int) -> None:
    sizes = Sizes.of(scale, batches)
    assert sizes.visits % sizes.batches == 0 and sizes.visits >= batches


def test_visits_are_skewed(tables: tuple[pa.Table, pa.Table]) -> None:
    _, visits = tables
    for column, share in (("destURL", 0.35), ("sourceIP", 0.08)):
        counts = np.sort(pc.value_counts(visits[column]).field("counts").to_numpy())[::-1]
        assert counts[:10].sum() / counts.sum() == pytest.approx(share, abs=0.06), column


def test_the_data_are_a_function_of_the_seed(tables: tuple[pa.Table, pa.Table]) -> None:
    again = Generator(SIZES)
    assert (again.rankings(), again.visits()) == tables
    assert Generator(SIZES, seed=1).rankings() != tables[0]


def test_revenues_add_up_to_the_same_bits_in_any_order(tables: tuple[pa.Table, pa.Table]) -> None:
    revenue = tables[1]["adRevenue"].to_numpy().astype(np.float64)
    shuffled = np.random.default_rng(0).permutation(revenue)
    assert sum(revenue.tolist()) == sum(shuffled.tolist()) == revenue.sum()


ROW: tuple[Any, ...] = ("1.2.3.4", 10.5, 200.25)


def verdict(as_json: bool = False, **answers: Any) -> tuple[bool, str]:
    outcome = DemoOutcome(
        **{"delivered": [ROW], "kept": [ROW], "computed": [[ROW]], "started": 9.0, "recomputation": 3.0, **answers}
    )
    story = Story(SIZES, updates=[Update(1, 10, 8.0, [ROW]), Update(2, 20, 1.5, [ROW])])
    console = Console(width=200, record=True, file=io.StringIO())
    return run._conclude(console, story, outcome, as_json), console.export_text()


def test_the_same_answer_by_every_way_passes_and_is_compared_in_time() -> None:
    passed, text = verdict()
    assert passed and "The same answer, to the last bit." in text
    assert "An update took 1.50 s" in text and "recomputation 3.00 s (median of 3), 2.0 times as long" in text


@pytest.mark.parametrize(
    "answers",
    [
        {"kept": [("1.2.3.4", 10.500000001, 200.25)]},
        {"kept": []},
        {"kept": [ROW, ("9.9.9.9", 9.0, 1.0)]},
        {"delivered": [ROW, ROW]},
        {"computed": [[ROW], [("9.9.9.9", 11.0, 1.0)]]},
    ],
)
def test_any_other_answer_fails_loudly_also_a_row_too_many(
    answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    passed, text = verdict(**answers)
    assert not passed and "WRONG" in text
    assert not verdict(as_json=True, **answers)[0]
    assert json.loads(capsys.readouterr().out)["same"] is False


def test_a_slower_update_is_not_dressed_up() -> None:
    assert "0.10 times that" in verdict(recomputation=0.15)[1]


def test_a_directory_in_use_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("x")
    with pytest.raises(DeclarationError, match="not empty"):
        run.run_demo(Console(file=io.StringIO()), scale=0.001, batches=1, keep=tmp_path, as_json=True)
