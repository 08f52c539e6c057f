"""Look-ups by key in a running flow: the rows that a filter over ``flow.read`` gives, without a Spark job."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import (
    ArgumentError,
    EpochUnavailable,
    HoldfastError,
    ScanNeeded,
    SchemaError,
    UnknownName,
)
from holdfast.flow import Flow
from holdfast.runtime.live_views import LiveViews
from holdfast.task.key_lookup import find, question
from holdfast.task.program import partition_range
from holdfast.task.view_log import ViewLog
from holdfast.trace.layer import forget_all

from ..durability.shop import engine


class Shop:
    """A flow with views of several kinds, after three epochs."""

    def __init__(self, flow: Flow, log: Path) -> None:
        self.flow, self.log = flow, log
        self.orders = flow.input("orders", "id long, user string, amount double, day date, price decimal(9,2)")
        users = flow.input("users", "name string, city string", key="name")
        flow.view("spend", "SELECT user, sum(amount) AS total, count(*) AS n FROM orders GROUP BY user")
        flow.view("daily", "SELECT amount, day, user, count(*) AS n FROM orders GROUP BY user, day, amount")
        flow.view("prices", "SELECT price, count(*) AS n FROM orders GROUP BY price")
        flow.view("big", "SELECT id, user FROM orders WHERE amount > 5")
        flow.view("cities", "SELECT u.name, u.city, s.total FROM users u JOIN spend s ON s.user = u.name")
        flow.view("top", "SELECT user, total FROM spend ORDER BY total DESC LIMIT 2")
        flow.view("all_of_it", "SELECT count(*) AS n, sum(amount) AS total FROM orders")
        day = datetime.date(2026, 1, 1)
        users.upsert([("ada", "Paris"), ("bob", "Rome")])
        self.orders.insert([(i, f"u{i % 50}", float(i % 7), day, Decimal(i % 3)) for i in range(300)])
        flow.step()
        self.orders.insert([(1000, "ada", 20.0, day, None), (1001, "bob", -0.0, None, Decimal("1.5"))])
        self.orders.insert([(1002, None, float("nan"), day, Decimal("1.5")), (1003, "bob", 0.0, None, Decimal("2"))])
        flow.step()
        self.orders.delete([(1000, "ada", 20.0, day, None)])
        self.orders.insert([(1004, "ada", 7.0, day, None)])
        flow.step()


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    log = tmp_path_factory.mktemp("lookup") / "log"
    with hf.Flow("shop", log=log, spark=spark, partitions=3) as flow:
        yield Shop(flow, log)


def _jobs(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


def test_a_key_gives_its_row_and_no_spark_job_is_run(shop: Shop, spark: SparkSession) -> None:
    before = _jobs(spark)
    found = shop.flow.lookup("spend", user="ada")
    assert found.row == {"user": "ada", "total": 7.0, "n": 1} and found.epoch == 2 and not found.scanned
    assert shop.flow.lookup("spend", user="nobody").row is None
    assert shop.flow.lookup("spend", user="ada", at=1).row == {"user": "ada", "total": 20.0, "n": 1}
    assert shop.flow.lookup("spend", user="ada", at=0).rows == []
    assert _jobs(spark) == before


def test_many_keys_come_in_their_order_and_once_each(shop: Shop) -> None:
    found = shop.flow.lookup("spend", ["u3", "nobody", "ada", "u1", "u3"])
    assert [row["user"] for row in found] == ["u3", "ada", "u1"]
    assert shop.flow.lookup("spend", []).rows == []
    assert shop.flow.lookup("spend", [{"user": "u3"}]).table.equals(shop.flow.lookup("spend", [("u3",)]).table)
    table = shop.flow.lookup("spend", pa.table({"user": ["u4", "u5"]})).table
    assert table.column("user").to_pylist() == ["u4", "u5"]
    assert shop.flow.lookup("spend", table.select(["user"]).to_pandas()).table.equals(table)


def test_every_key_gives_what_reading_the_view_gives(shop: Shop) -> None:
    for view in ("spend", "daily", "prices", "big", "cities"):
        rows = hf.read(shop.log, view).to_pylist()
        found = shop.flow.lookup(view, rows)
        assert _bag(found.rows) == _bag(rows) and not found.scanned, view


def _bag(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def test_keys_are_equal_as_spark_groups_them(shop: Shop) -> None:
    lookup = shop.flow.lookup
    assert lookup("spend", user=None).row["n"] == 1  # type: ignore[index]
    day = datetime.date(2026, 1, 1)
    assert lookup("daily", user=None, day=day, amount=float("nan")).row["n"] == 1  # type: ignore[index]
    for zero in (0.0, -0.0):
        assert lookup("daily", amount=zero, user="bob", day=None).row["n"] == 2  # type: ignore[index]
    assert lookup("prices", price=Decimal("1.50")).row["n"] == 2  # type: ignore[index]
    assert lookup("prices", price=2).row["n"] == 101  # type: ignore[index]


def test_columns_beside_the_key_filter_what_is_found(shop: Shop) -> None:
    assert len(shop.flow.lookup("spend", user="ada", n=1)) == 1
    assert len(shop.flow.lookup("spend", user="ada", n=2)) == 0
    assert shop.flow.lookup("cities", [{"name": "ada"}], scan=True).row["city"] == "Paris"  # type: ignore[index]


def test_a_question_that_needs_a_scan_says_so(shop: Shop, spark: SparkSession) -> None:
    with pytest.raises(
        ScanNeeded, match=r"view 'spend': its rows are kept by user, and were asked for by n: that needs a scan of the"
    ) as raised:
        shop.flow.lookup("spend", n=6)
    assert raised.value.fields["key"] == ("user",) and raised.value.fields["given"] == ("n",)
    with pytest.raises(ScanNeeded, match="kept by id, user, and were asked for by user"):
        shop.flow.lookup("big", user="u6")
    with pytest.raises(ScanNeeded, match="kept by no column"):
        shop.flow.lookup("all_of_it", n=6)
    before = _jobs(spark)
    found = shop.flow.lookup("spend", n=6, scan=True)
    assert found.scanned and {row["user"] for row in found} == {f"u{i}" for i in range(50)}
    assert (
        len(shop.flow.lookup("big", user="u6", scan=True))
        == shop.flow.sql("SELECT * FROM big WHERE user = 'u6'").count()
    )
    assert _jobs(spark) > before, "the count is a job; the look-ups are not"


def test_what_cannot_be_looked_up_is_refused_with_what_to_do(shop: Shop) -> None:
    lookup = shop.flow.lookup
    with pytest.raises(UnknownName, match="column 'usr' not found; did you mean 'user'"):
        lookup("spend", usr="ada")
    with pytest.raises(UnknownName, match="view 'spent' not found; did you mean 'spend'"):
        lookup("spent", user="ada")
    with pytest.raises(SchemaError, match=r"column 'user': expected string, found 5 \(int\)"):
        lookup("spend", user=5)
    with pytest.raises(ArgumentError, match=r"give the key by names \(user=…\) or a list of keys, one of the two"):
        lookup("spend")
    with pytest.raises(ArgumentError, match="one of the two"):
        lookup("spend", ["ada"], user="ada")
    with pytest.raises(EpochUnavailable, match="there is no epoch 99; epochs 0 to 2 are complete"):
        lookup("spend", user="ada", at=99)
    with pytest.raises(HoldfastError, match=r"expected one row, found 50; .rows has all of them"):
        _ = lookup("spend", n=6, scan=True).row


def test_a_damaged_layer_is_repaired_and_the_look_up_answered(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        orders = flow.input("orders", "user string, amount double")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        with pytest.raises(EpochUnavailable, match="no epoch has run yet"):
            flow.lookup("spend", user="ada")
        orders.insert([("ada", 1.0)])
        flow.step()
        flow.wait_safe()
        layer = max((tmp_path / "log" / "traces").glob("*-log-0.rows/*.arrow"))
        held = bytearray(layer.read_bytes())
        held[len(held) // 2] ^= 1
        layer.unlink()
        layer.write_bytes(held)
        forget_all()
        assert flow.lookup("spend", user="ada").row == {"user": "ada", "total": 1.0}


def test_a_flow_that_is_not_open_is_opened_for_a_look_up(spark: SparkSession, tmp_path: Path) -> None:
    def made() -> Flow:
        flow = hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1)
        flow.input("orders", "user string, amount double").insert([("ada", 1.0)])
        return flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")

    with made() as flow:
        flow.step()
    with made() as flow:
        assert flow.lookup("spend", user="ada").row == {"user": "ada", "total": 1.0}
        flow.step()
        assert flow.lookup("spend", user="ada").row == {"user": "ada", "total": 2.0}


class Hosts(ViewLog):
    """A log whose partitions are asked one by one, and answer in any order."""

    def over(self, low: int, high: int, read: Any) -> pa.Table:
        plain = ViewLog(self.directory, self.spec, self.fields, self.chain)
        ranges = [partition_range(number, 5) for number in (3, 0, 4, 2, 1)]
        inside = [(max(low, left), min(high, right)) for left, right in ranges if left < high and low < right]
        return pa.concat_tables([read(plain, *each) for each in inside])


def test_rows_come_in_the_order_of_the_keys_whichever_host_has_them(shop: Shop) -> None:
    kept, epoch = engine(shop.flow).views.readable("spend", None)
    users = [f"u{number}" for number in (7, 3, 41, 0, 12, 3)]
    asked = question("spend", kept.fields, kept.spec.key, users, {}, False)
    found = find(Hosts(kept.directory, kept.spec, kept.fields, kept.chain), epoch, asked)
    assert found.column("user").to_pylist() == users[:-1] == [row["user"] for row in shop.flow.lookup("spend", users)]


def test_a_view_is_looked_up_as_it_was_before_an_edit(spark: SparkSession, tmp_path: Path) -> None:
    """Also if it was kept by no column then, and not if its columns have taken each other's names since."""
    with hf.Flow("edited", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        people = flow.input("people", "id long, user string, city string")
        flow.view("v", "SELECT count(*) AS n FROM people").view("w", "SELECT user, city FROM people")
        people.insert([(1, "ada", "Bern"), (2, "bob", "Rome"), (3, "cid", "Bern")])
        flow.step()
        flow.view("v", "SELECT id AS n FROM people").view("w", "SELECT city, user FROM people")
        people.insert([(4, "eve", "Oslo")])
        flow.step()
        assert flow.lookup("v", n=3, at=0).rows == [{"n": 3}] and flow.lookup("v", n=4).rows == [{"n": 4}]
        with hf.open_log(tmp_path / "log") as reader:
            assert reader.lookup("v", n=3, at=0).rows == [{"n": 3}]
            for read in (
                lambda: flow.lookup("w", user="ada", city="Bern", at=0),
                lambda: flow.read("w", at=0),
                lambda: flow.changes("w", since=0),
                lambda: reader.arrow("w", at=0),
            ):
                with pytest.raises(EpochUnavailable, match=r"\(user string, city string, and now city string, user st"):
                    read()
        assert flow.lookup("w", user="eve", city="Oslo").rows == [{"city": "Oslo", "user": "eve"}]


def test_an_edit_that_no_epoch_has_made_yet_changes_nothing_as_of_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    """Without ``at`` it is seen at once; and a reader elsewhere sees what it saw when it looked."""
    with hf.Flow("edited", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        orders.insert([("ada", 1)])
        flow.step()
        flow.view("spend", "SELECT user, 10 * sum(amount) AS total FROM orders GROUP BY user")
        flow.open()
        reader = hf.open_log(tmp_path / "log")

        def in_turn(at: int | None) -> int:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(LiveViews, "reads_layers", False)
                total: int = flow.lookup("spend", user="ada", at=at).row["total"]
                return total

        reads: dict[str, Callable[[int | None], int]] = {
            "lookup": lambda at: flow.lookup("spend", user="ada", at=at).row["total"],
            "lookup in turn": in_turn,
            "read": lambda at: flow.read("spend", at).collect()[0].total,
            "sql": lambda at: flow.sql("SELECT total FROM spend", at=at).collect()[0].total,
            "reader.lookup": lambda at: reader.lookup("spend", user="ada", at=at).row["total"],
            "reader.arrow": lambda at: reader.arrow("spend", at)["total"][0].as_py(),
            "reader.duckdb": lambda at: reader.duckdb(at=at).sql("SELECT total FROM spend").fetchall()[0][0],
        }
        assert {name: read(None) for name, read in reads.items()} == dict.fromkeys(reads, 10)
        assert {name: read(0) for name, read in reads.items()} == dict.fromkeys(reads, 1)
        changes = flow.subscribe("spend", since=-1, timeout=0)
        outside = reader.subscribe("spend", since=-1, timeout=0)
        given = [[(one.epoch, one.rows) for one in each] for each in (changes, outside)]
        assert given == [[(0, [{"user": "ada", "total": 1, "_diff": 1}])]] * 2
        assert flow.step().epoch == 1, "it makes the edit"
        assert {name: read(0) for name, read in reads.items()} == dict.fromkeys(reads, 1)
        assert reads["reader.lookup"](None) == reads["reader.arrow"](None) == 10
        for each in (flow.subscribe("spend", since=0, timeout=0), outside):
            assert {(row["total"], row["_diff"]) for one in each for row in one.rows} == {(1, -1), (10, 1)}
        reader.close()


def test_a_key_with_a_collation_is_not_compared_by_its_bytes(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("collated", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        people = flow.input("people", "user string")
        flow.view("named", "SELECT user COLLATE UTF8_LCASE AS k, count(*) AS n FROM people GROUP BY ALL")
        people.insert([("Ada",), ("ada",)])
        flow.step()
        with pytest.raises(hf.Unsupported, match=r"column 'k' has a collation .*flow\.sql compares as Spark does"):
            flow.lookup("named", k="ada", scan=True)
        assert flow.sql("SELECT n FROM named WHERE k = 'ADA'").collect()[0].n == 2
