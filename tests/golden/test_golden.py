"""Logs of every format that was ever released are read back: by Holdfast, and by what docs/format.md says alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from golden.make import EPOCHS, declare, order
from holdfast.frontend import catalog
from holdfast.inspect.open_log import read
from holdfast.plan.expression import TRUE
from holdfast.plan.nodes import Linear, Node, same
from holdfast.results.flow_results import Recovery

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FORMATS = sorted(HERE.glob("format-*"))


def expected(golden: Path, epoch: int) -> list[list[Any]]:
    return list(json.loads((golden / "expected.json").read_text())[str(epoch)])


def as_texts(rows: list[Any]) -> list[list[Any]]:
    return sorted([[row["user"], str(row["total"]), row["orders"]] for row in rows], key=str)


def documented() -> Any:
    """The reader that docs/format.md shows."""
    text = (ROOT / "docs" / "format.md").read_text()
    found: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], found)
    return found["read_view"]


@pytest.mark.parametrize("golden", FORMATS, ids=lambda path: path.name)
def test_a_golden_log_is_read_without_spark(golden: Path) -> None:
    for epoch in range(EPOCHS - 5, EPOCHS):
        rows = read(golden / "log", "spend", epoch).to_pylist()
        assert as_texts(rows) == expected(golden, epoch)


@pytest.mark.parametrize("golden", FORMATS, ids=lambda path: path.name)
def test_a_golden_log_is_read_with_pandas_and_the_documentation_alone(golden: Path) -> None:
    read_view = documented()
    for epoch in range(EPOCHS - 5, EPOCHS):
        rows = read_view(str(golden / "log"), "spend", epoch)
        rows = rows.astype(object).where(rows.notna(), None)
        assert as_texts(rows.to_dict("records")) == expected(golden, epoch)


@pytest.mark.parametrize("golden", FORMATS, ids=lambda path: path.name)
def test_a_golden_log_is_gone_on_with(golden: Path, spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(golden / "log", tmp_path / "log")
    flow, orders = declare(tmp_path / "log")
    with flow:
        assert as_texts(flow.read("spend").collect()) == expected(golden, EPOCHS - 1)
        assert flow.last_recovery is not None
        assert flow.last_recovery.work == Recovery().work, "nothing had to be done"
        orders.delete([order(EPOCHS - 1, 1)])
        assert flow.step().epoch == EPOCHS


def _otherwise(node: Node, keep: object = ()) -> Node:
    """The same rows, planned in another way."""
    return Linear(node, TRUE, same(node))


@pytest.mark.parametrize("golden", FORMATS, ids=lambda path: path.name)
def test_a_view_of_a_golden_log_that_is_read_otherwise_is_filled_again_and_says_so(
    golden: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(golden / "log", tmp_path / "log")
    monkeypatch.setattr(catalog, "rewrite", _otherwise)
    flow, orders = declare(tmp_path / "log")
    with caplog.at_level("WARNING", "holdfast"), flow:
        assert as_texts(flow.read("spend").collect()) == expected(golden, EPOCHS - 1)
        assert flow.last_recovery is not None
        assert "spend" in flow.last_recovery.otherwise and flow.last_recovery.filled == EPOCHS - 1
        orders.delete([order(EPOCHS - 1, 1)])
        assert flow.step().epoch == EPOCHS
    assert "view 'spend' is read otherwise than when it was kept last" in caplog.text


@pytest.mark.parametrize("golden", FORMATS, ids=lambda path: path.name)
def test_a_golden_log_is_recovered_from_its_durable_layers_alone(
    golden: Path, spark: SparkSession, tmp_path: Path
) -> None:
    shutil.copytree(golden / "log", tmp_path / "log", ignore=shutil.ignore_patterns("traces", "log.jsonl"))
    flow, _ = declare(tmp_path / "log")
    with flow:
        assert as_texts(flow.read("spend").collect()) == expected(golden, EPOCHS - 1)
        assert flow.last_recovery is not None and flow.last_recovery.epochs_replayed == 0
        assert flow.last_recovery.layers_fetched > 0
