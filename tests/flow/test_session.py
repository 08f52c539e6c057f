"""The session is part of what a view means: the time zone is kept with the flow, other dialects of SQL are refused."""

from __future__ import annotations

import datetime
import json
import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError
from holdfast.log.working_directory import LogDirectory
from holdfast.runtime.description import FlowDescription, recorded_session

ZONE = "spark.sql.session.timeZone"
HOURS = "SELECT id, hour(at) AS h, CAST(at AS STRING) AS s FROM t"
MOMENT = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)


def _session(spark: SparkSession, **settings: str) -> SparkSession:
    own = spark.newSession()
    for name, value in settings.items():
        own.conf.set(name.replace("__", "."), value)
    return own


def test_a_flow_keeps_the_time_zone_in_which_it_first_ran(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zones = ["America/New_York", "Asia/Tokyo"]
    for number, zone in enumerate(zones):
        with hf.Flow("zoned", log=tmp_path / "log", spark=_session(spark, **{ZONE: zone})) as flow:
            t = flow.input("t", "id long, at timestamp")
            flow.view("v", HOURS)
            with caplog.at_level(logging.WARNING, "holdfast"):
                if number:
                    t.delete([(0, MOMENT)])  # computed in the zone of the first run
                t.insert([(number + 1, MOMENT), (number, MOMENT)][: 2 - number])
                flow.step()
            assert sorted(map(tuple, flow.read("v").collect())) == [
                (each, 8, "2024-07-01 08:00:00") for each in ((0, 1), (1, 2))[number]
            ]
    said = [record.getMessage() for record in caplog.records if "goes on" in record.getMessage()]
    assert len(said) == 1 and f"{ZONE}=America/New_York, not Asia/Tokyo" in said[0]
    assert json.loads((tmp_path / "log" / "collections.json").read_text())["session"][ZONE] == "America/New_York"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
    ],
)
def test_a_session_with_another_sql_is_refused_at_the_declaration(
    spark: SparkSession, tmp_path: Path, setting: str, value: str
) -> None:
    flow = hf.Flow("other", log=tmp_path / "log", spark=_session(spark, **{setting: value}))
    flow.input("t", "id long, at timestamp")
    with pytest.raises(DeclarationError, match=rf"{setting}={value}.*spark\.conf\.unset") as raised:
        flow.view("v", HOURS)
    assert raised.value.fields["setting"] == setting
    flow.close()


def test_a_process_prepared_under_another_time_zone_does_not_go_on(tmp_path: Path) -> None:
    """As when no place of the log could be read while the flow was prepared."""
    directory = LogDirectory.open(tmp_path, "zoned", create=True)
    directory.write_collections({"collections": {}, "session": {ZONE: "UTC"}})
    assert recorded_session(tmp_path, []) == {ZONE: "UTC"}
    descriptions = FlowDescription(directory, {})
    descriptions.check_session("zoned", {ZONE: "UTC"})
    with pytest.raises(DeclarationError, match=f"{ZONE}=UTC, .* {ZONE}=Asia/Tokyo"):
        descriptions.check_session("zoned", {ZONE: "Asia/Tokyo"})
    directory.close()
