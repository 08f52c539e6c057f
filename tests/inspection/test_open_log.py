"""``hf.open_log``: all views as of one epoch, without Spark and without a lock, whatever the flow does meanwhile."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import EpochUnavailable, HoldfastError, ScanNeeded, UnknownName
from holdfast.task.view_log import ViewLog
from holdfast.trace.name import ALL

from .conftest import Shop, flip, layer


def test_a_reader_stays_at_its_epoch_until_it_is_refreshed(spark: Any, tmp_path: Path) -> None:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        flow.view("everything", "SELECT sum(amount) AS total FROM orders")
        orders.insert([("ada", 1)])
        flow.step()
        with hf.open_log(tmp_path / "log") as late, hf.open_log(tmp_path / "log") as early:
            assert early.lookup("spend", user="ada").row == {"user": "ada", "total": 1}
            for amount in range(2, 30):
                orders.insert([("ada", amount), (f"u{amount}", 1)])
                flow.step()
                flow._engine.upkeep()  # type: ignore[union-attr]  # merges are done, and their files removed
            assert not list((tmp_path / "log" / "traces").glob("*-log-*/000000000000-000000000000-*"))
            for reader in (early, late):  # one has files open that are gone; the other has none
                assert reader.epoch == 0
                assert reader.lookup("spend", user="ada").row == {"user": "ada", "total": 1}
                assert reader.arrow("everything").to_pylist() == [{"total": 1}]
                with pytest.raises(EpochUnavailable, match=r"this reader is at epoch 0, and epoch 2 is later; refresh"):
                    reader.arrow("everything", at=2)
                assert reader.lookup("spend", user="u5").row is None
            assert early.refresh() == 28 == flow.status().epoch and late.epoch == 0
            assert early.lookup("spend", user="ada").row == flow.lookup("spend", user="ada").row
            assert early.arrow("everything").to_pylist() == [{"total": sum(range(30)) + 28}]
            assert early.arrow("everything", at=2).to_pylist() == [{"total": 8}]
            assert early.refresh() == 28
        with pytest.raises(HoldfastError, match=r"this reader is closed; hf.open_log opens another"):
            early.lookup("spend", user="ada")


def test_a_reader_whose_epoch_was_folded_says_that_it_is_not_retained(spark: Any, tmp_path: Path) -> None:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1, retain=1) as flow:
        flow._settings = replace(flow._settings, fold=1)
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        orders.insert([("ada", 1)])
        flow.step()
        reader = hf.open_log(tmp_path / "log")
        deadline = time.monotonic() + 60.0
        while flow._started().history.digest(0) is not None:
            assert time.monotonic() < deadline, "epoch 0 was not folded"
            orders.insert([("ada", 1)])
            flow.step()
            flow.wait_safe()
            flow._started().upkeep()
        with pytest.raises(EpochUnavailable, match=r"epoch 0 is behind what the flow retains by now; refresh\(\) goes"):
            reader.arrow("spend")
        reader.refresh()
        assert reader.arrow("spend").num_rows == 1
        reader.close()


def test_changes_are_those_of_the_flow_across_an_edit(spark: Any, tmp_path: Path) -> None:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        orders = flow.input("orders", "user string, amount long")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        for amount in range(3):
            orders.insert([("ada", amount), ("bob", 1)])
            flow.step()
        flow.view("spend", "SELECT user, 10 * sum(amount) AS total FROM orders GROUP BY user")
        orders.insert([("cid", 7)])
        flow.step()
        with hf.open_log(tmp_path / "log") as reader:
            for since in (-1, 0, 1, 2, 3):
                expected = [row.asDict() for row in flow.changes("spend", since).collect()]
                assert _bag(reader.changes("spend", since).to_pylist()) == _bag(expected), since


def _bag(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(sorted(row.items())) for row in rows)


def test_log_locations_will_do_and_make_up_for_each_others_damage(shop: Shop) -> None:
    with hf.open_log(shop.work) as here:
        rows, found = here.arrow("spend"), here.lookup("spend", ["u1", "u9"]).table
    with hf.open_log(shop.a) as reader:
        assert reader.flow == "shop" and reader.views == ("spend", "top") and reader.epoch == 3
        assert reader.key("spend") == ("user",)
        assert reader.arrow("spend").equals(rows) and reader.lookup("spend", ["u1", "u9"]).table.equals(found)
        assert reader.arrow("top", at=1).equals(hf.read(shop.work, "top", 1))
    flip(layer(shop.a))
    with hf.open_log(shop.a, others=[shop.b]) as reader:
        assert reader.lookup("spend", ["u1", "u9"]).table.equals(found)
    flip(layer(shop.work))
    with hf.open_log(shop.work, others=[shop.b]) as reader:
        assert reader.lookup("spend", ["u1", "u9"]).table.equals(found)


def test_layers_that_were_fetched_stay_while_another_thread_reads_as_of_another_epoch(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "fetched"))
    (tmp_path / "fetched").mkdir()

    def fetched() -> int:
        return len(list((tmp_path / "fetched").iterdir()))

    with hf.open_log(shop.a) as reader:

        def slowly(kept: ViewLog, epoch: int) -> list[dict[str, Any]]:
            with ThreadPoolExecutor(1) as other:  # asks before this one reads
                assert other.submit(reader.arrow, "spend", at=2).result().num_rows == 4
            return kept.rows(0, ALL, epoch).to_pylist()

        assert _bag(reader.with_log("spend", 1, slowly)) == _bag(hf.read(shop.work, "spend", 1).to_pylist())
        assert fetched() == 1, "what nobody reads any more is gone"

        def closing(kept: ViewLog, epoch: int) -> int:
            reader.close()
            return kept.rows(0, ALL, epoch).num_rows

        assert reader.with_log("spend", 3, closing) == 4
    assert fetched() == 0


def test_other_tools_get_the_rows_by_name(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with hf.open_log(shop.work) as reader:
        assert reader.pandas("spend").shape == (4, 2)
        assert reader.polars("spend").sort("user").rows() == sorted(
            zip(*reader.arrow("spend").to_pydict().values(), strict=True)
        )
        joined = "SELECT count(*), sum(spend.total - top.total) FROM spend JOIN top USING (user)"
        assert reader.duckdb().sql(joined).fetchall() == [(2, 0.0)]
        assert reader.duckdb("top", at=0).sql("SELECT user FROM top ORDER BY total DESC").fetchall() == [
            ("u0",),
            ("u9",),
        ]
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(HoldfastError, match="the package 'polars' is not installed; pip install polars"):
            reader.polars("spend")


def test_it_needs_no_spark_takes_no_lock_and_changes_nothing(shop: Shop) -> None:
    before = shop.bytes()
    program = (
        f"import holdfast as hf, sys; log = hf.open_log({str(shop.work)!r}); print(log.lookup('spend', user='u9').row, "
        "log.changes('top', 2).num_rows, log, 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = "LogReader('shop', "
    assert done.stdout.startswith(f"{{'user': 'u9', 'total': 2.0}} 2 {said}") and done.stdout.endswith("False\n")
    assert shop.bytes() == before


def test_what_cannot_be_read_says_why(shop: Shop) -> None:
    with hf.open_log(shop.work) as reader:
        with pytest.raises(UnknownName, match="keeps no view 'spent'; did you mean 'spend'"):
            reader.lookup("spent", user="u1")
        with pytest.raises(ScanNeeded, match="kept by user, and were asked for by total"):
            reader.lookup("spend", total=1.0)
        assert reader.lookup("spend", total=2.0, scan=True).scanned
        with pytest.raises(EpochUnavailable, match="there is no epoch 9; epochs 0 to 3 are complete"):
            reader.arrow("spend", at=9)
