"""Rewinding: views go back to what they were, sinks are given the retractions once, and the input is taken again."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.testing import Crash, crash_at

from ..durability.shop import Shop, die
from .killed_process import Stage, every, given
from .test_what_if import VIEWS, Market, rows

APP = Path(__file__).with_name("rewound_flow.py")


def test_a_rewind_undoes_what_came_since_and_takes_its_input_again(spark: SparkSession, tmp_path: Path) -> None:
    """Pushed rows, rows with a key, files, chance, the clock and answers from outside; sinks; a file that is skipped, a
    row that is skipped; a view that was declared since; another process."""
    market = Market(spark, tmp_path)
    flow = market.flow
    for view in ("spend", "drawn", "visits"):
        flow.sink(view, hf.changelog(tmp_path / "out" / view))
    for _ in range(3):
        market.epoch()
    then = {view: rows(flow, view) for view in VIEWS}
    for _ in range(2):
        market.epoch()
    flow.view("big", "SELECT id, amount FROM orders WHERE amount > 10")
    market.epoch()
    last = {view: rows(flow, view) for view in VIEWS}
    bad = market._there[-1]

    result = flow.rewind(2, reason="a bad row", skip={"orders": [bad], "clicks": ["004.csv"]})
    assert result.epoch == 6
    for view in VIEWS:
        assert rows(flow, view) == then[view], view
        assert rows(flow, view, 5) == last[view], "what was undone can be read"
    for view in ("spend", "drawn", "visits"):
        assert given(tmp_path / "out" / view) == then[view], view
    orders = Counter({(row.id, row.amount) for row in flow.table("orders").collect()})
    assert rows(flow, "big") == Counter({row: n for row, n in orders.items() if row[1] > 10})
    assert flow.rewinds()[0].to == 2 and flow.rewinds()[0].reason == "a bad row" and flow.status().owed == 3

    assert [flow.step().idle for _ in range(4)] == [False, False, False, True]
    assert flow.status().owed == 0
    there = [row for row in market._there if row != bad]
    totals: Counter[str] = Counter()
    for _, user, amount, _ in there:
        totals[user] += amount
    assert {(user, total) for user, total, _ in rows(flow, "spend")} == {(u, totals[u]) for _, u, _, _ in there}
    assert Counter(row[0] for row in rows(flow, "drawn")) == Counter(row[0] for row in there)
    assert rows(flow, "visits") == Counter([("p0", 7), ("p1", 1), ("p2", 2)])
    assert given(tmp_path / "out" / "spend") == rows(flow, "spend")
    assert given(tmp_path / "out" / "drawn") == rows(flow, "drawn"), "what goes is what came"

    after = {view: rows(flow, view) for view in VIEWS if view != "recent"}
    flow.close()
    market.flow = flow = hf.Flow("market", log=tmp_path / "log", spark=spark, partitions=3)
    made = market._made
    market.declare(flow)
    market._made = made
    flow.view("count", "SELECT count(*) AS n FROM orders").view("seen", "SELECT sum(n) AS n FROM clicks")
    assert rows(flow, "count") == Counter([(len(there),)]), "a new view does not see what was undone"
    assert rows(flow, "seen") == Counter([(15,)])
    market.epoch()
    assert {view: rows(flow, view, 9) for view in after} == after
    flow.close()


def test_a_rewind_can_be_undone_by_another_one(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("undone", log=tmp_path / "log", spark=spark, partitions=2)
    orders = flow.input("orders", "user string, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    for amount in (1, 2, 3):
        orders.insert([("ada", amount)])
        flow.step()
    flow.rewind(0)
    orders.insert([("bob", 9)])
    flow.step()
    assert rows(flow, "spend") == Counter([("ada", 3)]), "one epoch is taken again, and what waits comes after all that"
    flow.rewind(2)
    assert rows(flow, "spend") == Counter([("ada", 6)]) and flow.status().owed == 0
    assert flow.run(until="idle") == 1
    assert rows(flow, "spend") == Counter([("ada", 6), ("bob", 9)])
    branch = flow.branch("same", at=1)
    assert branch.replay() == 5 and rows(branch, "spend") == rows(flow, "spend"), "a branch is fed a rewind, too"
    branch.close()
    flow.close()


def test_what_cannot_be_rewound_is_said(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = hf.Flow("refused", log=tmp_path / "log", spark=spark, partitions=1, retain=2)
    orders = flow.input("orders", "user string, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    with pytest.raises(hf.DeclarationError, match="no epoch yet"):
        flow.rewind(0)
    for amount in range(12):
        orders.insert([("ada", amount)])
        flow.step()
        flow.wait_safe()
    with pytest.raises(hf.EpochUnavailable, match="epoch 99 is not there yet; the last is 11"):
        flow.rewind(99)
    with pytest.raises(hf.DeclarationError, match="nothing to undo"):
        flow.rewind(11)
    with pytest.raises(hf.HoldfastError, match="took no such row"):
        flow.rewind(10, skip={"orders": [("eve", 1)]})
    with pytest.raises(hf.HoldfastError, match="did you mean 'orders'"):
        flow.rewind(10, skip={"order": [("ada", 11)]})
    with pytest.raises(hf.HoldfastError, match="lists of file names or rows"):
        flow.rewind(10, skip={"orders": "ada"})  # type: ignore[dict-item]
    engine = flow._engine
    assert engine is not None
    engine.upkeep()
    jobs, run = list[str](), engine._runner.everywhere

    def asked(what: str, function: Callable[[], Any]) -> dict[str, Any]:
        jobs.append(what)
        return run(what, function)

    monkeypatch.setattr(engine._runner, "everywhere", asked)
    with pytest.raises(hf.EpochUnavailable, match=r"cannot go back to epoch 0 any more: .*retain=11") as error:
        flow.rewind(0)
    assert jobs == ["listing layers"], "members are asked once, and not for each epoch that there could be"
    earliest = error.value.fields["earliest"]
    assert earliest is None or isinstance(earliest, int)
    assert rows(flow, "spend") == Counter([("ada", sum(range(12)))]), "nothing was done"
    flow.close()


class Letters(hf.Source):
    """Gives the rows of named pieces, once; the log keeps them, since the source is told to forget them."""

    fields = (hf.Field("letter", "string"),)
    keeps_rows = True

    def __init__(self) -> None:
        self.there: list[list[str]] = []

    def poll(self) -> hf.Offer | None:
        return {"names": self.there[0]} if self.there else None

    def advance(self, offer: hf.Offer) -> None:
        self.there = [each for each in self.there if each != offer["names"]]

    def parts(self, offer: hf.Offer) -> list[Any]:
        return [GivenRows(offer["names"])]

    def release(self, offer: hf.Offer) -> None:
        pass

    def names(self, offer: hf.Offer) -> list[str]:
        return list(offer["names"])

    def without(self, offer: hf.Offer, names: Collection[str]) -> hf.Offer | None:
        left = [name for name in offer["names"] if name not in names]
        return {"names": left} if left else None


@dataclass(frozen=True)
class GivenRows:
    letters: Sequence[str]

    def read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        yield pa.table([pa.array(list(self.letters))], schema=schema)


def test_what_is_taken_again_from_the_log_cannot_be_skipped_by_name(spark: SparkSession, tmp_path: Path) -> None:
    letters = Letters()
    with hf.Flow("letters", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        flow.source("letters", letters).view("all", "SELECT letter FROM letters")
        for names in (["a"], ["b", "bad"]):
            letters.there.append(names)
            flow.step()
        flow.wait_safe()
        with pytest.raises(hf.DeclarationError, match="its rows are taken again from the log, which does not know"):
            flow.rewind(0, skip={"letters": ["bad"]})
        assert rows(flow, "all") == Counter([("a",), ("b",), ("bad",)]), "nothing was done"
        flow.rewind(0)
        flow.run(until="idle")
        assert rows(flow, "all") == Counter([("a",), ("b",), ("bad",)])


def test_the_command_line_rewinds_a_flow_that_nobody_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    for number, name in enumerate(("a", "b", "c", "[d]")):
        (tmp_path / "orders" / f"{name}.csv").write_text(f"{name},1\n")
        os.utime(tmp_path / "orders" / f"{name}.csv", (1_700_000_000 + number,) * 2)
    app_file = tmp_path / "app.py"
    app_file.write_text(
        "import holdfast as hf\n"
        f"flow = hf.Flow('told', log={str(tmp_path / 'log')!r}, partitions=1)\n"
        f"orders = hf.files({str(tmp_path / 'orders')!r}, format='csv', schema='user string, n int', "
        "max_files_per_epoch=1)\n"
        "flow.source('orders', orders).view('users', 'SELECT user FROM orders')\n"
    )
    assert CliRunner().invoke(app, ["run", str(app_file), "--until", "idle"]).exit_code == 0
    arguments = ["rewind", str(app_file), "--to", "0", "--reason", "b is bad", "--skip", "orders=b.csv"]
    told = CliRunner().invoke(app, [*arguments, "--skip", "orders=[d].csv"])
    assert told.exit_code == 0, told.output
    assert "epoch 4 has undone all after epoch 0; the next run takes the input of 3 epochs again" in told.output
    status = CliRunner().invoke(app, ["status", str(tmp_path / "log")])
    assert "to epoch 0: b is bad" in status.output and status.exit_code == 0
    assert CliRunner().invoke(app, ["run", str(app_file), "--until", "idle"]).exit_code == 0
    assert sorted(hf.read(tmp_path / "log", "users").to_pylist(), key=str) == [{"user": "a"}, {"user": "c"}]
    wrong = CliRunner().invoke(app, ["rewind", str(app_file), "--to", "0", "--skip", "b.csv"])
    assert wrong.exit_code == 2 and "visits=bad.csv" in wrong.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "mark", ["rewind.undone", "epoch.ran", "epoch.complete", "sink.before_commit", "sink.after_commit"]
)
@pytest.mark.parametrize("lost", [False, True])
def test_a_crash_in_the_middle_of_a_rewind_leaves_it_undone_or_done(
    spark: SparkSession, tmp_path: Path, mark: str, lost: bool
) -> None:
    """Also where the working directory is lost with the process: what sinks have seen is computed again."""
    shop = Shop(spark, tmp_path)
    flow = shop.open([tmp_path / "copy"], local=tmp_path / "work")
    shop.run(flow, 5)
    flow.wait_safe()
    with pytest.raises(Crash), crash_at(mark):
        flow.rewind(2)
    die(flow)
    if lost:
        shutil.rmtree(tmp_path / "work")
    flow = shop.open([tmp_path / "copy"], local=tmp_path / "work")
    done = len(flow.rewinds())
    assert done == 1 if mark.startswith("sink.after") else done in (0, 1)
    assert flow.run(until="idle") == (2 if done else 0), "epochs 3 and 4 are taken again"
    shop.check(flow)
    shop.run(flow, 2)
    shop.check(flow)
    flow.close()


MARKS = {"rewind.undone": 1, "epoch.ran": 4, "epoch.complete": 4, "sink.before_commit": 8, "sink.after_commit": 8}
"""How often a rewind comes to which mark: one epoch undoes three, and those are taken again; two sinks."""


def _orders(root: Path) -> None:
    (root / "orders").mkdir()
    for n in range(4):
        (root / "orders" / f"{n}.csv").write_text(f"ada,{n}\nbob,{10 - n}\n")
        os.utime(root / "orders" / f"{n}.csv", (1_700_000_000 + n, 1_700_000_000 + n))
    (root / "orders" / "bad.csv").write_text("eve,1000\nada,1000\n")
    os.utime(root / "orders" / "bad.csv", (1_700_000_002, 1_700_000_002))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    root = tmp_path_factory.mktemp("killed")
    _orders(root)
    return Stage(APP, root)


@pytest.mark.slow
def test_every_mark_that_a_rewind_comes_to_is_one_at_which_it_is_killed(stage: Stage) -> None:
    stage.check_marks("rewind", MARKS)


@pytest.mark.slow
@pytest.mark.parametrize("mark", every(MARKS))
def test_a_process_that_is_killed_while_it_rewinds_has_given_each_row_once(stage: Stage, mark: str) -> None:
    spend = [["ada", 0 + 1 + 2 + 3 + 100], ["bob", 10 + 9 + 8 + 7]]
    stage.check_killed("rewind", "rewinding", mark, spend)
