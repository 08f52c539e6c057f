"""What a flow logs: a line per epoch, and one per recovery, with the fields that a program needs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf
from logged import heard


def _open(spark: SparkSession, home: Path) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow("logged", log=[home / "copy"], local=home / "local", spark=spark, partitions=1)
    rows = flow.input("t", schema="k long")
    flow.view("v", "SELECT k, count(*) AS n FROM t GROUP BY k")
    return flow, rows


def test_epochs_and_recoveries_are_logged_with_their_fields(spark: SparkSession, tmp_path: Path) -> None:
    flow, rows = _open(spark, tmp_path)
    with flow, heard(logging.DEBUG) as records:
        rows.insert([(1,), (2,)])
        flow.step()
        assert flow.step().idle
    epochs = [vars(record) for record in records if record.name == "holdfast.epochs"]
    assert [fields["levelname"] for fields in epochs] == ["DEBUG"], "an idle step is no epoch"
    assert epochs[0]["flow"] == "logged" and epochs[0]["epoch"] == 0 and epochs[0]["rows_in"] == 2
    assert epochs[0]["changed"] == {"v": 2} and epochs[0]["seconds"] > 0 and epochs[0]["approximate"] is False
    assert not [record for record in records if record.name == "holdfast.recovery"], "there was nothing to recover"

    shutil.rmtree(tmp_path / "local")
    flow, _ = _open(spark, tmp_path)
    with flow, heard(logging.INFO) as records:
        flow.open()
    (record,) = [record for record in records if record.name == "holdfast.recovery"]
    fields = vars(record)
    assert record.levelno == logging.INFO and "recovered up to epoch 0" in record.getMessage()
    assert fields["flow"] == "logged" and fields["layers_fetched"] > 0 and fields["epochs"] == ()
