"""What a user sees first: short reprs, pictures in notebooks, rows without Spark, and errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError, EpochUnavailable, UnknownName


def test_a_flow_its_epochs_status_and_recovery_are_one_line_each(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        orders = flow.input("orders", "id long, amount double")
        users = flow.input("users", "id long, name string, seq long", key="id", order_by="seq")
        flow.view("big", "SELECT id FROM orders WHERE amount > 5").view("names", "SELECT name FROM users")
        with pytest.raises(EpochUnavailable, match=r"no epoch has run yet, so there is nothing to read; flow.step\(\)"):
            flow.read("big")
        with pytest.raises(UnknownName, match=r"'orders' is a source; flow.table\('orders'\) reads it"):
            flow.read("orders")
        orders.insert([(1, 9.0), (2, 1.0)])
        users.upsert([(1, "ada", 1), (2, "bob", 1)])
        users.delete_keys([(2, 2)])
        assert repr(flow) == (
            f"Flow('shop', log={tmp_path / 'log'}, sources=['orders', 'users'], views=['big', 'names'])"
        )
        epoch = flow.step()
        assert repr(epoch).startswith("Epoch(0: 5 rows in; changed: big 1, names 1; ") and "\n" not in repr(epoch)
        assert repr(flow.step()) == "Epoch(idle)"
        flow.wait_safe()
        assert repr(flow.status()).startswith(
            "Status(flow: shop; epoch: 0; safe: up to epoch 0; at risk: nothing; waiting: nothing; views: big, names"
        )
        assert "<th>safe</th><td>up to epoch 0</td>" in flow.status()._repr_html_()
        assert repr(flow.last_recovery).startswith("Recovery(up to epoch -1: 0 layers there, 0 fetched; 0 epochs")
        assert "<svg" in flow._repr_html_() and "orders" in flow._repr_html_()
    many = replace(epoch, changed={f"view_{number}": number for number in range(100)})
    assert repr(many).startswith("Epoch(0: 5 rows in; changed: view_0 0, view_1 1, ") and "… 95 more" in repr(many)
    with pytest.raises(DeclarationError, match="input 'orders': flow 'shop' is closed, so these rows would be lost"):
        orders.insert([(3, 1.0)])
    program = (
        f"import holdfast as hf, sys; t = hf.read({str(tmp_path / 'log')!r}, 'big'); print(t.to_pylist(), t.to_pandas()"
        f".shape, hf.read({str(tmp_path / 'log')!r}, 'users', at=0).to_pylist(), 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[{'id': 1}] (1, 1) [{'id': 1, 'name': 'ada', 'seq': 1}] False\n"


def test_a_flow_of_many_views_is_still_one_short_line(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1)
    flow.input("orders", "id long")
    for number in range(40):
        flow.view(f"view_{number}", "SELECT id FROM orders")
    assert repr(flow).endswith("views=['view_0', 'view_1', 'view_2', 'view_3', 'view_4', … 35 more])")
    assert "views: view_0, view_1, view_2, view_3, view_4, … 35 more; sinks: none" in repr(flow.status())
    for line in (repr(flow), repr(flow.status())):
        assert "\n" not in line and len(line) < 400 + len(str(tmp_path))


def test_what_a_look_up_found_and_what_changed_are_one_line_each(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("shop", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        users = flow.input("users", "id long, name string", key="id")
        flow.view("names", "SELECT id, max(name) AS name FROM users GROUP BY id")
        assert "latency: no epoch since the flow was opened" in repr(flow.status())
        users.upsert([(number, f"u{number}") for number in range(9)])
        flow.step()
        assert repr(users) == "KeyedInput('users': id bigint, name string; key id)"
        assert repr(flow.lookup("names", id=3)) == "Found('names' at epoch 0: id 3, name 'u3')"
        assert repr(flow.lookup("names", id=99)) == "Found('names' at epoch 0: no rows)"
        assert "latency: median " in repr(flow.status())
