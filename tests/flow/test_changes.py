"""``flow.changes(since=)`` adds up: what it gives, added to the rows as they were, is what the view holds now, also if
the view was edited in between, and whether it has a sink or not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.errors import EpochUnavailable

SUM = "SELECT k, sum(x) AS s FROM t GROUP BY k"
MAX = "SELECT k, max(x) AS s FROM t GROUP BY k"


def _bag(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(map(tuple, frame.collect()))


def _added(before: Counter[tuple[object, ...]], changes: DataFrame) -> Counter[tuple[object, ...]]:
    total = Counter(before)
    for *row, _, diff in changes.collect():
        total[tuple(row)] += diff
    assert all(count >= 0 for count in total.values())
    return Counter({row: count for row, count in total.items() if count})


@pytest.mark.parametrize("sink", [False, True])
def test_the_changes_of_an_edited_view_add_up_to_its_new_contents(
    spark: SparkSession, tmp_path: Path, sink: bool
) -> None:
    with hf.Flow("edited", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long, x long")
        flow.view("v", SUM)
        if sink:
            flow.sink("v", hf.changelog(tmp_path / "out"))
        contents = []

        def step(*rows: tuple[int, int]) -> None:
            t.insert(rows)
            flow.step()
            contents.append(_bag(flow.read("v")))

        step((1, 1), (1, 2), (2, 5))
        step((2, 5), (3, 1))
        flow.view("v", MAX)
        assert flow.step().epoch == 2, "the edit is an epoch, though nothing waits"
        contents.append(_bag(flow.read("v")))
        assert contents[1] != contents[2] == Counter({(1, 2): 1, (2, 5): 1, (3, 1): 1})
        step((1, 9))
        flow.wait_safe()
        for since, before in enumerate(contents):
            assert _added(before, flow.changes("v", since=since)) == contents[-1], since
            assert _bag(flow.read("v", at=since)) == before, "as of an epoch a view is what it was then"
        assert _added(Counter(), flow.changes("v")) == contents[-1]
        edit = flow.changes("v", since=1).where("_epoch = 2").collect()
        assert sorted((row.k, row.s, row._diff) for row in edit) == [(1, 2, 1), (1, 3, -1), (2, 5, 1), (2, 10, -1)]
        flow.view("v", "SELECT k, min(x) AS s FROM t GROUP BY k")
        flow.step()
        contents.append(_bag(flow.read("v")))
        with hf.open_log(tmp_path / "log") as log:
            for since, before in enumerate(contents):
                assert _added(before, flow.changes("v", since=since)) == contents[-1], since
                assert (
                    _bag(flow.read("v", at=since))
                    == before
                    == Counter(tuple(row.values()) for row in log.arrow("v", since).to_pylist())
                )
                wanted = [{"k": 1, "s": s} for k, s in before if k == 1]
                assert flow.lookup("v", k=1, at=since).rows == log.lookup("v", k=1, at=since).rows == wanted
        assert _bag(flow.sql("SELECT * FROM v WHERE k = 1", at=0)) == Counter([(1, 3)])


def test_a_view_as_it_was_before_an_edit_is_refused_where_that_is_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("edited", log=tmp_path / "log", spark=spark, partitions=1, retain=0) as flow:
        t = flow.input("t", "k long, x long")
        flow.view("v", SUM)
        t.insert([(1, 1), (1, 2)])
        flow.step()
        flow.view("v", MAX)
        assert _bag(flow.read("v")) == Counter([(1, 2)]), "an edit is seen at once"
        assert _bag(flow.read("v", at=0)) == Counter([(1, 3)]), "and changes nothing of what was"
        flow.step()
        assert _bag(flow.read("v", at=0)) == Counter([(1, 3)]), "it is there yet"
        for _ in range(2):
            t.insert([(2, 1)])
            flow.step()
            flow.wait_safe()
        with hf.open_log(tmp_path / "log") as log:
            for read in (flow.read, log.arrow, lambda view, at: flow.lookup(view, k=1, at=at)):
                with pytest.raises(
                    EpochUnavailable, match=r"'v': it was edited at epoch 1, and its rows as of epoch 0"
                ):
                    read("v", at=0)


def test_changes_across_an_edit_of_the_columns_say_from_when_on_there_are_some(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hf.Flow("edited", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        t = flow.input("t", "k long, x long")
        flow.view("v", SUM)
        t.insert([(1, 1)])
        flow.step()
        flow.view("v", "SELECT k, CAST(max(x) AS string) AS s FROM t GROUP BY k")
        flow.step()
        with pytest.raises(EpochUnavailable, match="edited at epoch 1, and has other columns since") as raised:
            flow.changes("v", since=0)
        assert raised.value.fields["earliest"] == 1
        with pytest.raises(
            EpochUnavailable,
            match=r"edited at epoch 1, .* other columns \(k bigint, .* bigint, and now k bigint, s string",
        ):
            flow.read("v", at=0)
        assert flow.changes("v", since=1).count() == 0
