"""A statement that is refused says what is wrong and where, in one line, with nothing of py4j or of Spark's Java in it.

The statements are those of `tests.frontend`: mistakes, which Spark finds, and constructs that cannot be kept up to
date, which the conversion finds; and some DataFrame code. The flow is as it was after each of them.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator

import pyspark.sql.functions as F
import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError

from ..frontend.test_mistakes import MISTAKES
from ..frontend.test_refused import REFUSED, SCHEMAS

_JAVA = re.compile(r"py4j|Py4J|org\.apache|java\.|scala\.|SQLSTATE|Traceback|\bat [a-z]+\.[a-z]+|#\d+|\[[A-Z_.]+\]|\n")
"""What nobody wants to read in an error."""

STATEMENTS = [marked for marked, _ in (*MISTAKES, *REFUSED)]

FRAMES: dict[str, Callable[[hf.Flow], DataFrame]] = {
    "sample": lambda flow: flow.table("orders").sample(0.5),
    "order without limit behind offset": lambda flow: flow.table("orders").orderBy("id").offset(2),
    "rows by partition": lambda flow: flow.table("orders").select(F.spark_partition_id()),
    "numbered rows": lambda flow: flow.table("orders").select(F.monotonically_increasing_id()),
    "shuffled arrays": lambda flow: flow.table("orders").select(F.shuffle("tags")),
    "two columns of one name": lambda flow: flow.table("orders").select("id", "id"),
}
"""DataFrame code that is refused. It has no text, and so no place in it: the line of Python is in the traceback."""


@pytest.fixture(scope="module")
def flow(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hf.Flow]:
    flow = hf.Flow("refused", log=tmp_path_factory.mktemp("refused"), spark=spark)
    for table, schema in SCHEMAS.items():
        flow.input(table, schema)
    flow.view("kept", "SELECT id FROM orders")
    yield flow
    flow.close()


@pytest.mark.parametrize("marked", STATEMENTS, ids=[marked.replace("^", "") for marked in STATEMENTS])
def test_a_refused_statement_has_a_place_and_no_java(
    flow: hf.Flow, marked: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = flow._catalog
    with pytest.raises(DeclarationError) as caught:
        flow.view("v", marked.replace("^", "", 1))
    _check(caught.value)
    assert str(caught.value).startswith("view 'v'")
    if "^" in marked:
        assert f"line {caught.value.fields['line']}, column {caught.value.fields['column']}: " in str(caught.value)
    else:
        assert "line" not in caught.value.fields
    assert flow._catalog is before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", FRAMES)
def test_refused_frames_have_no_java(flow: hf.Flow, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DeclarationError, match="view 'v': ") as caught:
        flow.view("v", FRAMES[name](flow))
    _check(caught.value)
    assert capfd.readouterr().err == ""


def _check(error: DeclarationError) -> None:
    assert not _JAVA.search(str(error)), str(error)
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    shown = "".join(traceback.format_exception(error))
    assert "py4j" not in shown and "Caused by" not in shown


def test_of_a_hundred_statements_that_are_refused_most_have_a_place() -> None:
    # Of commands, and of some mistakes, Spark does not say where they are.
    assert len(STATEMENTS) >= 100
    placed = [marked for marked in STATEMENTS if "^" in marked]
    assert len(placed) >= 0.7 * len(STATEMENTS)
