"""What-if: the recorded history fed to a branch, with the views as they are or with others, and the two compared."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app

_asked = itertools.count()

VIEWS = {
    "spend": "SELECT user, sum(amount) AS total, count(*) AS orders FROM orders GROUP BY user",
    "top": "SELECT user, total FROM spend ORDER BY total DESC, user LIMIT 2",
    "named": "SELECT o.id, p.name, o.amount * 1.5D AS gross FROM orders o JOIN people p ON o.user = p.user",
    "drawn": "SELECT id, rand(7) AS chance, asked(id) AS answer FROM orders",
    "recent": "SELECT user, count(*) AS n FROM orders WHERE ts > now() - INTERVAL 1 DAY GROUP BY user",
    "visits": "SELECT page, count(*) AS n FROM clicks GROUP BY page",
}


class Market:
    """A flow with pushed rows, rows with a key, files, chance, the clock, and answers from outside."""

    def __init__(self, spark: SparkSession, root: Path, log: str = "log") -> None:
        self.root, self._chance = root, random.Random(5)
        (root / "clicks").mkdir(exist_ok=True)
        self.spark = spark
        self.flow = hf.Flow("market", log=root / log, spark=spark, partitions=2)
        self.declare(self.flow)

    def declare(self, flow: hf.Flow, **views: str) -> None:
        self.orders = flow.input("orders", "id long, user string, amount double, ts timestamp")
        self.people = flow.input("people", "user string, name string", key="user")
        flow.source("clicks", hf.files(self.root / "clicks", format="csv", schema="page string, n int"))
        flow.udf("asked", hf.nondeterministic(lambda each: next(_asked)), returns="long")
        for name, sql in {**VIEWS, **views}.items():
            flow.view(name, sql)
        self._there: list[Any] = []
        self._made = 0

    def epoch(self) -> None:
        """Rows come and go, names change, a file arrives."""
        from datetime import UTC, datetime

        come = [
            (self._made * 10 + n, f"u{self._chance.randrange(4)}", float(self._chance.randrange(50)), datetime.now(UTC))
            for n in range(3)
        ]
        if len(self._there) > 4:
            self.orders.delete([self._there.pop(self._chance.randrange(len(self._there)))])
        self.orders.insert(come)
        self._there += come
        self.people.upsert([(f"u{self._made % 4}", f"name {self._made}")])
        (self.root / "clicks" / f"{self._made:03}.csv").write_text(f"p{self._made % 3},1\np0,2\n")
        self._made += 1
        assert not self.flow.step().idle


def rows(flow: hf.Flow, view: str, at: int | None = None) -> Counter[Any]:
    return Counter(map(tuple, flow.read(view, at=at).collect()))


@pytest.fixture(scope="module")
def market(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    made = Market(spark, tmp_path_factory.mktemp("market"))
    for _ in range(8):
        made.epoch()
    yield made
    made.flow.close()


def test_a_replay_gives_the_rows_of_the_main_line_bit_for_bit(market: Market) -> None:
    """Also those that chance, the clock and functions from outside have made."""
    branch = market.flow.branch("same", at=2)
    asked = next(_asked)
    told: list[int | None] = []
    assert branch.replay(on_epoch=lambda each: told.append(each.epoch)) == 5 and told == [3, 4, 5, 6, 7]
    assert next(_asked) == asked + 1, "nobody was asked again"
    for view in VIEWS:
        for epoch in (4, 7):
            assert rows(branch, view, epoch) == rows(market.flow, view, epoch), (view, epoch)
        compared = hf.compare(market.flow, branch, view)
        assert compared.equal and compared.epoch == 7 and compared.frame is not None and compared.frame.count() == 0
    market.flow.remove_branch("same")


def test_a_changed_view_on_a_branch_is_that_of_a_fresh_flow(market: Market) -> None:
    cheaper = VIEWS["spend"].replace("sum(amount)", "sum(amount * 0.5D)")
    branch = market.flow.branch("cheaper", at=3)
    branch.view("spend", cheaper)
    branch.view("big", "SELECT id FROM orders WHERE amount > 25")
    assert branch.replay() == 4
    fresh = hf.Flow("fresh", log=market.root / "fresh", spark=market.spark, partitions=2)
    orders = fresh.input("orders", "id long, user string, amount double, ts timestamp")
    fresh.view("spend", cheaper).view("top", VIEWS["top"]).view("big", "SELECT id FROM orders WHERE amount > 25")
    orders.insert(market._there)
    fresh.step()
    for view in ("spend", "top", "big"):
        assert rows(branch, view) == rows(fresh, view), view
    assert rows(branch, "named") == rows(market.flow, "named"), "what was not changed is as it was"
    fresh.close()
    found = hf.compare(market.flow, branch, "spend")
    users = {row[0] for row in rows(market.flow, "spend")}
    assert found.key == ("user",) and found.counts == {"here": 0, "there": 0, "changed": len(users)}
    assert found.frame is not None and found.frame.count() == 2 * len(users)
    assert "changed, by user: " in str(found) and "only in cheaper: 0" in str(found)
    told = _json("diff", str(market.root / "log"), "main", "cheaper", "spend", "--json")
    assert told["counts"]["changed"] == len(users) and len(told["rows"]) == 2 * len(users)
    each = CliRunner().invoke(
        app, ["diff", str(market.root / "log"), "main", "cheaper", "spend", "--since", "4", "--json"]
    )
    assert [json.loads(line)["epoch"] for line in each.output.splitlines()] == [5, 6, 7], each.output
    text = CliRunner().invoke(app, ["diff", str(market.root / "log"), "main", "cheaper", "named"]).output
    assert "have the same rows" in text
    with pytest.raises(hf.UnknownName, match="did you mean 'user'"):
        hf.compare(market.flow, branch, "spend", by="usr")
    listed = _json("branch", str(market.root / "log"), "--json")["branches"]
    assert [(each["name"], each["root"]) for each in listed] == [("cheaper", 3)] and listed[0]["bytes"] > 0
    assert "cheaper" in CliRunner().invoke(app, ["branch", str(market.root / "log")]).output
    assert _json("status", str(market.root / "log" / "branches" / "cheaper"), "--json")["epoch"] == 7
    market.flow.remove_branch("cheaper")


def test_rows_are_compared_whatever_their_columns_are_called(spark: SparkSession, tmp_path: Path) -> None:
    """Names that begin with ``_``, those that a comparison adds itself, and numbers that JSON has no word for."""
    with hf.Flow("odd", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        orders = flow.input("orders", "_id long, amount double, at date")
        flow.view("odd", "SELECT _id, count(*) AS _count, max(amount) AS _side, max(at) AS at FROM orders GROUP BY _id")
        orders.insert([(1, 2.0, date(2024, 1, 1))])
        flow.step()
        branch = flow.branch("other")
        orders.insert([(1, float("nan"), date(2024, 1, 2))])
        flow.step()
        branch.view("odd", "SELECT _id, 5L AS _count, max(amount) AS _side, max(at) AS at FROM orders GROUP BY _id")
        branch.replay()
        found = hf.compare(flow, branch, "odd")
        assert found.key == ("_id",) and found.counts == {"here": 0, "there": 0, "changed": 1}
        assert "_id=1, _count=2, _side=nan" in str(found) and "_id=1, _count=5, _side=nan" in str(found)
        assert found.frame is not None
        assert found.frame.columns == found.rows.column_names
        assert found.rows.column_names == ["_id", "_count", "_side", "at", "__side", "_change", "__count"]
        assert [row[:2] for row in found.frame.collect()] == [(1, 2), (1, 5)]
        told = _json("diff", str(tmp_path / "log"), "main", "other", "odd", "--json")
        assert (told["here"], told["there"], told["counts"]["changed"]) == ("main", "other", 1)
        assert [(row["_side"], row["at"]) for row in told["rows"]] == [("NaN", "2024-01-02")] * 2


def _json(*call: str) -> Any:
    result = CliRunner().invoke(app, list(call))
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_branch_that_took_input_of_its_own_is_not_fed_any_more(market: Market) -> None:
    branch = market.flow.branch("own", at=5)
    orders = branch.input("orders", "id long, user string, amount double, ts timestamp")
    assert orders is not market.orders
    assert branch.replay(to=6) == 1
    before = rows(market.flow, "spend")
    orders.insert([(999, "u9", 1.0, None)])
    assert branch.step().epoch == 7
    assert ("u9", 1.0, 1) in rows(branch, "spend") and rows(market.flow, "spend") == before
    market.epoch()
    with pytest.raises(hf.DeclarationError, match="epoch 7 took input of its own"):
        branch.replay()
    market.flow.remove_branch("own")


def test_what_goes_wrong_on_a_first_branch_is_said_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("first", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        with pytest.raises(hf.EpochUnavailable, match="no epoch has run yet"):
            hf.compare(flow, flow, "spend")
        for number in range(2):
            orders.insert([("ada", number)])
            flow.step()
        assert flow.status().latency.p99 >= flow.status().latency.median > 0
        with pytest.raises(hf.errors.ArgumentError, match="an epoch, a datetime, or None for now, not 'yesterday'"):
            flow.branch("wrong", at="yesterday")  # type: ignore[arg-type]
        with pytest.raises(hf.EpochUnavailable, match=r"had no epoch yet at 2000-01-01 .*: epoch 0 is its first, at"):
            flow.branch("wrong", at=datetime(2000, 1, 1))
        branch = flow.branch("tweaked", at=0)
        branch.view("spend", "SELECT user, max(amount) AS total FROM orders GROUP BY user").view(
            "n", "SELECT count(*) AS n FROM spend"
        )
        with pytest.raises(hf.UnknownName, match="compare: flow 'first': view 'n' not found"):
            hf.compare(flow, branch, "n")
        assert branch.step().epoch == 1, "its own epoch: the edit, and no input"
        with pytest.raises(hf.DeclarationError, match=r"epoch 1 was run by step\(\) or run\(\), and not by replay\(\)"):
            branch.replay()
        flow.remove_branch("tweaked")
        with pytest.raises(hf.DeclarationError, match="'first/tweaked' is closed: the branch was removed"):
            branch.read("spend")


def test_the_command_line_makes_and_removes_branches_of_a_flow_that_rests(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("small", log=tmp_path / "log", spark=spark, partitions=2)
    orders = flow.input("orders", "user string, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    for n in range(3):
        orders.insert([("ada", n + 1)])
        flow.step()
    busy = CliRunner().invoke(app, ["branch", str(tmp_path / "log"), "--create", "early"])
    assert busy.exit_code == 1
    flow.close()
    made = _json("branch", str(tmp_path / "log"), "--create", "early", "--at", "1", "--json")["branches"]
    assert [(each["name"], each["root"]) for each in made] == [("early", 1)]
    told = _json("diff", str(tmp_path / "log"), "main", "early", "spend", "--at", "1", "--json")
    assert told["rows"] == []
    # Before anything of its own is there, what the location shares is enough.
    shutil.rmtree(tmp_path / "log" / "branches" / "early" / "traces")
    assert hf.read(tmp_path / "log" / "branches" / "early", "spend").to_pylist() == [{"user": "ada", "total": 3}]
    assert _json("branch", str(tmp_path / "log"), "--remove", "early", "--json") == {"branches": []}
    assert CliRunner().invoke(app, ["branch", str(tmp_path / "log"), "--remove", "early"]).exit_code == 1
    assert "no branches" in CliRunner().invoke(app, ["branch", str(tmp_path / "log")]).output


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_branch_from_a_random_epoch_comes_to_the_same_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    made = Market(spark, tmp_path)
    for _ in range(chance.randrange(4, 14)):
        made.epoch()
    last = made._made - 1
    branch = made.flow.branch("random", at=chance.randrange(last))
    for _ in range(chance.randrange(3)):
        made.epoch()
    branch.replay()
    for view in VIEWS:
        assert rows(branch, view) == rows(made.flow, view), (seed, view)
    branch.close()
    made.flow.close()


CHANGED = {
    "spend": [
        "SELECT user, sum(amount * 0.5D) AS total, count(*) AS orders FROM orders WHERE amount < 40 GROUP BY user",
        "SELECT user, max(amount) AS total, count(DISTINCT amount) AS orders FROM orders GROUP BY user",
    ],
    "named": ["SELECT o.id, p.name, o.amount AS gross FROM orders o LEFT JOIN people p ON o.user = p.user"],
    "visits": ["SELECT page, sum(n) AS n FROM clicks GROUP BY page HAVING sum(n) > 2"],
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_views_changed_on_a_branch_at_random_are_what_spark_says(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Some before it is fed, some in the middle; views that read them follow. Both lines go on side by side."""
    chance = random.Random(f"changed {seed}")
    made = Market(spark, tmp_path)
    for _ in range(chance.randrange(4, 12)):
        made.epoch()
    branch = made.flow.branch("tweaked", at=chance.randrange(made._made - 1))
    expected = dict(VIEWS)
    for view in chance.sample(sorted(CHANGED), chance.randrange(1, 4)):
        expected[view] = chance.choice(CHANGED[view])
        if chance.random() < 0.5:
            branch.replay(to=chance.randrange(branch.status().epoch, made.flow.status().epoch + 1))
        branch.view(view, expected[view])
        made.epoch()
    branch.replay()
    spend = f"({expected['spend']})"
    for view in ("spend", "top", "named", "visits"):
        text = expected[view].replace("FROM spend", f"FROM {spend} AS spend")
        assert rows(branch, view) == Counter(map(tuple, made.flow.sql(text).collect())), (seed, view)
        text = VIEWS[view].replace("FROM spend", f"FROM ({VIEWS['spend']}) AS spend")
        assert rows(made.flow, view) == Counter(map(tuple, made.flow.sql(text).collect())), (seed, view)
    branch.close()
    made.flow.close()
