"""A session that Holdfast starts has what the user configured: a master that was set is never overridden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from holdfast.spark.configuration import arguments, configured, defaults
from holdfast.testing.cluster import Cluster

APP = """\
import json
import holdfast as hf
with hf.Flow("submitted", log="log") as flow:
    orders = flow.input("orders", schema="id long, amount long")
    flow.view("total", "SELECT sum(amount) AS total FROM orders")
    orders.insert([(1, 20), (2, 5)])
    flow.step()
    found = flow.read("total").collect()[0].total
    context = flow._spark.sparkContext
    print(json.dumps({"total": found, "master": context.master, "name": context.appName,
                      "memory": context.getConf().get("spark.driver.memory", "")}))
"""


def test_spark_defaults_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "spark-defaults.conf"
    path.write_text("# note\n\nspark.master   spark://host:7077\nspark.driver.memory=9g\nspark.x: a b = c\nlonely\n")
    assert defaults(path) == {"spark.master": "spark://host:7077", "spark.driver.memory": "9g", "spark.x": "a b = c"}
    assert defaults(tmp_path / "none") == {}


def test_options_of_a_submit_command_are_settings() -> None:
    words = ["--master", "yarn", "--conf", "spark.a=b=c", "--conf=spark.d=e", "--driver-memory", "3g", "pyspark-shell"]
    assert arguments(words) == {"spark.master": "yarn", "spark.a": "b=c", "spark.d": "e", "spark.driver.memory": "3g"}


def test_arguments_come_before_the_environment_and_that_before_nothing(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a 1\nspark.b 1\n")
    environment = {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": "--conf spark.a=2 pyspark-shell"}
    assert configured(environment) == {"spark.a": "2", "spark.b": "1"}
    assert configured({**environment, "MASTER": "local[3]"})["spark.master"] == "local[3]"


@pytest.mark.parametrize(
    ("options", "master"),
    [
        (["--master", "local[3]", "--driver-memory", "777m", "--name", "mine"], "local[3]"),
        ([], "local[*]"),
    ],
)
@pytest.mark.slow
def test_spark_submit_runs_an_app_on_the_master_that_it_names(tmp_path: Path, options: list[str], master: str) -> None:
    found = _submitted(tmp_path, options)
    assert (found["total"], found["master"]) == (25, master)
    if options:
        assert (found["name"], found["memory"]) == ("mine", "777m")


@pytest.mark.slow
def test_spark_submit_runs_an_app_on_a_cluster(tmp_path: Path) -> None:
    with Cluster(workers=1, cores=2, memory=512) as cluster:
        settings = [word for key, value in cluster.settings.items() for word in ("--conf", f"{key}={value}")]
        found = _submitted(tmp_path, ["--master", cluster.master, *settings])
        assert (found["total"], found["master"]) == (25, cluster.master)


@pytest.mark.slow
def test_a_flow_runs_in_the_pyspark_shell(tmp_path: Path) -> None:
    """In its session, which is there already, line by line."""
    shell = Path(pyspark.__file__).parent / "bin" / "pyspark"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment["PYSPARK_DRIVER_PYTHON_OPTS"] = "-i"  # as at a terminal
    lines = APP.replace("    context =", "    assert flow._spark is spark\n    context =") + "\n"
    done = subprocess.run(
        [str(shell), "--master", "local[2]", "--conf", "spark.ui.enabled=false"],
        cwd=tmp_path, env=environment, input=lines, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert '"total": 25, "master": "local[2]"' in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


MANAGED = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "false",
    "spark.rdd.compress": "true",
    "spark.speculation": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": "200",
    "spark.task.maxFailures": "4",
    "spark.ui.enabled": "false",
}
"""What platforms that start the session themselves set in it."""


@pytest.mark.slow
def test_a_flow_runs_in_a_session_that_a_platform_has_started(tmp_path: Path) -> None:
    settings = "".join(f".config({key!r}, {value!r})" for key, value in MANAGED.items())
    lines = f"from pyspark.sql import SparkSession\nSparkSession.builder.master('local[2,4]'){settings}.getOrCreate()\n"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", lines + APP], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert '"total": 25, "master": "local[2,4]"' in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def _submitted(directory: Path, options: list[str]) -> dict[str, Any]:
    """What the app prints that ``spark-submit`` runs with these options."""
    (directory / "app.py").write_text(APP)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [str(submit), *options, "app.py"], cwd=directory, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def test_a_process_without_submit_arguments_has_no_settings_of_them() -> None:
    assert arguments([]) == {}
